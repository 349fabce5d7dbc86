"""Guarded writes of 10,000 partitions: reading and deciding included, beside the same requests sent bare."""

from __future__ import annotations

import time

from aetcd import rpc

from catalog.core.zone import ZoneId
from rebalance.controllers.partitions import PARTITIONS_PER_REQUEST, PartitionWriter, observe
from rebalance.controllers.targets import NamedTarget
from rebalance.core.assignments import Assignments
from rebalance.core.guarded_write import Observed, decide_on_trigger
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.target import StoredTarget, TargetPointer, cut_into_chunks
from rebalance.core.txn import Put, Txn, unchanged
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.metastore.etcd_messages import txn_request
from tests.bench.figures import ratio, report
from tests.conftest import EtcdServer

ZONE = ZoneId(1)
PARTITIONS = 10_000
NODES = ("n1", "n2", "n3")


async def name_target(store: EtcdMetastore, keyspace: Keyspace, event: int, replicas: int) -> NamedTarget:
    row = b"".join(index.to_bytes(4, "little") for index in range(replicas))
    chunks = cut_into_chunks(row * PARTITIONS, replicas)
    pointer = TargetPointer(
        event, event, len(chunks), PARTITIONS, replicas, replicas, NODES, "local", "rendezvous"
    )
    key = keyspace.target_pointer(ZONE)
    result = await store.commit(Txn((), (Put(key, pointer.encode()),)))
    return NamedTarget(StoredTarget(pointer, chunks), result.revision)


async def test_guarded_writes(etcd_server: EtcdServer, keyspace: Keyspace) -> None:
    store = EtcdMetastore([etcd_server.endpoint], timeout_s=60)
    writer = PartitionWriter(store, keyspace)
    await writer.write(ZONE, await name_target(store, keyspace, 1, 1))
    named = await name_target(store, keyspace, 2, 3)
    begun = time.perf_counter()
    await writer.write(ZONE, named)
    ours = report(
        "guarded writes: read, decide, commit (10,000 partitions)", [time.perf_counter() - begun], PARTITIONS
    )

    # The same decisions for the next event, encoded beforehand and sent by a bare client.
    named = await name_target(store, keyspace, 3, 1)
    observed = observe(keyspace, (await store.range(keyspace.zone_partitions(ZONE))).items)
    guard = unchanged(keyspace.target_pointer(ZONE), named.pointer_revision)
    target = Assignments(NODES[:1])
    requests = []
    for start in range(0, PARTITIONS, PARTITIONS_PER_REQUEST):
        inner = []
        for number in range(start, start + PARTITIONS_PER_REQUEST):
            partition = PartitionId(ZONE, number)
            seen = observed.get(partition) or Observed(keyspace.partition(partition))
            transaction = decide_on_trigger(seen, target, 3).transaction
            assert transaction is not None
            inner.append(transaction)
        requests.append(txn_request(Txn((guard,), tuple(inner))))
    async with rpc.insecure_channel(etcd_server.endpoint) as channel:
        stub = rpc.KVStub(channel)
        begun = time.perf_counter()
        for request in requests:
            assert (await stub.Txn(request)).succeeded
        bare = report(
            "the same requests, encoded beforehand, bare client", [time.perf_counter() - begun], PARTITIONS
        )
    ratio("guarded writes", ours, bare)
    await store.close()
