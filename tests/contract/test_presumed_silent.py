"""Absent nodes that a controller may take for silent, over each metastore (H1, H2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.core.topology.node_presence import HoldRule
from rebalance.ports.metastore import Metastore, Snapshot
from tests.fixtures.recovery_world import ZONE, RecoveryWorld


@pytest.fixture
async def world(store: Metastore, keyspace: Keyspace) -> RecoveryWorld:
    return RecoveryWorld(store, keyspace)


@pytest.mark.row("H2")
async def test_a_decrease_that_the_lost_nodes_have_not_followed(world: RecoveryWorld) -> None:
    """H2: nodes that are gone keep to what they have published last, whatever the limits say by now."""
    world.fence_s = 50
    await world.with_nodes(ZONE, "a", "b", "c")
    await world.leave("b", "c")
    await world.limit(10)
    await world.elapse(53.5)
    assert world.forced == []
    await world.elapse(54)
    assert world.forced == [Assignments(("a",))]


@pytest.mark.row("H2")
async def test_the_limits_are_the_planned_ones_when_a_reset_is_written(world: RecoveryWorld) -> None:
    """H2: the time was raised while members were asked: the reset that was planned before is not made."""
    await world.with_nodes(ZONE, "a", "b", "c")

    async def raised() -> None:
        world.probe.before_answer = None
        put = Put(world.keyspace.limits, Limits(ha_reset_s=60).encode())
        await world.store.commit(Txn((), (put,)))

    await world.leave("b", "c")
    world.probe.before_answer = raised
    await world.elapse(59.5)
    assert world.forced == []
    await world.elapse(60)
    assert world.forced == [Assignments(("a",))]


@pytest.mark.row("H1")
async def test_a_lost_node_was_there_while_members_were_asked(world: RecoveryWorld) -> None:
    """H1: it has come and gone again unseen, and has published its fence: it may have served until then."""
    await world.with_nodes(ZONE, "a", "b", "c")

    async def registered() -> None:
        world.probe.before_answer = None
        await world.publish_fence("b", "start-2", 6)

    await world.leave("b", "c")
    world.probe.before_answer = registered
    await world.elapse(20.5)
    assert world.forced == []
    await world.elapse(21)
    assert world.forced == [Assignments(("a",))]


@pytest.mark.row("H1", "H2")
@pytest.mark.parametrize("published", ["nothing", "of an earlier start", "garbage"])
async def test_nobody_is_silent_who_has_not_published_a_fence(world: RecoveryWorld, published: str) -> None:
    """H1, H2: neither without a record nor with another incarnation's, nor with one that nobody can read."""
    world.fence_s = None
    await world.with_nodes(ZONE, "a", "b", "c")
    await world.publish_fence("c", "start-3", 6)
    if published == "of an earlier start":
        await world.publish_fence("b", "start-0", 6)
    elif published == "garbage":
        await world.store.commit(Txn((), (Put(world.keyspace.fence("b"), b"?"),)))
    await world.leave("b", "c")
    await world.elapse(10_000)
    assert world.forced == []
    # A reset by hand is the way out.
    (done,) = await world.recovery.reset(world.intent().zone)
    assert done.written


@pytest.mark.row("H1")
async def test_fences_of_a_majority_are_enough(world: RecoveryWorld) -> None:
    """H1: whoever has published none is too few without those that have."""
    five = replace(ZONE, replicas=5, quorum_size=3)
    world.fence_s = None
    await world.with_nodes(five, "a", "b", "c", "d", "e")
    for name, start in (("b", 2), ("c", 3), ("d", 4)):
        await world.publish_fence(name, f"start-{start}", 6)
    await world.leave("b", "c", "d", "e")
    await world.elapse(10)
    assert world.forced == [Assignments(("a",))]


@pytest.mark.parametrize("key", ["limits", "topology"])
async def test_records_that_cannot_be_read_hold_resets_back(world: RecoveryWorld, key: str) -> None:
    """Neither the defaults nor what was known before: nothing is reset until they can be read."""
    await world.with_nodes(ZONE, "a", "b", "c")
    await world.leave("b", "c")
    name = world.keyspace.limits if key == "limits" else world.keyspace.topology
    known = await world.store.get(name)
    await world.store.commit(Txn((), (Put(name, b"?"),)))
    await world.record()
    await world.elapse(30)
    assert world.forced == []
    mended = Delete(name) if known is None else Put(name, known.value)
    await world.store.commit(Txn((), (mended,)))
    await world.record()
    await world.elapse(32)
    assert world.forced == [Assignments(("a",))]


@pytest.mark.row("H1")
async def test_a_new_controller_begins_again(world: RecoveryWorld) -> None:
    """H1, S229: what an earlier one has seen, and the topology has recorded, does not count."""
    await world.with_nodes(ZONE, "a", "b", "c")
    await world.leave("b", "c")
    world.kill()
    await world.advance(9)
    await world.start()
    world.kill()
    await world.advance(30)
    await world.start()
    assert world.forced == []
    await world.elapse(39.5)
    assert world.forced == []
    await world.elapse(40)
    assert world.forced == [Assignments(("a",))]
    await world.start()
    assert len(world.forced) == 1


