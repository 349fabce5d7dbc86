"""Hosts of etcd groups on this machine, without agents and metastore, and who advances their changes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from catalog.core.zone import ZoneId
from rebalance.core.assignments import Assignments
from rebalance.core.keys import PartitionId
from rebalance.core.records import GroupRecord, MemberRole
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.groups.etcd_tuning import EtcdTuning
from rebalance.ports.groups import (
    NO_SIGHTS,
    Applied,
    CaughtUp,
    ChangeAnswer,
    Committed,
    Failed,
    FailureCode,
    GroupChange,
    GroupMember,
    Intention,
    MemberLife,
    MemberStatus,
    Paused,
    PeerSight,
    Route,
    StepInput,
)
from tests.ports import free_block
from tests.strict_steps import STRICT_STEPS

P0, P1 = PartitionId(ZoneId(3), 0), PartitionId(ZoneId(3), 1)
WAIT_S = 90.0
TUNING = EtcdTuning(
    heartbeat_ms=100, election_ms=1_000, stop_grace_s=1.0, catch_up_timeout_s=60.0, strict_steps=STRICT_STEPS
)
"""Nobody asks again here when an attempt of a change has ended: it has the time that a slow start takes."""
IMPATIENT = replace(TUNING, catch_up_timeout_s=1.0)
"""For members that are not started at all."""


@dataclass
class Hosts:
    """Some hosts, whose changes are advanced here; ``joins``: whether a listed learner is started."""

    directory: Path
    joins: bool = True
    held: frozenset[str] = frozenset()
    """Nodes whose listed learner is not started."""
    finishes: bool = True
    """Whether voters may be touched."""
    down: frozenset[str] = frozenset()
    without_mirror: frozenset[str] = frozenset()
    """What hosts are told of nodes, whatever they do: ``PeerSight``."""
    publishes: bool = True
    leaving: set[str] = field(default_factory=set)
    """Nodes that were to be published as leaving."""
    tuning: EtcdTuning = TUNING
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    hosts: dict[str, EtcdGroupHost] = field(default_factory=dict)
    ports: dict[str, range] = field(default_factory=dict)
    events: list[tuple[str, object, int, int]] = field(default_factory=list)

    def open(self, name: str) -> EtcdGroupHost:
        self.ports.setdefault(name, free_block(8))
        (self.directory / name).mkdir(exist_ok=True)
        host = AdvancedHost(self, self.directory / name, self.ports[name])
        host.open(name)
        self.hosts[name] = host
        return host

    async def close(self) -> None:
        for host in self.hosts.values():
            await host.close()
        await asyncio.gather(*self.tasks)

    def sights(self, partition: PartitionId) -> Mapping[str, PeerSight]:
        found = {name: host.endpoints(partition) for name, host in self.hosts.items()}
        return {
            each.peer_url: PeerSight(name, name in self.down, mirror_missing=name in self.without_mirror)
            for name, each in found.items()
            if each
        }

    async def advance(
        self, change: GroupChange, partition: PartitionId, target: Assignments, term: int, token: int
    ) -> None:
        """To its end, granting what it asks for. A change that was given up ends without an event."""
        given = StepInput(self.sights(partition))
        while True:
            event = await change.advance(given)
            given = StepInput(self.sights(partition), Intention.WANTED)
            match event:
                case Committed(members):
                    given = replace(given, published=await self.publish(partition, members))
                case CaughtUp() if not self.finishes:
                    given = replace(given, intention=Intention.REPLACED)
                case Paused(delay_s):
                    await asyncio.sleep(delay_s)
                case Applied():
                    await change.close()
                    self.events.append(("applied", Assignments(target.peers, target.learners), term, token))
                    return
                case Failed(failure):
                    await change.close()
                    if failure.code is not FailureCode.CANCELLED:
                        self.events.append(("error", failure.code, term, token))
                    return

    async def publish(self, partition: PartitionId, members: tuple[GroupMember, ...]) -> bool:
        for each in members:
            held = not self.joins or each.node in self.held
            if not held and each.role is MemberRole.LEARNER and not each.started:
                status = await self.hosts[each.node].status(partition)
                if status is not None and status.life is MemberLife.RESERVED:
                    peers = {known.node: known.peer_url for known in members}
                    await self.hosts[each.node].join(partition, peers)
        self.leaving |= {each.node for each in members if each.leaving}
        return self.publishes

    async def found(self, partition: PartitionId, *names: str) -> str:
        """Bootstraps a group on these hosts; returns the leader's name."""
        reserved = {name: (await self.hosts[name].reserve(partition)).peer_url for name in names}
        group = GroupRecord(f"token-{partition}", reserved)
        await asyncio.gather(*(self.hosts[name].bootstrap(partition, group) for name in names))
        return await self.leader(partition)

    async def leader(self, partition: PartitionId, timeout_s: float = WAIT_S) -> str:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for name, host in self.hosts.items():
                status = await host.status(partition)
                if status is not None and status.is_leader:
                    return name
            await asyncio.sleep(0.05)
        raise AssertionError("no leader")

    async def hand_over(self, partition: PartitionId, to: str) -> None:
        """Until ``to`` leads: a hand-over that takes longer than an election is given up by the group."""
        for _ in range(20):
            leader = await self.leader(partition)
            if leader == to:
                return
            await self.hosts[leader].transfer_leadership(partition, to)
        raise AssertionError(f"{to} never led")

    async def until_listed(self, partition: PartitionId, *names: str) -> None:
        """Exactly these are in the group's list, whatever their role, as the first one's host sees it."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if {each.node for each in await self.hosts[names[0]].configuration(partition)} == set(names):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"the group never was {names}")

    async def status(self, name: str, partition: PartitionId) -> MemberStatus:
        found = await self.hosts[name].status(partition)
        assert found is not None
        return found

    async def event(self, kind: str, timeout_s: float = WAIT_S) -> tuple[object, int, int]:
        """The first event of a kind, taken out of the list."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for each in self.events:
                if each[0] == kind:
                    self.events.remove(each)
                    return each[1:]
            await asyncio.sleep(0.02)
        raise AssertionError(f"no {kind}: {self.events}")


