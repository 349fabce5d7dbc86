"""A change of peers over a scripted group: when a joiner may vote, and when voters are left alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.calls.etcd_api import (
    MEMBERSHIP_TIMEOUT_S,
    CallFailedError,
    EtcdMemberEntry,
    EtcdStatus,
    FailureKind,
)
from rebalance.groups.calls.member_calls import (
    GroupCalls,
    GroupMemberCalls,
    GroupMemberProcess,
    ReservationBook,
)
from rebalance.groups.change.etcd_change import ChangeRequest, EtcdChange, StepProgress
from rebalance.groups.etcd_group import SteppedGroupHost
from rebalance.groups.files.etcd_tuning import EtcdTuning
from rebalance.groups.files.reservations import Reservation
from rebalance.ports.groups import (
    Applied,
    CancelAnswer,
    CaughtUp,
    ChangeAnswer,
    Committed,
    Failed,
    FailureCode,
    GroupEvent,
    Intention,
    IntentionNeeded,
    MemberLife,
    MemberUnavailableError,
    Paused,
    PeerSight,
    StepInput,
    VotersLeftAlone,
)

P0 = PartitionId(ZoneId(1), 0)
TERM = 4
TUNING = EtcdTuning(announce_s=0.0, catch_up_timeout_s=5.0, strict_steps=True)


@dataclass
class Group:
    """a leads. ``applied``: what each joiner says when it is asked, one after the other, the last one for ever;
    None: it does not answer. Each entry of the leader's log is one index further when it is looked at."""

    applied: dict[str, list[int | None]]
    entries: list[EtcdMemberEntry] = field(default_factory=lambda: [entry("a", 1, is_learner=False)])
    commit_index: int = 100
    refusals: int = 0
    """Promotions that the group still refuses."""
    replaces: bool = False
    """Another target takes this one's place when voters are left alone."""
    silent_for: int = 0
    """Number of questions that are answered by saying that the intention is unknown."""
    answer: Intention = Intention.CURRENT
    addition_fails: FailureKind | None = None
    """Failure that the first addition ends with, which is done nevertheless."""
    unserving: frozenset[str] = frozenset()
    """Members whose nodes have not said that they serve."""
    told: list[str] = field(default_factory=list)

    @property
    def api(self) -> GroupCalls:
        return cast(GroupCalls, self)

    async def status(self) -> EtcdStatus:
        self.commit_index += 1
        return EtcdStatus(1, 1, TERM, self.commit_index, 0, False, commit_index=self.commit_index)

    async def add_learner(self, peer_url: str, timeout_s: float = MEMBERSHIP_TIMEOUT_S) -> None:
        self.told.append(f"add {peer_url}")
        self.entries.append(entry(peer_url, len(self.entries) + 1, is_learner=True))
        if self.addition_fails is not None:
            kind, self.addition_fails = self.addition_fails, None
            raise CallFailedError(kind, "as the test wants it")

    async def promote(self, member_id: int, timeout_s: float = MEMBERSHIP_TIMEOUT_S) -> None:
        if self.refusals:
            self.refusals -= 1
            self.told.append("promotion refused")
            raise CallFailedError(FailureKind.NOT_IN_SYNC, "in sync with leader")
        found = self.entries[member_id - 1]
        self.told.append(f"promote {found.peer_url}")
        self.entries[member_id - 1] = replace(found, is_learner=False)

    async def remove(self, member_id: int, timeout_s: float = MEMBERSHIP_TIMEOUT_S) -> None:
        found = next(each for each in self.entries if each.member_id == member_id)
        self.told.append(f"remove {found.peer_url}")
        self.entries.remove(found)

    async def move_leader(self, member_id: int) -> None:
        self.told.append(f"lead {member_id}")

    async def claim_identity(self, identity: bytes, generation: int = 0) -> None:
        self.told.append("write")

    @asynccontextmanager
    async def calls_at(self, partition: PartitionId, client_url: str) -> AsyncIterator[GroupCalls]:
        yield cast(GroupCalls, Joiner(self, client_url.removeprefix("client-")))

    def sights(self) -> Mapping[str, PeerSight]:
        return {
            each.peer_url: PeerSight(each.peer_url, serving=each.peer_url not in self.unserving)
            for each in self.entries
        }

    def answered(self, event: GroupEvent) -> StepInput:
        """Input that an agent would give the host next."""
        given = StepInput(self.sights(), Intention.CURRENT)
        match event:
            case Committed():
                return replace(given, published=True)
            case CaughtUp(joiner):
                self.told.append(f"lock {joiner}".strip())
            case VotersLeftAlone():
                self.told.append("unlock")
                return replace(given, intention=Intention.REPLACED) if self.replaces else given
            case IntentionNeeded() if self.silent_for:
                self.silent_for -= 1
                self.told.append("silent")
                return replace(given, intention=Intention.UNKNOWN)
            case IntentionNeeded():
                return replace(given, intention=self.answer)
            case Applied():
                self.told.append("applied")
            case Failed(failure):
                self.told.append(failure.code.value)
        return given

    async def change_to(self, *nodes: str, tuning: EtcdTuning = TUNING) -> list[str]:
        request = ChangeRequest(TERM, 9, Assignments(nodes), {node: node for node in nodes}, ("a",))
        member = cast(GroupMemberCalls, Member(self))
        change = EtcdChange(P0, member, request, StepProgress(), tuning, self.calls_at)
        event, given = None, StepInput(self.sights())
        async with asyncio.timeout(60):
            while not isinstance(event, Applied | Failed):
                event = await change.advance(given)
                given = self.answered(event)
                if isinstance(event, Paused):
                    await asyncio.sleep(event.delay_s)
        await change.close()
        return self.told


