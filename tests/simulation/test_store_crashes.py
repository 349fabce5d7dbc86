"""A server crashes at each point of a short run: around each commit and each message."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from simulator.store.store_crashes import CrashPlace, CrashPoint, CrashRun
from tests.fixtures.simulated_judgement import judged

SEEDS_OF_SLICE, SEEDS = range(2), range(6)
POINTS_OF_SLICE = 50


def crash(seed: int, points: Iterable[CrashPoint]) -> None:
    for point in points:
        run = CrashRun(seed, point)
        run.run()
        assert run.happened, point
        assert not judged(run.clients.history), (seed, point)


def points_of(seed: int) -> list[CrashPoint]:
    run = CrashRun(seed)
    run.run()
    assert not run.happened
    return run.points


@pytest.mark.parametrize("seed", SEEDS_OF_SLICE)
def test_a_crash_at_some_points(seed: int) -> None:
    """Crash at some points of every place of every server. Rules of each run: no acknowledged write is lost or
    done twice, never two primaries, one order of writes explains all answers, and in the end all copies are
    equal."""
    points = points_of(seed)
    assert {point.place for point in points} == set(CrashPlace)
    crash(seed, random.Random(seed).sample(points, POINTS_OF_SLICE))


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_at_every_point(seed: int) -> None:
    points = points_of(seed)
    print(f"seed {seed}, {len(points)} points:", dict(Counter(point.place.value for point in points)))
    crash(seed, points)
