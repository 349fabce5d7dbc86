"""The ring and the switch of ``stable`` as the leading controller keeps them, over each metastore."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from catalog.core.zone import Node, Zone, ZoneId, zone_engine
from rebalance.controllers.clock import SteadyClock
from rebalance.controllers.store_control import LOOK_MS
from rebalance.core.admission.limit_options import JOINER_S
from rebalance.core.assignments.assignment import Strategy
from rebalance.core.keyspace.epoch import EpochRecord, first_major
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import GivenUpRecord
from rebalance.core.keyspace.txn import KeyValue, Put, Txn, TxnResult
from rebalance.core.operations.operation import OperationKind, OperationState
from rebalance.core.partition_maps.topology_version import TopologyVersion, Trigger
from rebalance.ports.metastore import HistoryGoneError, MetastoreHistory, Snapshot
from rebalance.store.core.ring_records import decode_event
from tests.fixtures.ring_world import LIMIT_S, TTL_MS, ZONE, RingWorld, owned

LISTS = {0: ("n1", "n2"), 1: ("n2", "n3"), 2: ("n3", "n1")}


@pytest.fixture
def world(store: MetastoreHistory, keyspace: Keyspace) -> RingWorld:
    return RingWorld(store, keyspace)


class Wrapped:
    """Another metastore, to be changed in one place."""

    def __init__(self, world: RingWorld) -> None:
        self.world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world.store, name)


# Members


async def test_a_server_that_beats_is_joined_once(world: RingWorld) -> None:
    async with world.control():
        await world.join("n1", "n2")
        await world.beat("n1")
        await world.join("n3")
    state = await world.state()
    assert state.cluster.servers == {"n1": 1, "n2": 2, "n3": 3}
    assert state.incarnations == dict.fromkeys(("n1", "n2", "n3"), "i1")
    assert state.number == 3


async def test_after_an_adoption_no_version_comes_again(world: RingWorld) -> None:
    """Positions of records name versions: those of a life of the metastore that is lost are never given to
    others."""
    async with world.control():
        await world.join("n1", "n2")
    await world.store.commit(Txn((), (Put(world.keyspace.epoch, EpochRecord(3).encode()),)))
    async with world.control():
        await world.join("n3", "n4")
    state = await world.state()
    assert state.cluster.version == TopologyVersion(first_major(3) + 2)
    assert state.cluster.servers == {"n1": 1, "n2": 2, "n3": 3, "n4": 4}


async def test_a_server_fails_when_its_heartbeat_has_not_changed_for_the_whole_time(world: RingWorld) -> None:
    async with world.control():
        await world.join("n1", "n2")
        world.clock.set(TTL_MS - 1)
        # Failures come before joins: who joins now shows that nobody was due.
        await world.join("n3")
        await world.beat("n2")
        world.clock.set(TTL_MS)
        state = await world.until(lambda state: "n1" not in state.cluster.servers)
        assert state.cluster.servers.keys() == {"n2", "n3"}
        assert await world.store.get(world.keyspace.store_server("n1", "i1")) is None
    assert (await world.events())[-1] == (Trigger.NODE_FAILED, "n1")


async def test_a_heartbeat_that_comes_before_the_failure_is_written_prevents_it(world: RingWorld) -> None:
    class LateBeat(Wrapped):
        beats = 0

        async def commit(self, txn: Txn) -> TxnResult:
            puts = [each for each in txn.success if isinstance(each, Put)]
            events = [put for put in puts if put.key.startswith(world.keyspace.exchange_events)]
            if any(decode_event(put.value).event.trigger is Trigger.NODE_FAILED for put in events):
                self.beats += 1
                if self.beats == 1:
                    assert await world.beat("n1")
            return await world.store.commit(txn)

    late = LateBeat(world)
    async with world.control(late):
        await world.join("n1", "n2")
        world.clock.set(TTL_MS)
        state = await world.until(lambda state: "n2" not in state.cluster.servers)
    assert late.beats == 2, "the failure of n1 was refused, that of n2 was not"
    assert state.cluster.servers.keys() == {"n1"}


async def test_a_process_that_was_reaped_fails_at_once(world: RingWorld) -> None:
    """The clock stands still: nothing but the deleted key tells of it."""
    async with world.control():
        await world.join("n1", "n2")
        await world.delete(world.keyspace.store_server("n1", "i1"))
        state = await world.until(lambda state: "n1" not in state.cluster.servers)
        assert state.cluster.servers.keys() == {"n2"}
        await world.beat("n1", "i2")
        await world.until(lambda state: state.incarnations.get("n1") == "i2")


async def test_the_most_suspected_server_is_evicted_and_fails_that_long_after_it(world: RingWorld) -> None:
    async with world.control():
        await world.join("n1", "n2", "n3")
        await world.suspect("n1", "n2")
        await world.suspect("n3", "n2")
        await world.suspect("n2", "n1")
        eviction = world.keyspace.eviction("n2")
        await world.until_key(eviction)
        assert not await world.beat("n2"), "its heartbeats are refused from then on"
        # Its time begins when the controller has seen the eviction, as it has who joins now.
        await world.join("n5")
        world.clock.set(TTL_MS - 1)
        for name in ("n1", "n3", "n5"):
            await world.beat(name)
        await world.join("n4")
        assert "n2" in (await world.state()).cluster.servers, "never earlier"
        world.clock.set(TTL_MS + LOOK_MS)
        state = await world.until(lambda state: "n2" not in state.cluster.servers)
        assert state.cluster.servers.keys() == {"n1", "n3", "n4", "n5"}
        assert await world.store.get(eviction) is None
        await world.beat("n2", "i2")
        await world.until(lambda state: state.incarnations.get("n2") == "i2")


async def test_two_controllers_that_believe_to_lead_write_one_sequence(world: RingWorld) -> None:
    await world.publish()
    await world.assign("stable", LISTS)
    async with world.control(), world.control():
        await world.join("n1", "n2", "n3")
        await world.until(lambda state: ZONE.zone_id in state.cluster.zones)
    numbers = [record.number for record in await world.records()]
    assert numbers == list(range(1, len(numbers) + 1))
    events = await world.events()
    assert sorted(node for trigger, node in events if trigger is Trigger.NODE_JOINED) == ["n1", "n2", "n3"]
    assert [trigger for trigger, node in events if not node] == [Trigger.ZONE_START]


async def test_an_event_that_comes_before_a_join_is_written_is_seen(world: RingWorld) -> None:
    """The other controller joins the same server while this one reads the epoch for its own event."""
    joined = asyncio.Event()

    class LateEpoch(Wrapped):
        async def get(self, key: str) -> KeyValue | None:
            if key == world.keyspace.epoch and not joined.is_set():
                async with world.control():
                    await world.until(lambda state: "n1" in state.cluster.servers)
                # Until the mirror of the controller that asks has the event, too.
                await asyncio.sleep(1)
                joined.set()
            return await world.store.get(key)

    async with world.control(LateEpoch(world)):
        await world.beat("n1")
        await joined.wait()
        await world.join("n2")
    assert await world.events() == [(Trigger.NODE_JOINED, "n1"), (Trigger.NODE_JOINED, "n2")]


async def test_old_events_give_way_to_the_ring_s_state(world: RingWorld) -> None:
    async with world.control(events_kept=4):
        await world.join(*(f"n{number}" for number in range(10)))
        await world.until_key(world.keyspace.exchange_ring)
        await world.join("n10", "n11", "n12", "n13")
    state = await world.state()
    assert state.number == 14
    assert len(state.cluster.servers) == 14
    assert 4 <= len(await world.records()) <= 8
    async with world.control(events_kept=4):
        await world.join("n14")
    assert (await world.state()).cluster.servers["n14"] == 15, "another controller goes on"


# Zones


async def test_a_zone_begins_when_all_of_it_is_placed_and_ends_when_it_is_dropped(world: RingWorld) -> None:
    other = Zone(ZoneId(2), "SMALL", 1, 1, None, ("default",))
    async with world.control():
        await world.join("n1")
        await world.publish(other, engine="etcd")
        await world.assign("stable", {0: ("n1",)}, other.zone_id)
        await world.publish()
        await world.assign("stable", {0: LISTS[0], 1: LISTS[1]})
        await world.join("n2")
        assert not (await world.state()).cluster.zones, "one of its partitions is not placed"
        revision = await world.assign("stable", {2: LISTS[2]})
        state = await world.until(lambda state: bool(state.cluster.zones))
        spec = state.cluster.zones[ZONE.zone_id]
        assert (spec.partitions, spec.copies, spec.targets) == (3, 2, revision)
        await world.publish(dropped=True)
        await world.until(lambda state: not state.cluster.zones)
    triggers = [trigger for trigger, node in await world.events() if not node]
    assert triggers == [Trigger.ZONE_START, Trigger.ZONE_STOP]


async def test_targets_are_set_when_lists_change_and_at_most_once_a_second(world: RingWorld) -> None:
    await world.publish()
    await world.assign("stable", LISTS)
    async with world.control():
        await world.join("n1")
        await world.until(lambda state: bool(state.cluster.zones))
        for number in LISTS:
            await world.assign("pending", {number: ("n1", "n3")})
        await world.join("n2")
        assert not await world.count(Trigger.TARGET_SET), "so soon after the zone's begin"
        last = await world.assign("pending", {0: ("n3", "n2")})
        world.clock.set(1_000)
        state = await world.until(lambda state: state.cluster.zones[ZONE.zone_id].targets >= last)
        assert await world.count(Trigger.TARGET_SET) == 1
        assert state.cluster.zones[ZONE.zone_id].targets == last
        # What was pending is stable now: the lists are the same.
        await world.switch()
        world.clock.set(3_000)
        await world.join("n3")
        assert await world.count(Trigger.TARGET_SET) == 1
    async with world.control():
        await world.join("n4")
        assert await world.count(Trigger.TARGET_SET) == 1, "a controller that leads anew compares, too"
        await world.assign("pending", {1: ("n2", "n4")})
        await world.until(lambda state: state.cluster.zones[ZONE.zone_id].targets > last)


async def test_targets_that_are_compacted_are_set_anew_before_a_server_joins(world: RingWorld) -> None:
    class Compacted(Wrapped):
        below = 0

        async def range_at(self, prefix: str, revision: int) -> Snapshot:
            if revision < self.below:
                raise HistoryGoneError("compacted")
            return await world.store.range_at(prefix, revision)

    compacted = Compacted(world)
    await world.publish()
    await world.assign("stable", LISTS)
    async with world.control(compacted):
        await world.join("n1")
        state = await world.until(lambda state: bool(state.cluster.zones))
        revision = state.cluster.zones[ZONE.zone_id].targets
        compacted.below = revision + 1
        joining = asyncio.create_task(world.join("n2"))
        # Targets are set anew at most once a second, and of what has been read by then.
        for now_ms in range(2_000, 30_000, 1_000):
            await world.beat("n1")
            world.clock.set(now_ms)
            if (await asyncio.wait((joining,), timeout=2))[0]:
                break
        await joining
    events = await world.events()
    assert events[-2:] == [(Trigger.TARGET_SET, ""), (Trigger.NODE_JOINED, "n2")]
    assert (await world.state()).cluster.zones[ZONE.zone_id].targets > revision


# The switch of stable


async def test_stable_follows_the_results_of_exchanges(world: RingWorld) -> None:
    await world.publish()
    await world.assign("stable", LISTS)
    pending = dict.fromkeys(LISTS, ("n1", "n3"))
    async with world.control():
        await world.join("n1", "n2", "n3")
        await world.until(lambda state: bool(state.cluster.zones))
        await world.conclude({number: owned(*nodes) for number, nodes in LISTS.items()})
        await world.assign("pending", pending)
        # 0 is there; of 1 a surplus copy is still in sync; 2 is led by its old primary.
        outcomes = {0: owned("n3", "n1"), 1: owned("n1", "n3", in_sync=("n1", "n2", "n3"))}
        await world.conclude({**outcomes, 2: owned("n2", "n1", "n3", in_sync=("n1", "n3"))})
        await world.until_assigned("stable", {**LISTS, 0: ("n1", "n3")})
        assert await world.assigned("pending") == {1: ("n1", "n3"), 2: ("n1", "n3")}
        await world.conclude({1: owned("n1", "n3", is_lost=True), 2: owned("n1", "n3")})
        await world.until_assigned("stable", {**LISTS, 0: ("n1", "n3"), 2: ("n1", "n3")})
        await world.conclude({1: owned("n1", "n3")})
        await world.until_assigned("stable", pending)
        assert await world.assigned("pending") == {}


async def test_what_was_planned_is_pending_after_the_switch(world: RingWorld) -> None:
    await world.publish()
    await world.assign("stable", LISTS)
    async with world.control(clock=SteadyClock()):
        await world.join("n1", "n2", "n3")
        await world.until(lambda state: bool(state.cluster.zones))
        await world.assign("planned", {1: ("n1", "n2")})
        await world.assign("pending", {1: ("n3", "n1")})
        await world.conclude({number: owned(*nodes) for number, nodes in {**LISTS, 1: ("n3", "n1")}.items()})
        await world.until_assigned("stable", {**LISTS, 1: ("n3", "n1")})
        assert await world.assigned("pending") == {1: ("n1", "n2")}
        assert await world.assigned("planned") == {}


async def test_a_move_that_may_be_cancelled_makes_room_for_what_is_planned(world: RingWorld) -> None:
    """A move may be cancelled until a result has made its copies the owners; one of another strategy goes
    on."""
    await world.publish()
    await world.assign("stable", LISTS)
    async with world.control() as control:
        await world.join("n1", "n2", "n3")
        await world.until(lambda state: bool(state.cluster.zones))
        await world.conclude({number: owned(*nodes) for number, nodes in LISTS.items()})
        await world.until_owners(control, 0, LISTS[0])
        pending = {0: ("n1", "n3"), 1: ("n2", "n1")}
        await world.assign("pending", pending, strategy=Strategy.CANCEL)
        await world.assign("pending", {2: ("n3", "n2")})
        await world.conclude({1: owned(*pending[1])})
        await world.until_assigned("stable", {**LISTS, 1: pending[1]})
        await world.assign("planned", {0: ("n2", "n3"), 2: ("n1", "n2")})
        await world.until_assigned("pending", {0: ("n2", "n3"), 2: ("n3", "n2")})
        assert await world.assigned("planned") == {2: ("n1", "n2")}
        assert await world.assigned("stable") == {**LISTS, 1: pending[1]}


async def test_a_move_goes_on_without_a_server_that_does_not_come(world: RingWorld) -> None:
    """The copy that was to leave takes its place, and a repeated question names it."""
    await world.publish()
    await world.assign("stable", LISTS)
    async with world.control(ttl_ms=10 * 1_000 * JOINER_S) as control:
        await world.join("n1", "n2", "n3")
        await world.until(lambda state: bool(state.cluster.zones))
        await world.conclude({number: owned(*nodes) for number, nodes in LISTS.items()})
        await world.until_owners(control, 0, LISTS[0])
        await world.assign("pending", {0: ("n1", "n4"), 1: ("n3", "n2"), 2: ("n1", "n2")})
        await world.conclude({1: owned("n3", "n2")})
        await world.until_assigned("stable", {**LISTS, 1: ("n3", "n2")})
        world.clock.set(1_000 * JOINER_S - 1)
        await world.conclude({2: owned("n1", "n2")})
        await world.until_assigned("stable", {**LISTS, 1: ("n3", "n2"), 2: ("n1", "n2")})
        assert await world.assigned("pending") == {0: ("n1", "n4")}, "it may still come"
        world.clock.set(1_000 * JOINER_S + LOOK_MS)
        await world.until_assigned("pending", {})
        assert (await world.assigned("stable"))[0] == LISTS[0]
        given_up = await world.store.get(world.keyspace.given_up(PartitionId(ZONE.zone_id, 0)))
        assert given_up is not None
        assert GivenUpRecord.decode(given_up.value).names() == ("n4",)


async def test_learners_are_copies_that_a_move_waits_for_while_their_server_is_there(world: RingWorld) -> None:
    await world.publish()
    await world.assign("stable", LISTS)
    async with world.control() as control:
        await world.join("n1", "n2", "n3")
        await world.until(lambda state: bool(state.cluster.zones))
        await world.conclude({number: owned(*nodes) for number, nodes in LISTS.items()})
        await world.until_owners(control, 0, LISTS[0])
        await world.assign("pending", {0: ("n1",)}, learners=("n3",))
        await world.assign("pending", {1: ("n2",)}, learners=("n4",))
        await world.conclude({0: owned("n1", "n2"), 1: owned("n2")})
        await world.until_assigned("stable", {**LISTS, 1: ("n2",)})
        assert await world.assigned("pending") == {0: ("n1",)}
        await world.conclude({0: owned("n1", "n3")})
        await world.until_assigned("stable", {**LISTS, 0: ("n1",), 1: ("n2",)})


async def test_zones_of_store_servers_are_known_to_who_counts_members(world: RingWorld) -> None:
    """The zones are known even when no node names their engine any more."""
    changes: list[frozenset[ZoneId]] = []
    await world.publish(Zone(ZoneId(2), "SMALL", 1, 1, None, ("default",)), engine="etcd")
    await world.publish()
    await world.assign("stable", LISTS)
    async with world.control() as control:
        control.listen(changes.append)
        await world.join("n1")
        await world.until(lambda state: bool(state.cluster.zones))
        assert control.stored == {ZONE.zone_id}
        for name in ("n1", "n2", "n3"):
            await world.delete(world.keyspace.node(name))
        await world.join("n2")
        assert control.stored == {ZONE.zone_id}
        await world.publish(dropped=True)
        await world.until(lambda state: not state.cluster.zones)
        async with asyncio.timeout(LIMIT_S):
            while control.stored:
                await asyncio.sleep(0.02)
    assert changes == [{ZONE.zone_id}, {ZONE.zone_id}]


async def test_a_server_that_failed_since_the_last_result_is_no_owner(world: RingWorld) -> None:
    await world.publish()
    await world.assign("stable", LISTS)
    async with world.control() as control:
        await world.join("n1", "n2", "n3")
        await world.until(lambda state: bool(state.cluster.zones))
        await world.conclude({number: owned(*nodes) for number, nodes in LISTS.items()})
        await world.until_owners(control, 0, ("n1", "n2"))
        assert control.owners(ZoneId(9), 0) is None, "a zone of groups"
        await world.delete(world.keyspace.store_server("n2", "i1"))
        await world.until(lambda state: "n2" not in state.cluster.servers)
        await world.until_owners(control, 0, ("n1",))


async def test_an_operation_of_a_store_zone_ends_by_results(world: RingWorld) -> None:
    """A creation ends when servers have opened every partition, a change when stable is switched everywhere."""
    await world.publish()
    async with world.control() as control:
        await world.join("n1", "n2", "n3")
        assert (await world.operation(control)).state is OperationState.WAITING
        await world.until(lambda state: bool(state.cluster.zones))
        created = await world.assigned("stable")
        await world.conclude({number: owned(*nodes) for number, nodes in created.items() if number})
        await world.until_owners(control, 1, created[1])
        waiting = await world.operation(control)
        assert (waiting.tally.done, waiting.is_over) == (2, False)
        await world.conclude({0: owned(*created[0])})
        await world.until_owners(control, 0, created[0])
        assert (await world.operation(control)).state is OperationState.DONE

        await world.publish(replace(ZONE, replicas=3))
        assert (await world.operation(control)).state is OperationState.RUNNING
        pending = await world.assigned("pending")
        assert sorted(pending) == [0, 1, 2]
        await world.conclude({number: owned(*nodes) for number, nodes in pending.items()})
        await world.until_assigned("stable", pending)
        done = await world.operation(control)
        assert (done.kind, done.state, done.tally.done) == (OperationKind.ALTER_ZONE, OperationState.DONE, 3)


def test_a_zone_has_the_engine_on_which_all_its_nodes_agree() -> None:
    bulk = Node("n1", profiles=("default", "bulk"), engines=(("bulk", "store"),))
    plain = Node("n2", profiles=("default",))
    other = Node("n3", profiles=("default", "bulk"))
    assert zone_engine(ZONE, (bulk, plain)) == "store"
    assert zone_engine(ZONE, (bulk, plain, other)) == ""
    assert zone_engine(ZONE, (plain,)) == ""
