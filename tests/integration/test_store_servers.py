"""Store servers over a real etcd, real disks and real connections."""

from __future__ import annotations

from pathlib import Path

from rebalance.core.keys import Keyspace
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.store.core.store_check import check_copy
from rebalance.store.core.store_messages import AnswerCode
from rebalance.store.shell.lmdb_disk import stored
from tests.fixtures.store_trio import ZONE, store_trio

LISTS = [("n1", "n2", "n3"), ("n2", "n3", "n1"), ("n3", "n1", "n2"), ("n1", "n3", "n2")]


async def test_three_servers_put_and_get_and_their_disks_agree(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    async with store_trio(tmp_path, metastore, keyspace, LISTS) as trio:
        for number in range(20):
            answer = await trio.put((ZONE, number % 4), b"key-%d" % number, b"value-%d" % number)
            assert answer.code is AnswerCode.DONE
        await trio.put((ZONE, 0), b"key-0", None)
        assert await trio.get((ZONE, 0), b"key-0") is None
        assert await trio.get((ZONE, 3), b"key-19") == b"value-19"
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
