"""Memory of the agent beside a leader of one group, from round to round."""

from __future__ import annotations

from dataclasses import dataclass

from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.failures import Failing
from rebalance.core.keyspace.records import MemberRole
from rebalance.nodes.copy_attempts import CopyAttempts, CopyRules
from rebalance.nodes.leader_decision import DesiredPeers, explained
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.ports.groups import FailureCode, ReconfigurationFailure

NO_ATTEMPTS = CopyAttempts()
AWAITS_COPY = (FailureCode.CATCHING_UP, FailureCode.CATCH_UP_TIMEOUT, FailureCode.MEMBER_NOT_STARTED)


@dataclass(slots=True)
class LedGroup:
    """A led group in one term. ``attempts`` are those since the member list last changed."""

    term: int = 0
    elected: bool = False
    """Pending is to be read from the metastore itself, whatever the mirror says."""
    peers: DesiredPeers | None = None
    """Peers that the running change was asked for."""
    members: frozenset[tuple[str, MemberRole]] = frozenset()
    attempts: CopyAttempts = NO_ATTEMPTS
    obstacle: str = ""
    beats_through: str = ""
    """Client URL of the own member while the partition has learners, which want to know the time."""

    def failing(self, view: NodePartitionView, rules: CopyRules) -> Failing | None:
        """Return what the change that is wanted does not get past; None: nothing, as far as attempts have
        shown."""
        if self.obstacle:
            # At rest it is a voter that is missing, which is no failed change.
            return Failing(self.obstacle.partition(":")[0], self.obstacle) if view.pending else None
        failure = self.attempts.failure
        if failure is None or not self.attempts.is_failed(rules):
            return None
        return Failing(failure.code.value, explained(view, failure), self.attempts.counted)

    def reason(
        self,
        view: NodePartitionView,
        waiting: ReconfigurationFailure | None,
        stalled: tuple[str, ...],
        rules: CopyRules,
    ) -> str:
        """Return the published reason of a change that does not go on; empty when it does. A failure stays the
        reason until the member list changes, so that attempts do not make it flicker."""
        if self.obstacle:
            return self.obstacle
        issue = waiting or self.attempts.failure
        if stalled and issue is not None and issue.code in AWAITS_COPY:
            return Cause.COPY_STALLED.text(", ".join(stalled))
        return self.attempts.published_cause(explained(view, issue), rules) if issue else ""
