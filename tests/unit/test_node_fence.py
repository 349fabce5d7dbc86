"""Members that may run on a node, and until when, on a clock of the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from catalog.core.zone import Node, ZoneId
from rebalance.core.admission.move_admission import Limits
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.core.topology.fencing import SECOND, FenceRecord
from rebalance.metastore.majority import Word, has_no_majority
from rebalance.nodes.node_context import NodeStart
from rebalance.nodes.node_fence import UNCLEAR, UNHEARD, UNREGISTERED, FencePublisher, NodeFence
from rebalance.nodes.registration import Registration
from rebalance.ports.fence import WatchLostError
from rebalance.ports.metastore import MetastoreUnavailableError
from simulator.control.memory_metastore import MemoryMetastore

LEASE_S, FENCE_S = 5, 6
STRONG, AVAILABLE = PartitionId(ZoneId(7), 0), PartitionId(ZoneId(8), 0)
KEYSPACE = Keyspace("t/")


@dataclass
class Killer:
    """Notes what it is told."""

    deadline_ns: int = 0
    guarded: set[int] = field(default_factory=set)
    killed: Callable[[tuple[int, ...]], None] = lambda _: None

    def listen(self, killed: Callable[[tuple[int, ...]], None]) -> None:
        self.killed = killed

    def until(self, deadline_ns: int) -> None:
        self.deadline_ns = deadline_ns

    async def guard(self, pid: int) -> None:
        self.guarded.add(pid)

    def unguard(self, pid: int) -> None:
        self.guarded.discard(pid)

    def kill(self) -> None:
        killed, self.guarded = tuple(self.guarded), set()
        self.killed(killed)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.kill()


class World:
    """A fence whose node was confirmed at second 100, if ``confirmed``."""

    def __init__(self, *, confirmed: bool = True) -> None:
        self.now_s = 100.0
        self.killer = Killer()
        self.strong: set[ZoneId] = {STRONG.zone_id}
        self.reason: str | Exception = ""
        self.asked: list[tuple[PartitionId, int]] = []
        self.changes = 0
        self.fence = NodeFence(LEASE_S, self.killer, lambda: int(self.now_s * SECOND))
        self.fence.open(self.strong, self._clearance, self._on_change)
        if confirmed:
            self.confirm(100)

    def confirm(self, second: float) -> None:
        self.fence.confirmed(int(second * SECOND))

    async def start(self, pid: int, partition: PartitionId = AVAILABLE) -> str:
        if reason := await self.fence.refusal(partition, 1):
            return reason
        await self.fence.guard(partition, pid)
        return ""

    async def _clearance(self, partition: PartitionId, generation: int) -> str:
        self.asked.append((partition, generation))
        if isinstance(self.reason, Exception):
            raise self.reason
        return self.reason

    def _on_change(self) -> None:
        self.changes += 1


async def test_a_node_that_is_not_registered_yet_starts_strong_members_only() -> None:
    world = World(confirmed=False)
    assert await world.start(1) == UNREGISTERED
    assert await world.start(2, STRONG) == ""
    assert world.killer.guarded == set()
    world.confirm(100)
    assert await world.start(1) == ""
    assert world.killer.guarded == {1}
    assert world.killer.deadline_ns == (100 + FENCE_S) * SECOND


async def test_members_end_at_the_deadline_and_start_once_the_node_is_heard() -> None:
    world = World()
    assert await world.start(1) == ""
    world.now_s = 106
    assert world.fence.is_fenced
    assert world.killer.guarded == set()
    assert world.fence.ended(1) == UNHEARD
    assert await world.start(2) == UNHEARD
    # An answer to what was sent before says nothing of now.
    changes = world.changes
    world.confirm(99.5)
    assert world.changes == changes
    assert await world.start(2) == UNHEARD
    world.confirm(105)
    assert await world.start(2) == ""
    assert world.fence.ended(2) == ""
    assert world.changes > 1


async def test_a_confirmation_that_comes_too_late_does_not_spare_members() -> None:
    """The time was not looked at meanwhile: the process was stopped, and so perhaps was the killer."""
    world = World()
    assert await world.start(1) == ""
    world.now_s = 120
    world.confirm(119)
    assert world.killer.guarded == set()
    assert world.fence.ended(1) == UNHEARD
    assert not world.fence.is_fenced


async def test_after_the_fence_each_group_is_asked_for_again() -> None:
    """A group may have been founded anew: its member starts only once the metastore has answered that it was
    not."""
    world = World()
    assert await world.start(1) == ""
    assert await world.start(2) == ""
    assert world.asked == [(AVAILABLE, 1)]
    world.now_s = 107
    world.reason = MetastoreUnavailableError("silent")
    world.confirm(106.5)
    assert await world.start(3) == UNCLEAR
    world.reason = "FENCED: its group was given up, and founded anew without it"
    assert await world.start(3) == world.reason
    world.reason = ""
    assert await world.start(3) == ""
    assert len(world.asked) == 4


async def test_an_answer_from_before_the_fence_starts_nobody() -> None:
    """The node is fenced, and heard again, while it asks for the group."""
    world = World()

    async def slow(_partition: PartitionId, _generation: int) -> str:
        world.now_s = 107
        world.confirm(106.5)
        return ""

    world.fence.open(world.strong, slow)
    assert await world.start(1) == UNHEARD


async def test_a_member_whose_node_is_fenced_between_its_start_and_its_guard_is_refused() -> None:
    world = World()
    assert await world.fence.refusal(AVAILABLE, 1) == ""
    world.now_s = 106
    with pytest.raises(WatchLostError):
        await world.fence.guard(AVAILABLE, 1)
    assert world.killer.guarded == set()


async def test_a_zone_that_turns_out_to_be_strong_is_let_go() -> None:
    world = World()
    assert await world.start(1) == ""
    world.strong.add(AVAILABLE.zone_id)
    world.fence.zones_changed()
    assert world.killer.guarded == set()


async def test_what_the_killer_has_killed_by_itself_is_no_crash() -> None:
    """This process has not looked at the time yet, or the killer was replaced and came too late."""
    world = World()
    assert await world.start(1) == ""
    world.killer.kill()
    assert world.fence.ended(1) == UNHEARD
    assert await world.start(2) == ""
    assert world.fence.ended(2) == ""


async def test_a_metastore_without_a_majority_puts_the_deadline_off() -> None:
    world = World()
    world.fence.no_majority(103 * SECOND, 103 * SECOND)
    assert world.killer.deadline_ns == (103 + FENCE_S) * SECOND


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", False),
        ("-", True),
        ("?", False),
        ("+", False),
        ("-?", False),
        ("--?", True),
        ("-??", False),
        ("--+", False),
        ("---??", True),
        ("--???", False),
    ],
)
def test_a_majority_must_have_said_so_and_nobody_otherwise(words: str, expected: bool) -> None:
    """``-``: refuses or knows no leader, ``+``: names one, ``?``: said nothing."""
    kinds = {"-": Word.LEADERLESS, "+": Word.LED, "?": Word.NOTHING}
    assert has_no_majority([kinds[word] for word in words]) == expected


class Published:
    """A registered node whose limits change."""

    def __init__(self, tmp_path) -> None:
        self.world = World(confirmed=False)
        self.store = MemoryMetastore()
        self.entry = Registration(
            self.store, KEYSPACE, NodeStart(Node("n1"), tmp_path, LEASE_S, "start-1"), fence=self.world.fence
        )

    @property
    def publisher(self) -> FencePublisher:
        assert self.entry.fence_record is not None
        return self.entry.fence_record

    async def limit(self, reset_s: int | None, value: bytes | None = None) -> None:
        """Written, and seen by the node."""
        encoded = value if value is not None else Limits(ha_reset_s=reset_s).encode()
        await self.store.commit(Txn((), (Put(KEYSPACE.limits, encoded),)))
        self.publisher.on_limits(await self.store.get(KEYSPACE.limits))

    async def record(self) -> FenceRecord | None:
        item = await self.store.get(KEYSPACE.fence("n1"))
        return FenceRecord.decode(item.value) if item is not None else None


async def test_the_fence_is_published_with_the_registration(tmp_path) -> None:
    node = Published(tmp_path)
    await node.store.commit(Txn((), (Put(KEYSPACE.limits, Limits(ha_reset_s=20).encode()),)))
    await node.entry.register()
    assert await node.record() == FenceRecord("start-1", 16_000)
    assert node.world.fence.fence_ms == 16_000
    assert not node.world.fence.is_fenced


async def test_limits_that_cannot_be_read_change_nothing(tmp_path) -> None:
    node = Published(tmp_path)
    await node.limit(20)
    await node.entry.register()
    await node.limit(None, b"garbage")
    await node.entry.register()
    assert await node.record() == FenceRecord("start-1", 16_000)


class Watched(MemoryMetastore):
    """Calls ``before`` ahead of each write, which may raise."""

    before: Callable[[], None] = staticmethod(lambda: None)

    async def commit(self, txn: Txn):  # type: ignore[no-untyped-def]  # as the base class has it
        if any(isinstance(each, Put) and each.key == KEYSPACE.fence("n1") for each in txn.success):
            self.before()
        return await super().commit(txn)


@pytest.mark.parametrize(("reset_s", "before_ms", "after_ms"), [(20, 6_000, 16_000), (9, 5_000, 5_000)])
async def test_a_longer_fence_is_used_after_it_was_published_and_a_shorter_one_before(
    tmp_path, reset_s: int, before_ms: int, after_ms: int
) -> None:
    """The shorter of the two is kept to where the answer is lost as well."""
    node = Published(tmp_path)
    node.store = store = Watched()
    start = NodeStart(Node("n1"), tmp_path, LEASE_S, "s")
    node.entry = Registration(store, KEYSPACE, start, fence=node.world.fence)
    await node.entry.register()
    used: list[int] = []

    def lost() -> None:
        used.append(node.world.fence.fence_ms)
        if len(used) == 1:
            raise MetastoreUnavailableError("lost", outcome_unknown=True)

    store.before = lost  # type: ignore[method-assign]  # an attribute that is called
    task = asyncio.create_task(node.publisher.run())
    await node.limit(reset_s)
    async with asyncio.timeout(30):
        while await node.record() != FenceRecord("s", after_ms):
            await asyncio.sleep(0.01)
        while node.world.fence.fence_ms != after_ms:
            await asyncio.sleep(0.01)
    task.cancel()
    assert used == [before_ms, before_ms]


async def test_a_node_whose_entry_is_another_ones_publishes_nothing(tmp_path) -> None:
    node = Published(tmp_path)
    await node.entry.register()
    other = Registration(node.store, KEYSPACE, NodeStart(Node("n1"), tmp_path, LEASE_S, "start-2"))
    await other.register()
    task = asyncio.create_task(node.publisher.run())
    await node.limit(20)
    await asyncio.sleep(0.5)
    task.cancel()
    assert await node.record() == FenceRecord("start-1", 6_000)
    assert node.world.fence.fence_ms == 6_000
