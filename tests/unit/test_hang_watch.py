"""Restarts of a child that hangs, in virtual time; the same watch over real processes."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.supervision.hang_watch import (
    DUMP_S,
    RESTARTS_MAX,
    START_LIMIT_S,
    WINDOW_S,
    HangAction,
    HangStep,
    HangWatch,
    Observation,
)

ROOT = Path(__file__).parents[2]
WAIT_S = 120.0
TURN_S = 0.5
BACK_S = 1.0
LIMITS = {"server": 20.0, "n1": 60.0, "n2": 60.0}


@dataclass
class Machine:
    """Children that beat unless they are ``stuck``; those that are killed come back ``BACK_S`` later, and beat
    ``warm_s`` after that."""

    now: float = 1_000.0
    warm_s: float = 3.0
    stuck: set[str] = field(default_factory=set)
    stuck_again: bool = False
    watch: HangWatch = field(default_factory=HangWatch)
    done: list[tuple[float, HangAction]] = field(default_factory=list)
    pids: dict[str, int] = field(default_factory=lambda: {name: n for n, name in enumerate(LIMITS, 100)})
    _started: dict[str, float] = field(default_factory=dict)
    back: dict[str, float] = field(default_factory=dict)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += TURN_S
            self.turn()

    def turn(self) -> None:
        for name, at in list(self.back.items()):
            if at <= self.now:
                del self.back[name]
                self.pids[name] = max(self.pids.values()) + 1
                self._started[name] = self.now
        observations = {
            name: Observation(limit_s, self.pids[name], self._beats(name)) for name, limit_s in LIMITS.items()
        }
        self.watch, action = self.watch.turn(self.now, observations)
        if action is None:
            return
        self.done.append((self.now, action))
        if action.step is HangStep.KILL:
            self.die(action.child)

    def die(self, name: str) -> None:
        self.pids[name] = 0
        self.back[name] = self.now + BACK_S
        if not self.stuck_again:
            self.stuck.discard(name)

    def _beats(self, name: str) -> bool:
        warm = self.now - self._started.get(name, -math.inf) >= self.warm_s
        return self.pids[name] != 0 and warm and name not in self.stuck

    def steps(self, *steps: HangStep) -> list[tuple[float, str]]:
        return [(at, action.child) for at, action in self.done if action.step in steps]


def test_who_answers_is_left_alone() -> None:
    machine = Machine()
    machine.run(3_600)
    assert machine.done == []


@pytest.mark.parametrize(("name", "limit_s"), LIMITS.items())
def test_who_is_silent_is_dumped_and_killed_after_its_limit(name: str, limit_s: float) -> None:
    machine = Machine()
    machine.run(30)
    machine.stuck.add(name)
    silent_at = machine.now
    machine.run(600)
    (dumped_at, _), (killed_at, _) = machine.steps(*HangStep)
    assert limit_s < dumped_at - silent_at <= limit_s + 2 * TURN_S
    assert DUMP_S <= killed_at - dumped_at <= DUMP_S + TURN_S
    assert [action.step for _, action in machine.done] == [HangStep.DUMP, HangStep.KILL]
    reason = machine.done[0][1].reason
    assert reason == f"{name} has not answered for {dumped_at - silent_at:.0f} s (limit {limit_s:g} s)"


def test_one_that_answers_again_in_time_is_left_alone() -> None:
    machine = Machine()
    for _ in range(50):
        machine.run(3)
        machine.stuck.add("server")
        machine.run(19)
        machine.stuck.clear()
    assert machine.done == []


def test_one_at_a_time() -> None:
    """All are stuck: the second is not touched before the first is back."""
    machine = Machine(warm_s=10.0)
    machine.run(30)
    machine.stuck |= set(LIMITS)
    machine.run(600)
    dumps, kills = machine.steps(HangStep.DUMP), machine.steps(HangStep.KILL)
    assert dumps[0][1] == "server"
    assert sorted(name for _, name in kills) == sorted(LIMITS)
    for (killed_at, _), (next_at, _) in zip(kills, dumps[1:], strict=False):
        assert next_at - killed_at >= BACK_S + machine.warm_s


def test_one_that_does_not_come_back_holds_up_no_other_for_ever() -> None:
    machine = Machine(warm_s=10**6)
    machine.run(30)
    for name in LIMITS:
        assert machine.watch.children[name].has_beaten
    machine.stuck |= {"server", "n1"}
    machine.stuck_again = True
    machine.run(60 + START_LIMIT_S + 10)
    assert [name for _, name in machine.steps(HangStep.KILL)][:2] == ["server", "n1"]


def test_at_most_three_times_in_ten_minutes() -> None:
    """A restart that does not help is not repeated; that it is left alone is said once."""
    machine = Machine(warm_s=0.0)
    machine.run(30)
    machine.stuck_again = True
    machine.stuck.add("server")
    # It beats once at its start, so that its limit and not that of a start counts.
    began = machine.now
    while machine.now < began + 4 * WINDOW_S:
        machine.stuck.discard("server")
        machine.run(2)
        machine.stuck.add("server")
        machine.run(28)
    dumps = [at for at, _ in machine.steps(HangStep.DUMP)]
    assert len(dumps) > RESTARTS_MAX
    for first, fourth in zip(dumps, dumps[RESTARTS_MAX:], strict=False):
        assert fourth - first >= WINDOW_S
    left = machine.steps(HangStep.LEAVE)
    assert left
    assert "3 restarts within 10 min did not help" in next(
        action.reason for _, action in machine.done if action.step is HangStep.LEAVE
    )


def test_a_start_has_two_minutes() -> None:
    machine = Machine(warm_s=START_LIMIT_S - 1)
    machine.pids["server"] = 0
    machine.back["server"] = machine.now + 1
    machine.run(600)
    assert machine.done == []


@pytest.mark.parametrize("absent_s", [6.0, 25.0, 3_600.0])
def test_a_supervisor_that_stood_still_restarts_nobody(absent_s: float) -> None:
    """A machine that was suspended, or a supervisor that was stopped: children that are silent meanwhile have
    their whole limit from then on."""
    machine = Machine()
    machine.run(30)
    machine.stuck |= set(LIMITS)
    machine.run(15)
    machine.now += absent_s
    machine.turn()
    assert [action.step for _, action in machine.done] == [HangStep.EXCUSE]
    assert f"stood still for {absent_s:.0f} s" in machine.done[0][1].reason
    back_at = machine.now
    machine.run(19)
    machine.stuck.clear()
    machine.run(600)
    assert [action.step for _, action in machine.done] == [HangStep.EXCUSE]
    assert back_at < machine.now


def test_a_supervisor_that_stood_still_between_dump_and_kill_kills_nobody() -> None:
    machine = Machine()
    machine.run(30)
    machine.stuck.add("server")
    while not machine.done:
        machine.run(TURN_S)
    machine.now += 30
    machine.stuck.clear()
    machine.run(600)
    assert [action.step for _, action in machine.done] == [HangStep.DUMP, HangStep.EXCUSE]


def test_a_child_that_dies_by_itself_begins_anew() -> None:
    machine = Machine()
    machine.run(30)
    machine.stuck.add("server")
    machine.run(19)
    machine.die("server")
    machine.run(600)
    assert machine.done == []


EVENT_NAMES = ("stick", "free", "die", "absent", "run")
EVENT = st.tuples(st.sampled_from(EVENT_NAMES), st.sampled_from(list(LIMITS)), st.integers(1, 90))


@given(st.lists(EVENT, max_size=40), st.booleans())
def test_what_always_holds(events: list[tuple[str, str, int]], stuck_again: bool) -> None:
    """A kill follows a dump of the same child; one child at a time; three dumps a window."""
    machine = Machine(stuck_again=stuck_again)
    for event, name, seconds in events:
        if event == "stick":
            machine.stuck.add(name)
        elif event == "free":
            machine.stuck.discard(name)
        elif event == "die" and machine.pids[name]:
            machine.die(name)
        elif event == "absent":
            machine.now += seconds
        machine.run(seconds)
    dumped = ""
    for _, action in machine.done:
        if action.step is HangStep.DUMP:
            dumped = action.child
        elif action.step is HangStep.KILL:
            assert action.child == dumped
            dumped = ""
    for name in LIMITS:
        dumps = [at for at, child in machine.steps(HangStep.DUMP) if child == name]
        for first, fourth in zip(dumps, dumps[RESTARTS_MAX:], strict=False):
            assert fourth - first >= WINDOW_S


# Two children with event loops of their own; c0 blocks its loop as soon as the file "block" is there.
CHILD = """
import asyncio, sys, time
from pathlib import Path
from rebalance.hosting.heartbeat import Heart, dump_on_signal
def the_blocking_call():
    time.sleep(1_000)
