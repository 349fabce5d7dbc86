"""Rules of moves, each taken away once: a joiner or a store that fails then leaves something behind.

Guards and comparisons of the decisions are mutated one by one in ``tests/model``; here it is what agents and
controllers do about time, silence and the order of steps.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from rebalance.controllers import joiners as asking
from rebalance.core.assignments.assignment import Strategy
from rebalance.core.assignments.guarded_write import Outcome
from rebalance.core.keyspace.records import MemberRecord, MemberState
from rebalance.core.moves import group_steps
from rebalance.core.moves.group_steps import GroupView, Step
from rebalance.core.moves.joiners import JoinerTime
from rebalance.core.moves.step_checks import SENT_S, VALID_S, MaySend, StepEvidence
from rebalance.groups.change import etcd_change, step_gate
from rebalance.nodes import joiner_watch
from rebalance.nodes.leader_duties import LeaderDuties, StrategyDuties
from rebalance.ports.metastore import KeyEvent
from simulator.control.simulated_cluster import HEALTHY_AFTER_S
from tests.simulation.joiner_cells import Cell, Stage, Way, outcome
from tests.simulation.learner_world import HEALTHY_S, P0, LearnerWorld, virtually

COPY_S = 100.0
"""Longer than a joiner may be gone, and than one attempt."""


PUBLISHED_S = 2.0
"""Seconds within which every node has seen what a record says."""


async def never(*_: object, **__: object) -> Any:
    """Do nothing, in place of something that is done."""


async def kept(*_: object, **__: object) -> Outcome:
    return Outcome.LOCK_KEPT


@pytest.mark.row("M1")
def test_a_joiner_that_is_gone_and_is_never_given_up_holds_its_move_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """M1, row 1."""
    cell = Cell(Stage.COPYING, Strategy.QUEUE, False, Way.TIME_OUT)
    assert not outcome(cell).left
    monkeypatch.setattr(JoinerTime, "is_over", lambda *_: False)
    assert outcome(cell).left


async def with_joiner(world: LearnerWorld, copy_s: float) -> str:
    """A zone of three whose last voter is to be replaced; returns the joiner once it copies."""
    world.want(3, scale_down_s=100_000)
    await world.settled()
    await asyncio.sleep(HEALTHY_S)
    world.cluster.rates = replace(world.cluster.rates, catch_up_s=(copy_s, copy_s))
    before = world.assignments()
    assert before is not None
    rack = int(before.peers[-1].removeprefix("n")) % 3
    world.want(3, scale_down_s=100_000, nodes_filter=f"$[?(@.rack != {rack})]")
    await world.until(lambda: bool(world.group.nodes[1]) and bool(copying(world)))
    return copying(world)[0]


def lock_stays() -> bool:
    """A joiner dies in the moment in which the lock is taken for it, and its move is taken back."""
    found: list[bool] = []

    async def main(world: LearnerWorld) -> None:
        world.environment.strategy = Strategy.UPDATE
        world.controller.start()
        lock = world.keyspace.partition(P0).lock
        joiner = await with_joiner(world, 3.0)
        killed: list[str] = []

        def die(_revision: int, events: tuple[KeyEvent, ...]) -> None:
            if any(each.key == lock and each.current is not None for each in events):
                forget()
                world.kill(joiner)
                killed.append(joiner)

        forget = world.store.observe(die)
        # The lock itself may be given back before anybody looks.
        await world.until(lambda: bool(killed))
        world.want(3, scale_down_s=100_000)
        await asyncio.sleep(COPY_S)
        found.append(world.store.peek(lock) is not None)

    virtually(main, nodes=6)
    return found[0]


@pytest.mark.row("M5", "M7")
def test_a_lock_that_is_never_given_back_outlives_its_joiner(monkeypatch: pytest.MonkeyPatch) -> None:
    """M5, M7, row 3: where no time-out helps."""
    monkeypatch.setattr(JoinerTime, "is_over", lambda *_: False)
    assert not lock_stays()
    monkeypatch.setattr(StrategyDuties, "unlock", kept)
    assert lock_stays()


def copying(world: LearnerWorld) -> list[str]:
    replicas = world.group.replicas
    return [replicas[each].node for each in replicas if each not in world.group.voters]


def given_up(world: LearnerWorld) -> bool:
    return world.store.peek(world.keyspace.given_up(P0)) is not None


def asked_again() -> bool:
    """True if a joiner that was given up and lives again gets the copy after all."""
    stable: list[bool] = []

    async def main(world: LearnerWorld) -> None:
        joiner = await with_joiner(world, 3.0)
        world.kill(joiner)
        await world.until(lambda: given_up(world) and world.is_settled(), 240.0)
        world.start(joiner)
        await asyncio.sleep(240.0)
        assignments = world.assignments()
        stable.append(assignments is not None and joiner in assignments.peers)

    virtually(main, nodes=6, controller=True)
    return stable[0]


@pytest.mark.row("M2")
def test_who_is_never_asked_again_gets_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """M2."""
    assert asked_again()
    monkeypatch.setattr(asking.JoinersAgain, "look", never)
    assert not asked_again()


def slow_copy_is_given_up() -> bool:
    found: list[bool] = []

    async def main(world: LearnerWorld) -> None:
        await with_joiner(world, COPY_S)
        await asyncio.sleep(2 * COPY_S)
        found.append(given_up(world))

    virtually(main, nodes=6, controller=True)
    return found[0]


@pytest.mark.row("M3")
def test_a_healthy_slow_copy_is_given_up_by_whoever_judges_it_by_its_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """M3: gone is a node without a lease, or a member that its agent gave up; nothing else."""

    def no_voter_yet(lives: bool, record: MemberRecord | None, *, is_listed: bool) -> bool:
        return is_listed

    assert not slow_copy_is_given_up()
    monkeypatch.setattr(joiner_watch, "is_gone", no_voter_yet)
    assert slow_copy_is_given_up()


def voters_while_silent() -> int:
    """Voters of a group of one that is to be three, whose first copy lasts longer than an attempt: counted when
    the metastore has been silent from that copy's begin to well after its end."""
    found: list[int] = []

    async def main(world: LearnerWorld) -> None:
        def serves(node: str) -> bool:
            record = world.record(node)
            return record is not None and record.state is MemberState.RUNNING

        world.want(1, scale_down_s=100_000)
        await world.settled()
        await asyncio.sleep(HEALTHY_S)
        world.cluster.rates = replace(world.cluster.rates, catch_up_s=(COPY_S, COPY_S))
        world.want(3, scale_down_s=100_000)
        await world.until(lambda: any(map(serves, copying(world))))
        await asyncio.sleep(PUBLISHED_S)
        world.store.pause()
        await asyncio.sleep(2 * COPY_S)
        found.append(len(world.group.voters))
        world.store.resume()
        await world.settled()

    virtually(main, nodes=6, controller=True)
    return found[0]


