"""A member without room: a store at its quota, and a disk without space."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import MemberState
from rebalance.ports.groups import GroupFullError
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.node_cluster import QUICK, NodeCluster, node_cluster, writing
from tests.fixtures.node_processes import lives, members_below

P0 = PartitionId(ZoneId(7), 0)
MIB = 1 << 20


@pytest.fixture
async def cluster(etcd_server: Etcd, keyspace: Keyspace, tmp_path: Path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


def reason(cluster: NodeCluster, name: str) -> str:
    found = cluster.record(P0, name)
    return found.reason if found else ""


def tellers(cluster: NodeCluster) -> set[str]:
    """Filled from now on: nodes that published that they are full. They may be done with it before one
    looks."""
    found: set[str] = set()
    names = {cluster.keyspace.member(P0, name): name for name in cluster.nodes}

    def note(changed: frozenset[str]) -> None:
        found.update(names[key] for key in changed & names.keys() if "FULL" in reason(cluster, names[key]))

    cluster.mirrors.members.listen(note)
    return found


def failures_for_want_of_space(cluster: NodeCluster, name: str) -> list[MemberState]:
    """Filled from now on: the state of the node's member whenever it is published as DISK_FULL. It is started
    again and again, and lives for a while each time."""
    found: list[MemberState] = []
    key = cluster.keyspace.member(P0, name)

    def note(changed: frozenset[str]) -> None:
        record = cluster.record(P0, name)
        if key in changed and record is not None and record.reason.startswith("DISK_FULL"):
            found.append(record.state)

    cluster.mirrors.members.listen(note)
    return found


async def fill(cluster: NodeCluster, keys: int, most: int) -> int:
    """Puts of half a MiB over a few keys until the group refuses one; how many it took."""
    for number in range(most):
        try:
            await cluster.router.put(P0, f"k{number % keys}", os.urandom(MIB // 2), f"op-{number}")
        except GroupFullError:
            return number
    raise AssertionError(f"{most} puts fitted")


async def test_a_store_full_of_history_tidies_up(cluster: NodeCluster) -> None:
    """Refuse puts at once at the group's quota, with a code of its own; what was acknowledged stays readable.
    Each node compacts and defragments its member, and puts are taken again without any operator's help."""
    cluster.start("n1", "n2", "n3", tuning=replace(QUICK, quota_bytes=24 * MIB))
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await cluster.router.put(P0, "kept", b"as it was", "op-kept")
    told = tellers(cluster)
    assert await fill(cluster, keys=4, most=200) > 20
    assert (await cluster.router.get(P0, "kept")).value == b"as it was"
    await cluster.until(lambda: bool(told))
    for attempt in range(300):
        try:
            await cluster.router.put(P0, "after", b"taken again", f"op-after-{attempt}")
            break
        except GroupFullError:
            await asyncio.sleep(0.1)
    assert (await cluster.router.get(P0, "after")).value == b"taken again"
    await cluster.until(lambda: not any("FULL" in reason(cluster, name) for name in ("n1", "n2", "n3")))


async def test_a_store_full_of_data_stays_readable(cluster: NodeCluster) -> None:
    """Tidying up gives nothing back: puts stay refused, reads go on, the reason is published."""
    cluster.start("n1", tuning=replace(QUICK, quota_bytes=16 * MIB))
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    written = await fill(cluster, keys=1_000, most=200)
    await cluster.until(lambda: reason(cluster, "n1").startswith("FULL: "))
    await asyncio.sleep(2)
    with pytest.raises(GroupFullError):
        await cluster.router.put(P0, "one more", b"v" * MIB, "op-more")
    assert (await cluster.router.get(P0, f"k{written - 1}")).value is not None


def occupy(path: Path) -> None:
    with path.open("wb") as stream:
        while True:
            stream.write(b"\0" * MIB)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own: a segment of the write-ahead log takes 64 MiB."""
    directory = tmp_path / "n3"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", str(directory)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


async def test_a_full_disk_fails_its_member_alone(cluster: NodeCluster, small_disk: Path) -> None:
    """The group goes on without it and loses nothing; once there is space the member comes back by itself."""
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    told = failures_for_want_of_space(cluster, "n3")
    async with writing(cluster, P0) as writer:
        ballast = small_disk / "ballast"
        with pytest.raises(OSError, match="No space left"):
            occupy(ballast)
        big = os.urandom(MIB)
        async with asyncio.timeout(90):
            for number in itertools.count():
                if told:
                    break
                if any(map(lives, members_below(small_disk))):
                    # Its segment of the log is preallocated: the disk is needed for more than that. Nothing is
                    # put while it is away: what the others have by then must fit on the disk later.
                    await cluster.router.put(P0, f"big{number % 8}", big, f"big-{number}")
                await asyncio.sleep(0.02)
        assert told[0] is MemberState.FAILED
        ballast.unlink()
        await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await writer.check()


async def test_a_full_disk_takes_no_member(cluster: NodeCluster, small_disk: Path) -> None:
    """The reason is published, and the member starts as soon as there is space."""
    with pytest.raises(OSError, match="No space left"):
        occupy(small_disk / "ballast")
    cluster.start("n3")
    await cluster.write_stable(P0, "n3")
    await cluster.until(lambda: reason(cluster, "n3").startswith("NO_DISK"))
    (small_disk / "ballast").unlink()
    await cluster.until(lambda: cluster.settled(P0, "n3"))
