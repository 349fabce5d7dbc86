"""Reads and writes of a store server in a real metastore."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from shutil import copytree, rmtree

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.core.partition_maps.partition_map import StorePosition
from rebalance.core.partition_maps.topology_version import NO_VERSION, DiscoveryEvent, TopologyVersion, Trigger
from rebalance.exchange.core.exchange_messages import PartitionOutcome, ResultRecord
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.store.core.ring_records import CHUNK_ROWS, RingRecord, encode_event, encode_ring
from rebalance.store.shell.store_ring import EvictedError, RingGapError, StoreRing
from tests.fixtures.etcd_server import CALL_S, EtcdServer

ZONE = ZoneId(7)
LIMIT_S = 60.0


def ring_of(
    metastore: EtcdMetastore, keyspace: Keyspace, name: str = "n1", incarnation: str = "i1"
) -> StoreRing:
    return StoreRing(metastore, keyspace, name, incarnation, ("10.0.0.1", 7_001))


def joins(*names: str) -> list[RingRecord]:
    return [
        RingRecord(n, DiscoveryEvent(TopologyVersion(n), Trigger.NODE_JOINED, name, n), f"{name}-{n}")
        for n, name in enumerate(names, 1)
    ]


async def write(metastore: EtcdMetastore, keyspace: Keyspace, records: Sequence[RingRecord]) -> None:
    for record in records:
        put = Put(keyspace.exchange_event(record.number), encode_event(record))
        await metastore.commit(Txn((), (put,)))


def result_of(previous: TopologyVersion, version: TopologyVersion, partitions: int = 1) -> ResultRecord:
    outcome = PartitionOutcome(("n1",), (), StorePosition(1, 2), 1, ("n1",))
    return ResultRecord(version, version, previous, {ZONE: dict.fromkeys(range(partitions), outcome)})


async def test_heartbeats_are_refused_from_the_evictions_commit_on(
    metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    ring = ring_of(metastore, keyspace)
    await ring.appear()
    await ring.appear()
    assert await ring.heartbeat(TopologyVersion(3, 1))
    assert await ring.address_of("n1", "i1") == ("10.0.0.1", 7_001)
    assert await ring.address_of("n1", "i2") is None
    await metastore.commit(Txn((), (Put(keyspace.eviction("n1"), b""),)))
    assert not await ring.heartbeat(TopologyVersion(3, 1))
    with pytest.raises(EvictedError, match="n1 is being evicted"):
        await ring_of(metastore, keyspace, incarnation="i2").appear()


async def test_a_heartbeat_whose_key_was_deleted_does_not_bring_it_back(
    metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    ring = ring_of(metastore, keyspace)
    assert not await ring.heartbeat(NO_VERSION)
    await ring.appear()
    await metastore.commit(Txn((), (Delete(keyspace.store_server("n1", "i1")),)))
    assert not await ring.heartbeat(NO_VERSION)
    assert await ring.address_of("n1", "i1") is None


async def test_heartbeats_are_refused_by_a_metastore_that_was_restored_from_a_backup(
    own_etcd: EtcdServer, keyspace: Keyspace
) -> None:
    """Refuse heartbeats also where the backup has the server's key: it may be older than what the server has
    heard since."""
    data, backup = own_etcd.directory / "data", own_etcd.directory / "backup"
    metastore = EtcdMetastore([own_etcd.endpoint], CALL_S)
    try:
        ring = ring_of(metastore, keyspace)
        await ring.appear()
        assert await ring.heartbeat(NO_VERSION)
        own_etcd.kill()
        copytree(data, backup)
        own_etcd.restart()
        assert await ring.heartbeat(NO_VERSION)
        own_etcd.kill()
        own_etcd.restart()
        assert await ring.heartbeat(NO_VERSION), "it was only restarted"
        own_etcd.kill()
        rmtree(data)
        copytree(backup, data)
        own_etcd.restart()
        assert not await ring.heartbeat(NO_VERSION)
        assert await ring_of(metastore, keyspace).address_of("n1", "i1") is not None
    finally:
        await metastore.close()


async def test_events_come_in_order_and_once_from_where_the_server_began(
    metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    records = joins("n1", "n2", "n3", "n4")
    await write(metastore, keyspace, records[:2])
    ring = ring_of(metastore, keyspace)
    start = await ring.start()
    assert start.ring.number == 2
    assert start.ring.incarnations == {"n1": "n1-1", "n2": "n2-2"}
    await write(metastore, keyspace, records[2:3])
    async with asyncio.timeout(LIMIT_S), aclosing(ring.events()) as events:
        assert await anext(events) == (records[2],)
        await write(metastore, keyspace, records[3:])
        assert await anext(events) == (records[3],)
        assert ring.state.number == 4


async def test_a_ring_that_was_compacted_is_read_from_its_state(
    metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    records = joins("n1", "n2", "n3")
    await write(metastore, keyspace, records)
    state = (await ring_of(metastore, keyspace).start()).ring
    behind = ring_of(metastore, keyspace)
    compacted = (
        *(Delete(keyspace.exchange_event(n)) for n in (1, 2)),
        Put(keyspace.exchange_ring, encode_ring(state)),
    )
    await metastore.commit(Txn((), compacted))
    assert (await ring_of(metastore, keyspace).start()).ring == state
    async with asyncio.timeout(LIMIT_S), aclosing(behind.events()) as events:
        with pytest.raises(RingGapError, match="event 3 of the ring follows event 0"):
            await anext(events)


async def test_the_join_order_is_that_of_the_own_incarnation(
    metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    await write(metastore, keyspace, joins("n1", "n2"))
    own, other = ring_of(metastore, keyspace, "n2", "n2-2"), ring_of(metastore, keyspace, "n2", "new")
    await own.start()
    await other.start()
    assert (own.order, other.order) == (2, 0)


@pytest.mark.parametrize("partitions", [0, 1, 2 * CHUNK_ROWS + 1])
async def test_results_are_a_chain_that_every_server_reads_alike(
    metastore: EtcdMetastore, keyspace: Keyspace, partitions: int
) -> None:
    first = result_of(NO_VERSION, TopologyVersion(1), partitions)
    second = result_of(TopologyVersion(1), TopologyVersion(2, 3), 1)
    ring = ring_of(metastore, keyspace)
    assert await ring.commit_result(first) == ()
    assert await ring.commit_result(second) == ()
    outcomes = (await ring_of(metastore, keyspace, "n2").start()).results
    assert outcomes.version == second.version
    assert len(outcomes.outcomes.get(ZONE, ())) == max(partitions, 1)


async def test_of_two_outcomes_of_one_exchange_the_first_is_committed(
    metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    many = CHUNK_ROWS + 1
    first, second = (result_of(NO_VERSION, TopologyVersion(1), many + extra) for extra in (0, 1))
    rings = [ring_of(metastore, keyspace, incarnation=incarnation) for incarnation in ("i1", "i2")]
    answers = await asyncio.gather(rings[0].commit_result(first), rings[1].commit_result(second))
    winner = first if answers[0] == () else second
    assert sorted(answers, key=len) == [(), (winner,)]
    later = result_of(NO_VERSION, TopologyVersion(2))
    assert await rings[0].commit_result(later) == (winner,)
    assert await rings[1].commit_result(winner) == (winner,)


async def test_targets_are_those_of_the_revision(metastore: EtcdMetastore, keyspace: Keyspace) -> None:
    async def assign(partition: int, field: str, *peers: str) -> int:
        key = getattr(keyspace.partition(PartitionId(ZONE, partition)), field)
        return (await metastore.commit(Txn((), (Put(key, Assignments(peers).encode()),)))).revision

    await assign(0, "stable", "n1", "n2")
    await assign(2, "stable", "n3")
    early = await assign(0, "planned", "n9")
    late = await assign(0, "pending", "n2", "n3")
    ring = ring_of(metastore, keyspace)
    other = ZoneId(8)
    assert await ring.targets([(ZONE, early), (other, early)]) == {ZONE: (("n1", "n2"), (), ("n3",)), other: ()}
    assert await ring.targets([(ZONE, late)]) == {ZONE: (("n2", "n3"), (), ("n3",))}


async def test_targets_of_a_compacted_revision_are_those_of_now(
    own_etcd: EtcdServer, keyspace: Keyspace
) -> None:
    metastore = EtcdMetastore([own_etcd.endpoint], CALL_S)
    try:
        key = keyspace.partition(PartitionId(ZONE, 0)).stable
        early = (await metastore.commit(Txn((), (Put(key, Assignments(("n1",)).encode()),)))).revision
        late = (await metastore.commit(Txn((), (Put(key, Assignments(("n2",)).encode()),)))).revision
        own_etcd.compact(late)
        assert await ring_of(metastore, keyspace).targets([(ZONE, early)]) == {ZONE: (("n2",),)}
    finally:
        await metastore.close()


async def test_an_affinity_change_comes_once_and_only_after_its_basis(
    metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    await write(metastore, keyspace, joins("n1", "n2"))
    rings = [ring_of(metastore, keyspace, name) for name in ("n1", "n2")]
    for ring in rings:
        await ring.start()
        await ring.ask_affinity_change(TopologyVersion(1))
    await asyncio.gather(*(ring.ask_affinity_change(TopologyVersion(2)) for ring in rings))
    start = await ring_of(metastore, keyspace).start()
    assert (start.ring.number, start.ring.cluster.version) == (3, TopologyVersion(2, 1))


async def test_whoever_lags_behind_overwrites_no_event(metastore: EtcdMetastore, keyspace: Keyspace) -> None:
    records = joins("n1", "n2", "n3")
    await write(metastore, keyspace, records[:2])
    behind = ring_of(metastore, keyspace)
    await behind.start()
    await write(metastore, keyspace, records[2:])
    await behind.ask_affinity_change(TopologyVersion(2))
    state = (await ring_of(metastore, keyspace).start()).ring
    assert state.cluster.version == TopologyVersion(3)
    compacted = (Delete(keyspace.exchange_event(3)), Put(keyspace.exchange_ring, encode_ring(state)))
    await metastore.commit(Txn((), compacted))
    with pytest.raises(RingGapError, match="event 3 of the ring was written and compacted"):
        await behind.ask_affinity_change(TopologyVersion(2))
    assert (await ring_of(metastore, keyspace).start()).ring == state


async def test_whoever_leaves_takes_its_keys_along(metastore: EtcdMetastore, keyspace: Keyspace) -> None:
    ring = ring_of(metastore, keyspace, "n1", "n1-1")
    await ring.appear()
    await write(metastore, keyspace, joins("n1", "n2"))
    await ring.start()
    await ring_of(metastore, keyspace, "n2", "n2-2").appear()
    await ring.suspect("n2", 2, suspected=True)
    suspects = await metastore.range(keyspace.exchange_suspects)
    assert [item.key for item in suspects.items] == [keyspace.suspicion("n1", "n2")]
    await ring.leave()
    left = (await ring_of(metastore, keyspace).start()).ring
    assert dict(left.cluster.servers) == {"n2": 2}
    beats = (await metastore.range(keyspace.exchange_servers)).items
    assert [item.key for item in beats] == [keyspace.store_server("n2", "n2-2")]
    assert (await metastore.range(keyspace.exchange_suspects)).items == ()


async def test_a_suspicion_is_of_one_incarnation(metastore: EtcdMetastore, keyspace: Keyspace) -> None:
    """One that arrives once the member has failed, and maybe joined anew, would evict its successor."""
    ring = ring_of(metastore, keyspace, "n1", "n1-1")

    async def suspects() -> list[str]:
        return [item.key for item in (await metastore.range(keyspace.exchange_suspects)).items]

    others = [ring_of(metastore, keyspace, "n2", incarnation) for incarnation in ("n2-2", "n2-3")]
    for member in (ring, *others):
        await member.appear()
    *members, successor = joins("n1", "n2", "n2")
    await write(metastore, keyspace, members)
    await ring.start()
    await ring.suspect("n2", 2, suspected=True)
    assert await suspects() == [keyspace.suspicion("n1", "n2")]
    await ring.suspect("n2", 2, suspected=False)
    assert await suspects() == []
    await metastore.commit(Txn((), (Delete(keyspace.store_server("n2", "n2-2")),)))
    await ring.suspect("n2", 2, suspected=True)
    assert await suspects() == []
    await write(metastore, keyspace, [successor])
    await ring.start()
    await ring.suspect("n2", 2, suspected=True)
    assert await suspects() == []
    await ring.suspect("n2", 3, suspected=True)
    assert await suspects() == [keyspace.suspicion("n1", "n2")]