@pytest.mark.row("M12")
def test_who_asks_the_metastore_before_each_attempt_makes_none_while_it_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """M12, row 5: the running joiner is promoted, and no other joins."""
    assert voters_while_silent() == 2
    monkeypatch.setattr(LeaderDuties, "_repeat", never)
    assert voters_while_silent() == 1


def most_voters() -> int:
    """Stable is abc; two joiners are wanted, and once the first votes, two others."""
    found: list[int] = []

    async def main(world: LearnerWorld) -> None:
        await world.write(stable="abc")
        await world.settled("abc")
        await asyncio.sleep(HEALTHY_S)
        for wanted, promoted in (("abcde", "n3"), ("abcfg", "n5"), ("abchi", "n7")):
            await world.write(pending=wanted)
            await world.until(lambda promoted=promoted: promoted in world.group.nodes[0])
            found.append(len(world.group.voters))
        await world.settled("abchi")

    virtually(main, nodes=9)
    return max(found)


@pytest.mark.row("M9")
def test_voters_pile_up_where_nobody_looks_at_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    """M9: who was promoted for an earlier target leaves before the next one joins."""

    def without_stable(view: GroupView, target: tuple[str, ...], _stable: tuple[str, ...]) -> Step:
        return group_steps.next_step(view, target)

    assert most_voters() == 4
    monkeypatch.setattr(etcd_change, "next_step", without_stable)
    assert most_voters() > 4


UNSEEN_S = 4.0
"""Least seconds of a dead node's lease, for which what nodes publish says that it lives."""


def allowed(_step: object, evidence: StepEvidence, _now_s: float) -> MaySend:
    return MaySend(evidence.listed_s + SENT_S, evidence.listed_s + VALID_S)


def voters_beside_a_dead_one() -> int:
    """Voters of a group of three after one is to leave just when another, which stays, has died and its death
    is not yet known."""
    found: list[int] = []

    async def main(world: LearnerWorld) -> None:
        await world.write(stable="abc")
        await world.settled("abc")
        await world.until(lambda: world.group.has_leader)
        leader = world.group.replicas[world.group.leader_id].node
        dead = min({"n0", "n1", "n2"} - {leader})
        stays = "".join(chr(ord("a") + int(name.removeprefix("n"))) for name in (leader, dead))
        world.kill(dead)
        await asyncio.sleep(1.5 * VALID_S)
        await world.write(pending=stays)
        await asyncio.sleep(UNSEEN_S - 1.5 * VALID_S)
        found.append(len(world.group.voters))

    virtually(main, nodes=3, strict=False)
    return found[0]


@pytest.mark.row("S2", "S3")
def test_who_does_not_ask_the_members_before_a_step_breaks_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """S2, S3: two voters are left, one of them dead."""
    assert voters_beside_a_dead_one() == 3
    monkeypatch.setattr(step_gate, "check_step", allowed)
    with pytest.raises(AssertionError, match="no answering majority"):
        voters_beside_a_dead_one()


def seconds_to_three() -> float:
    """Seconds from one voter to three, where the nodes check the steps."""
    found: list[float] = []

    async def main(world: LearnerWorld) -> None:
        await world.write(stable="a")
        await world.settled("a")
        world.cluster.rates = replace(world.cluster.rates, catch_up_s=(0.1, 0.1))
        begun_s = asyncio.get_running_loop().time()
        await world.write(pending="abc")
        await world.settled("abc")
        found.append(asyncio.get_running_loop().time() - begun_s)

    virtually(main, nodes=3, strict=False)
    return found[0]


@pytest.mark.row("S1")
def test_what_the_nodes_check_waits_for_no_interval() -> None:
    """S1: etcd's own check takes five seconds for the second new voter alone."""
    assert seconds_to_three() < HEALTHY_AFTER_S


@pytest.mark.row("S3")
def test_members_that_check_themselves_still_wait() -> None:
    """S3: a group whose leader's member was started with etcd's check goes on beside nodes that were not."""
    found: list[float] = []

    async def main(world: LearnerWorld) -> None:
        await world.write(stable="a")
        await world.settled("a")
        world.environment.strict_share = 0.0
        world.kill("n1", "n2")
        world.start("n1", "n2")
        begun_s = asyncio.get_running_loop().time()
        await world.write(pending="abc")
        await world.settled("abc")
        found.append(asyncio.get_running_loop().time() - begun_s)

    virtually(main, nodes=3)
    assert found[0] > HEALTHY_AFTER_S
