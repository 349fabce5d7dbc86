"""Conditions and abandoned ids of writes, in a real group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rebalance.core.write_terms import WriteTerms
from rebalance.groups.router import Router
from rebalance.ports.write_refusals import ConditionFailedError, OperationAbandonedError
from tests.fixtures.group_hosts import P0, Fixed, Hosts


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[Router]:
    hosts = Hosts(tmp_path)
    hosts.open("a")
    await hosts.found(P0, "a")
    endpoints = hosts.hosts["a"].endpoints(P0)
    assert endpoints is not None
    router = Router(Fixed((endpoints.client_url,)), time_limit_s=60.0)
    yield router
    await router.close()
    await hosts.close()


async def test_a_late_put_finds_its_id_taken(router: Router) -> None:
    """One that was applied before is not abandoned, and whoever repeats it is told that it was applied."""
    await router.put(P0, "k", b"early", "early")
    await router.put(P0, "k", b"B", "b", terms=WriteTerms(abandons=("a", "early")))
    with pytest.raises(OperationAbandonedError, match="operation a was abandoned"):
        await router.put(P0, "k", b"A", "a")
    assert (await router.put(P0, "k", b"early", "early")).repeated
    assert (await router.put(P0, "k", b"B", "b", terms=WriteTerms(abandons=("a",)))).repeated
    assert (await router.get(P0, "k")).value == b"B"
    with pytest.raises(ValueError, match="cannot abandon itself"):
        await router.put(P0, "k", b"A", "a", terms=WriteTerms(abandons=("a",)))


async def test_a_write_that_is_refused_abandons_nothing(router: Router) -> None:
    await router.put(P0, "k", b"before", "before")
    with pytest.raises(ConditionFailedError):
        await router.put(P0, "k", b"B", "b", terms=WriteTerms(if_absent=True, abandons=("a",)))
    assert not (await router.put(P0, "k", b"A", "a")).repeated


async def test_conditions(router: Router) -> None:
    """What was done with a condition is done once, also when it is sent again and the condition fails then."""
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
    assert not (await router.put(P0, "k", None, "seventh", terms=WriteTerms(if_absent=True))).repeated
