"""The two guarded writes of a rebalance, as pure decisions (I3-016..026, I3-035..037; decisions 7-9).

``decide_on_trigger`` is step 1: an event wants ``target``. ``decide_on_configuration_applied`` is step 3: the
group's leader reports what the group has committed. Each returns what to write and the name of what happened;
the shell commits it, and a failed guard means: read again, decide again. Every key that a decision read is
guarded by its revision.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

from rebalance.core.assignments import Assignments
from rebalance.core.keys import PartitionKeys
from rebalance.core.txn import Compare, Delete, KeyValue, Operation, Put, Txn, unchanged

TRIGGER_FORMAT = 1


class Outcome(Enum):
    """What a decision came to; the first block answers a trigger, the second an applied configuration."""

    OUTDATED_UPDATE_RECEIVED = "OUTDATED_UPDATE_RECEIVED"
    STABLE_KEY_CREATED = "STABLE_KEY_CREATED"
    PENDING_KEY_UPDATED = "PENDING_KEY_UPDATED"
    PLANNED_KEY_UPDATED = "PLANNED_KEY_UPDATED"
    PLANNED_KEY_REMOVED_EQUALS_PENDING = "PLANNED_KEY_REMOVED_EQUALS_PENDING"
    PLANNED_KEY_REMOVED_EMPTY_PENDING = "PLANNED_KEY_REMOVED_EMPTY_PENDING"

    NOTHING_PENDING = "NOTHING_PENDING"
    APPLIED_IS_NOT_PENDING = "APPLIED_IS_NOT_PENDING"
    FINISH_REBALANCE = "FINISH_REBALANCE"
    FINISH_REBALANCE_PLANNED_DROPPED = "FINISH_REBALANCE_PLANNED_DROPPED"
    SCHEDULE_PENDING_REBALANCE = "SCHEDULE_PENDING_REBALANCE"


@dataclass(frozen=True, slots=True)
class Decision:
    """``transaction`` is None when nothing is to be written."""

    outcome: Outcome
    transaction: Txn | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """The assignment keys of one partition, read at one revision; None where a key is absent."""

    keys: PartitionKeys
    stable: KeyValue | None = None
    pending: KeyValue | None = None
    planned: KeyValue | None = None
    trigger: KeyValue | None = None


def encode_trigger(event_revision: int) -> bytes:
    return json.dumps({"v": TRIGGER_FORMAT, "revision": event_revision}, separators=(",", ":")).encode()


def decode_trigger(value: bytes) -> int:
    """The event revision that was processed last. Raises ValueError for an unknown format."""
    document = json.loads(value)
    if document["v"] != TRIGGER_FORMAT:
        raise ValueError(f"trigger format {document['v']} is not known; this build reads {TRIGGER_FORMAT}")
    return int(document["revision"])


def decide_on_trigger(observed: Observed, target: Assignments, event_revision: int) -> Decision:
    """What an event with ``event_revision`` that wants ``target`` writes.

    Invariants: the trigger never goes back, an event is processed at most once, and every processed event
    advances the trigger, also one that changes nothing else (decision 8).
    """
    if observed.trigger is not None and decode_trigger(observed.trigger.value) >= event_revision:
        return Decision(Outcome.OUTDATED_UPDATE_RECEIVED)
    outcome, writes = _writes_on_trigger(observed, target)
    trigger = Put(observed.keys.trigger, encode_trigger(event_revision))
    return Decision(outcome, Txn(_guards(observed, with_trigger=True), (*writes, trigger)))


def _writes_on_trigger(observed: Observed, target: Assignments) -> tuple[Outcome, tuple[Operation, ...]]:
    keys = observed.keys
    if observed.pending is not None:
        if Assignments.decode(observed.pending.value) != target:
            return Outcome.PLANNED_KEY_UPDATED, (Put(keys.planned, target.encode()),)
        return Outcome.PLANNED_KEY_REMOVED_EQUALS_PENDING, (Delete(keys.planned),)
    if observed.stable is None:
        # A partition that was never placed: its group starts with the target, nothing has to move.
        return Outcome.STABLE_KEY_CREATED, (Put(keys.stable, target.encode()),)
    if Assignments.decode(observed.stable.value) != target:
        return Outcome.PENDING_KEY_UPDATED, (Put(keys.pending, target.encode()),)
    return Outcome.PLANNED_KEY_REMOVED_EMPTY_PENDING, (Delete(keys.planned),)


def decide_on_configuration_applied(observed: Observed, applied: Assignments) -> Decision:
    """The stable switch: the group has committed ``applied``.

    Called at least once per applied configuration; a repeat changes nothing (decision 10). A planned target
    becomes pending in the same transaction, unless it equals what is stable then (decision 9).
    """
    if observed.pending is None:
        return Decision(Outcome.NOTHING_PENDING)
    if Assignments.decode(observed.pending.value) != applied:
        return Decision(Outcome.APPLIED_IS_NOT_PENDING)
    keys, guards = observed.keys, _guards(observed, with_trigger=False)
    # Pending's own bytes keep the preference order, which the applied configuration does not know.
    stable = Put(keys.stable, observed.pending.value)
    if observed.planned is None:
        return Decision(Outcome.FINISH_REBALANCE, Txn(guards, (stable, Delete(keys.pending))))
    if Assignments.decode(observed.planned.value) == applied:
        writes: tuple[Operation, ...] = (stable, Delete(keys.pending), Delete(keys.planned))
        return Decision(Outcome.FINISH_REBALANCE_PLANNED_DROPPED, Txn(guards, writes))
    writes = (stable, Put(keys.pending, observed.planned.value), Delete(keys.planned))
    return Decision(Outcome.SCHEDULE_PENDING_REBALANCE, Txn(guards, writes))


def _guards(observed: Observed, *, with_trigger: bool) -> tuple[Compare, ...]:
    keys = observed.keys
    read = [
        (keys.stable, observed.stable),
        (keys.pending, observed.pending),
        (keys.planned, observed.planned),
    ]
    if with_trigger:
        read.append((keys.trigger, observed.trigger))
    return tuple(unchanged(key, found.mod_revision if found else 0) for key, found in read)
