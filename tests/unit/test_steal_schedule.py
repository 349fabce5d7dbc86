"""Schedule of units and sweeps: which may run next, progress that never goes back, and versions that merge."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.stealing.core.steal_checks import ServerState
from simulator.stealing.core.steal_plan import StealUnit
from simulator.stealing.core.steal_schedule import ProgressBoard, SweepFate, decide_on_sweep, next_units
from simulator.stealing.core.vector_clock import (
    ObsoleteVersionError,
    VectorClock,
    Versioned,
    merged,
    put_all,
    put_version,
)


def unit(stealer: int, donor: int) -> StealUnit:
    return StealUnit(stealer, donor, (("users", (0,)),))


PAIRS = st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda pair: pair[0] != pair[1])
UNITS = st.lists(PAIRS, unique=True, max_size=8).map(lambda pairs: [unit(*pair) for pair in pairs])


@pytest.mark.row("VOL-102")
@pytest.mark.parametrize(
    ("waiting", "running", "parallel", "chosen"),
    [
        ([(1, 0), (2, 0), (3, 4)], [], 2, [(3, 4), (1, 0)]),
        ([(1, 0), (3, 4)], [(2, 0)], 2, [(3, 4)]),
        ([(1, 0)], [(2, 0)], 2, [(1, 0)]),
        ([(1, 0), (2, 3)], [(4, 5)], 1, []),
    ],
    ids=["apart", "beside what runs", "no alternative", "no place"],
)
def test_units_that_share_no_node_go_first(
    waiting: list[tuple[int, int]],
    running: list[tuple[int, int]],
    parallel: int,
    chosen: list[tuple[int, int]],
) -> None:
    """VOL-102."""
    found = next_units([unit(*each) for each in waiting], [unit(*each) for each in running], parallel)
    assert [(each.stealer, each.donor) for each in found] == chosen


@pytest.mark.row("VOL-024", "VOL-091", "VOL-102")
@settings(deadline=None)
@given(UNITS, st.integers(0, 3), st.integers(1, 4))
def test_what_the_schedule_promises(units: list[StealUnit], begun: int, parallel: int) -> None:
    """VOL-024, VOL-091: never more at once than allowed, and no place stays empty while a unit waits. VOL-102:
    a second sweep of a node only when every waiting unit would be one."""
    running, waiting = units[: min(begun, parallel)], units[min(begun, parallel) :]
    chosen = next_units(waiting, running, parallel)
    assert len(running) + len(chosen) == min(parallel, len(units))
    assert len(set(chosen)) == len(chosen)
    busy = {node for each in running for node in (each.stealer, each.donor)}
    left = list(waiting)
    for each in chosen:
        if {each.stealer, each.donor} & busy:
            assert all({other.stealer, other.donor} & busy for other in left)
        busy |= {each.stealer, each.donor}
        left.remove(each)


@pytest.mark.row("VOL-105", "VOL-106")
@pytest.mark.parametrize(
    ("state", "streams", "fate"),
    [
        (ServerState.NORMAL_SERVER, 0, SweepFate.RUN),
        (ServerState.NORMAL_SERVER, 2, SweepFate.DELAYED),
        (ServerState.REBALANCING_MASTER, 0, SweepFate.REFUSED),
        (ServerState.REBALANCING_MASTER, 1, SweepFate.REFUSED),
    ],
)
def test_sweeps(state: ServerState, streams: int, fate: SweepFate) -> None:
    """VOL-105: refused on a stealer. VOL-106: on a donor it waits until no stream reads partitions of it."""
    assert decide_on_sweep(state, streams) is fate


@pytest.mark.row("VOL-104")
def test_progress() -> None:
    """VOL-104: by job and in total, in the document's words."""
    board = ProgressBoard({"a": 4, "b": 6}).heard("a", 3).heard("b", 2)
    assert str(board.overall) == "Number of stores completed - 5 / 10"
    assert str(board.of_job("a")) == "Number of stores completed - 3 / 4"


@pytest.mark.row("VOL-104")
@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=12))
def test_progress_never_goes_back(heard: list[tuple[str, int]]) -> None:
    """VOL-104: reports may come late or twice."""
    board = ProgressBoard({"a": 3, "b": 3})
    for job, done in heard:
        after = board.heard(job, done)
        assert after.overall.done >= board.overall.done
        assert after.of_job(job).done >= done
        board = after
    highest = {job: max((done for name, done in heard if name == job), default=0) for job in "ab"}
    assert board.overall.done == sum(highest.values())


@pytest.mark.parametrize(("job", "done"), [("a", 4), ("a", -1), ("c", 0)])
def test_progress_that_cannot_be(job: str, done: int) -> None:
    with pytest.raises(ValueError, match=f"job {job}: {done}"):
        ProgressBoard({"a": 3}).heard(job, done)


CLOCKS = st.dictionaries(st.integers(0, 2), st.integers(1, 3), max_size=3).map(
    lambda counts: VectorClock(tuple(sorted(counts.items())))
)
VERSIONS = CLOCKS.map(lambda clock: Versioned(clock, str(clock.counts)))


@pytest.mark.row("VOL-072", "VOL-073")
@settings(deadline=None)
@given(st.lists(VERSIONS, max_size=6), st.randoms(use_true_random=False))
def test_versions_merge_in_any_order(versions: list[Versioned], random: Random) -> None:
    """VOL-072, VOL-073: what stays is what no other version has seen, however often and in whichever order they
    come."""
    shuffled = [*versions, *versions]
    random.shuffle(shuffled)
    held = put_all((), shuffled)
    assert set(held) == {
        each
        for each in versions
        if not any(other.clock.covers(each.clock) for other in versions if other.clock != each.clock)
    }
    assert all(not one.clock.covers(other.clock) for one, other in combinations(held, 2))
    assert all(merged(held).covers(each.clock) for each in versions)


@pytest.mark.row("VOL-072")
def test_obsolete_versions() -> None:
    """VOL-072: a put of one is an error, unless the very same version is put again."""
    first = Versioned(VectorClock().incremented(0), "first")
    second = Versioned(first.clock.incremented(0), "second")
    held = put_version((first,), second)
    assert held == (second,)
    assert put_version(held, second) == held
    for obsolete in (first, Versioned(second.clock, "other")):
        with pytest.raises(ObsoleteVersionError, match="is not newer"):
            put_version(held, obsolete)
