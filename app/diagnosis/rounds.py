"""Probes run side by side, and nobody waits for one that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from app.diagnosis.checks import Check, not_seen


@dataclass(frozen=True, slots=True)
class Probe:
    """``run`` yields checks as it gets them, and may raise or hang. ``action``: what to do when it does."""

    name: str
    run: Callable[[], Iterable[Check]]
    action: str


@dataclass(slots=True)
class _Running:
    probe: Probe
    checks: list[Check] = field(default_factory=list)
    failure: str = ""
    thread: threading.Thread | None = None

    def start(self) -> None:
        # A daemon: a disk that hangs must not keep the process from its end.
        self.thread = threading.Thread(target=self._run, name=self.probe.name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            for check in self.probe.run():
                self.checks.append(check)
        except Exception as error:
            lines = str(error).strip().splitlines()
            self.failure = lines[0] if lines else type(error).__name__


def run_probes(probes: Sequence[Probe], limit_s: float) -> list[Check]:
    """The checks of all probes in their order, after at most ``limit_s`` seconds. A probe that has not ended
    by then, or has raised, is a failed check after those that it gave."""
    deadline = time.monotonic() + limit_s
    running = [_Running(probe) for probe in probes]
    for each in running:
        each.start()
    found: list[Check] = []
    for each in running:
        assert each.thread is not None, "started above"
        each.thread.join(max(0.0, deadline - time.monotonic()))
        reason = f"no answer within {limit_s:.0f} s" if each.thread.is_alive() else each.failure
        found.extend(each.checks)
        if reason:
            found.append(not_seen(each.probe.name, "fail without an answer", reason, each.probe.action))
    return found
