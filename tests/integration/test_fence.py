"""The fence of a node with real processes: what stops when the metastore does not hear it, and what goes on."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from rebalance.core.admission.move_admission import Limits
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.topology.fencing import FenceRecord
from tests.fixtures.cut_networks import cut_networks, missing
from tests.fixtures.fenced_node import (
    AVAILABLE,
    FENCE_S,
    LEASE_S,
    NODE,
    STOP_S,
    STORE,
    STRONG,
    FencedNode,
    Here,
    Sites,
)
from tests.fixtures.needs import need
from tests.fixtures.node_cluster import NodeCluster, node_cluster
from tests.fixtures.puts import is_applied_once

RENEWAL_S = LEASE_S / 3
BUSY_S = 1.0
"""Seconds that this test's own polling of processes may add on a busy machine."""
RETURN_S = 60.0
SHARED = Keyspace("test-fence/")
Whole = tuple[FencedNode, NodeCluster]


@asynccontextmanager
async def running(directory: Path, keyspace: Keyspace, sites: Sites, *options: str) -> AsyncIterator[Whole]:
    """A node with a partition of each mode, and what looks at it from here."""
    node = FencedNode(directory, keyspace, sites)
    try:
        node.start_metastore()
        node.start_node(*options)
        async with node_cluster(node.endpoint, keyspace, directory) as cluster:
            await node.found(cluster)
            yield node, cluster
    finally:
        node.close()


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FencedNode]:
    node = FencedNode(tmp_path_factory.mktemp("fenced"), SHARED, Here())
    try:
        node.start_metastore()
        yield node
    finally:
        node.close()


@pytest.fixture
async def whole(shared_node: FencedNode, tmp_path: Path) -> AsyncIterator[Whole]:
    """The shared node and its cluster, running on this machine with its own settings, whatever state the test
    before has left; its log begins here."""
    if not shared_node.runs():
        shared_node.start_node()
    async with node_cluster(shared_node.endpoint, SHARED, tmp_path) as cluster:
        await cluster.put(SHARED.limits, Limits().encode())
        await shared_node.found(cluster)
        shared_node.forget_log()
        yield shared_node, cluster
        if shared_node.runs():
            shared_node.signal(signal.SIGCONT)


async def seconds_until_it_ends(node: FencedNode, partition: PartitionId, limit_s: float) -> float:
    begun, pid = time.monotonic(), node.member(partition)
    assert pid is not None
    while lives(pid):
        assert time.monotonic() - begun < limit_s, f"the member runs after {limit_s:g} s"
        await asyncio.sleep(0.02)
    return time.monotonic() - begun


