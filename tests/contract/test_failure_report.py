"""A node's key of failures, on etcd and in memory: bounded, gone with the zone, and never written over what
cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import ALL_MAX, NODE_MAX, Failing, FailureRecord
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.nodes.reports import FailureReport
from rebalance.ports.metastore import Metastore

REFUSED = Failing("REFUSED", "REFUSED: no", 3)
LIMIT_S = 60.0


def partition(number: int) -> PartitionId:
    return PartitionId(ZoneId(1), number)


@dataclass
class Reporting:
    """One node's report; ``now_ms`` is its clock."""

    store: Metastore
    keyspace: Keyspace
    mirror: KeyspaceMirror
    now_ms: int = 1_000_000
    reports: dict[str, FailureReport] = field(default_factory=dict)

    def of(self, node: str) -> FailureReport:
        if node not in self.reports:
            self.reports[node] = FailureReport(
                node, self.store, self.keyspace, self.mirror, lambda: self.now_ms, 0.01
            )
        return self.reports[node]

    async def put(self, key: str, value: bytes) -> None:
        await self.store.commit(Txn((), (Put(key, value),)))

    async def found(self, *numbers: int) -> None:
        """The partitions are there, and the node has seen it."""
        value = Assignments(("n1",)).encode()
        for number in numbers:
            await self.put(self.keyspace.partition(partition(number)).stable, value)
        await self.seen()

    async def seen(self) -> None:
        snapshot = await self.store.range(self.keyspace.partitions)
        keys = {item.key for item in snapshot.items}
        assert await self.mirror.wait_until(
            lambda: {item.key for item in self.mirror.below(self.keyspace.partitions)} == keys, LIMIT_S
        )

    async def told(self, node: str = "n1") -> FailureRecord | None:
        found = await self.store.get(self.keyspace.failures_of(node))
        return None if found is None else FailureRecord.decode(found.value)


@asynccontextmanager
async def reporting(store: Metastore, keyspace: Keyspace) -> AsyncIterator[Reporting]:
    mirror = KeyspaceMirror(store, keyspace.partitions)
    following = asyncio.create_task(mirror.run())
    try:
        await mirror.loaded()
        yield Reporting(store, keyspace, mirror)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_a_failure_is_written_once_and_again_when_there_is_news(
    store: Metastore, keyspace: Keyspace
) -> None:
    async with reporting(store, keyspace) as world:
        report = world.of("n1")
        assert not await report.write_if_changed()
        assert await world.told() is None
        await world.found(0)
        report.note(partition(0), 7, REFUSED)
        assert await report.write_if_changed()
        record = await world.told()
        assert record is not None
        (failure,) = record.failures
        assert (failure.of, failure.code, failure.cause) == (partition(0), "REFUSED", "REFUSED: no")
        assert (failure.term, failure.attempt, failure.since_ms, failure.at_ms) == (7, 3, 1_000_000, 1_000_000)
        for attempt in range(3, 6):
            report.note(partition(0), 7, Failing("REFUSED", "REFUSED: no", attempt))
            assert not await report.write_if_changed()
        world.now_ms += 500
        report.note(partition(0), 7, Failing("REFUSED", "REFUSED: no", 6))
        assert await report.write_if_changed()
        record = await world.told()
        assert record is not None
        assert [(each.attempt, each.since_ms, each.at_ms) for each in record.failures] == [
            (6, 1_000_000, 1_000_500)
        ]


async def test_a_failure_that_comes_back_is_another_one(store: Metastore, keyspace: Keyspace) -> None:
    async with reporting(store, keyspace) as world:
        report = world.of("n1")
        await world.found(0)
        for _ in range(2):
            report.note(partition(0), 7, REFUSED)
            assert await report.write_if_changed()
            report.note(partition(0), 7, None)
            assert not await report.write_if_changed(), "what was told stays"
            world.now_ms += 1_000
        record = await world.told()
        assert record is not None
        assert [each.since_ms for each in record.failures] == [1_001_000, 1_000_000]


async def test_what_cannot_begin_is_told_when_it_lasts(store: Metastore, keyspace: Keyspace) -> None:
    """A member that is reserved in time is no failure, and a wait for something else begins anew."""
    blocked = Failing("NODE_DOWN", "NODE_DOWN: n2")
    async with reporting(store, keyspace) as world:
        report = world.of("n1")
        await world.found(0)
        for failing in (blocked, None, blocked, Failing("MEMBER_NOT_RESERVED", "MEMBER_NOT_RESERVED: n2")):
            report.note(partition(0), 7, failing)
            assert not await report.write_if_changed()
        impatient = FailureReport(
            "n1", store, keyspace, world.mirror, lambda: world.now_ms, 0.01, blocked_s=0.05
        )
        impatient.note(partition(0), 7, blocked)
        assert not await impatient.write_if_changed()
        await asyncio.sleep(0.1)
        impatient.note(partition(0), 7, blocked)
        assert await impatient.write_if_changed()
        record = await world.told()
        assert record is not None
        assert [(each.code, each.attempt) for each in record.failures] == [("NODE_DOWN", 0)]


