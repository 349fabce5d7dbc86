"""Membership steps over a scripted group whose members check nothing: what is asked before each, and what
follows a call of unknown outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.moves.group_steps import AddLearner, Remove
from rebalance.core.moves.step_checks import SENT_S, VALID_S, NotYet, StepCondition
from rebalance.groups.calls.etcd_api import CallFailedError, EtcdMemberEntry, EtcdStatus, FailureKind
from rebalance.groups.calls.member_calls import GroupCalls, GroupMemberCalls
from rebalance.groups.change.step_gate import CheckTooOldError, StepGate, StepOutcome
from rebalance.ports.groups import MemberUnavailableError
from simulator.control.virtual_time import run_virtually

P0 = PartitionId(ZoneId(1), 0)
TERM, CLUSTER = 4, 9
SILENT_S = 1.0


@dataclass
class Group:
    """a leads. ``silent``: members that do not answer until a call's own limit; ``takes_s``: how long each
    other one takes; ``fails``: what the next membership call ends with."""

    names: str = "abc"
    learners: str = ""
    term: int = TERM
    silent: str = ""
    takes_s: float = 0.0
    fails: FailureKind | None = None
    calls: list[str] = field(default_factory=list)
    limits_s: list[float] = field(default_factory=list)

    @property
    def api(self) -> GroupCalls:
        return cast(GroupCalls, Member(self, "a"))

    async def entries(self, *, linearizable: bool) -> tuple[EtcdMemberEntry, ...]:
        assert linearizable
        self.calls.append("list")
        return tuple(
            EtcdMemberEntry(ord(name), name, name, name in self.learners, f"client-{name}")
            for name in self.names
        )

    @asynccontextmanager
    async def calls_at(self, partition: PartitionId, client_url: str) -> AsyncIterator[GroupCalls]:
        yield cast(GroupCalls, Member(self, client_url.removeprefix("client-")))

    def gate(self, outcome: StepOutcome | None = None, *, strict: bool = False) -> StepGate:
        member = cast(GroupMemberCalls, self)
        return StepGate(P0, member, TERM, outcome or StepOutcome(), self.calls_at, strict=strict)


@dataclass
class Member:
    group: Group
    name: str

    async def status(self) -> EtcdStatus:
        self.group.calls.append(f"status {self.name}")
        if self.name in self.group.silent:
            await asyncio.sleep(SILENT_S)
            raise CallFailedError(FailureKind.NO_ANSWER, "no answer in time")
        await asyncio.sleep(self.group.takes_s)
        return EtcdStatus(ord(self.name), ord("a"), self.group.term, 7, 0, False, cluster_id=CLUSTER)

    async def claim_identity(self, identity: bytes) -> None:
        self.group.calls.append("write")

    async def remove(self, member_id: int, timeout_s: float) -> None:
        await self.step(timeout_s)
        self.group.calls.append(f"remove {chr(member_id)}")
        self.group.names = self.group.names.replace(chr(member_id), "")

    async def step(self, timeout_s: float) -> None:
        self.group.limits_s.append(timeout_s)
        if self.group.fails is not None:
            raise CallFailedError(self.group.fails, "as the test wants it")


async def removed(gate: StepGate, group: Group) -> None:
    """c, announced."""
    await gate.look()
    assert await gate.obstacle(Remove("c"), frozenset("c"), {}) is None
    member = Member(group, "a")
    await gate.send(Remove("c"), lambda limit_s: member.remove(ord("c"), limit_s))


@pytest.mark.row("S2")
def test_every_step_is_checked_by_calls_to_the_members() -> None:
    """S2: the leader's status, a list, a call to each member, then one step with a limit that ends with the
    check's second."""
    group = Group(takes_s=0.3)

    async def main() -> None:
        async with group.gate() as gate:
            await removed(gate, group)

    run_virtually(main())
    assert group.calls[:2] == ["status a", "list"]
    assert set(group.calls[2:5]) == {"status a", "status b", "status c"}
    assert group.calls[5:] == ["remove c"]
    assert group.limits_s == [pytest.approx(VALID_S - 0.3)]


