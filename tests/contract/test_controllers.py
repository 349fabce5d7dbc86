"""The controllers over each metastore: what they write, and what they never write."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from catalog.ports import OutboxRow
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.partitions import PARTITIONS_PER_REQUEST, StaleTargetError
from rebalance.controllers.targets import TargetStore
from rebalance.controllers.topology import DataNodesKeeper, KnownTopology
from rebalance.controllers.zone import ZoneController
from rebalance.core.assignments.assignment import Assignments, Strategy
from rebalance.core.assignments.guarded_write import decode_trigger
from rebalance.core.assignments.target import TargetPointer
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Compare, Put, Txn, TxnResult
from rebalance.core.topology.data_nodes import DataNodes
from rebalance.ports.metastore import Metastore, MetastoreUnavailableError
from rebalance.ports.placement import Engine, PlacementRequest, PlacementResult
from tests.fixtures.local_engine import LocalPlacementEngine
from tests.fixtures.observed_partitions import ASSIGNMENT_FIELDS

ZONE = Zone(ZoneId(1), "ORDERS", partitions=8, replicas=1, quorum_size=None, storage_profiles=("default",))
NODES = tuple(Node(name) for name in ("n1", "n2", "n3"))


def controller(
    store: Metastore,
    keyspace: Keyspace,
    nodes: Sequence[Node] = NODES,
    strategy: Strategy = Strategy.QUEUE,
) -> ZoneController:
    data_nodes = DataNodesKeeper(store, keyspace, lambda: KnownTopology.of(*nodes))
    return ZoneController(store, keyspace, LocalPlacementEngine(), data_nodes, strategy)


async def publish(store: Metastore, keyspace: Keyspace, intent: ZoneIntent) -> None:
    await store.commit(Txn((), (Put(keyspace.intent(intent.zone.zone_id), intent.encode()),)))


async def dump(store: Metastore, keyspace: Keyspace) -> dict[str, tuple[bytes, int]]:
    return {item.key: (item.value, item.mod_revision) for item in (await store.range(keyspace.prefix)).items}


async def assignments(store: Metastore, keyspace: Keyspace, field: str) -> dict[int, Assignments]:
    found = {}
    for item in (await store.range(keyspace.zone_partitions(ZONE.zone_id))).items:
        parsed = keyspace.parse_partition(item.key)
        if parsed is not None and ASSIGNMENT_FIELDS.get(parsed[1]) == field:
            found[parsed[0].partition] = Assignments.decode(item.value)
    return found


async def triggers(store: Metastore, keyspace: Keyspace) -> set[int]:
    keys = [keyspace.partition(PartitionId(ZONE.zone_id, n)).trigger for n in range(ZONE.partitions)]
    found = [await store.get(key) for key in keys]
    return {decode_trigger(each.value) if each else 0 for each in found}


async def pointer_of(store: Metastore, keyspace: Keyspace) -> TargetPointer:
    found = await store.get(keyspace.target_pointer(ZONE.zone_id))
    assert found is not None
    return TargetPointer.decode(found.value)


@pytest.mark.row("I3-007", "I3-008", "I3-010", "I3-011", "I3-015", "I3-020")
async def test_create_then_alter(store: Metastore, keyspace: Keyspace) -> None:
    """I3-007, I3-008, I3-010, I3-011, I3-015, I3-020: creation writes stable, an ALTER writes pending."""
    zones = controller(store, keyspace)
    await publish(store, keyspace, ZoneIntent(1, ZONE))
    assert await zones.reconcile([ZONE.zone_id]) == {}
    stable = await assignments(store, keyspace, "stable")
    assert sorted(stable) == list(range(8))
    assert all(len(each.peers) == 1 and not each.learners for each in stable.values())
    created = await pointer_of(store, keyspace)
    assert await triggers(store, keyspace) == {created.event_revision}

    await publish(store, keyspace, ZoneIntent(2, replace(ZONE, replicas=3)))
    assert await zones.reconcile([ZONE.zone_id]) == {}
    pending = await assignments(store, keyspace, "pending")
    assert sorted(pending) == list(range(8))
    assert all(each.nodes == {"n1", "n2", "n3"} for each in pending.values())
    assert {n: each.primary for n, each in pending.items()} == {n: each.primary for n, each in stable.items()}
    assert await assignments(store, keyspace, "stable") == stable
    altered = await pointer_of(store, keyspace)
    assert altered.event_revision > created.event_revision
    assert await triggers(store, keyspace) == {altered.event_revision}


@pytest.mark.row("I3-019")
async def test_a_repeated_event_changes_nothing(store: Metastore, keyspace: Keyspace) -> None:
    """I3-019: the same controller, and another that knows nothing, see the event again: no key changes."""
    zones = controller(store, keyspace)
    await publish(store, keyspace, ZoneIntent(1, ZONE))
    await zones.reconcile([ZONE.zone_id])
    before = await dump(store, keyspace)
    assert await zones.reconcile([ZONE.zone_id]) == {}
    assert await controller(store, keyspace).reconcile([ZONE.zone_id]) == {}
    assert await dump(store, keyspace) == before


@pytest.mark.row("I3-014")
async def test_a_version_that_changes_no_placement_parameter_moves_nothing(
    store: Metastore, keyspace: Keyspace
) -> None:
    """I3-014 (decision 12): such a version writes nothing; the next one that does starts a rebalance."""
    zones = controller(store, keyspace)
    await publish(store, keyspace, ZoneIntent(1, ZONE))
    await zones.reconcile([ZONE.zone_id])
    await publish(store, keyspace, ZoneIntent(2, replace(ZONE, name="RENAMED", auto_scale_up=5)))
    before = await dump(store, keyspace)
    assert await zones.reconcile([ZONE.zone_id]) == {}
    assert await controller(store, keyspace).reconcile([ZONE.zone_id]) == {}
    assert await dump(store, keyspace) == before
    await publish(store, keyspace, ZoneIntent(3, replace(ZONE, name="RENAMED", replicas=2)))
    assert await zones.reconcile([ZONE.zone_id]) == {}
    assert len(await assignments(store, keyspace, "pending")) == 8


@pytest.mark.row("I3A-004")
async def test_a_move_has_the_strategy_that_its_zone_has_when_it_begins(
    store: Metastore, keyspace: Keyspace
) -> None:
    """I3A-004: the zone's own strategy, else the controllers'. A change of it alone starts no rebalance and
    changes no move that runs; what is decided next has it."""
    zones = controller(store, keyspace, strategy=Strategy.CANCEL)
    await publish(store, keyspace, ZoneIntent(1, ZONE))
    await zones.reconcile([ZONE.zone_id])
    for version, strategy in ((2, Strategy.UPDATE), (3, None), (4, Strategy.QUEUE)):
        before = await dump(store, keyspace)
        await publish(store, keyspace, ZoneIntent(version, replace(ZONE, strategy=strategy)))
        assert await zones.reconcile([ZONE.zone_id]) == {}
        after = await dump(store, keyspace)
        changed = {key for key in after.keys() | before.keys() if after.get(key) != before.get(key)}
        assert changed == {keyspace.intent(ZONE.zone_id)}
    await publish(store, keyspace, ZoneIntent(5, replace(ZONE, replicas=3, strategy=Strategy.UPDATE)))
    assert await zones.reconcile([ZONE.zone_id]) == {}
    pending = await assignments(store, keyspace, "pending")
    assert {each.strategy for each in pending.values()} == {Strategy.UPDATE}
    await publish(store, keyspace, ZoneIntent(6, replace(ZONE, replicas=3)))
    assert await zones.reconcile([ZONE.zone_id]) == {}
    assert {each.strategy for each in (await assignments(store, keyspace, "pending")).values()} == {
        Strategy.UPDATE
    }
    await publish(store, keyspace, ZoneIntent(7, replace(ZONE, replicas=2)))
    assert await zones.reconcile([ZONE.zone_id]) == {}
    replaced = await assignments(store, keyspace, "pending")
    assert {(len(each.peers), each.strategy) for each in replaced.values()} == {(2, Strategy.CANCEL)}


@pytest.mark.row("I3-004")
async def test_many_handlers_of_one_event(store: Metastore, keyspace: Keyspace) -> None:
    """I3-004, S105: ten controllers handle the same event at once: each key is written exactly once."""
    await publish(store, keyspace, ZoneIntent(1, ZONE))
    await controller(store, keyspace).reconcile([ZONE.zone_id])
    await publish(store, keyspace, ZoneIntent(2, replace(ZONE, replicas=3)))
    many = [controller(store, keyspace) for _ in range(10)]
    await asyncio.gather(*(each.reconcile([ZONE.zone_id]) for each in many))
    assert await many[0].reconcile([ZONE.zone_id]) == {}
    for number in range(8):
        keys = keyspace.partition(PartitionId(ZONE.zone_id, number))
        pending, trigger = await store.get(keys.pending), await store.get(keys.trigger)
        assert pending is not None
        assert trigger is not None
        assert (pending.version, trigger.version) == (1, 2)
        assert pending.mod_revision == trigger.mod_revision, "one transaction (I3-016)"


class GatedMetastore:
    """Another metastore, whose commits wait at a gate once it is closed."""

    def __init__(self, inner: Metastore) -> None:
        self._inner = inner
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def commit(self, txn: Txn) -> TxnResult:
        if txn.compares and not self.gate.is_set():
            self.waiting.set()
            await self.gate.wait()
        return await self._inner.commit(txn)


@pytest.mark.parametrize("passed", [0, 1, 2, 3])
async def test_an_older_target_never_overwrites_a_newer_one(
    store: Metastore, keyspace: Keyspace, passed: int
) -> None:
    """Two controllers at once: one is held up before its nth guarded write while the other goes on to a newer
    catalog version. Whatever the first then writes is refused by the guards."""
    await publish(store, keyspace, ZoneIntent(1, ZONE))
    await controller(store, keyspace).reconcile([ZONE.zone_id])
    slow_store = GatedMetastore(store)
    slow = controller(slow_store, keyspace)
    await publish(store, keyspace, ZoneIntent(2, replace(ZONE, replicas=2)))
    commit, seen = slow_store.commit, 0

    async def close_after(txn: Txn) -> TxnResult:
        nonlocal seen
        if txn.compares:
            if seen == passed:
                slow_store.gate.clear()
            seen += 1
        return await commit(txn)

    slow_store.commit = close_after
    slowly = asyncio.create_task(slow.reconcile([ZONE.zone_id]))
    async with asyncio.timeout(60):
        await slow_store.waiting.wait()

    await publish(store, keyspace, ZoneIntent(3, replace(ZONE, replicas=3)))
    fast = controller(store, keyspace)
    assert await fast.reconcile([ZONE.zone_id]) == {}
    newest = await pointer_of(store, keyspace)
    wanted = await assignments(store, keyspace, "pending")
    assert newest.catalog_version == 3
    assert all(len(each.nodes) == 3 for each in wanted.values())

    slow_store.gate.set()
    failures = await slowly
    assert ZONE.zone_id in failures
    assert await pointer_of(store, keyspace) == newest
    assert await assignments(store, keyspace, "pending") == wanted
    assert await assignments(store, keyspace, "planned") == {}
    assert await triggers(store, keyspace) == {newest.event_revision}
    if passed == 3:
        assert isinstance(failures[ZONE.zone_id], StaleTargetError)


class DyingMetastore:
    """Another metastore that dies after some commits: as a controller killed at that point."""

    def __init__(self, inner: Metastore, commits: int) -> None:
        self._inner = inner
        self._left = commits

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def commit(self, txn: Txn) -> TxnResult:
        if self._left == 0:
            raise MetastoreUnavailableError("killed")
        self._left -= 1
        return await self._inner.commit(txn)


@pytest.mark.row("I3-016")
async def test_a_controller_that_dies_is_continued(store: Metastore, keyspace: Keyspace) -> None:
    """I3-016, S100, S101, S104: killed between any two commits, there is never a mix; a successor finds what
    was not written, and uses the stored target."""
    wide = replace(ZONE, partitions=250)
    await publish(store, keyspace, ZoneIntent(1, wide))
    await controller(store, keyspace).reconcile([ZONE.zone_id])
    await publish(store, keyspace, ZoneIntent(2, replace(wide, replicas=3)))
    for commits in range(7):
        dying = controller(DyingMetastore(store, commits), keyspace)
        await dying.reconcile([ZONE.zone_id])
        pending = await assignments(store, keyspace, "pending")
        for number in pending:
            keys = keyspace.partition(PartitionId(ZONE.zone_id, number))
            kv, trigger = await store.get(keys.pending), await store.get(keys.trigger)
            assert kv is not None
            assert trigger is not None
            assert kv.mod_revision == trigger.mod_revision
    target = await pointer_of(store, keyspace)
    assert await controller(store, keyspace).reconcile([ZONE.zone_id]) == {}
    assert await pointer_of(store, keyspace) == target, "continued, not computed again"
    assert len(await assignments(store, keyspace, "pending")) == 250


class SilentMetastore:
    """Another metastore whose answers to some large transactions are lost, before or after they are done."""

    def __init__(self, inner: Metastore, lost: dict[int, bool]) -> None:
        self._inner = inner
        self._lost = lost
        self.large = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def commit(self, txn: Txn) -> TxnResult:
        if not any(isinstance(each, Txn) for each in txn.success):
            return await self._inner.commit(txn)
        self.large += 1
        done = self._lost.get(self.large)
        result = await self._inner.commit(txn) if done is not False else None
        if done is not None or result is None:
            raise MetastoreUnavailableError("no answer", outcome_unknown=True)
        return result


@pytest.mark.row("I3-016")
async def test_a_request_whose_outcome_is_unknown_is_read_back(store: Metastore, keyspace: Keyspace) -> None:
    """I3-016: of five requests one was done and one was not, both unanswered: each key is written once."""
    wide = replace(ZONE, partitions=5 * PARTITIONS_PER_REQUEST)
    await publish(store, keyspace, ZoneIntent(1, wide))
    silent = SilentMetastore(store, {2: True, 4: False})
    assert await controller(silent, keyspace).reconcile([ZONE.zone_id]) == {}
    assert silent.large == 6, "only what was not done is sent again"
    assert len(await assignments(store, keyspace, "stable")) == wide.partitions
    items = (await store.range(keyspace.zone_partitions(ZONE.zone_id))).items
    assert {item.version for item in items} == {1}
    assert len(items) == 2 * wide.partitions


class FailingEngine(LocalPlacementEngine):
    """Cannot place one zone."""

    async def place(self, batch: Sequence[PlacementRequest]) -> Sequence[PlacementResult]:
        if any(request.zone_id == 2 for request in batch):
            raise RuntimeError("zone 2 cannot be placed")
        return await super().place(batch)


@pytest.mark.row("I3-004")
async def test_two_results_of_one_event_are_not_mixed(store: Metastore, keyspace: Keyspace) -> None:
    """I3-004: what another controller stored for the event and did not name is written over; whoever was
    written over cannot name it any more. The partitions get what is stored."""
    zones = controller(store, keyspace)
    await publish(store, keyspace, ZoneIntent(1, ZONE))
    assert await zones.reconcile([ZONE.zone_id]) == {}
    created = await pointer_of(store, keyspace)
    foreign = np.tile(np.array([2, 1, 0], dtype="<i4"), (ZONE.partitions, 1)).tobytes()
    targets, pointer = TargetStore(store, keyspace), await store.get(keyspace.target_pointer(ZONE.zone_id))
    nodes = DataNodes(("n1", "n2", "n3"), 2, 3)
    mine = PlacementResult(ZONE.zone_id, nodes.nodes, np.array([[0, 1, 2]] * 8, np.int32), 3, Engine.LOCAL)
    wanted = ZoneIntent(2, replace(ZONE, replicas=3))
    event = created.event_revision + 1_000
    first = keyspace.target_chunk(ZONE.zone_id, event, 0)
    await store.commit(Txn((), (Put(first, foreign),)))
    named = await targets.write(mine, wanted, event, nodes, pointer, ())
    assert named is not None
    found = await store.get(first)
    assert found is not None
    assert found.value == mine.matrix.astype("<i4").tobytes()

    # Written over between storing and naming: nobody may name it.
    pointer = await store.get(keyspace.target_pointer(ZONE.zone_id))
    late = keyspace.target_chunk(ZONE.zone_id, event + 1, 0)

    class Overwritten(TargetStore):
        async def _store_chunk(self, key: str, chunk: bytes, not_named: Compare) -> Compare | None:
            guard = await super()._store_chunk(key, chunk, not_named)
            await store.commit(Txn((), (Put(late, foreign),)))
            return guard

    assert await Overwritten(store, keyspace).write(mine, wanted, event + 1, nodes, pointer, ()) is None
    assert (await pointer_of(store, keyspace)).event_revision == event


@pytest.mark.row("I3-015")
async def test_a_zone_that_fails_holds_up_no_other(store: Metastore, keyspace: Keyspace) -> None:
    """I3-015 for zones: the failure is reported for its zone, the others are written."""
    for zone_id in (1, 2, 3):
        await publish(store, keyspace, ZoneIntent(zone_id, replace(ZONE, zone_id=ZoneId(zone_id))))
    zones = ZoneController(
        store, keyspace, FailingEngine(), DataNodesKeeper(store, keyspace, lambda: KnownTopology.of(*NODES))
    )
    failures = await zones.reconcile([ZoneId(1), ZoneId(2), ZoneId(3)])
    assert list(failures) == [2]
    written = {item.key for item in (await store.range(keyspace.pointers)).items}
    assert written == {keyspace.target_pointer(ZoneId(1)), keyspace.target_pointer(ZoneId(3))}


@pytest.mark.row("I3-013")
async def test_a_joined_node_is_a_data_node_at_once_and_one_that_left_stays(
    store: Metastore, keyspace: Keyspace
) -> None:
    """I3-013: data-node changes trigger too; the quorum grows with the nodes and is never lowered."""
    zone = replace(ZONE, replicas=3)
    await publish(store, keyspace, ZoneIntent(1, zone))
    assert await controller(store, keyspace, NODES[:1]).reconcile([ZONE.zone_id]) == {}
    assert all(each.nodes == {"n1"} for each in (await assignments(store, keyspace, "stable")).values())
    other = Node("n4", profiles=("archive",))
    assert await controller(store, keyspace, (*NODES, other)).reconcile([ZONE.zone_id]) == {}
    found = await store.get(keyspace.data_nodes(ZONE.zone_id))
    assert found is not None
    assert DataNodes.decode(found.value) == DataNodes(("n1", "n2", "n3"), 2, 3)
    assert all(len(each.nodes) == 3 for each in (await assignments(store, keyspace, "pending")).values())
    before = await dump(store, keyspace)
    assert await controller(store, keyspace, NODES[2:]).reconcile([ZONE.zone_id]) == {}
    assert await dump(store, keyspace) == before


async def test_without_a_data_node_nothing_is_written(store: Metastore, keyspace: Keyspace) -> None:
    """S025: only that there is none: a node that comes later waits for the timer, and nothing is tried
    meanwhile."""
    await publish(store, keyspace, ZoneIntent(1, ZONE))
    zones = controller(store, keyspace, ())
    assert await zones.reconcile([ZONE.zone_id]) == {}
    before = await dump(store, keyspace)
    data_nodes = keyspace.data_nodes(ZONE.zone_id), keyspace.data_nodes_history(ZONE.zone_id)
    assert set(before) == {keyspace.intent(ZONE.zone_id), *data_nodes}
    assert DataNodes.decode(before[data_nodes[0]][0]).nodes == ()
    assert await zones.reconcile([ZONE.zone_id]) == {}
    assert await dump(store, keyspace) == before
    await publish(store, keyspace, ZoneIntent(2, ZONE, dropped=True))
    assert await zones.reconcile([ZONE.zone_id]) == {}
    assert list(await dump(store, keyspace)) == [keyspace.intent(ZONE.zone_id)]


async def test_drop_removes_every_key_but_the_intent(store: Metastore, keyspace: Keyspace) -> None:
    """S114: of a zone without members; what members hold goes first (tests of nodes)."""
    zones = controller(store, keyspace)
    await publish(store, keyspace, ZoneIntent(1, ZONE))
    await zones.reconcile([ZONE.zone_id])
    await publish(store, keyspace, ZoneIntent(2, ZONE, dropped=True))
    assert await zones.reconcile([ZONE.zone_id]) == {}
    assert list(await dump(store, keyspace)) == [keyspace.intent(ZONE.zone_id)]


class ListedOutbox:
    """An outbox in memory."""

    def __init__(self, *intents: ZoneIntent) -> None:
        self.rows = [OutboxRow(each.version, each.zone.zone_id, each.encode()) for each in intents]
        self.sent: list[OutboxRow] = []

    async def unsent(self) -> Sequence[OutboxRow]:
        return [row for row in self.rows if row not in self.sent]

    async def mark_sent(self, rows: Sequence[OutboxRow]) -> None:
        self.sent.extend(rows)


@pytest.mark.row("I3-002")
async def test_an_intent_only_moves_to_a_higher_version(store: Metastore, keyspace: Keyspace) -> None:
    """I3-002: rows sent twice, late or by two relays at once leave the newest version."""
    first, second = ZoneIntent(1, ZONE), ZoneIntent(2, replace(ZONE, replicas=2))
    relays = [OutboxRelay(ListedOutbox(first, second), store, keyspace) for _ in range(4)]
    assert await asyncio.gather(*(each.relay_once() for each in relays)) == [2] * 4
    late = ListedOutbox(first)
    assert await OutboxRelay(late, store, keyspace).relay_once() == 1
    found = await store.get(keyspace.intent(ZONE.zone_id))
    assert found is not None
    assert (ZoneIntent.decode(found.value), found.version) == (second, 2)
    assert late.sent == late.rows
