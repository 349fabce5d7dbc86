"""Causes of waiting: the one enumeration of causes and of stages.

A cause is told as a text. Its first word is a name of ``Cause``; after a colon the rest says which nodes, which
number, or how long. Metrics and alerts take the first word alone, and an unknown one as OTHER, so no free text
ever becomes a label. ``cause_table`` says what each name means and what to do about it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Cause(Enum):
    """The groups follow what waits: the installation, an operation, a partition, a step of a move, one copy."""

    # The installation as a whole.
    CATALOG_UNAVAILABLE = "CATALOG_UNAVAILABLE"
    METASTORE_UNAVAILABLE = "METASTORE_UNAVAILABLE"
    NO_LEADER = "NO_LEADER"
    SPARK_DOWN = "SPARK_DOWN"
    NO_NODE = "NO_NODE"
    OUTBOX_LATE = "OUTBOX_LATE"
    ZONE_LATE = "ZONE_LATE"
    TASK_ENDED = "TASK_ENDED"
    RECORD_NOT_READABLE = "RECORD_NOT_READABLE"
    FOREIGN_DIRECTORY = "FOREIGN_DIRECTORY"
    FOREIGN_COPY = "FOREIGN_COPY"
    NODE_REMOVED = "NODE_REMOVED"
    STORE_DAMAGED = "STORE_DAMAGED"
    METASTORE_FULL = "METASTORE_FULL"
    STORES_DIFFER = "STORES_DIFFER"
    MOVE_STUCK = "MOVE_STUCK"
    CERTIFICATE_EXPIRES = "CERTIFICATE_EXPIRES"
    NOT_COUNTED = "NOT_COUNTED"
    DEGRADED = "DEGRADED"

    # A move that may not begin yet.
    INTENT_NOT_PUBLISHED = "INTENT_NOT_PUBLISHED"
    NO_DATA_NODES = "NO_DATA_NODES"
    PLACEMENT_NOT_COMPUTED = "PLACEMENT_NOT_COMPUTED"
    TARGET_NOT_WRITTEN = "TARGET_NOT_WRITTEN"
    PLANNED_NEXT = "PLANNED_NEXT"
    PAUSED = "PAUSED"
    OUTSIDE_WINDOW = "OUTSIDE_WINDOW"
    OPERATION_RUNS = "OPERATION_RUNS"
    CLUSTER_CAP = "CLUSTER_CAP"
    ZONE_CAP = "ZONE_CAP"
    NODE_CAP = "NODE_CAP"
    BATCH = "BATCH"
    BANDWIDTH = "BANDWIDTH"
    NODE_MEMBER_LIMIT = "NODE_MEMBER_LIMIT"
    TIME_LIMIT = "TIME_LIMIT"

    # A partition, at rest or while it moves.
    NODE_DOWN = "NODE_DOWN"
    NO_MAJORITY = "NO_MAJORITY"
    LEADER_UNKNOWN = "LEADER_UNKNOWN"
    LEADER_HAS_NOT_BEGUN = "LEADER_HAS_NOT_BEGUN"
    MEMBER_NOT_RESERVED = "MEMBER_NOT_RESERVED"
    MEMBER_STARTING = "MEMBER_STARTING"
    MEMBER_FAILED = "MEMBER_FAILED"
    LEARNER_STARTING = "LEARNER_STARTING"
    LEARNER_FAILED = "LEARNER_FAILED"
    CLEAN_UP = "CLEAN_UP"
    COPY_FAILED = "COPY_FAILED"
    COPY_STALLED = "COPY_STALLED"
    JOINER_GONE = "JOINER_GONE"
    REPLICAS_MISSING = "REPLICAS_MISSING"
    QUORUM_EXCEEDS_DATA_NODES = "QUORUM_EXCEEDS_DATA_NODES"
    UNREADABLE = "UNREADABLE"

    # A step of a move.
    CATCHING_UP = "CATCHING_UP"
    JOINT = "JOINT"
    STABLE = "STABLE"
    HEALTH_INTERVAL = "HEALTH_INTERVAL"
    MEMBER_NOT_STARTED = "MEMBER_NOT_STARTED"
    MIRROR_NOT_RUNNING = "MIRROR_NOT_RUNNING"
    ANSWERS_AWAITED = "ANSWERS_AWAITED"
    CATCH_UP_TIMEOUT = "CATCH_UP_TIMEOUT"
    LEADER_STEPPED_DOWN = "LEADER_STEPPED_DOWN"
    SUPERSEDED = "SUPERSEDED"
    CANCELLED = "CANCELLED"
    METASTORE_SILENT = "METASTORE_SILENT"
    TRANSFER_FAILED = "TRANSFER_FAILED"
    TIMED_OUT = "TIMED_OUT"
    REFUSED = "REFUSED"
    DEFECT = "DEFECT"

    # A partition of a store zone.
    PARTITION_LOST = "PARTITION_LOST"
    SERVER_DOWN = "SERVER_DOWN"
    SERVER_SILENT = "SERVER_SILENT"
    OWNERS_AWAITED = "OWNERS_AWAITED"
    FILLING = "FILLING"
    SURPLUS = "SURPLUS"
    ZONE_DEACTIVATED = "ZONE_DEACTIVATED"
    NO_ANSWER = "NO_ANSWER"

    # One copy, as its node tells it.
    WAITING = "WAITING"
    WAITING_FOR_MEMBERS = "WAITING_FOR_MEMBERS"
    RECOVERING = "RECOVERING"
    LEAVING = "LEAVING"
    LEFT = "LEFT"
    FENCED = "FENCED"
    DATA_LOST = "DATA_LOST"
    DISK_FULL = "DISK_FULL"
    FULL = "FULL"
    NO_DISK = "NO_DISK"
    NO_FREE_PORTS = "NO_FREE_PORTS"
    NO_CERTIFICATE = "NO_CERTIFICATE"
    ENGINES_DIFFER = "ENGINES_DIFFER"
    MIRRORS_NOT_KEPT = "MIRRORS_NOT_KEPT"
    ZONE_UNKNOWN = "ZONE_UNKNOWN"
    SOURCE = "SOURCE"
    COPIED_AGAIN = "COPIED_AGAIN"
    COPY_DAMAGED = "COPY_DAMAGED"
    BROKEN = "BROKEN"

    NONE = "NONE"
    OTHER = "OTHER"

    def text(self, detail: str = "") -> str:
        """Text of the cause as it is stored and shown: the name, and ``detail`` after a colon."""
        return f"{self.value}: {detail}" if detail else self.value


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
    return OLD_NAMES.get(word) or _NAMES.get(word, Cause.OTHER)


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
_NAMES = {cause.value: cause for cause in Cause}
