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
from rebalance.ports.groups import (
    CaughtUp,
    ChangeAnswer,
    Committed,
    GroupChange,
    GroupEvent,
    GroupMember,
    Intention,
    StepInput,
)
from tests.held_joiner import LOOK_S, HeldChange


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


class StagedChange(HeldChange):
    """Passes everything on."""

    def __init__(self, inner: GroupChange, partition: PartitionId, stops: Stops) -> None:
        super().__init__(inner, lambda: not stops.stops(partition, Stage.IN_SYNC))
        self._partition = partition
        self._stops = stops
        self._event: GroupEvent | None = None

    async def advance(self, given: StepInput) -> GroupEvent:
        match self._event:
            case CaughtUp() if given.intention is Intention.WANTED:
                await self._stops.passed(self._partition, Stage.LOCKED)
            case Committed(members):
                await self._stops.listed(self._partition, members)
        self._event = await super().advance(given)
        return self._event


class StagedHost(EtcdGroupHost):
    current: ClassVar[Stops] = Stops("", "", {})
    """The running test's."""

    def change(self, partition: PartitionId) -> GroupChange | None:
        change = super().change(partition)
        return StagedChange(change, partition, self.current) if change is not None else None

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
