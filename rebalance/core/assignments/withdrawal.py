"""Giving up what a target asked for, partition by partition (cancelling an operation): what has not begun is
withdrawn, what has begun is called back as long as that costs no copy of what is stable.

A partition is untouched while its trigger is below the target's event, or while the target is only planned.
Withdrawing sets the trigger above the event, and removes what is planned: then no controller begins the move,
and a later event overtakes the withdrawal as it overtakes everything else. A controller that begins the move at
the same time reads and guards the same keys, so one of the two wins.

Calling back is a move as any other: pending becomes what is stable (M8), under the same guards and that of the
published configuration, which says whether a voter of stable is gone already (M10).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import (
    Decision,
    Observed,
    Outcome,
    decode_trigger,
    encode_trigger,
    is_same,
    require_readable,
)
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.records import ConfigurationRecord
from rebalance.core.keyspace.txn import Delete, KeyValue, Operation, Put, Txn, as_read


@dataclass(frozen=True, slots=True)
class CancelledPartitions:
    """Outcome of a cancel for each partition: it ``stays`` where it is, it ``goes_back`` to where it was, or it
    ``goes_on``, because a voter of before is gone already or voters are exchanged at this moment. A
    partition that was there already, or that something later has taken up, is in none of them."""

    stays: tuple[int, ...] = ()
    goes_back: tuple[int, ...] = ()
    goes_on: tuple[int, ...] = ()


def decide_on_withdrawal(observed: Observed, event_revision: int, at_revision: int) -> Decision:
    """The target of ``event_revision`` is not wanted any more here, as of ``at_revision``, which is above it.

    What has begun is left alone, and so is a partition that was never placed: it has nothing to stay at.
    """
    keys = observed.keys
    require_readable(observed)
    processed = readable(observed.trigger, decode_trigger) or 0
    if processed > event_revision or observed.stable is None:
        return Decision(Outcome.OUTDATED_UPDATE_RECEIVED)
    if processed == event_revision and observed.planned is None:
        return Decision(Outcome.ALREADY_BEGUN)
    guards = observed.guards("stable", "pending", "planned", "trigger")
    trigger = Put(keys.trigger, encode_trigger(at_revision))
    # What an earlier event has planned is its own; only what this event planned, as it did where nothing of it
    # has begun, is given up with it.
    ours = processed == event_revision
    writes: tuple[Operation, ...] = (Delete(keys.planned), trigger) if ours else (trigger,)
    return Decision(Outcome.WITHDRAWN, Txn(guards, writes))


def decide_on_call_back(
    observed: Observed, configuration: KeyValue | None, event_revision: int, at_revision: int
) -> Decision:
    """Call back what the target of ``event_revision`` has begun here, to what is stable, as of ``at_revision``,
    which is above it: also the move before it that it waits for as planned. ``configuration``: as published.

    Forward only: once a voter of stable was removed, for then the way back costs a copy as well; while pending
    is locked, for a voter is touched; and what recovery has forced. Nothing is to be called back where pending
    is what is stable.
    """
    keys = observed.keys
    require_readable(observed)
    stable = readable(observed.stable, Assignments.decode)
    pending = readable(observed.pending, Assignments.decode)
    processed = readable(observed.trigger, decode_trigger)
    if processed != event_revision or stable is None or pending is None or pending == stable:
        return Decision(Outcome.OUTDATED_UPDATE_RECEIVED)
    is_out = not frozenset(stable.peers) <= _voters(configuration, stable)
    if is_out or pending.forced or observed.lock is not None:
        return Decision(Outcome.CANCEL_TOO_LATE)
    guards = (
        *observed.guards("stable", "pending", "planned", "trigger", "lock"),
        as_read(keys.configuration, configuration),
    )
    # By the strategy of the move that it is part of: whatever follows treats it as that one.
    back = replace(stable.at_rest(), strategy=pending.strategy)
    writes = (
        Put(keys.pending, back.encode()),
        Delete(keys.planned),
        Put(keys.trigger, encode_trigger(at_revision)),
    )
    return Decision(Outcome.CALLED_BACK, Txn(guards, writes))


def cancelled(observed: Observed, event_revision: int) -> str | None:
    """Name of the field of ``CancelledPartitions`` that the partition is in as it is now; None: in none."""
    if observed.stable is None:
        return None
    processed = readable(observed.trigger, decode_trigger) or 0
    stable = readable(observed.stable, Assignments.decode)
    if processed > event_revision:
        is_back = observed.pending is not None and is_same(observed.pending, stable)
        return "goes_back" if is_back else "stays"
    return "goes_on" if observed.pending is not None else None


def _voters(configuration: KeyValue | None, stable: Assignments) -> frozenset[str]:
    """Voters of the configuration as published; those of stable where none was published yet."""
    record = readable(configuration, ConfigurationRecord.decode)
    return frozenset(stable.peers) if record is None else record.voters
