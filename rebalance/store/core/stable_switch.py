"""End of moves of partitions of the engine ``store``, from the last results of exchanges.

``stable`` decides nothing among servers. It tells everybody else that a move is over. A move whose strategy is
``cancel`` makes room for what is planned as long as no result has made its copies the owners, and one whose
joiners are gone goes on without them: nobody but the leading controller could do that, for no group has a
leader here.
"""

from __future__ import annotations

from collections.abc import Collection

from rebalance.core.assignments.assignment import Assignments, Strategy
from rebalance.core.assignments.change_lock import decide_on_change_cancelled
from rebalance.core.assignments.guarded_write import (
    Decision,
    Observed,
    Outcome,
    decide_on_configuration_applied,
)
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.txn import KeyValue
from rebalance.core.moves.joiners import decide_on_joiners_gone
from rebalance.exchange.core.exchange_messages import PartitionOutcome


def decide_on_outcome(
    observed: Observed, outcome: PartitionOutcome, servers: Collection[str] | None = None
) -> Decision:
    """A move is over when the pending nodes are the in-sync set and the effective owners, no more and no less:
    then each of them has every acknowledged write, and nobody else is needed. The order does not count: the
    primary may be late. A learner that is not among ``servers`` (those of the ring; None: all are) is not
    waited for.

    Raises RecordNotReadableError as ``decide_on_configuration_applied``.
    """
    pending = readable(observed.pending, Assignments.decode)
    if pending is None:
        return Decision(Outcome.NOTHING_PENDING)
    away = frozenset() if servers is None else frozenset(pending.learners).difference(servers)
    copies = pending.nodes - away
    if outcome.is_lost or not copies == frozenset(outcome.in_sync) == frozenset(outcome.effective):
        return Decision(Outcome.APPLIED_IS_NOT_PENDING)
    return decide_on_configuration_applied(observed, pending)


def decide_on_move(
    observed: Observed,
    outcome: PartitionOutcome,
    servers: Collection[str],
    gone: Collection[str],
    *,
    given_up: KeyValue | None,
    given_up_key: str,
) -> Decision:
    """``decide_on_outcome``, then what the move's strategy asks for, then what becomes of it without joiners
    that are ``gone``: not among ``servers`` for longer than they may be.

    Raises RecordNotReadableError.
    """
    decision = decide_on_outcome(observed, outcome, servers)
    pending = readable(observed.pending, Assignments.decode)
    if decision.transaction is not None or pending is None or observed.pending is None:
        return decision
    if pending.strategy is Strategy.CANCEL and observed.planned is not None:
        return decide_on_change_cancelled(observed, observed.pending.mod_revision, is_cancelled=True)
    if gone:
        names = dict.fromkeys(gone, "")
        return decide_on_joiners_gone(
            observed, names, given_up=given_up, given_up_key=given_up_key, holding=outcome.in_sync
        )
    return decision


def joiners_away(observed: Observed, servers: Collection[str]) -> frozenset[str]:
    """Return the nodes that are to get a copy and are not among ``servers``. Raises RecordNotReadableError."""
    pending = readable(observed.pending, Assignments.decode)
    stable = readable(observed.stable, Assignments.decode)
    if pending is None or stable is None:
        return frozenset()
    return (pending.nodes - stable.nodes).difference(servers)
