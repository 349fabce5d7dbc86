"""The guarded writes of a rebalance, as pure decisions (I3-016..026, I3-035..037, I3A-004..010; decisions 7-9).

``decide_on_trigger`` is step 1: an event wants ``target``. ``decide_on_configuration_applied`` is step 3: the
group's leader reports what the group has committed. ``decide_on_forced_move`` is recovery's way past a move
that cannot end. What the leader asks in between is in ``change_lock``. Each returns what to write and the name
of what happened; the shell commits it, and a failed guard means: read again, decide again. Every key that a
decision read is guarded by its revision.

Each raises RecordNotReadableError where a key that it looks at, or would write over, cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from catalog.core.codec import FORMAT, RecordNotReadableError, dump, load, natural
from rebalance.core.assignments.assignment import Assignments, Strategy
from rebalance.core.keyspace.keys import PartitionKeys
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.txn import Compare, Delete, KeyValue, Operation, Put, Txn, as_read

AssignmentKey = Literal["stable", "pending", "planned", "trigger", "lock"]


class Outcome(Enum):
    """Outcome of a decision. Blocks: a trigger, an applied configuration, a catch-up that ended, a change that
    was cancelled, a group that went back to rest, joiners that are gone, a forced move, a withdrawal."""

    OUTDATED_UPDATE_RECEIVED = "OUTDATED_UPDATE_RECEIVED"
    STABLE_KEY_CREATED = "STABLE_KEY_CREATED"
    PENDING_KEY_UPDATED = "PENDING_KEY_UPDATED"
    PENDING_KEY_REPLACED = "PENDING_KEY_REPLACED"
    PLANNED_KEY_UPDATED = "PLANNED_KEY_UPDATED"
    PLANNED_KEY_REMOVED_EQUALS_PENDING = "PLANNED_KEY_REMOVED_EQUALS_PENDING"
    PLANNED_KEY_REMOVED_EMPTY_PENDING = "PLANNED_KEY_REMOVED_EMPTY_PENDING"

    NOTHING_PENDING = "NOTHING_PENDING"
    APPLIED_IS_NOT_PENDING = "APPLIED_IS_NOT_PENDING"
    FINISH_REBALANCE = "FINISH_REBALANCE"
    FINISH_REBALANCE_PLANNED_DROPPED = "FINISH_REBALANCE_PLANNED_DROPPED"
    SCHEDULE_PENDING_REBALANCE = "SCHEDULE_PENDING_REBALANCE"

    PENDING_LOCKED = "PENDING_LOCKED"
    PENDING_LOCKED_AGAIN = "PENDING_LOCKED_AGAIN"
    PENDING_SUPERSEDED = "PENDING_SUPERSEDED"

    CANCEL_TOO_LATE = "CANCEL_TOO_LATE"
    CANCELLED_IS_NOT_PENDING = "CANCELLED_IS_NOT_PENDING"
    NOTHING_PLANNED = "NOTHING_PLANNED"
    CANCEL_PLANNED_SCHEDULED = "CANCEL_PLANNED_SCHEDULED"

    NOTHING_LOCKED = "NOTHING_LOCKED"
    LOCK_KEPT = "LOCK_KEPT"
    LOCK_OF_LATER_TERM = "LOCK_OF_LATER_TERM"
    LOCK_CLEARED = "LOCK_CLEARED"
    LOCK_CLEARED_PLANNED_SCHEDULED = "LOCK_CLEARED_PLANNED_SCHEDULED"
    LOCK_CLEARED_PLANNED_DROPPED = "LOCK_CLEARED_PLANNED_DROPPED"

    NO_JOINER_IS_GONE = "NO_JOINER_IS_GONE"
    JOINERS_GIVEN_UP = "JOINERS_GIVEN_UP"
    JOINERS_GONE_PLANNED_SCHEDULED = "JOINERS_GONE_PLANNED_SCHEDULED"

    NEVER_PLACED = "NEVER_PLACED"
    PENDING_KEY_FORCED = "PENDING_KEY_FORCED"

    ALREADY_BEGUN = "ALREADY_BEGUN"
    WITHDRAWN = "WITHDRAWN"
    CALLED_BACK = "CALLED_BACK"


@dataclass(frozen=True, slots=True)
class Decision:
    """``transaction`` is None when nothing is to be written."""

    outcome: Outcome
    transaction: Txn | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """The assignment keys of one partition, read at one revision; None where a key is absent. ``lock`` is read
    for the strategies that lock pending."""

    keys: PartitionKeys
    stable: KeyValue | None = None
    pending: KeyValue | None = None
    planned: KeyValue | None = None
    trigger: KeyValue | None = None
    lock: KeyValue | None = None

    @classmethod
    def of(cls, keys: PartitionKeys, get: Callable[[str], KeyValue | None]) -> Observed:
        """``get`` answers of one revision what is under a key."""
        return cls(keys, *map(get, (keys.stable, keys.pending, keys.planned, keys.trigger, keys.lock)))

    def guards(self, *names: AssignmentKey) -> tuple[Compare, ...]:
        """The keys of these fields are as they were read."""
        return tuple(as_read(getattr(self.keys, name), getattr(self, name)) for name in names)


def encode_revision(field: str, revision: int) -> bytes:
    """A value that is one revision, as the trigger's is."""
    return dump({"v": FORMAT, field: revision})


