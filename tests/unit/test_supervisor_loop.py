"""Children are restarted, and none is left: real processes, in every way a supervisor can end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from app.supervision.child_loop import REPORTED_DEATHS, RESTART
from rebalance.hosting.child import rotate_log

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0
# Starts one child a line of argv[2], each `sh -c LINE`, ranked in their order, with argv[3] seconds to end in;
# prints what the supervisor says.
SUPERVISOR = """
import json, sys
from pathlib import Path
from app.supervision.child_loop import Supervisor
from app.supervision.child_plan import ChildSpec, StopRank
folder, lines, grace_s = Path(sys.argv[1]), json.loads(sys.argv[2]), float(sys.argv[3])
ranks = [StopRank.NODE, StopRank.SERVER, StopRank.METASTORE]
specs = [
    ChildSpec(f"c{i}", ("sh", "-c", line), ranks[i % 3], folder / f"c{i}.log", env={"FOLDER": str(folder)},
              grace_s=grace_s)
    for i, line in enumerate(lines)
]
def on_change(pids):
    temporary = folder / "pids.new"
    temporary.write_text(json.dumps(pids))
    temporary.replace(folder / "pids.json")
ended = Supervisor(specs, say=lambda line: print(line, flush=True), on_change=on_change).run()
print("ended by", ended.name if ended else None, flush=True)
"""

SLEEP = "exec sleep 4711"
# Writes its name once it is asked to end.
NOTES_END = (
    'trap \'echo NAME >> "$FOLDER/ends"; exit 0\' TERM; touch "$FOLDER/NAME.up"; while :; do sleep 0.02; done'
)
# Does not end when it is asked to, and notes that it was.
STUBBORN = 'trap \'touch "$FOLDER/asked"\' TERM; touch "$FOLDER/NAME.up"; while :; do sleep 0.05; done'


class Running:
    """A supervisor in a process of its own."""

    def __init__(self, folder: Path, lines: list[str], grace_s: float) -> None:
        self.folder = folder
        named = [line.replace("NAME", f"c{index}") for index, line in enumerate(lines)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, str(folder), json.dumps(named), str(grace_s)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )

    def pids(self) -> dict[str, int]:
        try:
            pids: dict[str, int] = json.loads((self.folder / "pids.json").read_text())
        except FileNotFoundError:
            return {}
        return pids

    def until_up(self, *names: str) -> dict[str, int]:
        """Wait until the shells have set their traps; return the processes' ids."""
        until(lambda: len(self.pids()) == 3 and all((self.folder / f"{name}.up").exists() for name in names))
        return self.pids()

    def output(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.read()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def run(*lines: str, grace_s: float = WAIT_S) -> Running:
        started.append(Running(tmp_path, list(lines), grace_s))
        return started[-1]

    yield run
    for running in started:
        running.process.kill()
        running.process.wait()
        assert running.process.stdout is not None
        running.process.stdout.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_delays_start_short_and_stay_below_two_seconds() -> None:
    restart, delays = RESTART, []
    for _ in range(2_000):
        restart = restart.failed()
        delays.append(restart.delay_s(1.0))
    assert delays[0] == 0.2
    assert delays == sorted(delays)
    assert delays[-1] < 1.8


def test_a_killed_child_comes_back(start: Callable[..., Running]) -> None:
    running = start(SLEEP, SLEEP)
    until(lambda: len(running.pids()) == 2)
    for _ in range(4):
        victim = running.pids()["c0"]
        psutil.Process(victim).kill()
        until(lambda victim=victim: running.pids().get("c0", victim) != victim)
    other = running.pids()["c1"]
    running.process.terminate()
    running.process.wait(WAIT_S)
    assert "c0 was ended by SIGKILL; restarting in 0.2 s" in running.output()
    assert not alive(other)


def test_a_child_that_cannot_run_is_retried_without_flooding(start: Callable[..., Running]) -> None:
    running = start('echo >> "$FOLDER/starts"; exit 3', SLEEP)
    starts = running.folder / "starts"
    until(lambda: starts.exists() and len(starts.read_text()) > REPORTED_DEATHS + 1)
    running.process.terminate()
    running.process.wait(WAIT_S)
    lines = [line for line in running.output().splitlines() if line.startswith("c0")]
    assert len(lines) == REPORTED_DEATHS
    assert lines[0].startswith("c0 ended with exit code 3; restarting")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_in_order(number: signal.Signals, start: Callable[..., Running]) -> None:
    running = start(*[NOTES_END] * 3)
    pids = running.until_up("c0", "c1", "c2")
    running.process.send_signal(number)
    assert running.process.wait(WAIT_S) == 0
    assert f"ended by {number.name}" in running.output()
    assert (running.folder / "ends").read_text().split() == ["c0", "c1", "c2"]
    assert not any(alive(pid) for pid in pids.values())


def test_a_child_that_will_not_end_is_killed(start: Callable[..., Running]) -> None:
    running = start(STUBBORN, SLEEP, SLEEP, grace_s=1.0)
    pids = running.until_up("c0")
    running.process.terminate()
    running.process.wait(WAIT_S)
    assert "c0: not ended within 1 s, killed" in running.output()
    assert not any(alive(pid) for pid in pids.values())


def test_a_second_signal_does_not_wait(start: Callable[..., Running]) -> None:
    running = start(*[STUBBORN] * 3, grace_s=100 * WAIT_S)
    running.until_up("c0", "c1", "c2")
    running.process.send_signal(signal.SIGINT)
    until(lambda: (running.folder / "asked").exists())
    running.process.send_signal(signal.SIGINT)
    running.process.wait(WAIT_S)
    assert "not ended within" not in running.output()


def test_a_killed_supervisor_leaves_nothing(start: Callable[..., Running]) -> None:
    running = start(SLEEP, SLEEP, "trap '' TERM; while :; do sleep 0.05; done")
    until(lambda: len(running.pids()) == 3)
    pids = running.pids()
    running.process.kill()
    running.process.wait()
    until(lambda: not any(alive(pid) for pid in pids.values()))


def test_a_supervisor_killed_while_it_starts_leaves_nothing(start: Callable[..., Running]) -> None:
    """The moments before a child has asked for its parent's death signal count too."""
    mark = f"{time.time_ns() % 10**9}"
    for attempt in range(15):
        running = start(*[f"exec sleep 4711.{mark}"] * 9)
        until(lambda running=running: (running.folder / "c0.log").exists())
        time.sleep(attempt * 0.002)
        running.process.kill()
        running.process.wait()
        (running.folder / "c0.log").unlink()
        until(lambda: not _processes_with(mark))


def _processes_with(mark: str) -> list[int]:
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if mark in line and "supervisor_loop" not in line:
            found.append(process.info["pid"])
    return found


def test_logs_rotate_when_large(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    rotate_log(log, bytes_max=5)
    for text in ("first!", "second!", "third!", "fourth!", "fifth!", "tiny"):
        log.write_text(text)
        rotate_log(log, bytes_max=5, kept=3)
    assert log.read_text() == "tiny"
    kept = [(tmp_path / f"x.log.{index}").read_text() for index in (1, 2, 3)]
    assert kept == ["fifth!", "fourth!", "third!"]
    assert len(list(tmp_path.iterdir())) == 4
