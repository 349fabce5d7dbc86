"""A node behind a slow link gets a copy that takes long: a newer target waits for none, and a healthy one is
never given up. Whole node processes, each in a network of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rebalance.core.admission import Limits
from rebalance.core.assignments import Strategy
from rebalance.core.keys import PartitionId
from rebalance.core.records import MemberRole, Stage
from rebalance.core.txn import Get, Txn
from tests.cut_networks import CutNetworks, cut_networks, missing
from tests.cut_nodes import STORE, CutNodes
from tests.integration.test_node_cluster import NodeCluster, node_cluster, writing
from tests.integration.test_node_strategies import P0, alter

VALUE = b"0123456789abcdef" * (512 * 1024 // 16)
MB = 1 << 20
SLOW = "slow"
JOINER_S = 3
STATEMENT_S = 5.0
CONVERGENCE_S = 300.0


@dataclass(frozen=True)
class Link:
    """``rate``: bytes a second of the joiner's cable."""

    size: int
    rate: int


SLICE = Link(24 * MB, 2 * MB)
WHOLE = Link(512 * MB, 10_000_000)
LINKS = [
    pytest.param(SLICE, id="24MB"),
    pytest.param(WHOLE, marks=[pytest.mark.soak, pytest.mark.timeout(1800)], id="512MB"),
]


@pytest.fixture
def networks() -> Iterator[CutNetworks]:
    if reason := missing():
        pytest.skip(reason)
    with cut_networks(STORE, "n1", "n2", SLOW) as opened:
        yield opened


@pytest.fixture
def nodes(networks: CutNetworks, keyspace, tmp_path: Path) -> Iterator[CutNodes]:
    started = CutNodes(networks, keyspace, tmp_path)
    try:
        started.start_metastore()
        started.start("n1", "n2", SLOW)
        yield started
    finally:
        started.stop()


@pytest.fixture
async def cluster(nodes: CutNodes, keyspace, tmp_path: Path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(nodes.endpoint, keyspace, tmp_path) as running:
        await running.registered("n1", "n2", SLOW)
        await running.put(keyspace.limits, Limits(joiner_s=JOINER_S).encode())
        yield running


async def fill(cluster: NodeCluster, size: int) -> None:
    gate = asyncio.Semaphore(4)

    async def put(number: int) -> None:
        async with gate:
            await cluster.router.put(P0, f"large-{number}", VALUE, f"large-{number}", limit_s=90)

    await asyncio.gather(*map(put, range(size // len(VALUE))))


def received(nodes: CutNodes) -> int:
    """Bytes of the snapshot that the slow node has so far; 0 before it and after it."""
    snapshots = nodes.data_dir(SLOW).glob("members/*/data/member/snap/*")
    try:
        return max((each.stat().st_size for each in snapshots), default=0)
    except FileNotFoundError:  # A snapshot became the store in this moment.
        return 0


def is_copying(cluster: NodeCluster, nodes: CutNodes, link: Link, *voters: str) -> bool:
    """The slow node has a part and not the whole, beside ``voters``."""
    configuration = cluster.configuration(P0)
    if configuration is None:
        return False
    roles = {name: each.role for name, each in configuration.members.items()}
    listed = {**dict.fromkeys(voters, MemberRole.VOTER), SLOW: MemberRole.LEARNER}
    return roles == listed and MB < received(nodes) < link.size // 2


@pytest.mark.parametrize("link", LINKS)
async def test_a_newer_target_waits_for_no_slow_copy(
    link: Link, networks: CutNetworks, nodes: CutNodes, cluster: NodeCluster
) -> None:
    """I3A-002, I3A-003, I3A-004: `update` and `cancel`, the first joiner and the second: the newer target is
    applied within seconds of the statement, while the copy has minutes to go."""
    await cluster.write_stable(P0, "n1", "n2")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"), CONVERGENCE_S)
    await fill(cluster, link.size)
    networks.slow(SLOW, rate=link.rate)
    event = 10
    async with writing(cluster, P0) as writer:
        for strategy in (Strategy.UPDATE, Strategy.CANCEL):
            for voters, newer in ((("n1", "n2"), ("n1",)), (("n1", "n2"), ("n1", "n2"))):
                event += 10
                stable = cluster.stable(P0)
                asked = (*newer, SLOW)
                await alter(cluster, strategy, event, *asked)
                await cluster.until(lambda voters=voters: is_copying(cluster, nodes, link, *voters), CONVERGENCE_S)
                begun = time.monotonic()
                await alter(cluster, strategy, event + 1, *newer)
                await cluster.until(lambda newer=newer: cluster.stable(P0) == set(newer))
                took_s = time.monotonic() - begun
                print(f"{strategy.value}: {sorted(stable)} -> {asked} -> {newer}: {took_s:.2f} s")
                await cluster.until(lambda newer=newer: cluster.settled(P0, *newer), CONVERGENCE_S)
                assert took_s < STATEMENT_S
    await writer.check()
