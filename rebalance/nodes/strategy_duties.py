"""Duties of the agent beside a leader for the strategies ``update`` and ``cancel``: the lock on pending, and
the cancelled change. Reads the metastore itself, decides, commits; a failed guard means once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from rebalance.core.assignments.assignment import Assignments, Strategy
from rebalance.core.assignments.change_lock import (
    decide_on_catch_up_finished,
    decide_on_change_cancelled,
    decide_on_unlock,
    decode_lock,
)
from rebalance.core.assignments.guarded_write import Decision, Observed, Outcome, require_readable
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, readable
from rebalance.core.keyspace.records import MemberRole, Stage
from rebalance.core.keyspace.txn import Get, Txn
from rebalance.core.moves.group_steps import stage_of
from rebalance.metastore.guarded_update import commit_decided
from rebalance.nodes.node_context import NodeContext
from rebalance.ports.groups import NO_SIGHTS, CancelAnswer, GroupMember, PeerSight
from rebalance.ports.metastore import KeysUnreadableError

log = structlog.get_logger(__name__)

MOVED_ON = (
    Outcome.CANCEL_PLANNED_SCHEDULED,
    Outcome.LOCK_CLEARED_PLANNED_SCHEDULED,
    Outcome.LOCK_CLEARED_PLANNED_DROPPED,
)
"""Pending is another one now, or none: it is read again before anything is asked for."""


async def read_assignments(node: NodeContext, partition: PartitionId) -> tuple[Observed, int]:
    """The assignment keys at one revision, and that revision; the trigger is left out.

    Raises KeysUnreadableError: a leader that cannot read one of them knows as little as if the metastore were
    silent."""
    keys = node.keyspace.partition(partition)
    names = (keys.stable, keys.pending, keys.planned, keys.lock)
    result = await node.metastore.commit(Txn((), tuple(Get(name) for name in names)))
    stable, pending, planned, lock = map(result.only, range(len(names)))
    observed = Observed(keys, stable, pending, planned, lock=lock)
    try:
        require_readable(observed)
        readable(lock, decode_lock)
    except RecordNotReadableError as error:
        raise KeysUnreadableError(Unreadable(error.key, error.reason)) from error
    return observed, result.revision


class StrategyDuties:
    """``strategy`` is that of the running move, which its pending key names; for ``Strategy.QUEUE`` nothing
    here asks the metastore. Methods raise MetastoreError."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    async def may_touch_voters(
        self, partition: PartitionId, term: int, token: int, strategy: Strategy, joiner: str = ""
    ) -> bool:
        """Lock pending; True once it is locked as of ``token`` (I3A-014, I3A-015)."""
        if not strategy.locks_pending:
            return True
        outcome = await self._commit(
            partition, lambda observed: decide_on_catch_up_finished(observed, token, term=term, joiner=joiner)
        )
        return outcome in (Outcome.PENDING_LOCKED, Outcome.PENDING_LOCKED_AGAIN)

    async def unlock(
        self,
        partition: PartitionId,
        term: int,
        sights: Mapping[str, PeerSight] = NO_SIGHTS,
        *,
        of_earlier_terms: bool = False,
    ) -> Outcome:
        """The leader of ``term`` touches no voter now: the lock goes, and what was planned takes its turn
        (I3A-018). Asks the group first. Raises MemberUnavailableError."""
        members = await self._node.host.settled_configuration(partition, term, sights)
        return await self._commit(
            partition,
            lambda observed: decide_on_unlock(
                observed, _stage(observed, members), term=term, of_earlier_terms=of_earlier_terms
            ),
        )

    async def cancel(self, partition: PartitionId, term: int, strategy: Strategy) -> Outcome | None:
        """Give the running change up for what is planned, while that is possible (I3A-025..027). None when
        there was nothing to cancel for, or this member does not lead."""
        if strategy is not Strategy.CANCEL:
            return None
        observed, _ = await read_assignments(self._node, partition)
        if observed.pending is None or observed.planned is None or observed.lock is not None:
            return None
        token = observed.pending.mod_revision
        answer = await self._node.host.cancel_change_peers(partition, term, token)
        if answer is CancelAnswer.NOT_LEADER:
            return None
        is_cancelled = answer is not CancelAnswer.TOO_LATE
        return await self._commit(
            partition, lambda observed: decide_on_change_cancelled(observed, token, is_cancelled=is_cancelled)
        )

    async def _commit(self, partition: PartitionId, decide: Callable[[Observed], Decision]) -> Outcome:
        async def decided() -> tuple[Outcome, Txn | None]:
            observed, _ = await read_assignments(self._node, partition)
            decision = decide(observed)
            return decision.outcome, decision.transaction

        outcome, revision = await commit_decided(self._node.metastore, decided)
        if revision:
            log.info("pending lock", partition=str(partition), outcome=outcome.value)
        return outcome


def _stage(observed: Observed, members: tuple[GroupMember, ...]) -> Stage:
    voters = [member.node for member in members if member.role is MemberRole.VOTER]
    learners = [member.node for member in members if member.role is MemberRole.LEARNER]
    stable = readable(observed.stable, Assignments.decode)
    pending = readable(observed.pending, Assignments.decode)
    return stage_of(voters, learners, stable.peers if stable else (), pending.peers if pending else None)
