"""Store servers over a real etcd, real disks and real connections."""

from __future__ import annotations

from pathlib import Path

from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.store.core.store_check import check_copy
from rebalance.store.shell.lmdb_disk import stored
from tests.fixtures.store_trio import ZONE, store_trio

LISTS = [("n1", "n2", "n3"), ("n2", "n3", "n1"), ("n3", "n1", "n2"), ("n1", "n3", "n2")]


async def test_three_servers_put_and_get_and_their_disks_agree(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    async with store_trio(tmp_path, metastore, keyspace, LISTS) as trio:
        for number in range(20):
            answer = await trio.client.put((ZONE, number % 4), b"key-%d" % number, b"value-%d" % number)
            assert answer.revision > 0
        await trio.client.put((ZONE, 0), b"key-0", None)
        assert await trio.client.get((ZONE, 0), b"key-0") is None
        assert await trio.client.get((ZONE, 3), b"key-19") == b"value-19"
    contents = []
    for name in ("n1", "n2", "n3"):
        with stored(tmp_path / name) as reader:
            heads = reader.heads()
            assert len(heads) == 4
            checks = [check_copy(reader, partition, head) for partition, head in heads.items()]
            assert [check.defects for check in checks] == [()] * 4
            contents.append({(key, row) for key in heads for row in reader.rows(key, b"", 1 << 30)})
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0]) == 19


async def test_a_server_that_is_killed_comes_back_and_nothing_is_lost(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    async with store_trio(tmp_path, metastore, keyspace, LISTS) as trio:
        written = {}
        for number in range(8):
            written[number] = f"before-{number}".encode()
            await trio.client.put((ZONE, number % 4), b"key-%d" % number, written[number])
        await trio.stop("n1")
        for number in range(8, 16):
            written[number] = f"without-{number}".encode()
            await trio.client.put((ZONE, number % 4), b"key-%d" % number, written[number])
        await trio.start("n1")
        await trio.until_joined("n1")
        for number, value in written.items():
            assert await trio.client.get((ZONE, number % 4), b"key-%d" % number) == value


async def test_all_servers_are_stopped_and_come_back_with_everything(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    async with store_trio(tmp_path, metastore, keyspace, LISTS) as trio:
        for number in range(8):
            await trio.client.put((ZONE, number % 4), b"key-%d" % number, b"%d" % number)
        for name in ("n2", "n3", "n1"):
            await trio.stop(name)
        for name in ("n1", "n3", "n2"):
            await trio.start(name)
        for number in range(8):
            assert await trio.client.get((ZONE, number % 4), b"key-%d" % number) == b"%d" % number


async def test_a_server_that_is_evicted_ends_and_the_others_go_on(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    async with store_trio(tmp_path, metastore, keyspace, LISTS) as trio:
        await trio.client.put((ZONE, 0), b"key", b"1")
        await metastore.commit(Txn((), (Put(keyspace.eviction("n1"), b""),)))
        assert await trio.ended("n1") == "its heartbeat was refused: it is evicted, or its key is gone"
        assert (await trio.client.put((ZONE, 0), b"key", b"2")).revision > 0
        assert await trio.client.get((ZONE, 0), b"key") == b"2"
        await trio.start("n1")
        await trio.until_joined("n1")


async def test_a_server_that_is_asked_to_leave_hands_over_and_ends(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    async with store_trio(tmp_path, metastore, keyspace, LISTS) as trio:
        await trio.client.put((ZONE, 0), b"key", b"1")
        trio.servers["n1"].leave()
        assert await trio.ended("n1") == "it left the ring"
        snapshot = await metastore.range(keyspace.exchange_servers)
        assert sorted(item.key.split("/")[-2] for item in snapshot.items) == ["n2", "n3"]
        assert await trio.client.get((ZONE, 0), b"key") == b"1"


async def test_all_servers_leave_in_order_and_their_partitions_wait_for_them(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    """The last owner of a partition, too: nothing is lost, as it has everything. They come back in an order in
    which the first one that returns is not the last that left."""
    async with store_trio(tmp_path, metastore, keyspace, LISTS) as trio:
        await trio.client.put((ZONE, 0), b"key", b"1")
        for name in ("n1", "n2", "n3"):
            trio.servers[name].leave()
            assert await trio.ended(name) == "it left the ring"
        for name in ("n1", "n2", "n3"):
            await trio.start(name)
        for name in ("n1", "n2", "n3"):
            await trio.until_joined(name)
        assert await trio.client.get((ZONE, 0), b"key") == b"1"
        answer = await trio.client.put((ZONE, 0), b"key", b"2")
        assert answer.revision > 0
