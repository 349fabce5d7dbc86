"""Guarded writes of 10,000 partitions: reading and deciding included, beside the same requests sent bare."""

from __future__ import annotations

import time

from aetcd import rpc

from catalog.core.zone import ZoneId
from rebalance.controllers.partitions import PARTITIONS_PER_REQUEST, PartitionWriter
from rebalance.controllers.targets import NamedTarget
from rebalance.core.admission.bulk_write import BulkDecisions, ZoneKeys
from rebalance.core.assignments.target import StoredTarget, TargetPointer, cut_into_chunks
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Put, Txn, unchanged
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.metastore.etcd_messages import txn_request
from tests.bench.figures import ratio, report
from tests.fixtures.etcd_server import Etcd

ZONE = ZoneId(1)
PARTITIONS = 10_000
TURNS = 5
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


async def encoded_requests(
    store: EtcdMetastore, keyspace: Keyspace, named: NamedTarget
) -> list[rpc.TxnRequest]:
    """Requests that the writer sends for ``named``, as protocol messages."""
    prefix = keyspace.zone_partitions(ZONE)
    snapshot = await store.range(prefix)
    keys = ZoneKeys(prefix, snapshot.revision)
    keys.add(snapshot.items)
    decisions = BulkDecisions(named.target)
    guard = unchanged(keyspace.target_pointer(ZONE), named.pointer_revision)
    requests = []
    for start in range(0, PARTITIONS, PARTITIONS_PER_REQUEST):
        inner = []
        for number in range(start, min(start + PARTITIONS_PER_REQUEST, PARTITIONS)):
            decision = decisions.decide(keys, number)
            assert decision is not None
            assert decision.transaction is not None
            inner.append(decision.transaction)
        requests.append(txn_request(Txn((guard,), tuple(inner))))
    return requests


async def test_guarded_writes(etcd_server: Etcd, keyspace: Keyspace) -> None:
    """The same event on two zones of the same form, one after the other, in turns: etcd's own speed varies."""
    store = EtcdMetastore([etcd_server.endpoint], timeout_s=60)
    ours: list[float] = []
    bare: list[float] = []
    for turn in range(TURNS):
        ours_keys, bare_keys = (Keyspace(f"{keyspace.prefix}{turn}/{name}/") for name in ("ours", "bare"))
        for each in (ours_keys, bare_keys):
            await PartitionWriter(store, each).write(ZONE, await name_target(store, each, 1, 1))
        named = await name_target(store, ours_keys, 2, 3)
        begun = time.perf_counter()
        await PartitionWriter(store, ours_keys).write(ZONE, named)
        ours.append(time.perf_counter() - begun)
        named = await name_target(store, bare_keys, 2, 3)
        requests = await encoded_requests(store, bare_keys, named)
        async with rpc.insecure_channel(etcd_server.endpoint) as channel:
            stub = rpc.KVStub(channel)
            begun = time.perf_counter()
            for request in requests:
                assert (await stub.Txn(request)).succeeded
            bare.append(time.perf_counter() - begun)
    await store.close()
    mean = report("guarded writes: read, decide, commit (10,000 partitions)", ours, PARTITIONS)
    ratio(
        "guarded writes", mean, report("the same requests, encoded beforehand, bare client", bare, PARTITIONS)
    )
