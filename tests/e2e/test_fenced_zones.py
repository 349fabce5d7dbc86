"""A HIGH_AVAILABILITY zone whose majority is unheard, or whose agents stand still, is founded anew, and then
the old group acknowledges nothing any more; a STRONG_CONSISTENCY zone beside it notices nothing. Whole
processes, each at a site of its own: H1 to H5 of ``rebalance/tech-notes/isolation.md``."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from rebalance.core.topology.fencing import fence_ms_of
from tests.e2e.installation import wait_for
from tests.fixtures.cut_installation import CONTROLLER, NODES, CutInstallation
from tests.fixtures.fenced_trial import (
    FENCE_S,
    LEASE_S,
    RESET_S,
    STOPPED_S,
    Losses,
    Strike,
    Trial,
    create_zones,
    strike,
    trial,
)
from tests.fixtures.shifted_clock import ShiftedClock

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow("fences and leases have to expire")]

LOST = NODES[:2]
ON_S = 2.0
"""Seconds for which the new group goes on before the old one's members are heard again."""
OUTAGE_S, LONG_OUTAGE_S = 15.0, 60.0
OUTAGE_RESET_S = 12
"""The fence is longer than a metastore on a busy machine takes from its first word to a leader, and shorter
than the outages."""
LONGEST_PAUSE_S = 10.0
"""Longest time without an acknowledged put of a zone though a majority of it is well, in seconds: an election,
on a busy machine."""
HOUR_S = 3_600
BEFORE_RESET_S = 20
"""Time of resets before it is made shorter, in seconds."""


@pytest.fixture(scope="module")
def whole(cuttable: CutInstallation) -> CutInstallation:
    create_zones(cuttable)
    return cuttable


@dataclass(frozen=True, slots=True)
class Split:
    """Nodes of a zone's voters: a majority, its leader among them, and the one that founds the group anew."""

    lost: tuple[str, ...]
    survivor: str


async def split_of(running: Trial) -> Split:
    survivor = await asyncio.to_thread(running.open.survivor)
    return Split(tuple(node for node in NODES if node != survivor), survivor)


def separate(whole: CutInstallation, split: Split) -> None:
    """The survivor hears of the others' puts no more, and the controller cannot ask them whether they serve."""
    for node in split.lost:
        whole.networks.cut(node, split.survivor)
        whole.networks.cut(node, CONTROLLER)


async def served_anew(
    running: Trial, blow: Strike, generation: int, split: Split
) -> tuple[int, dict[str, str]]:
    """Time of the reset, and data of the survivor's copy from when no client could put any more. The zone of
    STRONG_CONSISTENCY takes puts on the lost nodes all the time."""
    url = (await asyncio.to_thread(running.open.urls))[split.survivor]
    await asyncio.sleep(max(0.0, FENCE_S + STOPPED_S - blow.seconds_to(time.monotonic_ns())))
    survivor = await running.open.data(url, serializable=True)
    reset = await running.reset(generation)
    await running.open.answers(split.survivor)
    await running.strong.answers(*split.lost)
    await asyncio.sleep(ON_S)
    running.is_one_group_at_a_time(blow, generation)
    return reset, survivor


async def judged(running: Trial, blow: Strike, reset: int, generation: int, had: dict[str, str]) -> Losses:
    await running.all_well()
    await running.strong_is_untouched()
    figures = await running.losses(blow, reset, generation, had)
    print(figures, flush=True)
    return figures


@pytest.mark.thorough("integration/test_fence cuts a node off")
@pytest.mark.row("H1", "H5")
@pytest.mark.parametrize(
    "is_apart", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["connected", "apart"]
)
async def test_a_majority_is_cut_from_the_metastore(whole: CutInstallation, is_apart: bool) -> None:
    """H1, H5: its clients reach it still. Apart: it goes on without the survivor, so puts are lost."""
    async with trial(whole) as running:
        generation, split = await running.generation(), await split_of(running)

        def blow() -> None:
            whole.cut_from_metastore(*split.lost)
            if is_apart:
                separate(whole, split)

        struck = strike(blow)
        reset, had = await served_anew(running, struck, generation, split)
        await asyncio.to_thread(whole.networks.heal)
        await judged(running, struck, reset, generation, had)


