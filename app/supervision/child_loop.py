"""Keeping children alive, and ending all of them: a plain loop in the main thread.

The main thread starts every child, because a guarded child dies with the *thread* that started it. Nothing
here knows what the children are; tests run it on small scripts.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import IO

from app.supervision.child_log import ChildLog
from app.supervision.child_plan import ChildSpec
from app.supervision.hang_watch import HangAction, HangStep, HangWatch, Observation
from rebalance.core.backoff import Backoff
from rebalance.hosting.child import spawn
from rebalance.hosting.heartbeat import DUMP_SIGNAL, Pulse

POLL_S = 0.05
# With a poll and the start itself on top, a child is back within 2 s of its death. No jitter: nothing else on
# this machine retries at the same time.
RESTART = Backoff(0.2, 1.6, jitter=0.0)
# A child that lived this long is healthy: its next death is a first one again.
STEADY_S = 10.0
# A child that keeps dying is reported often at first, then now and then.
REPORTED_DEATHS = 5
REPORT_EVERY = 20

Say = Callable[[str], None]


class Child:
    """One child and its restarts. ``log`` None in its spec: it runs once and writes to our own terminal.
    ``final_codes``: exit codes after which starting it again changes nothing."""

    def __init__(self, spec: ChildSpec, say: Say, final_codes: Collection[int] = ()) -> None:
        self.spec = spec
        self._final_codes = final_codes
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._restart_at: float | None = 0.0
        self._deaths = 0
        self._restart = RESTART
        self._pulse: Pulse | None = None
        self._log: ChildLog | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    @property
    def exit_code(self) -> int | None:
        """Exit code of a child that runs once, after it has ended; None before, and for a child that is
        restarted."""
        return self._process.returncode if self._process is not None and self._restart_at is None else None

    @property
    def final_code(self) -> int | None:
        """Exit code with which the child has ended for good; None: it has not."""
        code = self._process.returncode if self._process is not None else None
        return code if code in self._final_codes else None

    def tick(self, now: float) -> bool:
        """Starts what is due, notices a death. True when the pid changed."""
        self.pump()
        if self._process is not None and self._process.returncode is None:
            code = self._process.poll()
            if code is None:
                return False
            self._on_death(code, now)
            return True
        if self._restart_at is None or now < self._restart_at:
            return False
        return self._start(now)

    def pump(self) -> None:
        """Move the lines that the child has written into its log."""
        if self._log is not None:
            self._log.pump()

    def close(self) -> None:
        """Close the log of a child that has ended for good."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def ask_to_stop(self) -> None:
        self._restart_at = None
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def observation(self) -> Observation:
        """Return what the child showed of itself since the last call."""
        return Observation(self.spec.silence_s, self.pid or 0, self._pulse is not None and self._pulse.heard())

    def dump(self) -> None:
        """Make the child write its stacks into its log. A child that is stopped is continued for that, and
        writes them first."""
        self._send(DUMP_SIGNAL, signal.SIGCONT)

    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _send(self, *signals: int) -> None:
        if self._process is not None and self._process.returncode is None:
            for number in signals:
                self._process.send_signal(number)

    def _start(self, now: float) -> bool:
        self._restart_at = None
        self._started_at = now
        try:
            if self.spec.log is not None and self._log is None:
                self._log = ChildLog(self.spec.name, self.spec.log)
            with nullcontext() if self._log is None else self._log.stream() as log:
                self._process = self._spawn(log)
        except OSError as error:
            self._on_death(f"cannot start: {error}", now)
            return False
        return True

    def _spawn(self, log: IO[bytes] | None) -> subprocess.Popen[bytes]:
        spec, self._pulse = self.spec, None
        if not spec.silence_s:
            return spawn(spec.argv, log=log, inherited=spec.inherited, env=spec.env)
        pulse = Pulse()
        try:
            env = {**spec.env, **pulse.environment}
            process = spawn(spec.argv, log=log, inherited=spec.inherited, env=env, pass_fds=(pulse.given,))
        except BaseException:
            pulse.close()
            raise
        finally:
            pulse.keep()
        self._pulse = pulse
        return process

    def _on_death(self, how: int | str, now: float) -> None:
        if self._pulse is not None:
            self._pulse.close()
            self._pulse = None
        if self._log is not None:
            self._log.note_end()
        if self.spec.log is None:
            return
        if how in self._final_codes:
            self._say(f"{self.spec.name} {_ended(how)}, and is not started again ({self.spec.log})")
            return
        if now - self._started_at >= STEADY_S:
            self._deaths, self._restart = 0, RESTART
        self._deaths += 1
        self._restart = self._restart.failed()
        delay = self._restart.delay_s(0.0)
        self._restart_at = now + delay
        if self._deaths <= REPORTED_DEATHS or self._deaths % REPORT_EVERY == 0:
            times = "" if self._deaths == 1 else f", {self._deaths} times in a row"
            self._say(f"{self.spec.name} {_ended(how)}{times}; restarting in {delay:.1f} s ({self.spec.log})")


