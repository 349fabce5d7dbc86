"""Choice of a group's leader: its preferred primary once everything is at rest, and never for long a node that
is gone.

Late affinity: during a move the leader stays as long as it is a voter (decision 15): data first, then the
switch. Afterwards the leader hands over to the first of stable's voters, in one step of the group's own, so
that primaries are as even as placement made them.

A leader whose agent is frozen, or has lost the metastore, goes on serving while nobody drives its group. The
group itself sees nothing wrong with it, so another voter's agent takes the lead.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import structlog

from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRole, MemberState
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.ports.groups import MemberStatus

log = structlog.get_logger(__name__)

REST_S = 3.0
"""Time at rest, in seconds, before the leader is changed: a further move often follows at once, and decides it
anew."""
AGAIN = Backoff(30.0, 600.0)
"""A preferred primary that does not keep the lead gets it less and less often."""
TAKE_AGAIN_S = 2.0


def preferred_successor(view: NodePartitionView, leader: str) -> str:
    """The preferred primary when it could lead and ``leader`` is another node; else empty."""
    if view.stable is None or view.pending is not None:
        return ""
    preferred = view.stable.value.primary
    return preferred if preferred != leader and _could_lead(view, preferred) else ""


def heir(view: NodePartitionView, leader: str) -> str:
    """Return the node that takes the lead from ``leader`` because that node is not registered; empty when it
    is, or when no node could lead. A voter that stays comes before one that is to leave."""
    if view.stable is None or not leader or leader in view.living:
        return ""
    able = [name for name in view.stable.value.peers if _could_lead(view, name)]
    staying = view.pending.value.peers if view.pending else view.stable.value.peers
    return min(able, key=lambda name: name not in staying, default="")


def _could_lead(view: NodePartitionView, node: str) -> bool:
    record = view.records.get(node)
    if node not in view.living or record is None:
        return False
    votes = view.listed(record.value.peer_url) is MemberRole.VOTER
    return votes and record.value.state is MemberState.RUNNING


@dataclass(slots=True)
class _Watched:
    rests_since: float | None = None
    not_before: float = 0.0
    again: Backoff = AGAIN


class Leadership:
    """Leadership of the groups that one node leads, and of those that it follows in."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._random = random.Random(node.name)
        self._watched: dict[PartitionId, _Watched] = {}
        self._not_taken_before: dict[PartitionId, float] = {}

    def stirred(self, partition: PartitionId) -> None:
        """The group is not at rest, or not led here."""
        watched = self._watched.get(partition)
        if watched is not None:
            watched.rests_since = None

    async def at_rest(self, view: NodePartitionView) -> float | None:
        """Hands over when it is time; call it each time that the led group is seen at rest. Returns in how many
        seconds it may be time, None: not before something changes."""
        now = asyncio.get_running_loop().time()
        successor = preferred_successor(view, self._node.name)
        watched = self._watched.setdefault(view.partition, _Watched())
        if not successor:
            watched.rests_since = None
            return None
        if watched.rests_since is None:
            watched.rests_since = now
        due = max(watched.rests_since + REST_S, watched.not_before)
        if now < due:
            return due - now
        watched.again, watched.rests_since = watched.again.failed(), None
        watched.not_before = now + watched.again.delay_s(self._random.random())
        if await self._node.host.transfer_leadership(view.partition, successor):
            log.info("leadership handed over", partition=str(view.partition), to=successor)
        return REST_S

    async def beside_follower(self, view: NodePartitionView, status: MemberStatus) -> float | None:
        """Takes the lead when this node is the heir; call it each time that the own member follows. Returns in
        how many seconds it tries again, None: it is not the heir."""
        if heir(view, status.leader) != self._node.name:
            self._not_taken_before.pop(view.partition, None)
            return None
        now = asyncio.get_running_loop().time()
        not_before = self._not_taken_before.get(view.partition, 0.0)
        if now < not_before:
            return not_before - now
        self._not_taken_before[view.partition] = now + TAKE_AGAIN_S
        record = view.records.get(status.leader)
        if record is None or not record.value.client_url:
            return TAKE_AGAIN_S
        if await self._node.host.take_leadership(view.partition, record.value.client_url):
            log.info("leadership taken over", partition=str(view.partition), of=status.leader)
        return TAKE_AGAIN_S
