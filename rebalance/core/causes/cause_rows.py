"""Rows of the table of causes: the installation, moves that may not begin, and partitions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rebalance.core.causes.cause import Cause


class Normality(Enum):
    """SHORTLY: part of ordinary work for a known time. ASKED: somebody has asked for it, and may take it back.
    NEVER: something is wrong."""

    SHORTLY = "SHORTLY"
    ASKED = "ASKED"
    NEVER = "NEVER"


@dataclass(frozen=True, slots=True)
class CauseRow:
    """``normal_s``: so long it is nothing to look into; 0 where it never is, or is as long as somebody asks for
    it. ``words``: what is waited for, for people; empty where the cause calls for somebody. ``last_resort``:
    what loses data (``cause_table.advice``)."""

    cause: Cause
    meaning: str
    action: str
    normality: Normality = Normality.NEVER
    normal_s: int = 0
    words: str = ""
    last_resort: str = ""


def wrong(cause: Cause, meaning: str, action: str, last_resort: str = "") -> CauseRow:
    """Never normal."""
    return CauseRow(cause, meaning, action, last_resort=last_resort)


def short(cause: Cause, normal_s: int, words: str, meaning: str, action: str) -> CauseRow:
    """Normal for ``normal_s`` seconds."""
    return CauseRow(cause, meaning, action, Normality.SHORTLY, normal_s, words)


def asked(cause: Cause, words: str, meaning: str, action: str) -> CauseRow:
    """Normal for as long as somebody wants it."""
    return CauseRow(cause, meaning, action, Normality.ASKED, 0, words)


RESET = "If they never come back, reset the partitions, and read before what that loses: `zonectl recovery`."
LIMIT = "Wait, or raise the limit with `zonectl rebalance limits` or on the page Rebalance."
NODE_LOG = "Read the log of the node that is named, and free or repair what it names; the node keeps trying."
SERVER_LOG = "If it lasts, read the log of the controller that `zonectl status` names."
SPREAD = "If it lasts, check the node that is named: whether it is alive, and the reason of its member."

INSTALLATION = (
    wrong(
        Cause.CATALOG_UNAVAILABLE,
        "The SQL database of the catalog does not answer; statements are refused. Changes that were committed "
        "continue.",
        "Start the database, or repair the connection to it. Servers recover automatically.",
    ),
    wrong(
        Cause.METASTORE_UNAVAILABLE,
        "The metastore does not answer; no move starts. Groups of STRONG_CONSISTENCY zones keep serving. Store "
        "zones stop after 4 s, and HIGH_AVAILABILITY zones after their fence if it hangs instead of refusing "
        "connections; both resume automatically once it answers.",
        "Start the members of the metastore; a majority of them is enough.",
    ),
    wrong(
        Cause.NO_LEADER,
        "No controller leads, so nothing is placed or moved. Existing partitions are read and written as "
        "before; a server keeps the ring of the store servers meanwhile, and no group is founded anew "
        "automatically.",
        "Start a controller. Another one takes over when the lease of the last leader has ended.",
    ),
    short(
        Cause.SPARK_DOWN,
        60,
        "waits for Spark, and computes placements without it",
        "The Spark driver is not running. Placements are computed by the controller itself.",
        "If it lasts, read the log of the controller: Java, memory and the address of the Spark master.",
    ),
    wrong(Cause.NO_NODE, "No node is alive.", "Start nodes."),
    wrong(
        Cause.OUTBOX_LATE,
        "A version of the catalog has not reached the metastore for 30 s.",
        "Check whether the metastore and the catalog answer, and read the server's log.",
    ),
    wrong(
        Cause.ZONE_LATE,
        "A zone has waited for its placement for 30 s.",
        "Read the log of the controller. A large installation may need longer while Spark starts.",
    ),
    wrong(
        Cause.TASK_ENDED,
        "A background task of a process ended; it is started again.",
        "Read the log of the process that is named, and report the failure.",
    ),
    wrong(
        Cause.RECORD_NOT_READABLE,
        "A key of the metastore cannot be read. What depends on it waits; nothing is overwritten for it.",
        "Repair the key that is named, or upgrade all processes to the build that wrote it.",
    ),
    wrong(
        Cause.FOREIGN_DIRECTORY,
        "A directory names another node, or another installation, than the one that was started with it. "
        "Nothing in it is used or changed; the node waits.",
        "Give each node its own directory back; it then continues automatically.",
    ),
    wrong(
        Cause.FOREIGN_COPY,
        "A node has a copy of a lost zone whose id a new zone has: catalog and etcd were restored from older "
        "backups while the node was away. It is neither started nor deleted, and the new zone's copy waits.",
        "Stop the node, move the directory of the partition (below `members` or `mirrors`) away, and start the "
        "node again. Of a store server's copies move `store` away: they are filled anew from others.",
    ),
    wrong(
        Cause.NODE_REMOVED,
        "A node was started with the directory that it had before `zonectl node remove`. What was in it is on "
        "other nodes; no member and no store server of it is started, and the node waits.",
        "Leave the node stopped, or move its directory away and start it again: it joins as a new node.",
    ),
    wrong(
        Cause.STORE_DAMAGED,
        "The file of a store server cannot be read, and no live server has the same copies in sync, or an "
        "earlier such file is still kept. The server waits; where others are in sync it moves its directory "
        "to `store.damaged`, and fills its copies from them.",
        "Start the other servers of the partitions, or put a good file in its place. To give up what only this "
        "server had, move the file away: its partitions are LOST then, and `zonectl recovery reset-lost` goes "
        "on with what is left.",
    ),
    wrong(
        Cause.METASTORE_FULL,
        "etcd has no space left and refuses every write.",
        "Compact and defragment it, or raise its quota; then `etcdctl alarm disarm`.",
    ),
    wrong(
        Cause.STORES_DIFFER,
        "Catalog, metastore and nodes do not belong together: one of the first two is an older backup, or both "
        "are. Nothing is written.",
        "Run `zonectl metastore status`, then `zonectl metastore adopt`.",
    ),
    wrong(
        Cause.MOVE_STUCK,
        "An operation has made no progress for 10 minutes, and no pause or limit explains it.",
        "Check what its partitions wait for: `zonectl operations show`.",
    ),
    wrong(
        Cause.CERTIFICATE_EXPIRES,
        "A certificate that a process has loaded, or its authority, expires within seven days.",
        "Replace the file that is named, on the machine of the process, which reloads it automatically.",
    ),
    short(
        Cause.NOT_COUNTED,
        30,
        "waits for the server to count all partitions",
        "A server has just started, and has not counted all partitions yet.",
        "If it lasts, read the server's log.",
    ),
    short(
        Cause.DEGRADED,
        600,
        "",
        "Partitions serve with fewer replicas in order than wanted, so they can lose fewer nodes.",
        "`zonectl recovery states` names the replicas, with their reasons. Start nodes that are down.",
    ),
)

BEFORE = (
    short(
        Cause.INTENT_NOT_PUBLISHED,
        10,
        "waits for the statement to reach the metastore",
        "The catalog's version was committed and is on its way.",
        "If it lasts, check whether the metastore answers (`zonectl status`).",
    ),
    wrong(
        Cause.NO_DATA_NODES,
        "No living node matches the zone's filter and storage profiles, or can have all of its options.",
        "Start such a node, or change the zone.",
    ),
    short(
        Cause.PLACEMENT_NOT_COMPUTED,
        60,
        "waits for its placement",
        "The assignment is being computed. Without Spark the controller does so itself after ten seconds.",
        SERVER_LOG,
    ),
    short(
        Cause.TARGET_NOT_WRITTEN,
        30,
        "waits for a controller to write the assignment",
        "The assignment is computed; a controller is about to write it to the partition.",
        SERVER_LOG,
    ),
    short(
        Cause.PLANNED_NEXT,
        600,
        "waits for an earlier move of the partition",
        "An earlier move of the partition ends first.",
        "Check the earlier move: the partition's page shows what it waits for.",
    ),
    asked(
        Cause.PAUSED,
        "waits for the end of a pause",
        "The moves of the cluster or of the zone are paused.",
        "Resume with `zonectl rebalance resume`, or wait for the end that is shown.",
    ),
    asked(
        Cause.OUTSIDE_WINDOW,
        "waits for its window",
        "Moves begin within windows only, and none is open.",
        "Wait for the time that is shown, or change the windows.",
    ),
    asked(
        Cause.OPERATION_RUNS,
        "waits for its turn",
        "One operation moves at a time, and another one goes first.",
        "Wait, or cancel the other operation.",
    ),
    asked(Cause.CLUSTER_CAP, "waits for its turn", "Cluster move limit reached.", LIMIT),
    asked(Cause.ZONE_CAP, "waits for its turn", "Zone move limit reached.", LIMIT),
    asked(Cause.NODE_CAP, "waits for its turn", "Node move limit reached.", LIMIT),
    asked(Cause.BATCH, "waits for the batch before", "The moves of the last batch go on.", LIMIT),
    asked(
        Cause.BANDWIDTH,
        "waits for the rate of bytes",
        "The bandwidth limit is reached; the next move waits.",
        LIMIT,
    ),
    wrong(
        Cause.NODE_MEMBER_LIMIT,
        "The node that is named holds as many replicas as it may.",
        "Add nodes, or raise the node's member limit.",
    ),
    wrong(
        Cause.TIME_LIMIT,
        "The operation took longer than operations may.",
        "Check what its partitions wait for, and request it again.",
    ),
)

PARTITION = (
    short(
        Cause.NODE_DOWN,
        60,
        "",
        "A node of the partition is down. A planned restart takes less than a minute.",
        "Start the node, or wait: its replicas move once the zone's scale-down time has passed.",
    ),
    wrong(
        Cause.NO_MAJORITY,
        "Too many voters are gone: the partition takes no puts, and no move of it can go on.",
        "Start the nodes that are named: that loses nothing.",
        last_resort=RESET,
    ),
    short(
        Cause.LEADER_UNKNOWN,
        30,
        "waits for the group's leader to be known",
        "The group has elected no leader yet, or the leader has not been published.",
        SPREAD,
    ),
    short(
        Cause.LEADER_HAS_NOT_BEGUN,
        30,
        "waits for the group's leader to begin",
        "Everything is ready for the move; the agent of the leader starts it.",
        "If it lasts, read the log of the node that leads.",
    ),
    short(
        Cause.MEMBER_NOT_RESERVED,
        30,
        "waits for a node to make room for its replica",
        "The node that is named has not reserved a directory and ports yet.",
        SPREAD,
    ),
    short(
        Cause.MEMBER_STARTING,
        60,
        "waits for a replica's process to start",
        "The process of the node that is named runs, and does not answer yet.",
        SPREAD,
    ),
    wrong(Cause.MEMBER_FAILED, "The process of a replica ended, for the reason in parentheses.", NODE_LOG),
    short(
        Cause.LEARNER_STARTING,
        600,
        "waits for a learner to receive its first data",
        "A learner copies from the voters; how long depends on the partition's size.",
        "If no bytes arrive, check the node that is named and its network.",
    ),
    wrong(Cause.LEARNER_FAILED, "A learner's copy failed, for the reason in parentheses.", NODE_LOG),
    short(
        Cause.CLEAN_UP,
        60,
        "removes replicas that are no longer needed",
        "The move has ended; nodes remove what is left of it.",
        "If it lasts, read the log of the node that is named.",
    ),
    wrong(
        Cause.COPY_FAILED,
        "Copying the partition failed the maximum number of times; it is retried every ten seconds.",
        "Remove the reason shown, then `zonectl operations resume`, or cancel the operation.",
    ),
    wrong(
        Cause.COPY_STALLED,
        "The new replica lives and receives no data.",
        "Check the disk and network of the node that is named, or cancel the operation.",
    ),
    wrong(
        Cause.JOINER_GONE,
        "The move ended without nodes that were gone for too long.",
        "Start the nodes that are named: what is missing is requested again when they are back.",
    ),
    wrong(
        Cause.REPLICAS_MISSING,
        "The partition has fewer replicas than its zone asks for: a reset, a cancel or a loss left it so.",
        "Start the nodes that are named: what is missing is requested again when they are back. Drain those "
        "that never come back, or set the zone's AUTO SCALE DOWN: others take their places. After a cancel "
        "nothing is requested until the zone or its nodes change; `zonectl operations reverse` takes the "
        "request back.",
    ),
    wrong(
        Cause.QUORUM_EXCEEDS_DATA_NODES,
        "Too few nodes match the zone for its QUORUM SIZE, so fewer replicas vote: nodes have left, or "
        "their attributes or profiles have changed. Those that vote go on with a majority of them.",
        "Start nodes that match the zone, or alter it: a smaller QUORUM SIZE, or a NODES FILTER that matches "
        "more.",
    ),
    wrong(
        Cause.UNREADABLE,
        "The console could not read the partition.",
        "Read the server's log.",
    ),
)