@dataclass
class Member:
    """The leader's own member."""

    group: Group

    @property
    def api(self) -> GroupCalls:
        return self.group.api

    @property
    def reservation(self) -> Reservation:
        return Reservation("a", 1, 2)

    async def look(self) -> tuple[MemberLife, str, EtcdStatus]:
        return MemberLife.RUNNING, "", await self.group.status()

    async def name_of(self, member_id: int) -> str:
        return self.group.entries[member_id - 1].name

    async def entries(self, *, linearizable: bool) -> tuple[EtcdMemberEntry, ...]:
        self.group.told += ["list"] if self.group.told == ["write"] else []
        return tuple(self.group.entries)


@dataclass
class Joiner:
    group: Group
    name: str

    async def status(self) -> EtcdStatus:
        answers = self.group.applied[self.name]
        applied = answers.pop(0) if len(answers) > 1 else answers[0]
        if applied is None:
            raise CallFailedError(FailureKind.NO_ANSWER, "no answer")
        self.group.told.append(f"{self.name} at {applied}")
        found = next(each for each in self.group.entries if each.peer_url == self.name)
        return EtcdStatus(found.member_id, 1, TERM, applied, 0, True)


def entry(name: str, member_id: int, *, is_learner: bool) -> EtcdMemberEntry:
    return EtcdMemberEntry(member_id, name, name, is_learner, f"client-{name}")


@pytest.mark.row("I3A-014", "M4", "M13")
async def test_a_joiner_votes_once_it_has_what_was_committed_before_it_was_asked() -> None:
    """M4, I3A-014: nothing is locked before. The leader's log grows meanwhile and the mark stays: the second
    look is enough. After each joiner voters are left alone before the next one is added (M13)."""
    told = await Group({"b": [101, 102], "c": [500]}).change_to("a", "b", "c")
    assert told == [
        *("add b", "b at 101", "b at 102", "lock 2", "promote b", "unlock"),
        *("add c", "c at 500", "lock 3", "promote c"),
        "applied",
    ]