def decode_revision(field: str, value: bytes) -> int:
    """Decode the revision that is the value of ``field``. Raises RecordNotReadableError."""
    document = load(value)
    try:
        return natural(document.get(field))
    except ValueError as error:
        raise RecordNotReadableError(f"{field}: {error}") from error


def encode_trigger(event_revision: int) -> bytes:
    return encode_revision("revision", event_revision)


def decode_trigger(value: bytes) -> int:
    """The event revision that was processed last. Raises RecordNotReadableError."""
    return decode_revision("revision", value)


def decide_on_trigger(
    observed: Observed, target: Assignments, event_revision: int, *, strategy: Strategy = Strategy.QUEUE
) -> Decision:
    """Decide what an event with ``event_revision`` that wants ``target`` writes.

    Invariants: the trigger never goes back, an event is processed at most once, and every processed event
    advances the trigger, also one that changes nothing else (decision 8).

    ``strategy`` is that of the move to ``target``, and is written with it: a running move is treated by its
    own, whatever the setting is by now.
    """
    require_readable(observed)
    if _is_outdated(observed, event_revision):
        return Decision(Outcome.OUTDATED_UPDATE_RECEIVED)
    outcome, writes = _writes_on_trigger(observed, replace(target, strategy=strategy))
    guards = observed.guards("stable", "pending", "planned", "trigger")
    if _is_update(observed.pending):
        guards = (*guards, *observed.guards("lock"))
    trigger = Put(observed.keys.trigger, encode_trigger(event_revision))
    return Decision(outcome, Txn(guards, (*writes, trigger)))


def _is_outdated(observed: Observed, event_revision: int) -> bool:
    return observed.trigger is not None and readable(observed.trigger, decode_trigger) >= event_revision


def _is_update(pending: KeyValue | None) -> bool:
    return pending is not None and readable(pending, Assignments.decode).strategy is Strategy.UPDATE


def _writes_on_trigger(observed: Observed, target: Assignments) -> tuple[Outcome, tuple[Operation, ...]]:
    keys = observed.keys
    if observed.pending is not None:
        if readable(observed.pending, Assignments.decode) == target:
            return Outcome.PLANNED_KEY_REMOVED_EQUALS_PENDING, (Delete(keys.planned),)
        if _is_update(observed.pending) and observed.lock is None:
            # Planned can only be left from before: it is older than this target (decision 8).
            return Outcome.PENDING_KEY_REPLACED, (Put(keys.pending, target.encode()), Delete(keys.planned))
        return Outcome.PLANNED_KEY_UPDATED, (Put(keys.planned, target.encode()),)
    if observed.stable is None:
        # A partition that was never placed: its group starts with the target, nothing has to move.
        return Outcome.STABLE_KEY_CREATED, (Put(keys.stable, target.at_rest().encode()),)
    if readable(observed.stable, Assignments.decode) != target:
        return Outcome.PENDING_KEY_UPDATED, (Put(keys.pending, target.encode()),)
    return Outcome.PLANNED_KEY_REMOVED_EMPTY_PENDING, (Delete(keys.planned),)


