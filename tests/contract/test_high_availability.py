"""HIGH_AVAILABILITY zones over each metastore: who is asked for, and when a lost majority is reset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import ConfigurationRecord, MemberRecord, MemberState, MirrorRecord
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.core.operations.operation import Operation, OperationKind
from rebalance.core.topology.node_presence import HoldRule
from rebalance.ports.metastore import Metastore
from tests.fixtures.recovery_world import P0, STRONG, ZONE, RecoveryWorld

Made = Callable[..., RecoveryWorld]


@pytest.fixture
async def world(store: Metastore, keyspace: Keyspace) -> RecoveryWorld:
    return RecoveryWorld(store, keyspace)


@pytest.mark.row("IEP-051")
async def test_a_minority_is_reset_after_the_delay(world: RecoveryWorld) -> None:
    """S190, S191, S220, S222, IEP-051: not while a majority lives, not before the delay is over, then once: on
    the most advanced copy, without nodes that the target does not have."""
    await world.with_nodes(replace(ZONE, auto_scale_up=100_000), "a", "b", "c")
    await world.join("d")
    assert await world.stable() == "a,b,c"
    await world.advance(1)
    await world.leave("a")
    await world.elapse(60)
    assert world.forced == []
    await world.leave("b")
    await world.elapse(69.5)
    assert world.forced == []
    await world.elapse(70)
    assert world.forced == [Assignments(("c",))]
    assert world.forced[0].forced == await world.trigger()
    assert await world.stable() == "c"
    assert await world.assigned("pending") is None
    await world.elapse(200)
    assert len(world.forced) == 1
    # Nobody is left: there is nothing to begin from, and nothing is written.
    before = await world.trigger()
    await world.leave("c")
    await world.elapse(400)
    assert len(world.forced) == 1
    assert await world.assigned("pending") is None
    assert await world.stable() == "c"
    assert (await world.trigger(), await world.assigned("planned")) >= (before, None)


@pytest.mark.row("IEP-049", "IEP-050", "IEP-051")
async def test_strong_zones_never_help_themselves(world: RecoveryWorld) -> None:
    """S221, IEP-049, IEP-050, IEP-051: no timer, no reset, nothing promoted, however long it lasts."""
    await world.with_nodes(STRONG, "a", "b", "c")
    before = await world.trigger()
    await world.leave("b", "c")
    await world.elapse(10_000)
    assert world.forced == []
    assert await world.trigger() == before
    assert await world.stable() == "a,b,c"
    assert world.resets is not None
    assert world.resets.due.due(10**12) == ()


async def test_nodes_that_return_are_added_one_by_one(world: RecoveryWorld) -> None:
    """S223: narrowed to one of five; each that comes back is taken in again."""
    five = replace(ZONE, replicas=5, quorum_size=3)
    await world.with_nodes(five, "a", "b", "c", "d", "e")
    await world.leave("b", "c", "d", "e")
    await world.elapse(20)
    assert await world.stable() == "a"
    await world.join("b")
    assert await world.stable() == "a,b"
    await world.join("c")
    assert await world.stable() == "a,b,c"
    assert len(world.forced) == 1


async def test_a_dead_node_stays_in_stable_until_it_is_scaled_down(world: RecoveryWorld) -> None:
    """S224, S225, S226: it is waited for where it holds a replica; scale down takes it out; restarts in turn
    change nothing."""
    await world.with_nodes(replace(ZONE, replicas=5, quorum_size=3), "a", "b", "c", "d", "e")
    await world.leave("d", "e")
    await world.join("d")
    assert await world.stable() == "a,b,c,d,e"
    await world.join("e")
    for name in "abcde":
        await world.leave(name)
        await world.join(name)
    await world.elapse(100)
    assert await world.stable() == "a,b,c,d,e"
    assert world.forced == []
    await world.leave("e")
    await world.alter(auto_scale_down=1)
    await world.elapse(200)
    assert await world.stable() == "a,b,c,d"
    await world.join("f")
    assert await world.stable() == "a,b,c,d,f"


async def test_a_new_replica_is_not_placed_on_a_node_that_is_gone(world: RecoveryWorld) -> None:
    """S225: target = (calculated and alive) or (stable and calculated)."""
    await world.with_nodes(replace(ZONE, replicas=1), "a", "b", "c")
    (holder,) = (await world.stable()).split(",")
    first, second = (name for name in "abc" if name != holder)
    await world.leave(first)
    await world.alter(replicas=3)
    assert await world.stable() == ",".join(sorted((holder, second)))
    await world.join(first)
    assert await world.stable() == "a,b,c"


async def test_two_losses_after_each_other(world: RecoveryWorld) -> None:
    """S228, S234: three of five, then one of two; the last that served is the one that goes on, and nobody of
    an earlier set begins without it."""
    await world.with_nodes(replace(ZONE, replicas=5, quorum_size=3), "a", "b", "c", "d", "e")
    await world.leave("c", "d", "e")
    await world.elapse(20)
    assert await world.stable() == "a,b"
    await world.leave("b")
    await world.elapse(40)
    assert await world.stable() == "a"
    assert len(world.forced) == 2
    await world.leave("a")
    await world.join("d")
    await world.join("b")
    await world.elapse(100)
    assert await world.stable() == "a"
    assert len(world.forced) == 2
    await world.join("a")
    assert await world.stable() == "a,b,d"


async def test_a_delay_that_is_changed_while_it_runs(world: RecoveryWorld) -> None:
    """S217: another one counts from the same loss, up and down again, and one reset is made."""
    await world.with_nodes(ZONE, "a", "b", "c")
    await world.leave("b", "c")
    await world.limit(1_000)
    await world.elapse(50)
    assert world.forced == []
    await world.limit(20)
    assert world.forced == [Assignments(("a",))]
    await world.elapse(100)
    assert len(world.forced) == 1


async def test_all_stopped_and_one_returns(world: RecoveryWorld) -> None:
    """S229, S232: with everybody gone nothing is done; who returns first is reset to when the delay is over,
    and not if a majority is back by then."""
    await world.with_nodes(ZONE, "a", "b", "c")
    await world.leave("a", "b", "c")
    await world.elapse(100)
    assert world.forced == []
    await world.join("b")
    assert world.forced == [Assignments(("b",))]
    assert await world.stable() == "b"


async def test_a_majority_that_is_back_in_time(world: RecoveryWorld) -> None:
    """S232: the members restart and return before the delay is over."""
    await world.with_nodes(ZONE, "a", "b", "c")
    await world.leave("b", "c")
    await world.elapse(9)
    await world.join("b")
    await world.elapse(100)
    assert world.forced == []
    assert await world.stable() == "a,b,c"


async def test_a_filter_that_was_changed_before(world: RecoveryWorld) -> None:
    """S230, S231: the data comes from a node that the filter leaves out, and goes to those that it takes; a
    node outside of the filter is never used."""
    zone = replace(ZONE, nodes_filter="$[?(@.region == 'EU')]")
    await world.start()
    for name in "abc":
        await world.join(name, region="EU")
    for name in "def":
        await world.join(name, region="US")
    await world.publish(zone)
    assert await world.stable() == "a,b,c"
    await world.leave("b", "c")
    await world.alter(nodes_filter="$[?(@.region == 'US')]")
    assert await world.stable() == "a,b,c"
    await world.elapse(20)
    assert world.forced == [Assignments(("a",))]
    assert await world.stable() == "d,e,f"


async def test_a_filter_is_heeded_when_it_narrows(world: RecoveryWorld) -> None:
    """S231."""
    await world.start()
    for name in "ab":
        await world.join(name, region="EU")
    await world.join("c", region="US")
    await world.publish(replace(ZONE, nodes_filter="$[?(@.region == 'EU')]"))
    assert await world.stable() == "a,b"
    await world.leave("b")
    await world.elapse(20)
    assert await world.stable() == "a"


async def test_living_nodes_of_a_running_move_follow(world: RecoveryWorld) -> None:
    """S195, S233: a move was under way; its living part is what becomes planned."""
    await world.with_nodes(replace(ZONE, auto_scale_down=0), "a", "b", "c")
    world.moves = False
    await world.leave("c")
    await world.join("d")
    await world.leave("b")
    pending = await world.assigned("pending")
    assert pending is not None
    await world.elapse(20)
    assert world.forced == [Assignments(("a",))]
    assert await world.assigned("planned") == Assignments(("a", "d"))
    world.moves = True
    await world.carry_out()
    assert await world.stable() == "a,d"


async def test_a_reset_under_way_is_left_to_do_its_work(world: RecoveryWorld) -> None:
    """S222, S232: pending is forced to a living node: looked at again and again, it is written once."""
    await world.with_nodes(ZONE, "a", "b", "c")
    world.moves = False
    await world.leave("b", "c")
    await world.elapse(20)
    revision = await world.trigger()
    for _ in range(3):
        await world.look()
    assert await world.trigger() == revision
    # An ordinary change waits for it in planned (S193).
    await world.alter(auto_scale_down=1)
    await world.elapse(40)
    assert (await world.assigned("pending") or Assignments(("x",))).forced == revision
    world.moves = True
    await world.carry_out()
    assert await world.stable() == "a"


async def test_nodes_that_are_only_missing_are_waited_for(world: RecoveryWorld) -> None:
    """The metastore was silent and most leases ended: nobody has left, so nothing was lost."""
    world.hold = HoldRule(5_000, 30_000)
    await world.with_nodes(ZONE, "a", "b", "c")
    await world.leave("b", "c")
    await world.elapse(25)
    assert world.forced == []
    await world.elapse(60)
    assert world.forced == [Assignments(("a",))]


async def test_a_partition_that_nobody_told_of_is_waited_for(world: RecoveryWorld) -> None:
    """Survivors tell how far they go after a while: until then nobody is chosen."""
    await world.with_nodes(ZONE, "a", "b", "c")
    found = await world.store.get(world.keyspace.member(P0, "a"))
    assert found is not None
    told = found.value
    silent = told.replace(b',"position":{"committed":5,"last":5,"orderly":true}', b"")
    assert silent != told
    await world.store.commit(Txn((), (Put(found.key, silent),)))
    await world.leave("b", "c")
    await world.advance(20)
    await world.look()
    assert world.forced == []
    await world.store.commit(Txn((), (Put(found.key, told),)))
    await world.elapse(22)
    assert world.forced == [Assignments(("a",))]


@pytest.mark.row("R6")
async def test_a_silent_copy_is_waited_for_five_seconds(world: RecoveryWorld) -> None:
    """R6: no longer than that: the best of those that have told goes on, and the operation names who was
    silent."""
    await world.with_nodes(replace(ZONE, replicas=5, quorum_size=3), "a", "b", "c", "d", "e")
    found = await world.store.get(world.keyspace.member(P0, "a"))
    assert found is not None
    silent = replace(MemberRecord.decode(found.value), position=None)
    await world.store.commit(Txn((), (Put(found.key, silent.encode()),)))
    await world.leave("c", "d", "e")
    await world.elapse(14.5)
    assert world.forced == []
    await world.elapse(15)
    assert world.forced == [Assignments(("b",))]
    (item,) = [
        each
        for each in (await world.store.range(world.keyspace.operations)).items
        if Operation.decode(each.value).kind is OperationKind.RESET
    ]
    assert Operation.decode(item.value).reason == "no majority for 15 s; silent: a"


@pytest.mark.row("R1")
async def test_a_group_that_serves_is_not_reset(world: RecoveryWorld) -> None:
    """R1: its nodes are cut off from the metastore alone, and their fences do not hold. The time begins again
    each time that it answers, and it is reset once it is silent for all of it."""
    await world.with_nodes(ZONE, "a", "b", "c")
    world.probe.serves = {"b"}
    await world.leave("b", "c")
    before = await world.trigger()
    await world.elapse(60)
    assert world.forced == []
    assert await world.trigger() == before
    assert len(world.probe.asked) > 5
    world.probe.serves = set()
    await world.elapse(69.5)
    assert world.forced == []
    await world.elapse(70)
    assert world.forced == [Assignments(("a",))]


@pytest.mark.row("IEP-051", "IEP-059")
async def test_a_learner_goes_on_where_no_voter_is_left(world: RecoveryWorld) -> None:
    """IEP-051, IEP-059: the same candidates as of a reset by hand."""
    await world.with_nodes(replace(ZONE, replicas=5, quorum_size=2), "a", "b", "c", "d", "e")
    stable = await world.assigned("stable")
    assert stable is not None
    first, second = sorted(stable.learners)
    for node, revision in ((first, 7), (second, 9)):
        mirror = MirrorRecord(MemberState.RUNNING, "m", 6, complete_revision=revision)
        record = MemberRecord.of_mirror(mirror)
        await world.store.commit(Txn((), (Put(world.keyspace.member(P0, node), record.encode()),)))
    configured = await world.store.get(world.keyspace.partition(P0).configuration)
    assert configured is not None
    record_of_group = ConfigurationRecord.decode(configured.value)
    voters = {node: each for node, each in record_of_group.members.items() if node in stable.peers}
    await world.store.commit(Txn((), (Put(configured.key, replace(record_of_group, members=voters).encode()),)))
    await world.leave(*stable.peers)
    await world.elapse(20)
    assert world.forced == [Assignments((second,))]
