"""Membership steps that the node beside the leader checks, with real members: what goes on beside a dead voter,
what waits for a frozen one, and groups whose nodes differ (S2, S3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from rebalance.core.assignments.assignment import Assignments
from rebalance.ports.groups import ChangeAnswer, FailureCode, ReconfigurationFailure
from tests.fixtures.group_hosts import P0, TUNING, WAIT_S, Hosts, etcd_processes, member_process

CHECKED = replace(TUNING, strict_steps=False)
HELD_S = 2.0
"""A step that may be sent is sent well within it."""


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[Hosts]:
    opened = Hosts(tmp_path, tuning=CHECKED)
    yield opened
    for process in etcd_processes(tmp_path):
        process.resume()
    await opened.close()


async def ask(hosts: Hosts, token: int, *names: str) -> tuple[str, int]:
    """Request the change until the leader has accepted the target; return its name and its term."""
    urls = {name: host.endpoints(P0) for name, host in hosts.hosts.items()}
    peer_urls = {name: each.peer_url for name, each in urls.items() if each}
    async with asyncio.timeout(WAIT_S):
        while True:
            leader = await hosts.leader(P0)
            term = (await hosts.status(leader, P0)).term
            target = Assignments(names)
            answer = await hosts.hosts[leader].change_peers_and_learners(P0, term, token, target, peer_urls)
            if answer in (ChangeAnswer.RECEIVED, ChangeAnswer.ALREADY_RUNNING):
                return leader, term
            await asyncio.sleep(0.05)


async def waiting_for(hosts: Hosts, leader: str, code: FailureCode) -> ReconfigurationFailure:
    async with asyncio.timeout(WAIT_S):
        while True:
            waiting = (await hosts.status(leader, P0)).waiting
            if waiting is not None and waiting.code is code:
                return waiting
            await asyncio.sleep(0.02)


async def listed(hosts: Hosts, asked: str) -> set[str]:
    return {each.node for each in await hosts.hosts[asked].configuration(P0)}


@pytest.mark.row("S2")
async def test_a_group_grows_beside_a_voter_that_is_dead(hosts: Hosts) -> None:
    """S2: grow a group with a dead voter while a majority of the voters answers, though etcd's own check would
    refuse a new member."""
    for name in ("a", "b", "c", "d"):
        hosts.open(name)
    leader = await hosts.found(P0, "a", "b", "c")
    await hosts.hosts["d"].reserve(P0)
    dead = next(name for name in ("a", "b", "c") if name != leader)
    member_process(hosts, dead).kill()
    await ask(hosts, 1, "a", "b", "c", "d")
    assert (await hosts.event("applied"))[0] == Assignments(("a", "b", "c", "d"))
    assert await listed(hosts, leader) == {"a", "b", "c", "d"}


@pytest.mark.row("S2", "S3")
async def test_no_voter_goes_while_one_that_stays_does_not_answer(hosts: Hosts) -> None:
    """S2, S3: a member that stands still is still connected, and its node says that it serves. It is named, and
    once it answers again the voter goes."""
    for name in ("a", "b", "c"):
        hosts.open(name)
    leader = await hosts.found(P0, "a", "b", "c")
    leaving, frozen = (name for name in ("a", "b", "c") if name != leader)
    process = member_process(hosts, frozen)
    process.suspend()
    await ask(hosts, 1, leader, frozen)
    waiting = await waiting_for(hosts, leader, FailureCode.NO_MAJORITY)
    endpoints = hosts.hosts[frozen].endpoints(P0)
    assert endpoints is not None
    assert waiting.peer_url == endpoints.peer_url
    await asyncio.sleep(HELD_S)
    assert leaving in await listed(hosts, leader)
    process.resume()
    assert (await hosts.event("applied"))[0] == Assignments((leader, frozen))


@pytest.mark.row("S3")
async def test_a_group_goes_by_the_node_that_leads(hosts: Hosts) -> None:
    """S3: a's member checks steps itself, and takes a second one only when the first one has been connected for
    five seconds. b's and c's do not."""
    hosts.tuning = replace(TUNING, strict_steps=True)
    hosts.open("a")
    hosts.tuning = CHECKED
    hosts.open("b")
    hosts.open("c")
    await hosts.found(P0, "a")
    for name in ("b", "c"):
        await hosts.hosts[name].reserve(P0)
    await ask(hosts, 1, "a", "b", "c")
    assert (await hosts.event("error"))[0] is FailureCode.UNHEALTHY_CLUSTER
    async with asyncio.timeout(WAIT_S):
        while not any(each[0] == "applied" for each in hosts.events):
            await ask(hosts, 1, "a", "b", "c")
            await asyncio.sleep(0.2)
    assert (await hosts.event("applied"))[0] == Assignments(("a", "b", "c"))
    hosts.events.clear()
    await hosts.hand_over(P0, "b")
    await ask(hosts, 2, "b")
    assert (await hosts.event("applied"))[0] == Assignments(("b",))
