"""The wall clock that tests make jump does, for those processes that have it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fixtures.shifted_clock import ShiftedClock, missing, told_time


@pytest.mark.skipif(missing() != "", reason=missing())
@pytest.mark.parametrize("shift_s", [0, 3_600, -3_600])
def test_a_wall_clock_that_jumps(tmp_path: Path, shift_s: int) -> None:
    clock = ShiftedClock(tmp_path)
    clock.jump(shift_s)
    assert told_time(clock.environment) == pytest.approx(time.time() + shift_s, abs=60)