@pytest.mark.row("I3A-004", "I3A-014")
@pytest.mark.parametrize("answer", [None, 7])
async def test_a_joiner_that_copies_for_ever_is_never_locked_for(answer: int | None) -> None:
    """I3A-004, I3A-014: neither silent nor behind; the group itself would take it."""
    group = Group({"b": [answer]})
    told = await group.change_to("a", "b", tuning=replace(TUNING, catch_up_timeout_s=0.3))
    assert told[0] == "add b"
    assert told[-1] == FailureCode.CATCH_UP_TIMEOUT.value
    assert not {"lock 2", "promote b", "promotion refused"} & set(told)


async def test_a_promotion_that_is_refused_leaves_voters_alone() -> None:
    """The joiner is judged anew: by what was committed until then."""
    told = await Group({"b": [102, 102, 900]}, refusals=1).change_to("a", "b")
    assert told == [
        *("add b", "b at 102", "lock 2", "promotion refused", "unlock", "b at 102"),
        *("b at 900", "lock 2", "promote b", "applied"),
    ]


@pytest.mark.row("M7")
async def test_what_takes_the_targets_place_between_joiners_ends_the_attempt() -> None:
    """M7: before the next joiner is added."""
    told = await Group({"b": [500]}, replaces=True).change_to("a", "b", "c")
    assert told == ["add b", "b at 500", "lock 2", "promote b", "unlock", FailureCode.SUPERSEDED.value]


@pytest.mark.row("M12")
async def test_the_next_joiner_waits_until_somebody_tells_what_is_wanted() -> None:
    """M12: the first one is promoted meanwhile, though its node cannot say that it serves."""
    group = Group({"b": [None, 500], "c": [500]}, unserving=frozenset("b"))
    group.entries.append(entry("b", 2, is_learner=True))
    group.silent_for = 2
    told = await group.change_to("a", "b", "c")
    assert told == [
        *("b at 500", "lock 2", "promote b", "unlock", "silent", "silent"),
        *("add c", "c at 500", "lock 3", "promote c", "applied"),
    ]


@pytest.mark.row("M12")
async def test_no_living_voter_goes_while_nobody_tells_what_is_wanted() -> None:
    """M12: neither is one removed, nor does another one lead so that it can be. What a learner is in the way of
    goes on."""
    group = Group({})
    group.entries += [entry("b", 2, is_learner=False), entry("c", 3, is_learner=True)]
    group.silent_for = 3
    assert await group.change_to("a") == [
        *("remove c", "lock", "silent", "silent", "silent", "remove b", "write", "applied")
    ]
    group = Group({}, silent_for=2)
    group.entries += [entry("b", 2, is_learner=False)]
    assert await group.change_to("b") == [
        *("lock", "silent", "silent", "lead 2", FailureCode.LEADER_STEPPED_DOWN.value)
    ]


@pytest.mark.row("M10")
async def test_no_voter_goes_for_a_target_that_was_replaced() -> None:
    """M10: the attempt ends under way, also where nothing is locked; the next one brings the group back."""
    group = Group({}, answer=Intention.REPLACED)
    group.entries += [entry("b", 2, is_learner=False)]
    assert await group.change_to("a") == ["lock", FailureCode.SUPERSEDED.value]


CHECKED = replace(TUNING, strict_steps=False)


def steps(told: list[str]) -> list[str]:
    return [each for each in told if " at " not in each]


@pytest.mark.row("S2")
async def test_checked_steps_come_in_the_same_order() -> None:
    """S2: nothing but the check is added."""
    told = await Group({"b": [101, 500], "c": [500]}).change_to("a", "b", "c", tuning=CHECKED)
    assert steps(told) == [
        *("add b", "lock 2", "promote b", "unlock", "add c", "lock 3", "promote c", "applied"),
    ]


@pytest.mark.row("S2")
async def test_a_joiner_that_falls_silent_after_it_was_in_sync_does_not_vote() -> None:
    """S2: of two both have answered since the list. Nothing is locked for it, and the attempt ends in time."""
    group = Group({"b": [500, None]})
    told = await group.change_to("a", "b", tuning=replace(CHECKED, catch_up_timeout_s=0.3))
    assert steps(told)[0] == "add b"
    assert not {"lock 2", "promote b"} & set(told)


