"""Meaning of each cause, for how long it is normal, and what to do: the rows of ``docs/causes.md``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from rebalance.core.causes.cause import Cause, told_cause
from rebalance.core.causes.cause_rows import (
    BEFORE,
    INSTALLATION,
    NODE_LOG,
    PARTITION,
    RESET,
    SERVER_LOG,
    SPREAD,
    CauseRow,
    Normality,
    asked,
    short,
    wrong,
)

PAGE = "docs/causes.md"
RESET_AFTER_S = 60.0
"""An exchange ends, and a leader is elected, in less."""

_STEP = (
    short(
        Cause.CATCHING_UP,
        600,
        "waits for a new replica to copy the data",
        "A joining replica copies; how long depends on the partition's size. Voters are not touched yet.",
        "If no bytes arrive, check the joining node and its network.",
    ),
    short(
        Cause.JOINT,
        60,
        "replaces voters",
        "The new replicas vote; those that leave are being removed.",
        "If it lasts, check what the stage waits for, after the colon.",
    ),
    short(
        Cause.STABLE,
        30,
        "waits for a controller or node to write the new assignment",
        "The group has its new members.",
        SERVER_LOG,
    ),
    short(
        Cause.HEALTH_INTERVAL,
        30,
        "waits for etcd's health interval, 5 s",
        "etcd changes a group only when its members have been connected for five seconds.",
        "If it lasts, check whether the group's nodes reach each other's peer ports.",
    ),
    short(
        Cause.MEMBER_NOT_STARTED,
        60,
        "waits for a new replica's process to start",
        "The group waits for the member of the node that is named, which does not answer yet.",
        SPREAD,
    ),
    short(
        Cause.MIRROR_NOT_RUNNING,
        600,
        "waits for the copy of a voter that becomes a learner",
        "The voter stays until its node has a copy of its own.",
        SPREAD,
    ),
    short(
        Cause.ANSWERS_AWAITED,
        30,
        "waits for answers of the group's members",
        "Before each step a majority of the members, before and after it, must have answered.",
        "If it lasts, check whether the group's nodes reach each other's client ports.",
    ),
    short(
        Cause.CATCH_UP_TIMEOUT,
        600,
        "waits for a new replica to catch up",
        "More was written than the new replica could copy; the next attempt continues from there.",
        "If it lasts, check the disk and network of the node that is named.",
    ),
    short(
        Cause.LEADER_STEPPED_DOWN,
        30,
        "waits for the group's next leader",
        "Leadership moved to another member, which continues the change.",
        "If it repeats, check the disks and the network of the group's nodes.",
    ),
    short(
        Cause.SUPERSEDED,
        30,
        "turns to a newer assignment",
        "Another assignment has come while the new replicas copied.",
        SERVER_LOG,
    ),
    asked(
        Cause.CANCELLED,
        "goes back to the assignment before",
        "The change was cancelled.",
        "Nothing.",
    ),
    wrong(
        Cause.METASTORE_SILENT,
        "The metastore does not answer, so it is unknown whether the step is still wanted.",
        "Start the members of the metastore; a majority of them is enough.",
    ),
    wrong(
        Cause.TRANSFER_FAILED,
        "Leadership could not be handed over to the member that is named.",
        "Check that member: its state, its node's disk and network.",
    ),
    wrong(
        Cause.TIMED_OUT,
        "A member did not answer in time; the step is tried again.",
        "If it lasts, check the load, the disk and the network of the group's nodes.",
    ),
    wrong(Cause.REFUSED, "etcd refused the step, with the message that is shown.", "Read that message."),
    wrong(Cause.DEFECT, "An unexpected failure.", "Read the log of the node that leads, and report it."),
)

_STORE = (
    wrong(
        Cause.PARTITION_LOST,
        "No in-sync replica of the partition is left.",
        "Start the nodes that are named: what they have in sync is served again without a reset.",
        last_resort=RESET,
    ),
    short(
        Cause.SERVER_DOWN,
        60,
        "",
        "The node's store server is starting, or ends again and again.",
        "If it lasts, read the node's log.",
    ),
    wrong(
        Cause.SERVER_SILENT,
        "Other servers do not reach the node's store server. It is marked as failed soon, or answers again.",
        "Check the network between the nodes.",
    ),
    wrong(
        Cause.OWNERS_AWAITED,
        "Replicas that have acknowledged writes have not come back.",
        "Start the nodes that are named: they have all acknowledged writes. If they never come back: "
        "`zonectl recovery reset-lost ZONE --confirm-dead NODE,...` gives up what only they have.",
    ),
    short(
        Cause.FILLING,
        600,
        "waits for new replicas to be filled",
        "New replicas copy from the primary; how long depends on the partition's size.",
        "If no bytes arrive, check the node that is named and its network.",
    ),
    short(
        Cause.SURPLUS,
        60,
        "takes replicas that are no longer needed out of the in-sync set",
        "The new replicas are in sync; the old ones leave.",
        SERVER_LOG,
    ),
    asked(
        Cause.ZONE_DEACTIVATED,
        "waits for the zone to be activated",
        "The zone was deactivated.",
        "Activate the zone on its page: its moves go on then.",
    ),
    wrong(
        Cause.NO_ANSWER,
        "The store server was asked for its replicas and did not answer.",
        "Check whether its node is alive, and the network.",
    ),
)

_COPY = (
    short(
        Cause.WAITING,
        60,
        "waits for its group",
        "The replica is ready, but its group has not added it yet.",
        SPREAD,
    ),
    short(
        Cause.WAITING_FOR_MEMBERS,
        60,
        "waits for the other replicas to be ready",
        "A new group begins when every node has reserved its replica.",
        SPREAD,
    ),
    short(
        Cause.RECOVERING,
        60,
        "founds the group anew",
        "A reset has chosen this replica to found the group.",
        NODE_LOG,
    ),
    short(
        Cause.LEAVING,
        60,
        "waits for its group to let it go",
        "The replica is no longer wanted, and its group has not removed it yet.",
        SPREAD,
    ),
    short(
        Cause.LEFT,
        60,
        "waits for the new assignment",
        "The group has removed the replica; the new assignment is not written yet.",
        SERVER_LOG,
    ),
    wrong(
        Cause.FENCED,
        "The replica may not run: its group may be founded anew elsewhere, or was.",
        "Check whether the node reaches the metastore. A replica of a group that was given up never runs "
        "again.",
    ),
    wrong(
        Cause.DATA_LOST,
        "The replica has run before, and its data is gone.",
        "If a majority serves without it, its node rebuilds it automatically, once a day. Check the disk; then "
        "`zonectl recovery restart --cleanup` rebuilds the replica.",
    ),
    wrong(Cause.DISK_FULL, "The node's disk is full.", "Free space on the disk of the node."),
    wrong(
        Cause.FULL,
        "The replica's store is at its quota: the partition takes no puts.",
        "Delete keys of the partition, or raise the member quota of its nodes.",
    ),
    wrong(Cause.NO_DISK, "The node cannot make a directory.", NODE_LOG),
    wrong(Cause.NO_FREE_PORTS, "The node's range of ports is used up.", "Give the node more ports."),
    wrong(
        Cause.NO_CERTIFICATE,
        "The replica speaks TLS, and its node was given no certificate.",
        "Start the node with its certificate.",
    ),
    wrong(
        Cause.ENGINES_DIFFER,
        "The node keeps the zone's profiles with another engine than the group, or with several.",
        "Give the node the engine that is named for the profile.",
    ),
    wrong(
        Cause.MIRRORS_NOT_KEPT,
        "The node was started without a place for learners.",
        "Start it with one.",
    ),
    short(
        Cause.ZONE_UNKNOWN,
        10,
        "waits for the zone to be known",
        "The zone's intent is not in the metastore yet, or was removed.",
        SERVER_LOG,
    ),
    short(
        Cause.SOURCE,
        30,
        "waits for a voter to copy from",
        "The learner has lost the voter that it copied from, and looks for another.",
        SPREAD,
    ),
    short(
        Cause.COPIED_AGAIN,
        600,
        "waits for a new copy",
        "The learner's copy could not go on, and is made again.",
        SPREAD,
    ),
    wrong(
        Cause.COPY_DAMAGED,
        "The replica's data is damaged. If its group does not need it, its node rebuilds it automatically, "
        "once a day.",
        "Check the disk of the node that is named, then `zonectl recovery restart --cleanup` rebuilds the "
        "replica; if no majority serves without it, first start the nodes of the others.",
    ),
    wrong(Cause.BROKEN, "An unexpected failure.", "Read the log of the node, and report it."),
)

CAUSE_GROUPS: Mapping[str, tuple[CauseRow, ...]] = {
    "The installation": INSTALLATION,
    "A move that may not begin yet": BEFORE,
    "A partition": PARTITION,
    "A step of a move": _STEP,
    "A partition of a store zone": _STORE,
    "One replica, as its node tells it": _COPY,
}
CAUSES: Mapping[Cause, CauseRow] = {row.cause: row for rows in CAUSE_GROUPS.values() for row in rows}
PERMITTED = frozenset(row.cause for row in CAUSES.values() if row.normality is Normality.ASKED)
"""Causes that hold a move back because somebody has asked for it."""


def row_of(text: str) -> CauseRow | None:
    """The row for the cause ``text``; None: this build does not know it."""
    return CAUSES.get(told_cause(text))


def advice(text: str, alive: Collection[str], held_s: float) -> str:
    """Advice on the cause ``text`` of a partition, which has held for ``held_s``; empty: the cause is not known
    to this build. A remedy that loses data is added once no node that the cause names is ``alive``, and
    an exchange or an election would have ended."""
    row = row_of(text)
    if row is None:
        return ""
    named = set(re.findall(r"[\w.-]+", text.partition(": ")[2]))
    is_over = held_s >= RESET_AFTER_S and not named & set(alive)
    return f"{row.action} {row.last_resort}" if row.last_resort and is_over else row.action


def anchor(text: str) -> str:
    """Place of the page that explains ``text``, as ``docs/causes.md#node_down``; empty: it does not."""
    row = row_of(text)
    return f"{PAGE}#{row.cause.value.lower()}" if row is not None else ""


def words(text: str) -> str:
    """Words for what an ordinary cause waits for; empty for one that calls for somebody."""
    row = row_of(text)
    return row.words if row is not None else ""


def in_words(text: str) -> str:
    """``text`` for people: what an ordinary cause waits for, before its name. Others stay as they are."""
    said = words(text)
    return f"{said} [{text}]" if said else text