@pytest.mark.row("S2")
def test_a_member_that_is_gone_costs_no_time() -> None:
    """S2: three become two while the third one is dead: both that are left have answered."""
    group = Group(silent="c")

    async def main() -> float:
        async with group.gate() as gate:
            await removed(gate, group)
        return asyncio.get_running_loop().time()

    assert run_virtually(main()) < 0.1
    assert group.names == "ab"


def test_what_is_missing_is_named() -> None:
    """The name is there at the latest once the check is too old for a step."""
    group = Group(silent="b")

    async def main() -> tuple[NotYet | None, float]:
        async with group.gate() as gate:
            await gate.look()
            obstacle = await gate.obstacle(Remove("c"), frozenset("c"), {})
        return obstacle, asyncio.get_running_loop().time()

    assert run_virtually(main()) == (NotYet(StepCondition.NEXT_MAJORITY, ("b",)), pytest.approx(SENT_S))


@pytest.mark.row("S2")
def test_a_check_allows_one_call_and_not_for_long() -> None:
    """S2: never repeated without a new check; a lock or an intention that took too long comes too late."""
    group = Group()

    async def main() -> None:
        async with group.gate() as gate:
            member = Member(group, "a")
            await removed(gate, group)
            with pytest.raises(CheckTooOldError):
                await gate.send(Remove("c"), lambda limit_s: member.remove(ord("c"), limit_s))
            await gate.look()
            assert await gate.obstacle(Remove("b"), frozenset("b"), {}) is None
            assert gate.is_fresh
            await asyncio.sleep(VALID_S)
            assert not gate.is_fresh
            with pytest.raises(CheckTooOldError):
                await gate.send(Remove("b"), lambda limit_s: member.remove(ord("b"), limit_s))
            await gate.look()
            assert await gate.obstacle(Remove("b"), frozenset("b"), {}) is None
            with pytest.raises(CheckTooOldError):
                await gate.send(AddLearner("d"), member.step)

    run_virtually(main())
    assert [each for each in group.calls if each.startswith("remove")] == ["remove c"]


@pytest.mark.row("M6", "S2")
@pytest.mark.parametrize(
    ("kind", "settled"),
    [(FailureKind.NO_ANSWER, True), (FailureKind.OTHER, True), (FailureKind.NOT_ENOUGH_STARTED, False)],
)
def test_after_an_unknown_outcome_the_list_is_read_behind_a_write(kind: FailureKind, *, settled: bool) -> None:
    """S2, M6: also by the next attempt, which has its own gate. A refusal is an outcome."""
    group, outcome = Group(), StepOutcome()

    async def main() -> None:
        group.fails = kind
        async with group.gate(outcome) as gate:
            with pytest.raises(CallFailedError):
                await removed(gate, group)
        assert outcome.known is not settled
        group.fails = None
        group.calls.clear()
        async with group.gate(outcome) as gate:
            await removed(gate, group)

    run_virtually(main())
    assert group.calls[: 3 if settled else 2] == (
        ["status a", "write", "list"] if settled else ["status a", "list"]
    )


def test_the_outcome_stays_unknown_to_who_leads_no_longer() -> None:
    group, outcome = Group(term=TERM + 1), StepOutcome(known=False)

    async def main() -> NotYet | None:
        async with group.gate(outcome) as gate:
            await gate.look()
            return await gate.obstacle(Remove("c"), frozenset("c"), {})

    assert run_virtually(main()) == NotYet(StepCondition.KNOWN_OUTCOME)


@pytest.mark.row("S2")
def test_learners_of_a_cancelled_change_go_by_a_check_of_their_own() -> None:
    """S2: by a majority of the voters, or not at all."""
    group = Group("abcd", learners="d")

    async def main() -> None:
        async with group.gate() as gate:
            await gate.remove_learners()
        assert group.names == "abc"
        group.names, group.term = "abcd", TERM + 1
        async with group.gate() as gate:
            with pytest.raises(MemberUnavailableError, match="SAME_TERM"):
                await gate.remove_learners()

    run_virtually(main())
    assert group.names == "abcd"


def test_members_that_check_steps_themselves_are_asked_nothing() -> None:
    group = Group()

    async def main() -> None:
        async with group.gate(StepOutcome(known=False), strict=True) as gate:
            await removed(gate, group)

    run_virtually(main())
    assert group.calls == ["status a", "list", "remove c"]