@pytest.mark.row("H1")
async def test_a_controller_that_leads_again_begins_again(world: RecoveryWorld) -> None:
    """H1: it did not look meanwhile."""
    await world.with_nodes(ZONE, "a", "b", "c")
    await world.leave("b", "c")
    await world.elapse(9)
    assert world.resets is not None
    world.resets.begin()
    await world.look()
    await world.elapse(18.5)
    assert world.forced == []
    await world.elapse(19)
    assert world.forced == [Assignments(("a",))]


@pytest.mark.row("H1", "H4")
async def test_a_silence_of_the_metastore_begins_again(world: RecoveryWorld) -> None:
    """H1, H4: nodes that see an outage serve on through it; while it lasts nobody is taken for silent."""
    await world.with_nodes(ZONE, "a", "b", "c")
    await world.leave("b", "c")
    await world.elapse(9)
    world.heard_since_ms = None
    await world.elapse(30)
    assert world.forced == []
    assert world.probe.asked == []
    world.heard_since_ms = 30_000
    await world.elapse(39.5)
    assert world.forced == []
    await world.elapse(41)
    assert world.forced == [Assignments(("a",))]


@pytest.mark.row("H1")
async def test_a_silence_while_members_are_asked(world: RecoveryWorld) -> None:
    """H1: the same between the plan and its transaction."""
    await world.with_nodes(ZONE, "a", "b", "c")

    async def silent() -> None:
        world.probe.before_answer = None
        world.heard_since_ms = 10_000

    await world.leave("b", "c")
    world.probe.before_answer = silent
    await world.elapse(19.5)
    assert world.forced == []
    await world.elapse(20)
    assert world.forced == [Assignments(("a",))]


@pytest.mark.row("H1")
@pytest.mark.parametrize("jump_s", [3_600, -3_600])
@pytest.mark.parametrize("hold", [HoldRule(0, 0), HoldRule(5_000, 15_000)])
async def test_the_wall_clock_jumps_an_hour(world: RecoveryWorld, jump_s: int, hold: HoldRule) -> None:
    """H1: it makes no reset and hinders none, with nodes that have left and with those that are waited for."""
    world.hold = hold
    await world.with_nodes(ZONE, "a", "b", "c")
    await world.leave("b", "c")
    await world.elapse(5)
    world.jump(jump_s)
    await world.record()
    await world.look()
    due_s = max(10, hold.grace_ms / 1_000) if jump_s < 0 else 10
    await world.elapse(due_s - 0.5)
    assert world.forced == []
    await world.elapse(due_s)
    assert world.forced == [Assignments(("a",))]


@pytest.mark.row("H1")
async def test_a_node_that_is_seen_for_a_moment_is_waited_for_anew(world: RecoveryWorld) -> None:
    """H1: as any other incarnation, and as the same one."""
    await world.with_nodes(ZONE, "a", "b", "c")
    world.moves = False
    await world.leave("b", "c")
    await world.elapse(8)
    await world.join("b")
    await world.leave("b")
    await world.elapse(17.5)
    assert world.forced == []
    await world.elapse(18)
    assert world.forced == [Assignments(("a",))]


@pytest.mark.row("H1")
async def test_a_change_of_a_node_key_that_nobody_looked_at_counts(world: RecoveryWorld) -> None:
    """H1: it came and went between two looks, as the same start and with the same fence."""
    await world.with_nodes(ZONE, "a", "b", "c")
    await world.leave("b", "c")
    await world.elapse(8)
    assert world.resets is not None
    world.resets.notice([world.keyspace.node("b")])
    await world.elapse(17.5)
    assert world.forced == []
    await world.elapse(18)
    assert world.forced == [Assignments(("a",))]


class NodeComes:
    """A metastore in which something happens once, before the first read of fences after ``happens`` is set."""

    def __init__(self, store: Metastore, keyspace: Keyspace) -> None:
        self._store = store
        self._fences = keyspace.fences
        self.happens: Callable[[], Awaitable[object]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def range(self, prefix: str) -> Snapshot:
        happens = self.happens
        if happens is not None and prefix == self._fences:
            self.happens = None
            await happens()
        return await self._store.range(prefix)


@pytest.mark.row("H1")
async def test_a_node_that_comes_between_the_reads_of_a_look(store: Metastore, keyspace: Keyspace) -> None:
    """H1: the watch tells of it late, and it is gone again before the next look: it was there until then."""
    comes = NodeComes(store, keyspace)
    world = RecoveryWorld(cast(Metastore, comes), keyspace)
    await world.with_nodes(ZONE, "a", "b", "c")
    known = await store.get(keyspace.node("b"))
    assert known is not None

    async def registered() -> None:
        await world.publish_fence("b", "start-2", 6)
        await store.commit(Txn((), (Put(keyspace.node("b"), known.value),)))

    await world.leave("b", "c")
    await world.elapse(5)
    comes.happens = registered
    await world.look()
    await world.elapse(14)
    await store.commit(Txn((), (Delete(keyspace.node("b")),)))
    await world.elapse(15)
    await world.look()
    assert world.forced == []
    await world.elapse(25)
    assert world.forced == [Assignments(("a",))]
