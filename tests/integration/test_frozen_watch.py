"""A watch whose connection is dead, and alone on it: nothing else is sent there that could fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.metastore.mirror import KeyspaceMirror
from tests.fixtures.etcd_cluster import EtcdCluster

PING_S = 1.0
IDLE_S = 5 * PING_S
"""More pings than gRPC sends by itself on a connection without other data."""
PATIENCE_S = 30.0
"""Half the time after which gRPC pings such a connection again, if it does."""


async def test_a_watch_that_has_long_been_silent_leaves_a_member_that_stands_still(
    tmp_path: Path, keyspace: Keyspace
) -> None:
    """Leave a member that stands still, with a watch that has long been silent: a key written at the other
    members meanwhile arrives. To the watching process, a connection that a cut has left open at this end only
    is the same."""
    cluster = EtcdCluster(tmp_path, "--grpc-keepalive-min-time=500ms")
    watching = EtcdMetastore(cluster.endpoints, ping_s=PING_S)
    writing = EtcdMetastore(cluster.endpoints[1:])
    mirror = KeyspaceMirror(watching, keyspace.prefix)
    task = asyncio.create_task(mirror.run())
    try:
        await mirror.loaded()
        await asyncio.sleep(IDLE_S)
        cluster.freeze(0)
        cluster.wait_for_leader(2)
        key = f"{keyspace.prefix}written"
        assert (await writing.commit(Txn((), (Put(key, b"meanwhile"),)))).succeeded
        assert await mirror.wait_until(lambda: mirror.value(key) == b"meanwhile", PATIENCE_S)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await watching.close()
        await writing.close()
        cluster.stop()