def decide_on_configuration_applied(observed: Observed, applied: Assignments) -> Decision:
    """The stable switch: the group has committed ``applied``.

    Called at least once per applied configuration; a repeat changes nothing (decision 10). A planned target
    becomes pending in the same transaction, unless it equals what is stable then (decision 9). The lock goes
    with the pending set that it was taken for (I3A-019), and is guarded: a switch that lands late must fail
    once the lock was cleared, because the group has gone back to rest then.
    """
    require_readable(observed)
    if observed.pending is None:
        return Decision(Outcome.NOTHING_PENDING)
    pending = readable(observed.pending, Assignments.decode)
    if pending != applied:
        return Decision(Outcome.APPLIED_IS_NOT_PENDING)
    keys = observed.keys
    guards = observed.guards("stable", "pending", "planned", "lock")
    # Pending's own order is kept: it is the preference, which the applied configuration does not know.
    stable = Put(keys.stable, pending.at_rest().encode())
    writes = (stable, *after_move(observed, applied), Delete(keys.lock))
    outcome = Outcome.SCHEDULE_PENDING_REBALANCE
    if observed.planned is None:
        outcome = Outcome.FINISH_REBALANCE
    elif is_same(observed.planned, applied):
        outcome = Outcome.FINISH_REBALANCE_PLANNED_DROPPED
    return Decision(outcome, Txn(guards, writes))


def decide_on_forced_move(
    observed: Observed,
    target: Assignments,
    event_revision: int,
    *,
    then: Assignments | None = None,
    empty: bool = False,
) -> Decision:
    """Recovery wants ``target`` now, whatever runs, and ``then`` after it: pending is replaced and marked as
    forced (and as ``empty`` when nobody has a copy), planned and the lock go.

    The trigger is checked and advanced as for any event, so that neither a repeat of the recovery nor an event
    that it has overtaken changes anything.
    """
    keys = observed.keys
    require_readable(observed)
    if _is_outdated(observed, event_revision):
        return Decision(Outcome.OUTDATED_UPDATE_RECEIVED)
    if observed.stable is None:
        return Decision(Outcome.NEVER_PLACED)
    guards = observed.guards("stable", "pending", "planned", "trigger")
    planned = None if then == target else then
    writes = (
        Put(
            keys.pending,
            replace(
                target.at_rest(), forced=event_revision, empty=empty, absent=target.absent if empty else ()
            ).encode(),
        ),
        Put(keys.planned, planned.encode()) if planned else Delete(keys.planned),
        Delete(keys.lock),
        Put(keys.trigger, encode_trigger(event_revision)),
    )
    return Decision(Outcome.PENDING_KEY_FORCED, Txn(guards, writes))


def after_move(observed: Observed, stable: Assignments | None) -> tuple[Operation, ...]:
    """Planned becomes pending, unless nothing is planned or it equals ``stable``: then pending goes."""
    keys = observed.keys
    if observed.planned is None:
        return (Delete(keys.pending),)
    if is_same(observed.planned, stable):
        return Delete(keys.pending), Delete(keys.planned)
    return Put(keys.pending, observed.planned.value), Delete(keys.planned)


def is_same(stored: KeyValue, assignments: Assignments | None) -> bool:
    """True if ``stored`` holds ``assignments``, by nodes and roles, never by bytes."""
    return readable(stored, Assignments.decode) == assignments


def require_readable(observed: Observed) -> None:
    """Raises RecordNotReadableError: nothing is decided beside a key that cannot be read, and nothing is
    written over it, also where the decision would not have looked at it."""
    for item in (observed.stable, observed.pending, observed.planned):
        readable(item, Assignments.decode)
    readable(observed.trigger, decode_trigger)
    readable(observed.lock, lambda value: decode_revision("pending", value))
