"""A round of the agent beside a leader, over a store and a scripted group: what is read, asked, written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments, Strategy
from rebalance.core.assignments.change_lock import PendingLock
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import ConfigurationRecord, MemberRecord, MemberRole, MemberState
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.nodes.copy_attempts import RETRY_MAX_S, CopyRules
from rebalance.nodes.leader_duties import ACTIVE_S, LeaderDuties
from rebalance.nodes.partition_view import Mirrors, NodePartitionView, Recorded
from rebalance.ports.groups import (
    Applied,
    ChangeAnswer,
    FailureCode,
    GroupEvent,
    GroupMember,
    Intention,
    MemberEndpoints,
    MemberLife,
    MemberStatus,
    PeerSight,
    ReconfigurationFailure,
    StepInput,
)
from rebalance.ports.metastore import MetastoreUnavailableError
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.node_context import node_context

P0 = PartitionId(ZoneId(1), 0)
KEYS = Keyspace().partition(P0)
LEADING = MemberStatus(MemberLife.RUNNING, MemberEndpoints("http://a", "c"), is_leader=True, leader="a", term=4)


def assigned(text: str) -> Assignments:
    """``ab+c``: two voters and a learner."""
    peers, _, learners = text.partition("+")
    return Assignments(tuple(peers), tuple(learners))


class AppliedAtOnce:
    async def advance(self, given: StepInput) -> GroupEvent:
        return Applied()

    async def close(self) -> None: ...


@dataclass
class ScriptedGroup:
    """``voters`` is the committed list; what it is asked for is kept."""

    voters: str
    running: AppliedAtOnce | None = None
    """None: a change ends at once, and says nothing."""
    asked: list[tuple[int, Assignments]] = field(default_factory=list)

    async def configuration(
        self, _: PartitionId, sights: dict[str, PeerSight], *, linearizable: bool = False
    ) -> tuple[GroupMember, ...]:
        return tuple(GroupMember(name, name, MemberRole.VOTER, f"http://{name}") for name in self.voters)

    async def settled_configuration(
        self, partition: PartitionId, term: int, sights: dict[str, PeerSight]
    ) -> tuple[GroupMember, ...]:
        return await self.configuration(partition, sights)

    def change(self, _: PartitionId) -> AppliedAtOnce | None:
        return self.running

    async def change_peers_and_learners(
        self,
        _: PartitionId,
        term: int,
        token: int,
        target: Assignments,
        endpoints: dict[str, str],
        stable: tuple[str, ...] = (),
    ) -> ChangeAnswer:
        self.asked.append((token, target))
        return ChangeAnswer.RECEIVED


@dataclass
class World:
    """A store, a leader's duties, and what its mirror shows, which may be old."""

    group: ScriptedGroup
    metastore: MemoryMetastore = field(default_factory=MemoryMetastore)
    revision: int = 1
    """Revision of the limits."""

    def __post_init__(self) -> None:
        mirrors = self.mirrors = Mirrors.over(self.metastore, Keyspace())
        self.duties = LeaderDuties(
            node_context(self.metastore, "a", self.group, mirrors), lambda _: None, self.rules, lambda *_: None
        )

    def rules(self) -> CopyRules:
        return CopyRules(3, 100, self.revision)

    async def write(self, **fields: str) -> None:
        puts = tuple(Put(getattr(KEYS, name), assigned(text).encode()) for name, text in fields.items())
        await self.metastore.commit(Txn((), puts))

    async def stored(self, name: str) -> Assignments | None:
        found = await self.metastore.get(getattr(KEYS, name))
        return Assignments.decode(found.value) if found else None

    def seen(self, stable: str, pending: str = "") -> NodePartitionView:
        def recorded(text: str) -> Recorded[Assignments] | None:
            return Recorded(assigned(text), 1, 1) if text else None

        records = {
            name: Recorded(MemberRecord(MemberState.READY, f"http://{name}", "c"), 1, 1) for name in "abcd"
        }
        living = frozenset("abcd")
        return NodePartitionView(P0, KEYS, recorded(stable), recorded(pending), None, None, records, living)

    async def elected(self, seen: NodePartitionView, term: int = LEADING.term) -> None:
        await self.duties.lead(seen, replace(LEADING, term=term))


@pytest.mark.row("I3-044")
async def test_a_new_leader_switches_stable_when_the_change_was_applied() -> None:
    """S076, I3-044: the leader before applied it and died: keys are switched, nothing is asked of the group."""
    world = World(ScriptedGroup("ab"))
    await world.write(stable="a", pending="ab")
    await world.elected(world.seen("a", "ab"))
    assert await world.stored("stable") == Assignments(("a", "b"))
    assert await world.stored("pending") is None
    assert world.group.asked == []


