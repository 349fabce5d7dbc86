"""The switch of ``stable`` for partitions of the engine ``store``: from the last results of exchanges.

``stable`` decides nothing among servers. It tells everybody else that a move is over.
"""

from __future__ import annotations

from rebalance.core.assignments import Assignments
from rebalance.core.guarded_write import Decision, Observed, Outcome, decide_on_configuration_applied
from rebalance.core.readable import readable
from rebalance.exchange.core.result_record import PartitionOutcome


def decide_on_outcome(observed: Observed, outcome: PartitionOutcome) -> Decision:
    """A move is over when the pending nodes are the in-sync set and the effective owners, no more and no less:
    then each of them has every acknowledged write, and nobody else is needed. The order does not count: the
    primary may be late.

    Raises RecordNotReadableError as ``decide_on_configuration_applied``.
    """
    pending = readable(observed.pending, Assignments.decode)
    if pending is None:
        return Decision(Outcome.NOTHING_PENDING)
    if outcome.is_lost or not pending.nodes == frozenset(outcome.in_sync) == frozenset(outcome.effective):
        return Decision(Outcome.APPLIED_IS_NOT_PENDING)
    return decide_on_configuration_applied(observed, pending)
