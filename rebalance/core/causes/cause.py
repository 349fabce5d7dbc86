"""Causes of waiting: the one enumeration of causes and of stages, with the meaning of each, for how long it is
normal, and what to do: the rows of ``docs/causes.md``.

A cause is told as a text. Its first word is a name of ``Cause``; after a colon the rest says which nodes, which
number, or how long. Metrics and alerts take the first word alone, and an unknown one as OTHER, so no free text
ever becomes a label.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Normality(Enum):
    """SHORTLY: part of ordinary work for a known time. ASKED: somebody has asked for it, and may take it back.
    NEVER: something is wrong."""

    SHORTLY = "SHORTLY"
    ASKED = "ASKED"
    NEVER = "NEVER"


@dataclass(frozen=True, slots=True, eq=False)
class CauseRow:
    """``normal_s``: so long it is nothing to look into; 0 where it never is, or is as long as somebody asks for
    it. ``words``: what is waited for, for people; empty where the cause calls for somebody. ``last_resort``:
    what loses data (``cause_table.advice``)."""

    meaning: str = ""
    action: str = ""
    normality: Normality = Normality.NEVER
    normal_s: int = 0
    words: str = ""
    last_resort: str = ""


def wrong(meaning: str, action: str, last_resort: str = "") -> CauseRow:
    """Never normal."""
    return CauseRow(meaning, action, last_resort=last_resort)


def short(normal_s: int, words: str, meaning: str, action: str) -> CauseRow:
    """Normal for ``normal_s`` seconds."""
    return CauseRow(meaning, action, Normality.SHORTLY, normal_s, words)


def asked(words: str, meaning: str, action: str) -> CauseRow:
    """Normal for as long as somebody wants it."""
    return CauseRow(meaning, action, Normality.ASKED, 0, words)


RESET = "If they never come back, reset the partitions, and read before what that loses: `zonectl recovery`."
LIMIT = "Wait, or raise the limit with `zonectl rebalance limits` or on the page Rebalance."
NODE_LOG = "Read the log of the node that is named, and free or repair what it names; the node keeps trying."
SERVER_LOG = "If it lasts, read the log of the controller that `zonectl status` names."
SPREAD = "If it lasts, check the node that is named: whether it is alive, and the reason of its member."


class Cause(Enum):
    """The groups follow what waits: the installation, an operation, a partition, a step of a move, one copy."""

    # The installation as a whole.
    CATALOG_UNAVAILABLE = wrong(
        "The SQL database of the catalog does not answer; statements are refused. Changes that were committed "
        "continue.",
        "Start the database, or repair the connection to it. Servers recover automatically.",
    )
    METASTORE_UNAVAILABLE = wrong(
        "The metastore does not answer; no move starts. Groups of STRONG_CONSISTENCY zones keep serving. Store "
        "zones stop after 4 s, and HIGH_AVAILABILITY zones after their fence if it hangs instead of refusing "
        "connections; both resume automatically once it answers.",
        "Start the members of the metastore; a majority of them is enough.",
    )
    NO_LEADER = wrong(
        "No controller leads, so nothing is placed or moved. Existing partitions are read and written as "
        "before; a server keeps the ring of the store servers meanwhile, and no group is founded anew "
        "automatically.",
        "Start a controller. Another one takes over when the lease of the last leader has ended.",
    )
    SPARK_DOWN = short(
        60,
        "waits for Spark, and computes placements without it",
        "The Spark driver is not running. Placements are computed by the controller itself.",
        "If it lasts, read the log of the controller: Java, memory and the address of the Spark master.",
    )
    NO_NODE = wrong("No node is alive.", "Start nodes.")
    OUTBOX_LATE = wrong(
        "A version of the catalog has not reached the metastore for 30 s.",
        "Check whether the metastore and the catalog answer, and read the server's log.",
    )
    ZONE_LATE = wrong(
        "A zone has waited for its placement for 30 s.",
        "Read the log of the controller. A large installation may need longer while Spark starts.",
    )
    TASK_ENDED = wrong(
        "A background task of a process ended; it is started again.",
        "Read the log of the process that is named, and report the failure.",
    )
    RECORD_NOT_READABLE = wrong(
        "A key of the metastore cannot be read. What depends on it waits; nothing is overwritten for it.",
        "Repair the key that is named, or upgrade all processes to the build that wrote it.",
    )
    FOREIGN_DIRECTORY = wrong(
        "A directory names another node, or another installation, than the one that was started with it. "
        "Nothing in it is used or changed; the node waits.",
        "Give each node its own directory back; it then continues automatically.",
    )
    FOREIGN_COPY = wrong(
        "A node has a copy of a lost zone whose id a new zone has: catalog and etcd were restored from older "
        "backups while the node was away. It is neither started nor deleted, and the new zone's copy waits.",
        "Stop the node, move the directory of the partition (below `members` or `mirrors`) away, and start the "
        "node again. Of a store server's copies move `store` away: they are filled anew from others.",
    )
    NODE_REMOVED = wrong(
        "A node was started with the directory that it had before `zonectl node remove`. What was in it is on "
        "other nodes; no member and no store server of it is started, and the node waits.",
        "Leave the node stopped, or move its directory away and start it again: it joins as a new node.",
    )
    STORE_DAMAGED = wrong(
        "The file of a store server cannot be read, and no live server has the same copies in sync, or an "
        "earlier such file is still kept. The server waits; where others are in sync it moves its directory "
        "to `store.damaged`, and fills its copies from them.",
        "Start the other servers of the partitions, or put a good file in its place. To give up what only this "
        "server had, move the file away: its partitions are LOST then, and `zonectl recovery reset-lost` goes "
        "on with what is left.",
    )
    METASTORE_FULL = wrong(
        "etcd has no space left and refuses every write.",
        "Compact and defragment it, or raise its quota; then `etcdctl alarm disarm`.",
    )
    STORES_DIFFER = wrong(
        "Catalog, metastore and nodes do not belong together: one of the first two is an older backup, or both "
        "are. Nothing is written.",
        "Run `zonectl metastore status`, then `zonectl metastore adopt`.",
    )
    MOVE_STUCK = wrong(
        "An operation has made no progress for 10 minutes, and no pause or limit explains it.",
        "Check what its partitions wait for: `zonectl operations show`.",
    )
    CERTIFICATE_EXPIRES = wrong(
        "A certificate that a process has loaded, or its authority, expires within seven days.",
        "Replace the file that is named, on the machine of the process, which reloads it automatically.",
    )
    NOT_COUNTED = short(
        30,
        "waits for the server to count all partitions",
        "A server has just started, and has not counted all partitions yet.",
        "If it lasts, read the server's log.",
    )
    DEGRADED = short(
        600,
        "",
        "Partitions serve with fewer replicas in order than wanted, so they can lose fewer nodes.",
        "`zonectl recovery states` names the replicas, with their reasons. Start nodes that are down.",
    )

    # A move that may not begin yet.
    INTENT_NOT_PUBLISHED = short(
        10,
        "waits for the statement to reach the metastore",
        "The catalog's version was committed and is on its way.",
        "If it lasts, check whether the metastore answers (`zonectl status`).",
    )
    NO_DATA_NODES = wrong(
        "No living node matches the zone's filter and storage profiles, or can have all of its options.",
        "Start such a node, or change the zone.",
    )
    PLACEMENT_NOT_COMPUTED = short(
        60,
        "waits for its placement",
        "The assignment is being computed. Without Spark the controller does so itself after ten seconds.",
        SERVER_LOG,
    )
    TARGET_NOT_WRITTEN = short(
        30,
        "waits for a controller to write the assignment",
        "The assignment is computed; a controller is about to write it to the partition.",
        SERVER_LOG,
    )
    PLANNED_NEXT = short(
        600,
        "waits for an earlier move of the partition",
        "An earlier move of the partition ends first.",
        "Check the earlier move: the partition's page shows what it waits for.",
    )
    PAUSED = asked(
        "waits for the end of a pause",
        "The moves of the cluster or of the zone are paused.",
        "Resume with `zonectl rebalance resume`, or wait for the end that is shown.",
    )
    OUTSIDE_WINDOW = asked(
        "waits for its window",
        "Moves begin within windows only, and none is open.",
        "Wait for the time that is shown, or change the windows.",
    )
    OPERATION_RUNS = asked(
        "waits for its turn",
        "One operation moves at a time, and another one goes first.",
        "Wait, or cancel the other operation.",
    )
    CLUSTER_CAP = asked("waits for its turn", "Cluster move limit reached.", LIMIT)
    ZONE_CAP = asked("waits for its turn", "Zone move limit reached.", LIMIT)
    NODE_CAP = asked("waits for its turn", "Node move limit reached.", LIMIT)
    BATCH = asked("waits for the batch before", "The moves of the last batch go on.", LIMIT)
    BANDWIDTH = asked(
        "waits for the rate of bytes",
        "The bandwidth limit is reached; the next move waits.",
        LIMIT,
    )
    NODE_MEMBER_LIMIT = wrong(
        "The node that is named holds as many replicas as it may.",
        "Add nodes, or raise the node's member limit.",
    )
    TIME_LIMIT = wrong(
        "The operation took longer than operations may.",
        "Check what its partitions wait for, and request it again.",
    )

    # A partition, at rest or while it moves.
    NODE_DOWN = short(
        60,
        "",
        "A node of the partition is down. A planned restart takes less than a minute.",
        "Start the node, or wait: its replicas move once the zone's scale-down time has passed.",
    )
    NO_MAJORITY = wrong(
        "Too many voters are gone: the partition takes no puts, and no move of it can go on.",
        "Start the nodes that are named: that loses nothing.",
        last_resort=RESET,
    )
    LEADER_UNKNOWN = short(
        30,
        "waits for the group's leader to be known",
        "The group has elected no leader yet, or the leader has not been published.",
        SPREAD,
    )
    LEADER_HAS_NOT_BEGUN = short(
        30,
        "waits for the group's leader to begin",
        "Everything is ready for the move; the agent of the leader starts it.",
        "If it lasts, read the log of the node that leads.",
    )
    MEMBER_NOT_RESERVED = short(
        30,
        "waits for a node to make room for its replica",
        "The node that is named has not reserved a directory and ports yet.",
        SPREAD,
    )
    MEMBER_STARTING = short(
        60,
        "waits for a replica's process to start",
        "The process of the node that is named runs, and does not answer yet.",
        SPREAD,
    )
    MEMBER_FAILED = wrong("The process of a replica ended, for the reason in parentheses.", NODE_LOG)
    LEARNER_STARTING = short(
        600,
        "waits for a learner to receive its first data",
        "A learner copies from the voters; how long depends on the partition's size.",
        "If no bytes arrive, check the node that is named and its network.",
    )
    LEARNER_FAILED = wrong("A learner's copy failed, for the reason in parentheses.", NODE_LOG)
    CLEAN_UP = short(
        60,
        "removes replicas that are no longer needed",
        "The move has ended; nodes remove what is left of it.",
        "If it lasts, read the log of the node that is named.",
    )
    COPY_FAILED = wrong(
        "Copying the partition failed the maximum number of times; it is retried every ten seconds.",
        "Remove the reason shown, then `zonectl operations resume`, or cancel the operation.",
    )
    COPY_STALLED = wrong(
        "The new replica lives and receives no data.",
        "Check the disk and network of the node that is named, or cancel the operation.",
    )
    JOINER_GONE = wrong(
        "The move ended without nodes that were gone for too long.",
        "Start the nodes that are named: what is missing is requested again when they are back.",
    )
    REPLICAS_MISSING = wrong(
        "The partition has fewer replicas than its zone asks for: a reset, a cancel or a loss left it so.",
        "Start the nodes that are named: what is missing is requested again when they are back. Drain those "
        "that never come back, or set the zone's AUTO SCALE DOWN: others take their places. After a cancel "
        "nothing is requested until the zone or its nodes change; `zonectl operations reverse` takes the "
        "request back.",
    )
    QUORUM_EXCEEDS_DATA_NODES = wrong(
        "Too few nodes match the zone for its QUORUM SIZE, so fewer replicas vote: nodes have left, or "
        "their attributes or profiles have changed. Those that vote go on with a majority of them.",
        "Start nodes that match the zone, or alter it: a smaller QUORUM SIZE, or a NODES FILTER that matches "
        "more.",
    )
    UNREADABLE = wrong(
        "The console could not read the partition.",
        "Read the server's log.",
    )

    # A step of a move.
    CATCHING_UP = short(
        600,
        "waits for a new replica to copy the data",
        "A joining replica copies; how long depends on the partition's size. Voters are not touched yet.",
        "If no bytes arrive, check the joining node and its network.",
    )
    JOINT = short(
        60,
        "replaces voters",
        "The new replicas vote; those that leave are being removed.",
        "If it lasts, check what the stage waits for, after the colon.",
    )
    STABLE = short(
        30,
        "waits for a controller or node to write the new assignment",
        "The group has its new members.",
        SERVER_LOG,
    )
    HEALTH_INTERVAL = short(
        30,
        "waits for etcd's health interval, 5 s",
        "etcd changes a group only when its members have been connected for five seconds.",
        "If it lasts, check whether the group's nodes reach each other's peer ports.",
    )
    MEMBER_NOT_STARTED = short(
        60,
        "waits for a new replica's process to start",
        "The group waits for the member of the node that is named, which does not answer yet.",
        SPREAD,
    )
    MIRROR_NOT_RUNNING = short(
        600,
        "waits for the copy of a voter that becomes a learner",
        "The voter stays until its node has a copy of its own.",
        SPREAD,
    )
    ANSWERS_AWAITED = short(
        30,
        "waits for answers of the group's members",
        "Before each step a majority of the members, before and after it, must have answered.",
        "If it lasts, check whether the group's nodes reach each other's client ports.",
    )
    CATCH_UP_TIMEOUT = short(
        600,
        "waits for a new replica to catch up",
        "More was written than the new replica could copy; the next attempt continues from there.",
        "If it lasts, check the disk and network of the node that is named.",
    )
    LEADER_STEPPED_DOWN = short(
        30,
        "waits for the group's next leader",
        "Leadership moved to another member, which continues the change.",
        "If it repeats, check the disks and the network of the group's nodes.",
    )
    SUPERSEDED = short(
        30,
        "turns to a newer assignment",
        "Another assignment has come while the new replicas copied.",
        SERVER_LOG,
    )
    CANCELLED = asked(
        "goes back to the assignment before",
        "The change was cancelled.",
        "Nothing.",
    )
    METASTORE_SILENT = wrong(
        "The metastore does not answer, so it is unknown whether the step is still wanted.",
        "Start the members of the metastore; a majority of them is enough.",
    )
    TRANSFER_FAILED = wrong(
        "Leadership could not be handed over to the member that is named.",
        "Check that member: its state, its node's disk and network.",
    )
    TIMED_OUT = wrong(
        "A member did not answer in time; the step is tried again.",
        "If it lasts, check the load, the disk and the network of the group's nodes.",
    )
    REFUSED = wrong("etcd refused the step, with the message that is shown.", "Read that message.")
    DEFECT = wrong("An unexpected failure.", "Read the log of the node that leads, and report it.")

    # A partition of a store zone.
    PARTITION_LOST = wrong(
        "No in-sync replica of the partition is left.",
        "Start the nodes that are named: what they have in sync is served again without a reset.",
        last_resort=RESET,
    )
    SERVER_DOWN = short(
        60,
        "",
        "The node's store server is starting, or ends again and again.",
        "If it lasts, read the node's log.",
    )
    SERVER_SILENT = wrong(
        "Other servers do not reach the node's store server. It is marked as failed soon, or answers again.",
        "Check the network between the nodes.",
    )
    OWNERS_AWAITED = wrong(
        "Replicas that have acknowledged writes have not come back.",
        "Start the nodes that are named: they have all acknowledged writes. If they never come back: "
        "`zonectl recovery reset-lost ZONE --confirm-dead NODE,...` gives up what only they have.",
    )
    FILLING = short(
        600,
        "waits for new replicas to be filled",
        "New replicas copy from the primary; how long depends on the partition's size.",
        "If no bytes arrive, check the node that is named and its network.",
    )
    SURPLUS = short(
        60,
        "takes replicas that are no longer needed out of the in-sync set",
        "The new replicas are in sync; the old ones leave.",
        SERVER_LOG,
    )
    ZONE_DEACTIVATED = asked(
        "waits for the zone to be activated",
        "The zone was deactivated.",
        "Activate the zone on its page: its moves go on then.",
    )
    NO_ANSWER = wrong(
        "The store server was asked for its replicas and did not answer.",
        "Check whether its node is alive, and the network.",
    )

    # One copy, as its node tells it.
    WAITING = short(
        60,
        "waits for its group",
        "The replica is ready, but its group has not added it yet.",
        SPREAD,
    )
    WAITING_FOR_MEMBERS = short(
        60,
        "waits for the other replicas to be ready",
        "A new group begins when every node has reserved its replica.",
        SPREAD,
    )
    RECOVERING = short(
        60,
        "founds the group anew",
        "A reset has chosen this replica to found the group.",
        NODE_LOG,
    )
    LEAVING = short(
        60,
        "waits for its group to let it go",
        "The replica is no longer wanted, and its group has not removed it yet.",
        SPREAD,
    )
    LEFT = short(
        60,
        "waits for the new assignment",
        "The group has removed the replica; the new assignment is not written yet.",
        SERVER_LOG,
    )
    FENCED = wrong(
        "The replica may not run: its group may be founded anew elsewhere, or was.",
        "Check whether the node reaches the metastore. A replica of a group that was given up never runs "
        "again.",
    )
    DATA_LOST = wrong(
        "The replica has run before, and its data is gone.",
        "If a majority serves without it, its node rebuilds it automatically, once a day. Check the disk; then "
        "`zonectl recovery restart --cleanup` rebuilds the replica.",
    )
    DISK_FULL = wrong("The node's disk is full.", "Free space on the disk of the node.")
    FULL = wrong(
        "The replica's store is at its quota: the partition takes no puts.",
        "Delete keys of the partition, or raise the member quota of its nodes.",
    )
    NO_DISK = wrong("The node cannot make a directory.", NODE_LOG)
    NO_FREE_PORTS = wrong("The node's range of ports is used up.", "Give the node more ports.")
    NO_CERTIFICATE = wrong(
        "The replica speaks TLS, and its node was given no certificate.",
        "Start the node with its certificate.",
    )
    ENGINES_DIFFER = wrong(
        "The node keeps the zone's profiles with another engine than the group, or with several.",
        "Give the node the engine that is named for the profile.",
    )
    MIRRORS_NOT_KEPT = wrong(
        "The node was started without a place for learners.",
        "Start it with one.",
    )
    ZONE_UNKNOWN = short(
        10,
        "waits for the zone to be known",
        "The zone's intent is not in the metastore yet, or was removed.",
        SERVER_LOG,
    )
    SOURCE = short(
        30,
        "waits for a voter to copy from",
        "The learner has lost the voter that it copied from, and looks for another.",
        SPREAD,
    )
    COPIED_AGAIN = short(
        600,
        "waits for a new copy",
        "The learner's copy could not go on, and is made again.",
        SPREAD,
    )
    COPY_DAMAGED = wrong(
        "The replica's data is damaged. If its group does not need it, its node rebuilds it automatically, "
        "once a day.",
        "Check the disk of the node that is named, then `zonectl recovery restart --cleanup` rebuilds the "
        "replica; if no majority serves without it, first start the nodes of the others.",
    )
    BROKEN = wrong("An unexpected failure.", "Read the log of the node, and report it.")

    NONE = CauseRow()
    OTHER = CauseRow()

    def text(self, detail: str = "") -> str:
        """Text of the cause as it is stored and shown: the name, and ``detail`` after a colon."""
        return f"{self.name}: {detail}" if detail else self.name


STAGES = (Cause.CATCHING_UP, Cause.JOINT, Cause.STABLE)
"""Stages of a group that is being changed: the first word of its cause, before what it waits for."""
OLD_NAMES = {"UNHEALTHY_CLUSTER": Cause.HEALTH_INTERVAL}
"""Names of causes as nodes of earlier builds publish them."""


@dataclass(frozen=True, slots=True)
class CauseLabels:
    """``stage`` is one of ``STAGES``, or NONE; ``cause`` is NONE where a stage goes on without waiting."""

    stage: Cause
    cause: Cause


def cause_of(text: str) -> Cause:
    """The first word of ``text``: NONE for an empty one, OTHER for a word that this build does not know."""
    if not text:
        return Cause.NONE
    word = text.partition(":")[0]
    return OLD_NAMES.get(word) or Cause.__members__.get(word, Cause.OTHER)


def labels_of(text: str) -> CauseLabels:
    """Labels of the cause of a partition's status, which may have a stage before what it waits for."""
    first = cause_of(text)
    if first not in STAGES:
        return CauseLabels(Cause.NONE, first)
    rest = text.partition(": ")[2]
    # What follows a stage may name nodes only.
    waits_for = cause_of(rest) if _LOOKS_LIKE_A_NAME.match(rest) else Cause.NONE
    return CauseLabels(first, Cause.NONE if waits_for is first else waits_for)


def told_cause(text: str) -> Cause:
    """Cause to look up for people: what a stage waits for, or the stage itself."""
    labels = labels_of(text)
    return labels.cause if labels.cause is not Cause.NONE else labels.stage


_LOOKS_LIKE_A_NAME = re.compile("[A-Z][A-Z_]+(:|$)")
