"""Tests that take long say why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.durations import allowance, objection, reason_of

ROOT = Path(__file__).parents[2]
EXAMPLES = """
import time
import pytest

def test_quick(): ...

def test_long(): time.sleep(0.3)

@pytest.mark.slow("it waits for a clock")
def test_long_with_a_reason(): time.sleep(0.3)

@pytest.mark.soak
def test_of_soak(): time.sleep(0.3)
"""


def run(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    """The plugin alone, with a limit of a millisecond, in a directory of its own."""
    (directory / "test_examples.py").write_text(code)
    options = ("-p", "no:cacheprovider", "-p", "tests.fixtures.durations", "-o", "slow_after_s=0.001", "-q")
    markers = (
        "-o",
        "markers=soak\nslow(reason)",
        "--rootdir",
        str(directory),
        "-c",
        str(directory / "pytest.ini"),
    )
    (directory / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", *options, *markers, str(directory)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_who_takes_long_without_a_reason_is_listed(tmp_path: Path) -> None:
    done = run(tmp_path, EXAMPLES)
    assert "4 passed" in done.stdout
    listed = done.stdout.split("tests that take long without a reason")[1]
    assert "test_long took 0.3 s; without a reason the limit is 0 s" in listed
    assert "with_a_reason" not in listed
    assert "test_of_soak" not in listed


@pytest.mark.parametrize(
    "marker",
    [
        pytest.mark.slow(),
        pytest.mark.slow(" "),
        pytest.mark.slow(20),
        pytest.mark.slow("it waits", "for a clock"),
        pytest.mark.slow(reason="it waits"),
        pytest.mark.thorough(),
    ],
    ids=["nothing", "blank", "number", "two", "keyword", "thorough"],
)
def test_a_marker_without_a_reason_is_refused(marker: pytest.MarkDecorator) -> None:
    with pytest.raises(ValueError, match=f"{marker.name} takes one reason: @pytest.mark.{marker.name}"):
        reason_of(marker.mark)


@pytest.mark.parametrize(
    ("load", "processors", "times"),
    [(0.0, 2, 2.0), (4.0, 2, 2.0), (5.0, 2, 2.5), (16.0, 2, 8.0), (8.0, 8, 2.0)],
)
def test_a_busy_machine_gives_more_time(load: float, processors: int, times: float) -> None:
    assert allowance(load, processors) == times


def test_only_time_beyond_the_limit_is_objected_to() -> None:
    assert objection(40.0, 20.0, 2.0, "") == ""
    assert "took 40.1 s" in objection(40.1, 20.0, 2.0, "")
    assert objection(500.0, 20.0, 2.0, "a kill for each process") == ""
