"""Giving up what a target asked for and has not begun, partition by partition (cancelling an operation).

A partition is untouched while its trigger is below the target's event, or while the target is only planned.
Withdrawing sets the trigger above the event, and removes what is planned: then no controller begins the move,
and a later event overtakes the withdrawal as it overtakes everything else. A controller that begins the move at
the same time reads and guards the same keys, so one of the two wins.
"""

from __future__ import annotations

from rebalance.core.guarded_write import (
    Decision,
    Observed,
    Outcome,
    decode_trigger,
    encode_trigger,
    guards_of,
    require_readable,
)
from rebalance.core.readable import readable
from rebalance.core.txn import Delete, Operation, Put, Txn


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
    guards = guards_of(
        (keys.stable, observed.stable),
        (keys.pending, observed.pending),
        (keys.planned, observed.planned),
        (keys.trigger, observed.trigger),
    )
    trigger = Put(keys.trigger, encode_trigger(at_revision))
    # What an earlier event has planned is its own; only what this event planned is given up with it.
    ours = observed.planned is not None and processed == event_revision
    writes: tuple[Operation, ...] = (Delete(keys.planned), trigger) if ours else (trigger,)
    return Decision(Outcome.WITHDRAWN, Txn(guards, writes))