def _ended(how: int | str) -> str:
    if isinstance(how, str):
        return how
    if how >= 0:
        return f"ended with exit code {how}"
    try:
        return f"was ended by {signal.Signals(-how).name}"
    except ValueError:
        return f"was ended by signal {-how}"


@dataclass(eq=False)
class Supervisor:
    """Runs children until a signal or ``stop`` ends them, or one of them ends with one of ``final_codes``.
    ``watch`` is called in every turn of the loop."""

    specs: Sequence[ChildSpec]
    say: Say
    on_change: Callable[[Mapping[str, int]], None] = lambda pids: None
    watch: Callable[[], None] = lambda: None
    final_codes: Collection[int] = ()

    def __post_init__(self) -> None:
        self._children = [Child(spec, self.say, self.final_codes) for spec in self.specs]
        self._signals: list[int] = []
        self._stopping = False
        self._hangs = HangWatch()

    def run(self) -> signal.Signals | None:
        """Run the children until a signal or ``stop``, and return the signal (None: ``stop``). No child is left
        in any case."""
        with self._signals_caught():
            try:
                while not self._signals and not self._stopping:
                    self._turn()
                    time.sleep(POLL_S)
            finally:
                self._end_all()
                for child in self._children:
                    child.close()
        return signal.Signals(self._signals[0]) if self._signals else None

    @property
    def final_code(self) -> int | None:
        """Exit code of the child that has ended for good; None: none has."""
        codes = (child.final_code for child in self._children)
        return next((code for code in codes if code is not None), None)

    def add(self, spec: ChildSpec) -> Child:
        """Add a child, which may be done while ``run`` is under way, from ``watch``."""
        child = Child(spec, self.say, self.final_codes)
        self._children.append(child)
        return child

    def stop(self) -> None:
        """Ends ``run`` after the turn."""
        self._stopping = True

    def _turn(self) -> None:
        now = time.monotonic()
        # Every child gets its turn: no short cut after the first that changed.
        changed = [child.tick(now) for child in self._children]
        if any(changed):
            self.on_change({child.spec.name: child.pid for child in self._children if child.pid is not None})
        self._look_for_hangs(now)
        self.watch()
        self._stopping = self._stopping or self.final_code is not None

    def _look_for_hangs(self, now: float) -> None:
        watched = {child.spec.name: child for child in self._children if child.spec.silence_s}
        observations = {name: child.observation() for name, child in watched.items()}
        self._hangs, action = self._hangs.turn(now, observations)
        if action is not None:
            self._act(action, watched.get(action.child))

    def _act(self, action: HangAction, child: Child | None) -> None:
        if child is not None and action.step is HangStep.DUMP:
            self.say(f"{action.reason}: restarting it; its stack goes to {child.spec.log}")
            child.dump()
        elif child is not None and action.step is HangStep.KILL:
            child.kill()
        else:
            self.say(action.reason)

    def _end_all(self) -> None:
        """Rank by rank: SIGTERM, a bounded wait, SIGKILL. A second signal cuts the waiting short."""
        for rank in sorted({child.spec.rank for child in self._children}):
            members = [child for child in self._children if child.spec.rank == rank]
            for child in members:
                child.ask_to_stop()
            self._await_end(members, max(child.spec.grace_s for child in members))

    def _await_end(self, members: Sequence[Child], grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        while running := [child for child in members if not child.has_ended()]:
            late = time.monotonic() > deadline
            if late or len(self._signals) > 1:
                for child in running:
                    child.kill()
            if late:
                names = ", ".join(child.spec.name for child in running)
                self.say(f"{names}: not ended within {grace_s:g} s, killed")
                deadline = float("inf")
            for child in self._children:
                child.pump()
            time.sleep(POLL_S / 5)

    @contextmanager
    def _signals_caught(self) -> Iterator[None]:
        """SIGHUP too: a closed terminal is no reason to leave anything behind."""

        def note(number: int, _frame: FrameType | None) -> None:
            self._signals.append(number)

        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        earlier = {number: signal.signal(number, note) for number in signals}
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)
