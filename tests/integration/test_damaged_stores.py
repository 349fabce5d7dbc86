"""Store servers as processes whose files cannot be read: filled again from others, or left where they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import lmdb
import psutil
import pytest

from rebalance.core.causes.cause import Cause, cause_of
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import ProcessRecord
from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.store.core.store_messages import ReadRequest
from rebalance.store.shell.lmdb_disk import damage_of, stored
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.ring_writer import RingWriter
from tests.fixtures.store_client import LIMIT_S, wire_client
from tests.fixtures.store_processes import StoreProcesses
from tests.fixtures.store_records import outcomes, until
from tests.fixtures.store_trio import ZONE

TTL_MS = 5_000
SHARED, ALONE = [("n1", "n2"), ("n2", "n1")], [("n1", "n2"), ("n1",)]


def spoil_heads(store: Path) -> None:
    """One value is none of ours."""
    with lmdb.Environment(str(store), max_dbs=8) as environment:
        heads = environment.open_db(b"heads")
        with environment.begin(write=True) as txn, txn.cursor(db=heads) as cursor:
            assert cursor.first()
            txn.put(cursor.key(), b"\xc1 is no message", db=heads)


def spoil_pages(store: Path) -> None:
    file = store / "data.mdb"
    file.write_bytes(file.read_bytes()[:8_192] + b"\0" * (file.stat().st_size - 8_192))


@asynccontextmanager
async def pair(
    directory: Path, etcd: Etcd, metastore: EtcdMetastore, keyspace: Keyspace, lists: list[tuple[str, ...]]
) -> AsyncIterator[tuple[StoreProcesses, RingWriter]]:
    """Each partition has a key ``key``."""
    servers = StoreProcesses(directory, etcd.endpoint, keyspace)
    writer = RingWriter(metastore, keyspace, TTL_MS)
    writing = asyncio.create_task(writer.run())
    try:
        await asyncio.gather(*(servers.start(name) for name in ("n1", "n2")))
        async with asyncio.timeout(LIMIT_S):
            while len(writer.state.cluster.servers) < 2:
                await asyncio.sleep(0.05)
        await writer.start_zone(ZONE, lists)
        await until_in_sync(metastore, keyspace, lists)
        for partition in range(len(lists)):
            answer = await servers.client.put((ZONE, partition), b"key", b"%d" % partition)
            assert answer.revision > 0
        yield servers, writer
    finally:
        writing.cancel()
        servers.close()


async def until_in_sync(metastore: EtcdMetastore, keyspace: Keyspace, lists: list[tuple[str, ...]]) -> None:
    sets = [tuple(sorted(nodes)) for nodes in lists]

    async def is_so() -> bool:
        return [outcome.in_sync for outcome in await outcomes(metastore, keyspace, ZONE)] == sets

    await until(is_so)


@pytest.mark.slow("two processes are started, and one begins anew")
@pytest.mark.parametrize("spoil", [spoil_heads, spoil_pages])
async def test_a_store_that_cannot_be_read_is_kept_aside_and_filled_from_others(
    tmp_path: Path,
    etcd_server: Etcd,
    metastore: EtcdMetastore,
    keyspace: Keyspace,
    spoil: Callable[[Path], None],
) -> None:
    async with pair(tmp_path, etcd_server, metastore, keyspace, SHARED) as (servers, _):
        servers.kill("n1")
        spoil(servers.store("n1"))
        damaged = (servers.store("n1") / "data.mdb").read_bytes()
        await servers.start("n1")

        async def is_filled() -> bool:
            with stored(servers.store("n1")) as reader:
                rows = [reader.row((ZONE, partition), b"key") for partition in range(len(SHARED))]
            return [row.value if row is not None else None for row in rows] == [b"0", b"1"]

        await until(is_filled)
        await until_in_sync(metastore, keyspace, SHARED)
        kept = servers.store("n1").with_name("store.damaged")
        assert (kept / "data.mdb").read_bytes() == damaged
        servers.kill("n2")
        for partition in range(len(SHARED)):
            assert await servers.client.get((ZONE, partition), b"key") == b"%d" % partition
        (line,) = [line for line in servers.log("n1") if line["level"] == "error"]
        assert line["kept"] == str(kept)
        assert line["damage"].startswith(f"{servers.store('n1')}: data.mdb cannot be read: ")


@pytest.mark.slow("two processes are started")
async def test_a_damage_that_a_server_finds_while_it_leaves_is_noted(
    tmp_path: Path, etcd_server: Etcd, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    async with pair(tmp_path, etcd_server, metastore, keyspace, SHARED) as (servers, _):
        file, process = servers.store("n1") / "data.mdb", psutil.Process(servers.pid("n1"))
        async with wire_client(servers.port("n1")) as client:
            await client.greet()
            process.suspend()
            with file.open("r+b") as stream:
                stream.seek(8_192)
                stream.write(bytes(file.stat().st_size - 8_192))
            client.write([ReadRequest(1, ZONE, 0, b"key")])
            leaving = asyncio.create_task(servers.terminate("n1"))
            await asyncio.sleep(0)
            process.resume()
            assert await leaving == 0
        (line,) = [line for line in servers.log("n1") if line["event"] == "the store server ends"]
        assert "cannot be read" in line["reason"]
        assert damage_of(servers.store("n1")) == line["reason"]


@pytest.mark.slow("two processes are started, and one waits")
async def test_a_store_with_the_only_copy_in_sync_stays_where_it_is(
    tmp_path: Path, etcd_server: Etcd, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    """Leave a damaged store in its place when it has the only copy in sync: its server says why, once, and
    waits. When an operator moves the file away, the partition is lost and the others are filled."""

    async def cause() -> str:
        item = await metastore.get(keyspace.process("n1 store"))
        troubles = ProcessRecord.decode(item.value).troubles if item is not None else ()
        return troubles[0].cause if troubles else ""

    async with pair(tmp_path, etcd_server, metastore, keyspace, ALONE) as (servers, _):
        servers.kill("n1")
        spoil_heads(servers.store("n1"))
        damaged = (servers.store("n1") / "data.mdb").read_bytes()
        starting = asyncio.create_task(servers.start("n1"))

        async def waits() -> bool:
            return cause_of(await cause()) is Cause.STORE_DAMAGED

        await until(waits)
        assert "nobody else is in sync in 1/1: start the servers that are in sync" in await cause()
        assert (servers.store("n1") / "data.mdb").read_bytes() == damaged
        pid = servers.pid("n1")
        assert [line["event"] for line in servers.log("n1") if line["level"] == "error"] == [
            "the process waits"
        ]
        servers.store("n1").rename(tmp_path / "away")
        await starting
        assert servers.pid("n1") == pid

        async def is_lost() -> bool:
            found = await outcomes(metastore, keyspace, ZONE)
            return [outcome.is_lost for outcome in found] == [False, True] and found[0].in_sync == ("n1", "n2")

        await until(is_lost)
        assert await cause() == ""
        assert await servers.client.get((ZONE, 0), b"key") == b"0"


@pytest.mark.thorough("simulation/test_store_losses")
@pytest.mark.slow("two processes are started, and one three times")
async def test_a_server_that_left_in_order_and_is_back_without_its_store_has_lost_what_only_it_had(
    tmp_path: Path, etcd_server: Etcd, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    """Report a partition as lost at once when its only server in sync is back without its store, as no other
    server can bring the data. The store brings it back without a reset; a reset goes on without it."""

    async def is_lost(lost: bool) -> None:
        async def is_so() -> bool:
            outcome = (await outcomes(metastore, keyspace, ZONE))[1]
            return outcome.is_lost is lost and bool(outcome.effective) is not lost

        await until(is_so)

    async with pair(tmp_path, etcd_server, metastore, keyspace, ALONE) as (servers, writer):
        store, away = servers.store("n1"), tmp_path / "away"
        assert await servers.terminate("n1") == 0
        store.rename(away)
        await servers.start("n1")
        await is_lost(True)
        assert await servers.terminate("n1") == 0
        store.rename(tmp_path / "empty")
        away.rename(store)
        await servers.start("n1")
        await is_lost(False)
        assert await servers.client.get((ZONE, 1), b"key") == b"1"
        assert await servers.terminate("n1") == 0
        store.rename(away)
        await servers.start("n1")
        await is_lost(True)
        await writer.custom(Trigger.LOSS_RESET, ZONE)
        await is_lost(False)
        assert await servers.client.get((ZONE, 1), b"key") is None
        assert await servers.client.get((ZONE, 0), b"key") == b"0"