async def main():
    dump_on_signal()
    Heart().start()
    Path(sys.argv[1] + ".up").touch()
    while True:
        await asyncio.sleep(0.05)
        if Path(sys.argv[1] + ".block").exists():
            Path(sys.argv[1] + ".block").unlink()
            the_blocking_call()
asyncio.run(main())
"""
SUPERVISOR = """
import json, sys
from pathlib import Path
from app.supervision.child_loop import Supervisor
from app.supervision.child_plan import ChildSpec, StopRank
folder, child = Path(sys.argv[1]), sys.argv[2]
specs = [
    ChildSpec(name, (sys.executable, "-c", child, str(folder / name)), StopRank.SERVER, folder / f"{name}.log",
              silence_s=4.0)
    for name in ("c0", "c1")
]
def on_change(pids):
    temporary = folder / "pids.new"
    temporary.write_text(json.dumps(pids))
    temporary.replace(folder / "pids.json")
Supervisor(specs, say=lambda line: print(line, flush=True), on_change=on_change).run()
"""


class Running:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = folder / "said"
        with self.said.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SUPERVISOR, str(folder), CHILD],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=out,
            )

    def pid(self, name: str) -> int:
        try:
            return int(json.loads((self.folder / "pids.json").read_text()).get(name, 0))
        except FileNotFoundError:
            return 0

    def until_up(self) -> None:
        until(lambda: all((self.folder / f"{name}.up").exists() for name in ("c0", "c1")))

    def until_restarted(self, name: str, before: int) -> None:
        until(lambda: self.pid(name) not in (0, before))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(tmp_path)
    found.until_up()
    yield found
    found.process.send_signal(signal.SIGCONT)
    found.process.kill()
    found.process.wait()


def test_a_blocked_loop_is_dumped_and_restarted(running: Running) -> None:
    before, other = running.pid("c0"), running.pid("c1")
    (running.folder / "c0.block").touch()
    running.until_restarted("c0", before)
    assert "in the_blocking_call" in running.log("c0")
    assert (
        "c0 has not answered for 4 s (limit 4 s): restarting it; its stack goes to" in running.said.read_text()
    )
    assert running.pid("c1") == other
    assert running.log("c1") == ""


def test_a_stopped_process_is_dumped_and_restarted(running: Running) -> None:
    before = running.pid("c1")
    os.kill(before, signal.SIGSTOP)
    running.until_restarted("c1", before)
    assert "most recent call first" in running.log("c1")
    assert not psutil.pid_exists(before)


def test_a_stopped_supervisor_restarts_nobody(running: Running) -> None:
    """Children that were stopped with it, as on a machine that was suspended, go on as they were."""
    pids = [running.pid("c0"), running.pid("c1")]
    os.kill(running.process.pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(6.0)  # longer than the limit
    os.kill(running.process.pid, signal.SIGCONT)
    until(lambda: "stood still for" in running.said.read_text())
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    time.sleep(6.0)
    assert [running.pid("c0"), running.pid("c1")] == pids
    assert "restarting it" not in running.said.read_text()
