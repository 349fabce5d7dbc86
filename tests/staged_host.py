"""A host whose groups stop where a test wants them in a move: the leader goes no further until it is let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import ClassVar

from rebalance.core.assignments import Assignments
from rebalance.core.keys import PartitionId
from rebalance.core.records import MemberRole
from rebalance.groups.etcd_api import CallFailedError, FailureKind
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.groups.member_calls import GroupCalls
from rebalance.ports.groups import ChangeAnswer, GroupListener, GroupMember
from tests.held_joiner import LOOK_S, HeldListener


class Stage(Enum):
    RESERVED = "reserved"
    """The leader does not add the joiner."""
    STARTED = "started"
    """Its process is there and frozen; see ``held_joiner``."""
    COPYING = "copying"
    """It joined; whether it is in sync is not answered."""
    IN_SYNC = "in sync"
    """The leader does not touch voters."""
    LOCKED = "locked"
    """Nor under the lock, before the joiner's promotion."""
    PROMOTED = "promoted"
    """The leader goes no further once the joiner votes."""
    LEAVING = "while the old voter leaves"
    """Nor once the old voter is out of the list."""


class Stops:
    """``stages``: where a partition's leaders stop; ``reached``: who has. ``let_go`` ends all of it."""

    def __init__(self, joiner: str, leaver: str, stages: Mapping[PartitionId, Stage]) -> None:
        self.reached: set[PartitionId] = set()
        self._joiner = joiner
        self._leaver = leaver
        self._stages = dict(stages)

    def let_go(self) -> None:
        self._stages.clear()

    def stops(self, partition: PartitionId, stage: Stage) -> bool:
        if self._stages.get(partition) is not stage:
            return False
        self.reached.add(partition)
        return True

    async def passed(self, partition: PartitionId, stage: Stage) -> None:
        while self.stops(partition, stage):
            await asyncio.sleep(LOOK_S)

    async def listed(self, partition: PartitionId, members: Sequence[GroupMember]) -> None:
        roles = {each.node: each.role for each in members}
        if roles.get(self._joiner) is MemberRole.VOTER:
            await self.passed(partition, Stage.PROMOTED)
            if self._leaver not in roles:
                await self.passed(partition, Stage.LEAVING)


class StagedListener(HeldListener):
    """Passes everything on."""

    def __init__(self, inner: GroupListener, stops: Stops) -> None:
        super().__init__(inner, lambda partition: not stops.stops(partition, Stage.IN_SYNC))
        self._stops = stops

    async def on_catch_up_finished(
        self, partition: PartitionId, term: int, token: int, joiner: str = ""
    ) -> bool:
        is_locked = await super().on_catch_up_finished(partition, term, token, joiner)
        if is_locked:
            await self._stops.passed(partition, Stage.LOCKED)
        return is_locked

    async def on_configuration_committed(
        self, partition: PartitionId, term: int, members: tuple[GroupMember, ...]
    ) -> bool:
        is_published = await super().on_configuration_committed(partition, term, members)
        await self._stops.listed(partition, members)
        return is_published


class StagedHost(EtcdGroupHost):
    current: ClassVar[Stops] = Stops("", "", {})
    """The running test's."""

    def open(self, node: str, listener: GroupListener) -> None:
        super().open(node, StagedListener(listener, self.current))

    async def change_peers_and_learners(
        self,
        partition: PartitionId,
        term: int,
        token: int,
        target: Assignments,
        endpoints: Mapping[str, str],
        stable: Sequence[str] = (),
    ) -> ChangeAnswer:
        if self.current.stops(partition, Stage.RESERVED):
            return ChangeAnswer.BUSY
        return await super().change_peers_and_learners(partition, term, token, target, endpoints, stable)

    @asynccontextmanager
    async def calls_at(self, partition: PartitionId, client_url: str) -> AsyncIterator[GroupCalls]:
        if self.current.stops(partition, Stage.COPYING):
            raise CallFailedError(FailureKind.NO_ANSWER, "not asked")
        async with super().calls_at(partition, client_url) as calls:
            yield calls