@pytest.mark.row("H1", "H3", "H5")
@pytest.mark.parametrize(
    "is_apart", [pytest.param(False, marks=pytest.mark.soak), True], ids=["connected", "apart"]
)
async def test_a_majority_loses_its_agents(
    whole: CutInstallation, clock_or_none: ShiftedClock | None, is_apart: bool
) -> None:
    """H3, H5: they stand still (SIGSTOP), and their members' processes do not. H1: that the controller's wall
    clock goes on an hour earlier makes no difference."""
    async with trial(whole) as running:
        generation, split = await running.generation(), await split_of(running)
        with ExitStack() as stack:
            struck = strike(lambda: stack.enter_context(whole.frozen_agents(*split.lost)))
            if is_apart:
                await asyncio.to_thread(separate, whole, split)
            if clock_or_none is not None:
                clock_or_none.jump(-HOUR_S)
            reset, had = await served_anew(running, struck, generation, split)
            if clock_or_none is not None:
                assert wall_s(whole.sites.log(CONTROLLER)) < time.time() - HOUR_S / 2
                clock_or_none.jump(0)
            await asyncio.to_thread(whole.networks.heal)
        await judged(running, struck, reset, generation, had)


@pytest.mark.thorough("integration/test_fence stops it beside real members")
@pytest.mark.row("H4")
@pytest.mark.parametrize("outage_s", [OUTAGE_S, pytest.param(LONG_OUTAGE_S, marks=pytest.mark.soak)])
async def test_the_metastore_is_stopped(whole: CutInstallation, outage_s: float) -> None:
    """H4: no member of any zone stops, puts go on, and nothing is founded anew, neither then nor afterwards."""
    async with trial(whole) as running, reset_time(whole, running, OUTAGE_RESET_S):
        generation, before = await running.generation(), running.open.pids()
        begun = time.monotonic_ns()
        with ExitStack() as stack:
            whole.stop_metastore()
            stack.callback(whole.start_metastore)
            await running.stays(generation, outage_s)
            pauses_s = longest_pauses_s(running, begun)
            assert running.open.pids() == before
        begun = time.monotonic_ns()
        await running.all_well()
        await running.stays(generation, LEASE_S + OUTAGE_RESET_S)
        await running.both_answer()
        pauses_s += longest_pauses_s(running, begun)
        assert max(pauses_s) < LONGEST_PAUSE_S
        assert running.open.pids() == before
        assert not await running.open.missing(running.open.puts.acknowledged)
        await running.strong_is_untouched()
    longest = ", ".join(f"{pause_s:.2f}" for pause_s in pauses_s)
    print(f"the metastore was away for {outage_s} s: longest pauses {longest} s", flush=True)


def longest_pauses_s(running: Trial, since: int) -> list[float]:
    return [side.longest_pause_s(since) for side in (running.open, running.strong)]


@pytest.mark.row("H1")
@pytest.mark.soak
async def test_a_majority_dies_while_the_metastore_is_stopped(whole: CutInstallation) -> None:
    """H1: what was not seen does not count. The reset comes a lease and the time of resets after the return."""
    async with trial(whole) as running:
        generation = await running.generation()
        whole.stop_metastore()
        whole.sites.kill(*LOST)
        await asyncio.sleep(2 * RESET_S)
        back = time.monotonic_ns()
        whole.start_metastore()
        reset = await running.reset(generation)
        waited_s = Strike(back, back).seconds_to(reset)
        assert waited_s >= LEASE_S + RESET_S
        whole.start_nodes(*LOST)
        await running.all_well()
        assert not await running.strong.missing(running.strong.puts.acknowledged)
    print(f"reset {waited_s:.2f} s after the metastore's start", flush=True)


@pytest.mark.thorough("it jumps in test_a_majority_loses_its_agents")
@pytest.mark.row("H1")
async def test_the_wall_clock_of_the_controller_jumps(whole: CutInstallation, clock: ShiftedClock) -> None:
    """H1: an hour forth and back makes no reset, neither while a majority lives nor while it is absent for some
    seconds."""
    async with trial(whole) as running:
        generation = await running.generation()
        for shift_s in (HOUR_S, 0):
            clock.jump(shift_s)
            await running.stays(generation, LEASE_S + 1)
        with whole.frozen_agents(*LOST):
            await asyncio.to_thread(wait_for, "the loss", lambda: bool(running.open.cause()))
            for shift_s in (HOUR_S, 0):
                clock.jump(shift_s)
                await running.stays(generation, 1)
        await running.all_well()
        assert await running.generation() == generation


