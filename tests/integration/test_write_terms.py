"""Conditions and abandoned ids of writes, in a real group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rebalance.core.keyspace.write_terms import WriteTerms
from rebalance.data.group_attempts import ATTEMPT_LIMITS_S
from rebalance.data.zone_router import ZoneRouter
from rebalance.ports.groups import ConditionFailedError, OperationAbandonedError
from tests.fixtures.group_hosts import P0, Fixed, Hosts, member_process


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[ZoneRouter]:
    async with opened(tmp_path) as (_, router):
        yield router


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[tuple[Hosts, ZoneRouter]]:
    hosts = Hosts(tmp_path)
    hosts.open("a")
    await hosts.found(P0, "a")
    endpoints = hosts.hosts["a"].endpoints(P0)
    assert endpoints is not None
    router = ZoneRouter(Fixed((endpoints.client_url,)), time_limit_s=60.0)
    yield hosts, router
    await router.close()
    await hosts.close()


async def test_a_late_put_finds_its_id_taken(router: ZoneRouter) -> None:
    """Refuse a late put whose id was abandoned. One that was applied before is not abandoned, and its
    repetition is answered as applied."""
    await router.put(P0, "k", b"early", "early")
    await router.put(P0, "k", b"B", "b", terms=WriteTerms(abandons=("a", "early")))
    with pytest.raises(OperationAbandonedError, match="operation a was abandoned"):
        await router.put(P0, "k", b"A", "a")
    assert (await router.put(P0, "k", b"early", "early")).repeated
    assert (await router.put(P0, "k", b"B", "b", terms=WriteTerms(abandons=("a",)))).repeated
    assert (await router.get(P0, "k")).value == b"B"
    with pytest.raises(ValueError, match="cannot abandon itself"):
        await router.put(P0, "k", b"A", "a", terms=WriteTerms(abandons=("a",)))


async def test_a_write_that_is_refused_abandons_nothing(router: ZoneRouter) -> None:
    await router.put(P0, "k", b"before", "before")
    with pytest.raises(ConditionFailedError):
        await router.put(P0, "k", b"B", "b", terms=WriteTerms(if_absent=True, abandons=("a",)))
    await router.put(P0, "k", b"A", "a")
    assert (await router.get(P0, "k")).value == b"A"


async def test_a_refused_write_stays_refused_though_an_attempt_of_it_was_late(tmp_path: Path) -> None:
    """A member that stands still for longer than an attempt may take: what it has in its socket comes late."""
    async with opened(tmp_path) as (hosts, router):
        await router.put(P0, "k", b"before", "before")
        member = member_process(hosts, "a")
        member.suspend()
        late = asyncio.create_task(router.put(P0, "k", b"B", "b", terms=WriteTerms(if_absent=True)))
        await asyncio.sleep(ATTEMPT_LIMITS_S[0] + 0.5)
        member.resume()
        with pytest.raises(ConditionFailedError, match="wanted: no such key"):
            await late
        await router.put(P0, "k", None, "deleted")
        with pytest.raises(OperationAbandonedError):
            await router.put(P0, "k", b"B", "b", terms=WriteTerms(if_absent=True))
        assert (await router.get(P0, "k")).value is None


async def test_conditions(router: ZoneRouter) -> None:
    """Apply a put with a condition once, also when it is sent again and the condition fails then."""
    first = await router.put(P0, "k", b"1", "first", terms=WriteTerms(if_absent=True))
    assert (await router.get(P0, "k")).revision == first.revision
    again = await router.put(P0, "k", b"1", "first", terms=WriteTerms(if_absent=True))
    assert (again.repeated, again.revision) == (True, first.revision)
    with pytest.raises(ConditionFailedError, match=f"is at revision {first.revision}; wanted: no such key"):
        await router.put(P0, "k", b"2", "second", terms=WriteTerms(if_absent=True))
    changed = await router.put(P0, "k", b"3", "third", terms=WriteTerms(if_revision=first.revision))
    with pytest.raises(ConditionFailedError, match=f"wanted: revision {first.revision}"):
        await router.put(P0, "k", None, "fourth", terms=WriteTerms(if_revision=first.revision))
    assert (await router.get(P0, "k")).value == b"3"
    await router.put(P0, "k", None, "fifth", terms=WriteTerms(if_revision=changed.revision))
    assert (await router.get(P0, "k")).value is None
    with pytest.raises(ConditionFailedError, match="does not exist; wanted: revision"):
        await router.put(P0, "k", b"6", "sixth", terms=WriteTerms(if_revision=changed.revision))
    seventh = await router.put(P0, "k", None, "seventh", terms=WriteTerms(if_absent=True))
    assert not seventh.repeated or seventh.attempts > 1
