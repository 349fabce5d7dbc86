"""Every way in which an attempt at a change of peers fails, with real members: how its last step ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from rebalance.core.assignments.assignment import Assignments
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.ports.groups import ChangeAnswer, FailureCode
from tests.fixtures.group_hosts import P0, TUNING, Hosts, etcd_processes
from tests.fixtures.strict_steps import STRICT_STEPS

FOUNDERS = ("a", "b", "c")
ALL = (*FOUNDERS, "d")
NO_FAILURE = {FailureCode.CANCELLED, FailureCode.CATCHING_UP, FailureCode.METASTORE_SILENT}
"""A change that was cancelled calls no hook; the others are what a change waits for."""


@pytest.fixture
async def injected(tmp_path: Path) -> AsyncIterator[Injected]:
    hosts = Hosts(tmp_path, tuning=replace(TUNING, catch_up_timeout_s=0.5))
    for name in ALL:
        hosts.open(name)
    await hosts.found(P0, *FOUNDERS)
    await hosts.hosts["d"].reserve(P0)
    yield Injected(hosts)
    for process in etcd_processes(tmp_path):
        process.resume()
    await hosts.close()


class Injected:
    """A group of three and one more host, whose changes fail as a test wants it."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.seen: set[FailureCode] = set()
        self._token = 0

    async def leading(self) -> tuple[str, EtcdGroupHost, int]:
        name = await self.hosts.leader(P0)
        return name, self.hosts.hosts[name], (await self.hosts.status(name, P0)).term

    async def ask(self, target: Assignments, **urls: str) -> tuple[int, int]:
        """A request that is taken up; the term and the token of it."""
        known = {name: host.endpoints(P0) for name, host in self.hosts.hosts.items()}
        every = {name: each.peer_url for name, each in known.items() if each} | urls
        self._token += 1
        async with asyncio.timeout(60):
            while True:
                _, host, term = await self.leading()
                self.hosts.events.clear()
                wanted = {name: every[name] for name in target.peers}
                answer = await host.change_peers_and_learners(P0, term, self._token, target, wanted)
                if answer is ChangeAnswer.RECEIVED:
                    return term, self._token
                await asyncio.sleep(0.1)

    async def fails(self, code: FailureCode, target: Assignments, **urls: str) -> None:
        """Asked for again and again, the change comes to fail with ``code``. Every report is of the request."""
        async with asyncio.timeout(60):
            while code not in self.seen:
                asked = await self.ask(target, **urls)
                await self.is_reported(asked)
                await asyncio.sleep(0.1)

    async def is_reported(self, asked: tuple[int, int]) -> None:
        code, *request = await self.hosts.event("error")
        assert isinstance(code, FailureCode)
        assert tuple(request) == asked
        self.seen.add(code)


@pytest.mark.row("I3-043")
async def test_every_failure_is_reported_with_its_request(injected: Injected) -> None:
    """I3-043: each kind of failure is injected, and the last event has its code, the leader's term, and the
    token of the request, which stands for its target. Two are shown elsewhere: the time-out of a copy in
    ``test_a_slow_copy_outlives_every_fault``, an unexpected error in ``test_unexpected_errors``."""
    hosts, four = injected.hosts, Assignments(ALL)
    await injected.fails(FailureCode.REFUSED, four, d="ftp://127.0.0.1:1")
    hosts.joins = False
    await injected.fails(FailureCode.MEMBER_NOT_STARTED, four)

    while FailureCode.LEADER_STEPPED_DOWN not in injected.seen:
        leader, _, _ = await injected.leading()
        asked = await injected.ask(four)
        await hosts.hand_over(P0, next(name for name in FOUNDERS if name != leader))
        await injected.is_reported(asked)

    hosts.joins, hosts.finishes = True, False
    await injected.fails(FailureCode.SUPERSEDED, four)
    hosts.finishes = True
    asked = await injected.ask(Assignments(FOUNDERS))
    assert await hosts.event("applied") == (Assignments(FOUNDERS), *asked)
    await hosts.hosts["d"].stop(P0, destroy=True)
    await hosts.hosts["d"].reserve(P0)

    leader, _, _ = await injected.leading()
    other, third = (name for name in FOUNDERS if name != leader)
    hosts.without_mirror = frozenset((third,))
    await injected.fails(FailureCode.MIRROR_NOT_RUNNING, Assignments((leader, other), (third,)))
    hosts.without_mirror = frozenset()
    hosts.down = frozenset((other,))
    await injected.fails(FailureCode.NO_MAJORITY, Assignments((leader, other)))
    hosts.down = frozenset()

    process = {name: etcd_processes(hosts.directory / name)[0] for name in FOUNDERS}
    process[other].suspend()
    await injected.fails(FailureCode.TRANSFER_FAILED, Assignments((other,)))
    process[other].resume()
    while FailureCode.TIMED_OUT not in injected.seen:
        leader, _, _ = await injected.leading()
        asked = await injected.ask(four)
        frozen = [process[name] for name in FOUNDERS if name != leader]
        for each in frozen:
            each.suspend()
        await injected.is_reported(asked)
        for each in frozen:
            each.resume()
    unseen = {FailureCode.CATCH_UP_TIMEOUT, FailureCode.DEFECT}
    if STRICT_STEPS:
        leader, _, _ = await injected.leading()
        injected.seen.discard(FailureCode.UNHEALTHY_CLUSTER)
        process[next(name for name in FOUNDERS if name != leader)].kill()
        await injected.fails(FailureCode.UNHEALTHY_CLUSTER, four)
    else:
        # The members check nothing, and beside a dead voter the nodes let the others go on.
        unseen.add(FailureCode.UNHEALTHY_CLUSTER)
    assert {*FailureCode} - NO_FAILURE - injected.seen == unseen
