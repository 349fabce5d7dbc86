"""Store servers as processes: killed while puts go on, and looked at afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from app.cli.main import main
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.metastore.etcd import EtcdMetastore
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.ring_writer import RingWriter
from tests.fixtures.store_client import LIMIT_S
from tests.fixtures.store_processes import StoreProcesses
from tests.fixtures.store_records import outcomes, ring_events, until
from tests.fixtures.store_trio import ZONE

LISTS = [("n1", "n2", "n3"), ("n2", "n3", "n1"), ("n3", "n1", "n2")]
TTL_MS = 5_000


@asynccontextmanager
async def processes(
    directory: Path, etcd: Etcd, metastore: EtcdMetastore, keyspace: Keyspace
) -> AsyncIterator[tuple[StoreProcesses, RingWriter]]:
    servers = StoreProcesses(directory, etcd.endpoint, keyspace)
    writer = RingWriter(metastore, keyspace, TTL_MS)
    writing = asyncio.create_task(writer.run())
    try:
        await asyncio.gather(*(servers.start(name) for name in LISTS[0]))
        async with asyncio.timeout(LIMIT_S):
            while len(writer.state.cluster.servers) < len(LISTS[0]):
                await asyncio.sleep(0.05)
        await writer.start_zone(ZONE, LISTS)
        yield servers, writer
    finally:
        writing.cancel()
        servers.close()


async def until_joined(servers: StoreProcesses, writer: RingWriter, before: Mapping[str, str]) -> None:
    """All are members, those of ``before`` as another incarnation. On a busy machine one may be evicted."""
    async with asyncio.timeout(LIMIT_S):
        while any(writer.state.incarnations.get(name) in (None, before.get(name)) for name in LISTS[0]):
            await servers.restart_ended()
            await asyncio.sleep(0.05)


async def until_owned(servers: StoreProcesses, metastore: EtcdMetastore, keyspace: Keyspace) -> None:
    """Every copy is in the set of its partition: nothing is being filled."""
    sets = [tuple(sorted(nodes)) for nodes in LISTS]

    async def is_so() -> bool:
        await servers.restart_ended()
        return [outcome.in_sync for outcome in await outcomes(metastore, keyspace, ZONE)] == sets

    await until(is_so)


@pytest.mark.thorough("linearizability/test_store_scenes judges every answer")
@pytest.mark.slow("three processes are started, and each is killed and comes back once")
@pytest.mark.parametrize("kills", [(("n1",), ("n2",), ("n3",)), (("n3", "n1", "n2"),)], ids=["each", "all"])
async def test_no_acknowledged_put_is_lost_when_servers_are_killed(
    tmp_path: Path,
    etcd_server: Etcd,
    metastore: EtcdMetastore,
    keyspace: Keyspace,
    kills: tuple[tuple[str, ...], ...],
) -> None:
    acknowledged: dict[tuple[int, bytes], bytes] = {}
    puts = [0] * len(LISTS)
    async with processes(tmp_path, etcd_server, metastore, keyspace) as (servers, writer):

        async def put_on(partition: int) -> None:
            for number in count():
                key, value = b"key-%d" % (number % 20), b"%d" % number
                answer = await servers.client.put((ZONE, partition), key, value)
                assert answer.revision > 0
                acknowledged[partition, key] = value
                puts[partition] += 1

        async def until_put(more: int) -> None:
            """Each partition has taken so many more."""
            goals = [number + more for number in puts]
            async with asyncio.timeout(LIMIT_S):
                while any(number < goal for number, goal in zip(puts, goals, strict=True)):
                    assert not any(task.done() for task in putting)
                    await asyncio.sleep(0.05)

        putting = [asyncio.create_task(put_on(partition)) for partition in range(len(LISTS))]
        for names in kills:
            await until_put(10)
            await until_joined(servers, writer, {})
            before = {name: writer.state.incarnations.get(name, "") for name in names}
            for name in names:
                servers.kill(name)
            await asyncio.sleep(1.0)
            for name in names:
                assert main(["store", "fsck", str(servers.store(name))]) == 0
                await servers.start(name)
            await until_joined(servers, writer, before)
        await until_put(10)
        for task in putting:
            task.cancel()
        await asyncio.gather(*putting, return_exceptions=True)
        for (partition, key), value in acknowledged.items():
            # A put that was under way when it was cancelled may have been done, too.
            stored = await servers.client.get((ZONE, partition), key)
            assert stored is not None
            assert int(stored) >= int(value)
        await until_owned(servers, metastore, keyspace)
        members = dict(writer.state.incarnations)
        assert [await servers.terminate(name) for name in LISTS[0]] == [0, 0, 0]
        ends = {seen.record.incarnation: seen.record.event for seen in await ring_events(metastore, keyspace)}
        assert {ends[incarnation].trigger for incarnation in members.values()} == {Trigger.NODE_LEFT}
    for name in LISTS[0]:
        assert main(["store", "fsck", str(servers.store(name))]) == 0
