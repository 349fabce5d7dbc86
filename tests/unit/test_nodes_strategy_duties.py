"""The lock and the cancel of a leader's agent, over a store, with a host that only answers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments, Strategy
from rebalance.core.assignments.change_lock import PendingLock
from rebalance.core.assignments.guarded_write import Outcome
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import MemberRole
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.nodes.leader_duties import StrategyDuties
from rebalance.ports.groups import CancelAnswer, GroupMember, MemberUnavailableError, PeerSight
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.node_context import node_context

P0 = PartitionId(ZoneId(1), 0)
KEYS = Keyspace().partition(P0)
TERM = 3


class AnsweringHost:
    def __init__(self, answer: CancelAnswer) -> None:
        self.answer = answer
        self.voters, self.learner = "a", ""
        self.asked: list[tuple[int, int]] = []

    async def cancel_change_peers(self, partition: PartitionId, term: int, token: int) -> CancelAnswer:
        self.asked.append((term, token))
        return self.answer

    async def settled_configuration(
        self, partition: PartitionId, term: int, sights: Mapping[str, PeerSight]
    ) -> tuple[GroupMember, ...]:
        if term != TERM:
            raise MemberUnavailableError("the term is over")
        voters = tuple(GroupMember(node, node, MemberRole.VOTER, node) for node in self.voters)
        return (*voters, *(GroupMember(node, node, MemberRole.LEARNER, node) for node in self.learner))


class Moving:
    """Stable a, pending b, planned c; ``token`` is pending's revision."""

    def __init__(self, strategy: Strategy, answer: CancelAnswer = CancelAnswer.CANCELLED) -> None:
        self.store, self.host = MemoryMetastore(), AnsweringHost(answer)
        self.strategy = strategy
        self.duties = StrategyDuties(node_context(self.store, host=self.host))

    async def begin(self) -> int:
        puts = zip((KEYS.stable, KEYS.pending, KEYS.planned), "abc", strict=True)
        result = await self.store.commit(
            Txn((), tuple(Put(key, Assignments((node,)).encode()) for key, node in puts))
        )
        return result.revision

    async def may_touch_voters(self, token: int, term: int = TERM) -> bool:
        return await self.duties.may_touch_voters(P0, term, token, self.strategy, "8e")

    async def cancel(self, term: int) -> Outcome | None:
        return await self.duties.cancel(P0, term, self.strategy)

    async def node_in(self, key: str) -> str:
        found = await self.store.get(key)
        return Assignments.decode(found.value).primary if found else "-"


@pytest.mark.row("I3A-004", "I3A-014", "I3A-016")
@pytest.mark.parametrize("strategy", list(Strategy))
async def test_the_lock_is_taken_before_voters_are_touched(strategy: Strategy) -> None:
    """I3A-004, I3A-014, I3A-016: yes, and yes again; `queue` needs no lock."""
    moving = Moving(strategy)
    token = await moving.begin()
    assert await moving.may_touch_voters(token)
    assert await moving.may_touch_voters(token)
    assert (await moving.store.get(KEYS.lock) is not None) is strategy.locks_pending


@pytest.mark.row("I3A-015", "I3A-017")
async def test_another_pending_is_not_finished() -> None:
    """I3A-015, I3A-017: the same nodes written again are another target."""
    moving = Moving(Strategy.UPDATE)
    token = await moving.begin()
    result = await moving.store.commit(Txn((), (Put(KEYS.pending, Assignments(("b",)).encode()),)))
    assert not await moving.may_touch_voters(token)
    assert await moving.store.get(KEYS.lock) is None
    assert await moving.may_touch_voters(result.revision)


@pytest.mark.row("M5")
async def test_the_lock_names_who_it_is_for() -> None:
    """M5: pending's revision, the joiner, the term."""
    moving = Moving(Strategy.UPDATE)
    token = await moving.begin()
    await moving.may_touch_voters(token)
    lock = await moving.store.get(KEYS.lock)
    assert lock is not None
    assert PendingLock.decode(lock.value) == PendingLock(token, "8e", TERM)