@pytest.mark.row("H1")
@pytest.mark.soak
@pytest.mark.parametrize("hour_s", [HOUR_S, -HOUR_S])
async def test_a_reset_is_due_while_the_wall_clock_jumps(
    whole: CutInstallation, clock: ShiftedClock, hour_s: int
) -> None:
    """H1: it comes, and not early. The controller's own words show that its clock has jumped."""
    async with trial(whole) as running:
        generation = await running.generation()
        blow = strike(lambda: whole.sites.kill(*LOST))
        await asyncio.to_thread(wait_for, "the loss", lambda: bool(running.open.cause()))
        clock.jump(hour_s)
        reset = await running.reset(generation)
        assert blow.seconds_to(reset) >= RESET_S
        assert abs(wall_s(whole.sites.log(CONTROLLER)) - time.time() - hour_s) < HOUR_S / 2
        whole.start_nodes(*LOST)
        await running.all_well()
        assert not await running.strong.missing(running.strong.puts.acknowledged)
    print(f"clock {hour_s:+} s: reset {blow.seconds_to(reset):.2f} s after the loss", flush=True)


def wall_s(log: Path) -> float:
    """The wall clock of who wrote the last line of ``log``, when it did."""
    lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
    return datetime.fromisoformat(str(json.loads(lines[-1])["timestamp"])).timestamp()


@pytest.mark.row("H2")
def test_a_time_of_resets_that_nodes_cannot_keep_to(whole: CutInstallation) -> None:
    """H2: refused, with what would be accepted and why."""
    for seconds in (0, RESET_S - 1):
        done = whole.zonectl("rebalance", "limits", "--ha-reset", str(seconds))
        assert done.returncode != 0
        said = f"ha_reset_s takes whole seconds from {RESET_S} on, or null for the default, not {seconds}"
        assert said in " ".join((done.stdout + done.stderr).split())


@pytest.mark.row("H2")
@pytest.mark.soak
async def test_a_shorter_time_of_resets_waits_for_who_has_not_heard_of_it(whole: CutInstallation) -> None:
    """H2: a voter's node that is cut off keeps to the fence that it has published."""
    first, second = LOST
    async with trial(whole) as running:
        generation = await running.generation()
        await asyncio.to_thread(set_reset_s, whole, BEFORE_RESET_S)
        blow = strike(lambda: whole.cut_from_metastore(first))
        told = await asyncio.to_thread(whole.zonectl, "rebalance", "limits", "--ha-reset", str(RESET_S))
        assert told.returncode == 0, told.stderr
        await asyncio.to_thread(wait_for, "the others", lambda: behind(whole) <= {first})
        later = strike(lambda: whole.cut_from_metastore(second))
        reset = await running.reset(generation)
        assert blow.seconds_to(reset) >= BEFORE_RESET_S
        await running.open.answers(NODES[2])
        await asyncio.to_thread(whole.networks.heal)
        await running.all_well()
        await asyncio.to_thread(wait_for, "every node", lambda: not behind(whole))
        await running.strong_is_untouched()
    print(f"reset {blow.seconds_to(reset):.2f} s after the one, {later.seconds_to(reset):.2f} s")


@asynccontextmanager
async def reset_time(whole: CutInstallation, running: Trial, seconds: int) -> AsyncIterator[None]:
    """Another one, for the length of the block; every node keeps to it from its beginning on."""
    await asyncio.to_thread(set_reset_s, whole, seconds)
    try:
        await running.keep_to(fence_ms_of(seconds, LEASE_S))
        yield
    finally:
        await asyncio.to_thread(set_reset_s, whole, RESET_S)


def set_reset_s(whole: CutInstallation, seconds: int) -> None:
    """Returns once every node has published that it keeps to it."""
    done = whole.zonectl("rebalance", "limits", "--ha-reset", str(seconds))
    assert done.returncode == 0, done.stderr
    wait_for("every node", lambda: not behind(whole))


def behind(whole: CutInstallation) -> set[str]:
    """Living nodes that keep to no time as short as the limits'."""
    return set(whole.get("/api/v1/rebalance/limits")["ha_reset_waits_for"])
