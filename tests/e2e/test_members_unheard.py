"""Members that the metastore does not hear, or that hear nothing of it, go on serving a STRONG_CONSISTENCY
zone: whole processes, each at a site of its own. In every run the zone beside the one of ``test_fenced_zones``
shows it; here each member does."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from tests.e2e.installation import wait_for
from tests.fixtures.cut_installation import NODES, CutInstallation
from tests.fixtures.fenced_trial import RESET_S
from tests.fixtures.pinned_puts import Acknowledged, PinnedPuts, outlived, pinned_puts

pytestmark = pytest.mark.timeout(600)

UNHEARD = NODES[:2]
SILENT_S = RESET_S + 1.0
"""Seconds after the lease's end in which zones of HIGH_AVAILABILITY would be reset."""
ANSWER_S = 60.0


@pytest.fixture(scope="module")
def whole(cuttable: CutInstallation) -> CutInstallation:
    limits = cuttable.zonectl("rebalance", "limits", "--ha-reset", f"{RESET_S}s")
    assert limits.returncode == 0, limits.stderr
    cuttable.execute("CREATE ZONE unheard (PARTITIONS 1, REPLICAS 3)")
    return cuttable


@dataclass(frozen=True, slots=True)
class Group:
    partition: PartitionId
    urls: dict[str, str]
    """Node -> where its member takes clients."""


@pytest.fixture
def group(whole: CutInstallation) -> Group:
    (zone,) = whole.get("/api/v1/zones")["zones"]
    (partition,) = whole.partitions("UNHEARD")
    urls = {each["node"]: each["client_url"] for each in partition["members"]}
    return Group(PartitionId(ZoneId(zone["zone_id"]), 0), urls)


async def answers(puts: PinnedPuts, *urls: str) -> None:
    """Returns once each has acknowledged a put that began after this call."""
    begun, deadline = time.monotonic_ns(), time.monotonic() + ANSWER_S
    while {each.endpoint for each in puts.since(begun, *urls)} != set(urls):
        assert time.monotonic() < deadline, puts.failures
        await asyncio.sleep(0.05)


def test_two_groups_that_both_serve_are_seen() -> None:
    """Report only puts that began after the later group's first acknowledgement as too late."""

    def put(generation: int | None, invoked: int, returned: int) -> Acknowledged:
        return Acknowledged("http://n1:1", generation, "k", "v", invoked, returned)

    fine = [put(0, 1, 2), put(0, 3, 6), put(1, 3, 5), put(None, 8, 9), put(1, 8, 9)]
    late = put(0, 6, 7)
    assert not outlived(fine)
    assert outlived([*fine, late]) == [late]


@pytest.mark.row("H1")
@pytest.mark.soak
async def test_members_whose_nodes_are_cut_from_the_metastore_go_on(
    whole: CutInstallation, group: Group
) -> None:
    """Let a majority that the metastore does not hear acknowledge puts all the time, through every member: H1
    does not apply to it, and no other group is founded."""
    urls = tuple(group.urls.values())
    async with pinned_puts(group.partition, urls) as puts:
        await answers(puts, *urls)
        await asyncio.to_thread(whole.cut_from_metastore, *UNHEARD)
        await asyncio.to_thread(wait_for, "their leases' end", lambda: shown(whole).startswith("NO_MAJORITY"))
        await asyncio.sleep(SILENT_S)
        await answers(puts, *urls)
        await asyncio.to_thread(whole.networks.heal)
        await asyncio.to_thread(wait_for, "all well", lambda: whole.is_whole() and not shown(whole))
        await answers(puts, *urls)
    assert {each.generation for each in puts.acknowledged} == {0}
    assert not outlived(puts.acknowledged)


@pytest.mark.soak
async def test_members_whose_agents_stand_still_go_on(whole: CutInstallation, group: Group) -> None:
    """SIGSTOP of two agents only."""
    urls = tuple(group.urls.values())
    async with pinned_puts(group.partition, urls) as puts:
        await answers(puts, *urls)
        with whole.frozen_agents(*UNHEARD):
            await asyncio.to_thread(wait_for, "their leases' end", lambda: bool(shown(whole)))
            await asyncio.sleep(SILENT_S)
            await answers(puts, *urls)
        await asyncio.to_thread(wait_for, "all well", lambda: whole.is_whole() and not shown(whole))
        await answers(puts, *urls)
    assert {each.generation for each in puts.acknowledged} == {0}


@pytest.mark.row("H4")
@pytest.mark.soak
async def test_members_go_on_while_the_metastore_is_stopped(whole: CutInstallation, group: Group) -> None:
    """H4: an outage is no cut. No member stops, and none is another process afterwards."""
    urls = tuple(group.urls.values())
    before = {process.pid for process in whole.processes("etcd", "/members/")}
    async with pinned_puts(group.partition, urls) as puts:
        await answers(puts, *urls)
        with ExitStack() as stack:
            whole.stop_metastore()
            stack.callback(whole.start_metastore)
            await asyncio.sleep(SILENT_S)
            await answers(puts, *urls)
        await asyncio.to_thread(wait_for, "all well", lambda: whole.is_whole() and not shown(whole))
        await answers(puts, *urls)
    assert {each.generation for each in puts.acknowledged} == {0}
    assert {process.pid for process in whole.processes("etcd", "/members/")} == before


def shown(whole: CutInstallation) -> str:
    """The cause that the partition names; empty: it is at its target."""
    (partition,) = whole.partitions("UNHEARD")
    return str(partition["status"]["cause"])
