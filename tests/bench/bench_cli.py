"""Time of ``zonectl --help``, beside an empty Python program: medians of five, in one run."""

from __future__ import annotations

import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

from tests.bench.figures import report, timed

ROOT = Path(__file__).parents[2]
RUNS = 5
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "zonectl --help": [sys.executable, "-m", "app.cli", "--help"],
    "zonectl operations --help": [sys.executable, "-m", "app.cli", "operations", "--help"],
}


def test_help_answers_at_once() -> None:
    print()
    empty = 0.0
    for name, command in COMMANDS.items():
        run = partial(subprocess.run, command, cwd=ROOT, check=True, capture_output=True)
        seconds = timed(run, RUNS)
        empty = empty or statistics.median(seconds)
        report(name, seconds, note=f"{statistics.median(seconds) / empty:.1f} times an empty program")