async def test_it_goes_with_the_zone_and_does_not_come_back(store: Metastore, keyspace: Keyspace) -> None:
    """Two partitions; one is dropped, then both. A failure that is told just after the drop writes nothing."""
    async with reporting(store, keyspace) as world:
        report = world.of("n1")
        await world.found(0, 1)
        for number in (0, 1):
            report.note(partition(number), 7, REFUSED)
        assert await report.write_if_changed()
        await store.commit(Txn((), (Delete(keyspace.partition(partition(0)).stable),)))
        await world.seen()
        assert await report.write_if_changed()
        record = await world.told()
        assert record is not None
        assert record.partitions == {partition(1)}
        await store.commit(Txn((), (Delete(keyspace.partition(partition(1)).stable),)))
        await world.seen()
        assert await report.write_if_changed()
        assert await world.told() is None
        report.note(partition(1), 7, Failing("TIMED_OUT", "TIMED_OUT", 3))
        assert not await report.write_if_changed()
        assert await world.told() is None


async def test_the_guard_sees_a_drop_before_the_mirror_does(store: Metastore, keyspace: Keyspace) -> None:
    async with reporting(store, keyspace) as world:
        await world.found(0)
        report = FailureReport("n1", store, keyspace, world.mirror.copy(), lambda: world.now_ms, 0.01)
        report.note(partition(0), 7, REFUSED)
        await store.commit(Txn((), (Delete(keyspace.partition(partition(0)).stable),)))
        assert not await report.write_if_changed()
        assert await world.told() is None


async def test_a_thousand_failures_are_one_bounded_record(store: Metastore, keyspace: Keyspace) -> None:
    async with reporting(store, keyspace) as world:
        report = world.of("n1")
        await world.found(*range(2 * NODE_MAX))
        for number in range(2 * NODE_MAX):
            world.now_ms += 1
            report.note(partition(number), 7, REFUSED)
        assert await report.write_if_changed()
        assert not await report.write_if_changed()
        record = await world.told()
        assert record is not None
        assert [each.partition for each in record.failures] == list(range(2 * NODE_MAX - 1, NODE_MAX - 1, -1))


async def test_records_of_nodes_that_are_no_more_go(store: Metastore, keyspace: Keyspace) -> None:
    """Nodes came and went, each with a failure of its own: once enough newer ones are there, theirs go."""
    async with reporting(store, keyspace) as world:
        await world.found(0)
        for number in range(ALL_MAX + 5):
            world.now_ms += 1_000
            report = world.of(f"m{number}")
            report.note(partition(0), 7, REFUSED)
            assert await report.write_if_changed()
        left = [item.key for item in (await store.range(keyspace.failures)).items]
        assert len(left) == ALL_MAX
        assert keyspace.failures_of("m4") not in left
        assert keyspace.failures_of("m5") in left


async def test_a_record_survives_its_node_and_is_extended(store: Metastore, keyspace: Keyspace) -> None:
    async with reporting(store, keyspace) as world:
        await world.found(0, 1)
        world.of("n1").note(partition(0), 7, REFUSED)
        assert await world.of("n1").write_if_changed()
        del world.reports["n1"]
        world.now_ms += 1
        world.of("n1").note(partition(1), 8, REFUSED)
        assert await world.of("n1").write_if_changed()
        record = await world.told()
        assert record is not None
        assert [(each.partition, each.term) for each in record.failures] == [(1, 8), (0, 7)]


async def test_what_cannot_be_read_is_left(store: Metastore, keyspace: Keyspace) -> None:
    """A later build's record of this node is not written over; another node's stands in nobody's way. What was
    to be told waits for it to be mended."""
    async with reporting(store, keyspace) as world:
        await world.found(0)
        await world.put(keyspace.failures_of("n1"), b'{"v":2}')
        await world.put(keyspace.failures_of("n2"), b"garbage")
        world.of("n1").note(partition(0), 7, REFUSED)
        assert not await world.of("n1").write_if_changed()
        kept = await store.get(keyspace.failures_of("n1"))
        assert kept is not None
        assert kept.value == b'{"v":2}'
        await store.commit(Txn((), (Delete(keyspace.failures_of("n1")),)))
        assert await world.of("n1").write_if_changed()
        record = await world.told()
        assert record is not None
        assert record.partitions == {partition(0)}
        other = await store.get(keyspace.failures_of("n2"))
        assert other is not None
        assert other.value == b"garbage"
