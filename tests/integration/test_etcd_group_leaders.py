"""Leaders of real groups: how an election is seen, and what a host that closes leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rebalance.core.assignments.assignment import Assignments
from rebalance.ports.groups import ChangeAnswer
from tests.fixtures.group_hosts import IMPATIENT, P0, Hosts, url


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[Hosts]:
    running = Hosts(tmp_path)
    yield running
    await running.close()


@pytest.mark.row("I3-041")
async def test_each_leadership_has_a_term_of_its_own(hosts: Hosts) -> None:
    """S089, I3-041: however often members are looked at, a term has one leader, a hand-over ends it."""
    for name in ("a", "b", "c"):
        hosts.open(name)
    leader = await hosts.found(P0, "a", "b", "c")
    led: set[tuple[str, int]] = set()
    seen: set[int] = set()
    for _ in range(3):
        for _ in range(5):
            for name in hosts.hosts:
                status = await hosts.status(name, P0)
                led |= {(name, status.term)} if status.is_leader else set()
        terms = [term for _, term in led]
        assert len(terms) == len(set(terms))
        assert set(terms) > seen
        seen = set(terms)
        leader = "abc"[("abc".index(leader) + 1) % 3]
        await hosts.hand_over(P0, leader)


async def test_a_host_that_closes_ends_its_changes(hosts: Hosts) -> None:
    """S092, S093: a change under way ends without a word, so that nothing is tried again."""
    hosts.joins, hosts.tuning = False, IMPATIENT
    for name in ("a", "b"):
        hosts.open(name)
    await hosts.found(P0, "a")
    await hosts.hosts["b"].reserve(P0)
    host, term = hosts.hosts["a"], (await hosts.status("a", P0)).term
    both = {"a": url(hosts, "a"), "b": url(hosts, "b")}
    asked = await host.change_peers_and_learners(P0, term, 5, Assignments(("a", "b")), both)
    assert asked is ChangeAnswer.RECEIVED
    await hosts.until_listed(P0, "a", "b")
    await host.close()
    before = list(hosts.events)
    # Longer than the time after which an attempt reports that its member did not start.
    await asyncio.sleep(1.3)
    assert hosts.events == before