@pytest.mark.row("I3-035", "I3-044")
@pytest.mark.parametrize(
    ("voters", "asked"), [("a", [assigned("ab+c")]), ("ab", [])], ids=["a change ends", "applied already"]
)
async def test_stable_is_exactly_what_was_applied(voters: str, asked: list[Assignments]) -> None:
    """I3-035, I3-044: voters and learners, whether the change has just ended or the leader finds it applied.
    A repeat writes nothing, nor does what comes late of another target."""
    world = World(ScriptedGroup(voters, AppliedAtOnce()))
    await world.write(stable="a", pending="ab+c")
    await world.elected(world.seen("a", "ab+c"))
    async with asyncio.timeout(60):
        while await world.stored("pending") is not None:
            await asyncio.sleep(0)
    assert [target for _, target in world.group.asked] == asked
    await world.duties.applied(P0, assigned("ab+c"))
    await world.write(pending="ac")
    for late in ("ab+c", "a", "ac+b"):
        await world.duties.applied(P0, assigned(late))
    assert await world.stored("stable") == assigned("ab+c")
    assert await world.stored("pending") == assigned("ac")
    switched = await world.metastore.get(KEYS.stable)
    assert switched is not None
    assert switched.version == 2


@pytest.mark.row("I3-041", "I3-056")
@pytest.mark.parametrize("mirrored", ["", "ab", "ac"])
async def test_a_new_leader_reads_pending_from_the_metastore(mirrored: str) -> None:
    """S077, S072, I3-041, I3-056: whatever its mirror shows, it proposes what is stored."""
    world = World(ScriptedGroup("a"))
    await world.write(stable="a", pending="acd")
    await world.elected(world.seen("a", mirrored))
    stored = await world.metastore.get(KEYS.pending)
    assert stored is not None
    assert world.group.asked == [(stored.mod_revision, Assignments(("a", "c", "d")))]


async def test_a_new_leader_without_pending_asks_for_nothing() -> None:
    """S078: also when pending was there and is deleted."""
    world = World(ScriptedGroup("a"))
    await world.write(stable="a")
    await world.elected(world.seen("a", "ab"))
    await world.duties.lead(world.seen("a"), LEADING)
    assert world.group.asked == []
    assert await world.stored("stable") == Assignments(("a",))


async def test_an_election_is_acted_on_once() -> None:
    """S089, I3-041: however often the leader is looked at, pending is read without the mirror once a term."""
    world = World(ScriptedGroup("a"))
    await world.write(stable="a")
    await world.elected(world.seen("a"))
    await world.write(pending="ab")
    for _ in range(3):
        await world.elected(world.seen("a"))
    assert world.group.asked == []
    await world.elected(world.seen("a"), LEADING.term + 1)
    assert [target for _, target in world.group.asked] == [Assignments(("a", "b"))]


async def locked(world: World, voters: str, planned: str = "") -> int:
    """Stable a, pending abc with `update`, locked in term 3. Returns pending's revision."""
    pending = Assignments(tuple("abc"), strategy=Strategy.UPDATE)
    await world.write(stable="a", **({"planned": planned} if planned else {}))
    found = await world.metastore.commit(Txn((), (Put(KEYS.pending, pending.encode()),)))
    lock = PendingLock(found.revision, "8e", LEADING.term - 1).encode()
    await world.metastore.commit(Txn((), (Put(KEYS.lock, lock),)))
    world.group.voters = voters
    return found.revision


@pytest.mark.row("I3A-018", "M5")
@pytest.mark.parametrize("voters", ["a", "ab"])
async def test_a_new_leader_takes_the_lock_away_before_it_asks(voters: str) -> None:
    """M5, I3A-018: whether the joiner votes by now or not; voters are touched under a lock of its own only."""
    world = World(ScriptedGroup("a"))
    revision = await locked(world, voters)
    await world.elected(world.seen("a", "abc"))
    assert await world.metastore.get(KEYS.lock) is None
    assert [token for token, _ in world.group.asked] == [revision]


@pytest.mark.row("M7")
async def test_what_was_planned_under_a_lock_that_was_left_is_asked_for() -> None:
    """M7: in the round that finds the lock pending is replaced, in the next one it is asked for."""
    world = World(ScriptedGroup("a"))
    await locked(world, "ab", planned="ad")
    await world.elected(world.seen("a", "abc"))
    assert await world.stored("pending") == Assignments(("a", "d"))
    assert await world.stored("planned") is None
    assert world.group.asked == []
    await world.duties.lead(world.seen("a", "ad"), LEADING)
    assert [target for _, target in world.group.asked] == [Assignments(("a", "d"))]


@pytest.mark.row("M5", "M7")
@pytest.mark.parametrize(("changing", "term", "stays"), [(False, 4, False), (True, 3, False), (True, 4, True)])
async def test_a_lock_goes_though_no_attempt_is_due(changing: bool, term: int, stays: bool) -> None:
    """M5, M7: while attempts wait for their time or for a node, and beside a change that runs; its own
    lock stays."""
    world = World(ScriptedGroup("a"))
    revision = await locked(world, "ab")
    seen = replace(world.seen("a", "abc"), living=frozenset("ab"))
    await world.elected(seen)
    failure = ReconfigurationFailure(FailureCode.MEMBER_NOT_STARTED, "waited", "http://c")
    world.duties.failed(P0, failure)
    lock = PendingLock(revision, "8e", term).encode()
    await world.metastore.commit(Txn((), (Put(KEYS.lock, lock),)))
    task = asyncio.create_task(world.mirrors.run())
    try:
        await world.mirrors.loaded()
        await world.duties.lead(seen, replace(LEADING, changing=changing))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (await world.metastore.get(KEYS.lock) is not None) is stays


