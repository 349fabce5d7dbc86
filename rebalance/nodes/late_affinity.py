"""Late affinity on real groups: leadership goes to the preferred primary, once everything is at rest.

During a move the leader stays as long as it is a voter (decision 15): data first, then the switch. Afterwards
the leader hands over to the first of stable's voters, in one step of the group's own, so that primaries are as
even as placement made them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from rebalance.core.keys import PartitionId
from rebalance.core.records import MemberRole, MemberState
from rebalance.nodes.partition_view import PartitionView
from rebalance.ports.groups import GroupHost

log = structlog.get_logger(__name__)

REST_S = 3.0
"""At rest for so long: a further move often follows at once, and decides anew who leads."""
AGAIN_S, AGAIN_MAX_S = 30.0, 600.0
"""A preferred primary that does not keep the lead gets it less and less often."""


def preferred_successor(view: PartitionView, leader: str) -> str:
    """The preferred primary when it could lead and ``leader`` is another node; else empty."""
    if view.stable is None or view.pending is not None:
        return ""
    preferred = view.stable.value.primary
    record = view.records.get(preferred)
    if preferred == leader or preferred not in view.living or record is None:
        return ""
    votes = view.listed(record.value.peer_url) is MemberRole.VOTER
    return preferred if votes and record.value.state is MemberState.RUNNING else ""


@dataclass(slots=True)
class _Watched:
    rests_since: float | None = None
    not_before: float = 0.0
    pause_s: float = AGAIN_S


class LateAffinity:
    """Of one node: of the groups that it leads."""

    def __init__(self, node: str, host: GroupHost) -> None:
        self._node = node
        self._host = host
        self._watched: dict[PartitionId, _Watched] = {}

    def stirred(self, partition: PartitionId) -> None:
        """The group is not at rest, or not led here."""
        watched = self._watched.get(partition)
        if watched is not None:
            watched.rests_since = None

    async def at_rest(self, view: PartitionView) -> None:
        """Hands over when it is time; call it each time that the led group is seen at rest."""
        now = asyncio.get_running_loop().time()
        successor = preferred_successor(view, self._node)
        watched = self._watched.setdefault(view.partition, _Watched())
        if not successor:
            watched.rests_since = None
            return
        if watched.rests_since is None:
            watched.rests_since = now
        if now < max(watched.rests_since + REST_S, watched.not_before):
            return
        watched.not_before, watched.rests_since = now + watched.pause_s, None
        watched.pause_s = min(2 * watched.pause_s, AGAIN_MAX_S)
        if await self._host.transfer_leadership(view.partition, successor):
            log.info("leadership handed over", partition=str(view.partition), to=successor)