@pytest.mark.row("I3A-018", "M7")
@pytest.mark.parametrize(("voters", "learner"), [("a", ""), ("a", "b"), ("ad", ""), ("ad", "b")])
async def test_the_lock_goes_when_no_voter_is_touched(voters: str, learner: str) -> None:
    """I3A-018, M7: at rest, and between two joiners, and while one copies; what was planned goes on."""
    moving = Moving(Strategy.UPDATE)
    await moving.may_touch_voters(await moving.begin())
    moving.host.voters, moving.host.learner = voters, learner
    assert await moving.duties.unlock(P0, TERM) is Outcome.LOCK_CLEARED_PLANNED_SCHEDULED
    assert await moving.node_in(KEYS.pending) == "c"
    assert await moving.store.get(KEYS.lock) is None


async def test_the_lock_stays_until_stable_is_switched() -> None:
    """The group is what pending asks for already."""
    moving = Moving(Strategy.UPDATE)
    await moving.may_touch_voters(await moving.begin())
    moving.host.voters = "b"
    assert await moving.duties.unlock(P0, TERM) is Outcome.LOCK_KEPT
    assert await moving.store.get(KEYS.lock) is not None


async def test_a_change_that_runs_keeps_its_own_lock() -> None:
    """Beside a change that runs, only a lock that a leader of an earlier term has left behind is cleared."""
    moving = Moving(Strategy.UPDATE)
    token = await moving.begin()
    await moving.may_touch_voters(token)
    assert await moving.duties.unlock(P0, TERM, of_earlier_terms=True) is Outcome.LOCK_KEPT
    moving = Moving(Strategy.UPDATE)
    await moving.may_touch_voters(await moving.begin(), TERM - 1)
    unlocked = await moving.duties.unlock(P0, TERM, of_earlier_terms=True)
    assert unlocked is Outcome.LOCK_CLEARED_PLANNED_SCHEDULED


@pytest.mark.row("M5")
async def test_a_deposed_leader_leaves_the_lock_alone() -> None:
    """M5: it neither takes nor clears that of a later term; whose term is over does not judge at all."""
    moving = Moving(Strategy.UPDATE)
    token = await moving.begin()
    assert await moving.may_touch_voters(token, TERM + 1)
    assert not await moving.may_touch_voters(token)
    assert await moving.duties.unlock(P0, TERM) is Outcome.LOCK_OF_LATER_TERM
    with pytest.raises(MemberUnavailableError):
        await moving.duties.unlock(P0, TERM + 2)
    assert await moving.store.get(KEYS.lock) is not None


@pytest.mark.row("I3A-020..027")
@pytest.mark.parametrize(
    ("answer", "outcome", "pending"),
    [
        (CancelAnswer.CANCELLED, Outcome.CANCEL_PLANNED_SCHEDULED, "c"),
        (CancelAnswer.NOTHING_RUNNING, Outcome.CANCEL_PLANNED_SCHEDULED, "c"),
        (CancelAnswer.TOO_LATE, Outcome.CANCEL_TOO_LATE, "b"),
        (CancelAnswer.NOT_LEADER, None, "b"),
    ],
)
async def test_cancel(answer: CancelAnswer, outcome: Outcome | None, pending: str) -> None:
    """I3A-020..027: planned becomes pending when the leader could cancel; else nothing is done."""
    moving = Moving(Strategy.CANCEL, answer)
    token = await moving.begin()
    assert await moving.cancel(3) is outcome
    assert moving.host.asked == [(3, token)]
    assert await moving.node_in(KEYS.pending) == pending


@pytest.mark.row("I3A-021", "I3A-026")
async def test_a_locked_change_is_not_cancelled() -> None:
    """I3A-021, I3A-026: its learner stays too."""
    moving = Moving(Strategy.CANCEL)
    await moving.may_touch_voters(await moving.begin())
    assert await moving.cancel(3) is None
    assert moving.host.asked == []


@pytest.mark.row("I3A-025")
@pytest.mark.parametrize("strategy", [Strategy.QUEUE, Strategy.UPDATE])
async def test_other_strategies_do_not_cancel(strategy: Strategy) -> None:
    """I3A-025."""
    moving = Moving(strategy)
    await moving.begin()
    assert await moving.cancel(3) is None
    assert moving.host.asked == []