async def published(world: World) -> str:
    found = await world.metastore.get(KEYS.configuration)
    assert found is not None
    return ConfigurationRecord.decode(found.value).reason


@pytest.mark.row("VOL-098")
async def test_what_has_failed_is_told_and_tried_again_when_somebody_asks() -> None:
    """VOL-098: the third failure is published with its number and the last cause, and no attempt is made for a
    while; new limits, which a resume writes, begin anew at once."""
    world = World(ScriptedGroup("a"))
    await world.write(stable="a", pending="ab")
    seen = world.seen("a", "ab")
    await world.elected(seen)
    failure = ReconfigurationFailure(FailureCode.MEMBER_NOT_STARTED, "waited", "http://b")
    for number in range(1, 4):
        assert len(world.group.asked) == 1
        world.duties.failed(P0, failure)
        await world.duties.lead(seen, LEADING)
        told = "COPY_FAILED: 3 attempts: " if number == 3 else ""
        assert await published(world) == f"{told}MEMBER_NOT_STARTED: b"
    world.revision += 1
    await world.duties.lead(seen, LEADING)
    assert len(world.group.asked) == 2
    assert await published(world) == "MEMBER_NOT_STARTED: b"


async def test_the_next_round_is_due_when_the_next_attempt_is() -> None:
    """A change that fails again and again is not looked at ten times a second."""
    world = World(ScriptedGroup("a"))
    await world.write(stable="a", pending="ab")
    seen = world.seen("a", "ab")
    await world.elected(seen)
    failure = ReconfigurationFailure(FailureCode.UNHEALTHY_CLUSTER, "not yet")
    for _ in range(5):
        world.duties.failed(P0, failure)
    pause_s = await world.duties.lead(seen, LEADING)
    assert pause_s is not None
    assert pause_s >= 2 * ACTIVE_S
    assert len(world.group.asked) == 1


@pytest.mark.row("I3-061", "M12")
@pytest.mark.parametrize(
    ("strategy", "attempts"), [(Strategy.QUEUE, 2), (Strategy.UPDATE, 1), (Strategy.CANCEL, 1)]
)
async def test_an_attempt_is_repeated_while_the_metastore_is_silent(strategy: Strategy, attempts: int) -> None:
    """M12, I3-061: what was read in this term, and with ``queue`` only: with the others something newer may
    have taken its place."""
    world = World(ScriptedGroup("a"))
    target = Assignments(("a", "b"), strategy=strategy)
    await world.write(stable="a")
    await world.metastore.commit(Txn((), (Put(KEYS.pending, target.encode()),)))
    seen = world.seen("a", "ab")
    await world.elected(seen)
    world.metastore.pause()
    failure = ReconfigurationFailure(FailureCode.UNHEALTHY_CLUSTER, "not yet")
    world.duties.failed(P0, failure)
    await asyncio.sleep(RETRY_MAX_S)
    with pytest.raises(MetastoreUnavailableError):
        await world.duties.lead(seen, LEADING)
    assert len(world.group.asked) == attempts
    assert len(set(world.group.asked)) == 1


@pytest.mark.row("M12")
async def test_a_new_term_repeats_nothing_that_it_has_not_read() -> None:
    """M12: what was read in an earlier term is no intention of this one."""
    world = World(ScriptedGroup("a"))
    await world.write(stable="a", pending="ab")
    seen = world.seen("a", "ab")
    await world.elected(seen)
    world.metastore.pause()
    with pytest.raises(MetastoreUnavailableError):
        await world.elected(seen, LEADING.term + 1)
    assert len(world.group.asked) == 1


@pytest.mark.row("M10", "M12")
async def test_what_is_wanted_now_is_read_from_the_metastore() -> None:
    """M10, M12: the intention of the change that runs, also after this agent has asked for nothing itself;
    unknown while the metastore is silent."""
    world = World(ScriptedGroup("a"))
    await world.write(stable="a", pending="ab")
    await world.elected(world.seen("a", "ab"))
    ((token, _),) = world.group.asked
    for _ in range(2):
        assert await world.duties.intention(P0, token) is Intention.CURRENT
        assert await world.duties.intention(P0, token - 1) is Intention.REPLACED
        world.duties.forget(P0)
    await world.write(pending="a")
    assert await world.duties.intention(P0, token) is Intention.REPLACED
    world.metastore.pause()
    assert await world.duties.intention(P0, token) is Intention.UNKNOWN


@pytest.mark.row("M12")
async def test_a_change_back_to_stable_is_wanted_while_nothing_is_pending() -> None:
    """M12: its token is no revision of pending."""
    world = World(ScriptedGroup("ab"))
    await world.write(stable="a")
    await world.elected(world.seen("a"))
    ((token, _),) = world.group.asked
    assert await world.duties.intention(P0, token) is Intention.CURRENT
    await world.write(pending="ab")
    assert await world.duties.intention(P0, token) is Intention.REPLACED
