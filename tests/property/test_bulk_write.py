"""The bulk decision is ``decide_on_trigger``'s, for every partition: same outcome, same keys afterwards."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.zone import ZoneId
from rebalance.core.admission.bulk_write import BulkDecisions, ZoneKeys
from rebalance.core.admission.move_admission import Move
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import Decision, Observed, decide_on_trigger, encode_trigger
from rebalance.core.assignments.target import StoredTarget, TargetPointer
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Put, Txn
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.observed_partitions import observe

NODES = ("n1", "n2", "n3", "n4")
ZONE = ZoneId(7)
EVENT = 20
KEYSPACE = Keyspace("zk/")
REPLICAS, VOTERS = 3, 2

rows = st.permutations(range(len(NODES))).map(lambda order: tuple(order[:REPLICAS]))
held = st.builds(
    lambda order, peers, learners: Assignments(
        tuple(NODES[n] for n in order[:peers]), tuple(NODES[n] for n in order[peers : peers + learners])
    ),
    st.permutations(range(len(NODES))),
    st.integers(1, 3),
    st.integers(0, 1),
)


def keys_of(number: int) -> dict[str, str]:
    keys = KEYSPACE.partition(PartitionId(ZONE, number))
    return {"stable": keys.stable, "pending": keys.pending, "planned": keys.planned, "group": keys.group}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[StoredTarget, dict[str, bytes]]:
    """A target, and keys of some of its partitions, alike or not; and of partitions that it does not have."""
    matrix = draw(st.lists(rows, min_size=1, max_size=12))
    stored: dict[str, bytes] = {}
    for number in range(len(matrix) + 2):
        row = matrix[number] if number < len(matrix) else (0, 1, 2)
        same = Assignments(tuple(NODES[n] for n in row[:VOTERS]), (NODES[row[VOTERS]],))
        swapped = replace(same, peers=same.peers[::-1])
        for name, key in keys_of(number).items():
            likely = name == "stable"
            if draw(st.booleans()) if likely else draw(st.integers(0, 3)) == 0:
                stored[key] = draw(st.sampled_from((same, swapped)) | held).encode()
        if draw(st.booleans()):
            trigger = KEYSPACE.partition(PartitionId(ZONE, number)).trigger
            stored[trigger] = encode_trigger(draw(st.sampled_from((1, EVENT - 1, EVENT, EVENT + 1))))
    flat = b"".join(index.to_bytes(4, "little") for row in matrix for index in row)
    pointer = TargetPointer(EVENT, 1, 1, len(matrix), REPLICAS, VOTERS, NODES, "local", "rendezvous")
    return StoredTarget(pointer, (flat,)), stored


async def filled(stored: dict[str, bytes]) -> MemoryMetastore:
    store = MemoryMetastore()
    for key, value in stored.items():
        await store.commit(Txn((), (Put(key, value),)))
    return store


async def after(stored: dict[str, bytes], decision: Decision, interfering: str | None = None) -> object:
    """Result of the transaction: True if it held, and every key; ``interfering`` is put before it."""
    store = await filled(stored)
    if interfering is not None:
        await store.commit(Txn((), (Put(interfering, b"{}"),)))
    held = decision.transaction is not None and (await store.commit(decision.transaction)).succeeded
    return held, {item.key: item.value for item in (await store.range("")).items}


def test_a_move_weighs_what_a_partition_gets() -> None:
    """Nodes that are gone add no bytes, except where one holds the partition already."""
    flat = b"".join(index.to_bytes(4, "little") for index in (0, 1, 2))
    pointer = TargetPointer(EVENT, 1, 1, 1, REPLICAS, VOTERS, NODES, "local", "rendezvous", gone=("n2", "n3"))
    decisions = BulkDecisions(StoredTarget(pointer, (flat,)))
    assert decisions.move(Assignments(("n4",)).encode(), 0) == Move(("n4",), ("n1",), ("n1",))
    assert decisions.move(Assignments(("n1", "n2")).encode(), 0) == Move((), (), ())


async def both(
    target: StoredTarget, stored: dict[str, bytes], number: int
) -> tuple[Decision | None, Decision, ZoneKeys]:
    snapshot = await (await filled(stored)).range(KEYSPACE.zone_partitions(ZONE))
    keys = ZoneKeys(KEYSPACE.zone_partitions(ZONE), snapshot.revision)
    keys.add(snapshot.items)
    partition = PartitionId(ZONE, number)
    seen = observe(KEYSPACE, snapshot.items).get(partition) or Observed(KEYSPACE.partition(partition))
    alone = decide_on_trigger(seen, list(target.assignments())[number], EVENT)
    again = observe(KEYSPACE, keys.of(number)).get(partition) or Observed(KEYSPACE.partition(partition))
    assert again == seen, "the fallback decides from the same keys"
    return BulkDecisions(target).decide(keys, number), alone, keys


@pytest.mark.row("I3-016", "I3-017", "I3-018", "I3-019", "I3-020", "I3-021", "I3-022")
@given(worlds(), st.data())
def test_bulk_is_the_decision_of_each_partition(
    world: tuple[StoredTarget, dict[str, bytes]], data: st.DataObject
) -> None:
    """I3-016..022: the two come to the same outcome and the same keys, also where a key changes in between."""
    target, stored = world

    async def check() -> None:
        for number in range(target.pointer.partitions):
            bulk, alone, keys = await both(target, stored, number)
            names = keys_of(number)
            usual = not {names["pending"], names["planned"]} & stored.keys()
            assert keys.is_usual(number) is usual
            assert (bulk is not None) is usual
            if bulk is None:
                continue
            assert bulk.outcome is alone.outcome
            assert await after(stored, bulk) == await after(stored, alone)
            trigger = KEYSPACE.partition(PartitionId(ZONE, number)).trigger
            touched = data.draw(st.sampled_from([trigger, *names.values(), *keys_of(number + 1).values()]))
            assert await after(stored, bulk, touched) == await after(stored, alone, touched)

    asyncio.run(check())
