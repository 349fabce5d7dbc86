"""A plan of rebalances and of faults that strike while they run: all of it follows from one seed."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import psutil

from tests.e2e.installation import Installation, wait_for

MEMBER = ("etcd", "/members/")
NODE = ("app.cli", " node ")
SERVER = ("app.cli", " serve ", "--migrate")
STORE = ("app.cli", " store serve ")

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 6.0
"""Longer than an election and than a node's lease, shorter than the client's time limit."""


class Fault(Enum):
    """KILL is SIGKILL, PAUSE is SIGSTOP and SIGCONT. A killed node takes its members along; the controllers run
    in the server's process."""

    KILL_NODE = "KILL_NODE"
    KILL_MEMBER = "KILL_MEMBER"
    KILL_CONTROLLER = "KILL_CONTROLLER"
    PAUSE_MEMBER = "PAUSE_MEMBER"
    PAUSE_AGENT = "PAUSE_AGENT"
    KILL_STORE = "KILL_STORE"
    PAUSE_STORE = "PAUSE_STORE"


OF_GROUPS = (Fault.KILL_NODE, Fault.KILL_MEMBER, Fault.KILL_CONTROLLER, Fault.PAUSE_MEMBER, Fault.PAUSE_AGENT)
OF_STORES = (Fault.KILL_NODE, Fault.KILL_STORE, Fault.KILL_CONTROLLER, Fault.PAUSE_STORE, Fault.PAUSE_AGENT)


_VICTIMS = {
    Fault.KILL_NODE: NODE,
    Fault.KILL_MEMBER: MEMBER,
    Fault.KILL_CONTROLLER: SERVER,
    Fault.PAUSE_MEMBER: MEMBER,
    Fault.PAUSE_AGENT: NODE,
    Fault.KILL_STORE: STORE,
    Fault.PAUSE_STORE: STORE,
}
_PAUSES = frozenset((Fault.PAUSE_MEMBER, Fault.PAUSE_AGENT, Fault.PAUSE_STORE))


@dataclass(frozen=True, slots=True)
class Strike:
    """``after_s``: since the statement. ``victim``: modulo the processes of that kind that live then."""

    after_s: float
    fault: Fault
    victim: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class Rebalance:
    """``region`` empty: every node; else the nodes of one region, which are half of them."""

    replicas: int
    region: str
    strikes: tuple[Strike, ...]

    def statement(self, zone: str) -> str:
        return f"ALTER ZONE {zone} SET (REPLICAS {self.replicas}, {self._filter})"

    def statement_for_all(self, zone: str) -> str:
        """Statement that gives the zone a replica on every node that matches."""
        return f"ALTER ZONE {zone} SET ({self._filter})"

    @property
    def _filter(self) -> str:
        nodes = f'$[?(@.region == "{self.region}")]' if self.region else "$..*"
        return f"NODES FILTER '{nodes}'"


TARGETS = ((3, ""), (2, "EU"), (2, "US"), (1, "EU"), (1, "US"), (2, ""))


def plan(seed: int, rebalances: int, faults: Sequence[Fault] = OF_GROUPS) -> tuple[Rebalance, ...]:
    """Each target differs from the one before, so that each rebalance moves something; the first two meet every
    kind of fault once."""
    chooser = random.Random(seed)
    found: list[Rebalance] = []
    target = TARGETS[0]
    kinds = list(faults)
    chooser.shuffle(kinds)
    for _ in range(rebalances):
        target = chooser.choice([each for each in TARGETS if each != target])
        strikes = []
        for _ in range(chooser.randint(2, 3)):
            fault = kinds.pop() if kinds else chooser.choice(faults)
            pause_s = round(chooser.uniform(SHORTEST_PAUSE_S, LONGEST_PAUSE_S), 2)
            strikes.append(Strike(round(chooser.uniform(0, 5), 2), fault, chooser.randrange(1_000), pause_s))
        found.append(Rebalance(*target, tuple(sorted(strikes, key=lambda strike: strike.after_s))))
    return tuple(found)


def strike_all(whole: Installation, strikes: Sequence[Strike]) -> list[str]:
    """Every strike at its time, and what was paused goes on at its own. Returns what was done. Blocks."""
    begun, done = time.monotonic(), []
    paused: list[tuple[float, psutil.Process]] = []
    left = list(strikes)
    try:
        while left or paused:
            now = time.monotonic() - begun
            for until, process in [each for each in paused if each[0] <= now]:
                paused.remove((until, process))
                _send(process, signal.SIGCONT)
            if left and left[0].after_s <= now:
                strike = left.pop(0)
                victims = sorted(whole.processes(*_VICTIMS[strike.fault]), key=lambda each: each.pid)
                if victims:
                    victim = victims[strike.victim % len(victims)]
                    done.append(f"{now:.1f} s {strike.fault.value} {victim.pid}")
                    if strike.fault in _PAUSES:
                        paused.append((now + strike.pause_s, victim))
                        _send(victim, signal.SIGSTOP)
                    else:
                        _send(victim, signal.SIGKILL)
            time.sleep(0.1)
    finally:
        for _, process in paused:
            _send(process, signal.SIGCONT)
    return done


def _send(process: psutil.Process, number: signal.Signals) -> None:
    """Send the process a signal, unless it has ended since it was looked up."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def settle(whole: Installation, result: dict[str, object], timeout_s: float) -> None:
    wait_for("the whole installation", whole.is_whole, timeout_s)
    wait_for(f"convergence to version {result['catalog_version']}", lambda: whole.converged(result), timeout_s)