@pytest.mark.row("M6", "S2")
async def test_a_step_without_an_answer_is_looked_for_behind_a_write() -> None:
    """S2, M6: in the same attempt, and it is not sent again."""
    group = Group({"b": [500]}, addition_fails=FailureKind.NO_ANSWER)
    told = await group.change_to("a", "b", tuning=CHECKED)
    assert steps(told) == ["add b", "write", "lock 2", "promote b", "applied"]


async def test_a_step_that_is_refused_ends_the_attempt() -> None:
    """The failure's code says what is wrong with it, and the group is not asked again at once."""
    group = Group({"b": [500]}, addition_fails=FailureKind.OTHER)
    assert await group.change_to("a", "b", tuning=CHECKED) == ["add b", FailureCode.REFUSED.value]


class ScriptedHost(SteppedGroupHost):
    def __init__(self, group: Group) -> None:
        super().__init__(cast(ReservationBook, Book()), 1, TUNING)
        self._group = group

    def new_member(self, partition: PartitionId) -> GroupMemberProcess:
        return cast(GroupMemberProcess, Member(self._group))

    def calls_at(self, partition: PartitionId, client_url: str) -> AbstractAsyncContextManager[GroupCalls]:
        return self._group.calls_at(partition, client_url)


class Book:
    def open(self) -> None: ...

    def get(self, partition: PartitionId) -> Reservation:
        return Reservation("a", 1, 2)


@pytest.mark.row("I3A-013", "I3A-021", "I3A-024")
async def test_a_change_that_touches_voters_is_neither_replaced_nor_cancelled() -> None:
    """I3A-013, I3A-021, I3A-024: from the lock on, through the promotion, until stable is switched (JOINT and
    STABLE): nothing is called then, and the change goes on to its end."""
    group = Group({"b": [500]})
    host = ScriptedHost(group)
    host.open("a")
    await host.status(P0)

    async def ask(token: int, *nodes: str) -> ChangeAnswer:
        urls = {node: node for node in nodes}
        return await host.change_peers_and_learners(P0, TERM, token, Assignments(nodes), urls, ("a",))

    assert await ask(9, "a", "b") is ChangeAnswer.RECEIVED
    change = host.change(P0)
    assert change is not None
    event, given, late = None, StepInput(group.sights()), list[type[GroupEvent]]()
    while not isinstance(event, Applied):
        event = await change.advance(given)
        if late or isinstance(event, CaughtUp):
            late.append(type(event))
            before = (*group.told, *group.entries)
            assert await ask(10, "a", "c") is ChangeAnswer.BUSY
            assert await host.cancel_change_peers(P0, TERM, 9) is CancelAnswer.TOO_LATE
            assert await ask(9, "a", "b") is ChangeAnswer.ALREADY_RUNNING
            assert (*group.told, *group.entries) == before
        given = group.answered(event)
    assert late == [CaughtUp, Committed, Committed, Applied]
    assert [each.name for each in group.entries if not each.is_learner] == ["a", "b"]
    await change.close()
    assert await host.cancel_change_peers(P0, TERM, 9) is CancelAnswer.NOTHING_RUNNING
    assert await ask(10, "a", "c") is ChangeAnswer.RECEIVED


@pytest.mark.row("M6")
async def test_a_list_is_settled_behind_a_write_in_the_same_term() -> None:
    """M6: what was called before is in it, or never will be; the list of another term decides nothing."""
    group = Group({})
    host = ScriptedHost(group)
    host.open("a")
    assert [each.node for each in await host.settled_configuration(P0, TERM)] == ["a"]
    assert group.told == ["write", "list"]
    with pytest.raises(MemberUnavailableError, match="is over"):
        await host.settled_configuration(P0, TERM - 1)
