"""Runs of pytest that are told to end leave no process behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rebalance.hosting.child import PYTHON, environment
from tests.fixtures.up_process import ROOT, until, until_gone

LIMIT_S = 60.0
TEST = """
import subprocess, time
from pathlib import Path
import pytest

@pytest.fixture
def child():
    with subprocess.Popen(["sleep", "600"]) as process:
        Path("started").write_text(str(process.pid))
        try:
            yield
        finally:
            process.kill()

def test_that_takes_long(child):
    time.sleep(600)
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_run_that_is_told_to_end_stops_what_its_tests_have_started(workers: str, tmp_path: Path) -> None:
    (tmp_path / "test_long.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.fixtures.ended_runs", "-n", workers]
    own = environment(PYTHON, {"PYTHONPATH": str(ROOT)})
    started = tmp_path / "started"
    with subprocess.Popen(command, cwd=tmp_path, env=own, stdout=subprocess.DEVNULL) as run:
        until(lambda: started.exists() and started.read_text() != "", LIMIT_S)
        child = psutil.Process(int(started.read_text()))
        run.terminate()
        assert run.wait(LIMIT_S) == pytest.ExitCode.INTERRUPTED
    until_gone([child])