class AdvancedHost(EtcdGroupHost):
    """Its changes are advanced by ``hosts``, which also knows the names of all members."""

    def __init__(self, hosts: Hosts, directory: Path, ports: range) -> None:
        super().__init__(directory, ports, tuning=hosts.tuning, member_limit=3)
        self._hosts = hosts

    async def configuration(
        self, partition: PartitionId, sights: Mapping[str, PeerSight] = NO_SIGHTS, *, linearizable: bool = False
    ) -> tuple[GroupMember, ...]:
        known = sights or self._hosts.sights(partition)
        return await super().configuration(partition, known, linearizable=linearizable)

    async def change_peers_and_learners(
        self,
        partition: PartitionId,
        term: int,
        token: int,
        target: Assignments,
        endpoints: Mapping[str, str],
        stable: Sequence[str] = (),
    ) -> ChangeAnswer:
        answer = await super().change_peers_and_learners(partition, term, token, target, endpoints, stable)
        change = self.change(partition)
        if answer is ChangeAnswer.RECEIVED and change is not None:
            work = self._hosts.advance(change, partition, target, term, token)
            self._hosts.tasks.append(asyncio.create_task(work))
        return answer


class Fixed:
    """An endpoint source that changes only when a test says so; ``doubts`` counts what it was told."""

    def __init__(
        self, urls: tuple[str, ...], mirrors: tuple[str, ...] = (), generation: int | None = 0
    ) -> None:
        self.urls = urls
        self.mirrors = mirrors
        self.generation = generation
        self.doubts = 0

    def route(self, partition: PartitionId) -> Route:
        return Route(self.urls, self.generation)

    def learners(self, partition: PartitionId) -> tuple[str, ...]:
        return self.mirrors

    async def wait_for_change(self, partition: PartitionId, seen: Route, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)

    def doubt(self, partition: PartitionId) -> None:
        self.doubts += 1


def etcd_processes(directory: Path) -> list[psutil.Process]:
    """The etcd processes of this process that run on the directory or below it."""
    found = []
    for each in psutil.Process().children(recursive=True):
        # One that ends meanwhile has no command line any more.
        with contextlib.suppress(psutil.Error):
            if each.name() == "etcd" and any(f"={directory}" in part for part in each.cmdline()):
                found.append(each)
    return found


def member_process(hosts: Hosts, name: str) -> psutil.Process:
    """The etcd process of the host's only member."""
    (found,) = etcd_processes(hosts.directory / name / "members")
    return found
