"""A group of 1 GB moves: through snapshots of its whole size, also when the new member is killed on the way.

A slice of 32 MB is in `make test-all`.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.files.etcd_tuning import EtcdTuning
from tests.fixtures.node_cluster import NodeCluster, node_cluster, writing
from tests.fixtures.node_processes import members_below
from tests.fixtures.strict_steps import STRICT_STEPS

P0 = PartitionId(ZoneId(7), 0)
VALUE = b"0123456789abcdef" * (512 * 1024 // 16)
GB = 1 << 30
PART = 1 << 20
TUNING = EtcdTuning(
    heartbeat_ms=200, election_ms=2_000, quota_bytes=4 * GB, stop_grace_s=1.0, strict_steps=STRICT_STEPS
)
CONVERGENCE_S = 300.0


async def fill(cluster: NodeCluster, size: int) -> int:
    """Returns how many values were put."""
    count, gate = size // len(VALUE), asyncio.Semaphore(4)

    async def put(number: int) -> None:
        async with gate:
            await cluster.router.put(P0, f"large-{number}", VALUE, f"large-{number}")

    await asyncio.gather(*map(put, range(count)))
    return count


async def killed_while_it_joins(cluster: NodeCluster, name: str) -> None:
    """Returns once a process of ``name``'s member was killed while it had no vote yet: stopped once a part
    of the data has come, because on a fast disk the rest takes no time."""
    directory = cluster.directory / name

    def has_a_part() -> bool:
        try:
            return any(held.stat().st_size > PART for held in directory.glob("members/*/data/member/snap/*db*"))
        except FileNotFoundError:  # A snapshot became the store in this moment.
            return False

    await cluster.until(has_a_part, CONVERGENCE_S)
    joining = members_below(directory)
    for process in joining:
        process.send_signal(signal.SIGSTOP)
    assert cluster.stable(P0) != frozenset(("n2", "n3", "n4"))
    for process in joining:
        process.send_signal(signal.SIGKILL)


@pytest.mark.thorough("test_node_moves moves a small one")
@pytest.mark.row("I3-027")
@pytest.mark.parametrize(
    "size",
    [32 << 20, pytest.param(GB, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])],
    ids=["32MB", "1GB"],
)
async def test_a_large_group_moves(size: int, etcd_server, keyspace, tmp_path: Path) -> None:
    """I3-027, I3-053: no put fails, everything is read back from the members that are there then, and
    the new member has all of it."""
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as cluster:
        cluster.start("n1", "n2", "n3", "n4", tuning=TUNING)
        await cluster.write_stable(P0, "n1", "n2", "n3")
        await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"), CONVERGENCE_S)
        count = await fill(cluster, size)
        async with writing(cluster, P0) as writer:
            await cluster.write_pending(P0, "n2", "n3", "n4")
            await killed_while_it_joins(cluster, "n4")
            took_s = await cluster.until(lambda: cluster.settled(P0, "n2", "n3", "n4"), CONVERGENCE_S)
        await writer.check()
        print(f"{size >> 20} MB: {took_s:.1f} s, {len(writer.written)} puts, longest {writer.longest_s:.2f} s")
        for number in range(0, count, max(1, count // 50)):
            assert (await cluster.router.get(P0, f"large-{number}")).value == VALUE
        status = await cluster.nodes["n4"].host.status(P0)
        assert status is not None
        assert status.size_bytes >= size