def lives(pid: int) -> bool:
    """A stopped agent waits for no child: what has ended is there as a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def serves(cluster: NodeCluster, partition: PartitionId, operation: str) -> None:
    put = await cluster.router.put(partition, operation, b"2", operation, limit_s=RETURN_S)
    assert is_applied_once(put)
    assert (await cluster.router.get(partition, "k", limit_s=RETURN_S)).value == b"1"


def print_end(what: str, seconds: float) -> None:
    print(f"{what}: the member of HIGH_AVAILABILITY ended after {seconds:.2f} s, fence {FENCE_S:g} s")


LONG = pytest.param(60.0, marks=pytest.mark.soak, id="60s")


@pytest.mark.parametrize("outage_s", [pytest.param(10.0, id="10s"), LONG])
async def test_an_outage_of_the_metastore_stops_no_member(whole: Whole, outage_s: float) -> None:
    """Stop the metastore's processes, so that they refuse connections: no lease can end. The same members serve
    all the time, and afterwards."""
    node, cluster = whole
    before = {partition: node.member(partition) for partition in (STRONG, AVAILABLE)}
    assert None not in before.values()
    node.stop_metastore()
    begun = time.monotonic()
    while (past_s := time.monotonic() - begun) < outage_s:
        for partition in before:
            await serves(cluster, partition, f"op-{past_s}-{partition}")
        await asyncio.sleep(1)
    node.start_metastore()
    await asyncio.sleep(FENCE_S + 2)
    assert {partition: node.member(partition) for partition in (STRONG, AVAILABLE)} == before
    assert "the node is fenced" not in node.log()


@pytest.mark.thorough("test_a_cut_ends_the_members_that_may_be_replaced")
async def test_where_refusals_are_not_trusted_an_outage_is_a_cut(keyspace, tmp_path) -> None:
    """A proxy refuses for a metastore that lives. Members of STRONG_CONSISTENCY go on."""
    async with running(tmp_path, keyspace, Here(), "--no-trust-refusals") as (node, cluster):
        strong = node.member(STRONG)
        node.stop_metastore()
        ended_s = await seconds_until_it_ends(node, AVAILABLE, FENCE_S + STOP_S + BUSY_S)
        print_end("an outage that is not believed", ended_s)
        await asyncio.sleep(2)
        assert node.member(AVAILABLE) is None
        assert node.member(STRONG) == strong
        node.start_metastore()
        await serves(cluster, AVAILABLE, "after")


@pytest.fixture
def networks() -> Iterator[Sites]:
    need(missing())
    with cut_networks(STORE, NODE) as opened:
        yield opened


async def test_a_cut_ends_the_members_that_may_be_replaced(keyspace, tmp_path, networks) -> None:
    """Cut the node off from a metastore that neither answers nor refuses: the replaceable member ends, not
    before the fence is over, counted from the last renewal; the node's clients get no answer from it
    afterwards. Once the link is whole both serve, with their data."""
    async with running(tmp_path, keyspace, networks) as (node, cluster):
        strong = node.member(STRONG)
        networks.cut(STORE, NODE)
        ended_s = await seconds_until_it_ends(node, AVAILABLE, FENCE_S + STOP_S + BUSY_S)
        print_end("a cut", ended_s)
        assert ended_s > FENCE_S - RENEWAL_S - STOP_S
        await asyncio.sleep(3)
        assert node.member(AVAILABLE) is None
        assert node.member(STRONG) == strong
        await serves(cluster, STRONG, "while cut")
        networks.heal()
        await serves(cluster, AVAILABLE, "healed")
        assert node.member(STRONG) == strong


async def test_a_stopped_agent_leaves_no_such_member_serving(whole: Whole) -> None:
    """Stop the agent's process alone, whose members are no threads of it. It goes on where it was, and starts
    the killed member again: no crash, no wait."""
    node, cluster = whole
    strong = node.member(STRONG)
    node.signal(signal.SIGSTOP)
    ended_s = await seconds_until_it_ends(node, AVAILABLE, FENCE_S + STOP_S + BUSY_S)
    print_end("a stopped agent", ended_s)
    assert strong is not None
    assert lives(strong)
    await serves(cluster, STRONG, "while stopped")
    node.signal(signal.SIGCONT)
    await serves(cluster, AVAILABLE, "afterwards")
    assert node.member(STRONG) == strong
    assert "member was ended" in node.log()
    assert "member process ended" not in node.log()


async def test_a_killed_watchdog_is_replaced_and_kept_to(whole: Whole) -> None:
    """Members go on; the next one guards them."""
    node, _ = whole
    before = {partition: node.member(partition) for partition in (STRONG, AVAILABLE)}
    first = node.watchdog()
    assert first is not None
    first.kill()
    async with asyncio.timeout(RETURN_S):
        while (second := node.watchdog()) is None or second.pid == first.pid:
            await asyncio.sleep(0.05)
        while "watchdog started" not in node.log():
            await asyncio.sleep(0.05)
    await asyncio.sleep(FENCE_S)
    assert {partition: node.member(partition) for partition in (STRONG, AVAILABLE)} == before
    node.signal(signal.SIGSTOP)
    await seconds_until_it_ends(node, AVAILABLE, FENCE_S + STOP_S + BUSY_S)


async def test_the_fence_is_published_and_follows_the_limits(whole: Whole) -> None:
    node, cluster = whole

    async def published() -> FenceRecord:
        item = await cluster.metastore.get(SHARED.fence(NODE))
        assert item is not None
        return FenceRecord.decode(item.value)

    entry = await cluster.metastore.get(SHARED.node(NODE))
    assert entry is not None
    incarnation = NodeRecord.decode(entry.value).incarnation
    assert await published() == FenceRecord(incarnation, int(1_000 * FENCE_S))
    for reset_s, fence_ms in ((20, 16_000), (7, 3_000)):
        await cluster.put(SHARED.limits, Limits(ha_reset_s=reset_s).encode())
        async with asyncio.timeout(RETURN_S):
            while (await published()).fence_ms != fence_ms:
                await asyncio.sleep(0.05)
    # It keeps to what it has published.
    node.signal(signal.SIGSTOP)
    await seconds_until_it_ends(node, AVAILABLE, 3.0 + STOP_S + BUSY_S)


async def test_a_killed_agent_leaves_no_member(whole: Whole) -> None:
    node, _ = whole
    pids = [node.member(partition) for partition in (STRONG, AVAILABLE)]
    dog = node.watchdog()
    node.signal(signal.SIGKILL)
    async with asyncio.timeout(RETURN_S):
        while any(pid is not None and lives(pid) for pid in pids):
            await asyncio.sleep(0.02)
        while dog is not None and dog.is_running():
            await asyncio.sleep(0.02)
