"""What runs side by side, so that nobody waits for one that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import httpx

from app.diagnosis.checks import Check, not_seen

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Gathered(Generic[T]):
    """``failure``: why this is not all of it; empty where it is."""

    items: Sequence[T]
    failure: str


@dataclass(frozen=True, slots=True)
class Probe:
    """``run`` yields checks as it gets them, and may raise or hang. ``action``: what to do when it does."""

    name: str
    run: Callable[[], Iterable[Check]]
    action: str


class _Running(Generic[T]):
    def __init__(self, source: Callable[[], Iterable[T]]) -> None:
        self._source = source
        self._items: list[T] = []
        self._failure = ""
        # A daemon: a disk that hangs must not keep the process from its end.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for item in self._source():
                self._items.append(item)
        except Exception as error:
            self._failure = _reason(error)

    def gathered(self, deadline: float, limit_s: float) -> Gathered[T]:
        self._thread.join(max(0.0, deadline - time.monotonic()))
        is_late = self._thread.is_alive()
        return Gathered(tuple(self._items), f"no answer within {limit_s:.0f} s" if is_late else self._failure)


def gather(sources: Sequence[Callable[[], Iterable[T]]], limit_s: float) -> list[Gathered[T]]:
    """What each of ``sources`` yields within ``limit_s`` seconds, in their order."""
    deadline = time.monotonic() + limit_s
    running = [_Running(source) for source in sources]
    return [each.gathered(deadline, limit_s) for each in running]


def run_probes(probes: Sequence[Probe], limit_s: float) -> list[Check]:
    """The checks of all probes in their order, after at most ``limit_s`` seconds. A probe that has not ended
    by then, or has raised, is a failed check after those that it gave."""
    found: list[Check] = []
    for probe, gathered in zip(probes, gather([probe.run for probe in probes], limit_s), strict=True):
        found.extend(gathered.items)
        if gathered.failure:
            found.append(not_seen(probe.name, "fail without an answer", gathered.failure, probe.action))
    return found


def _reason(error: Exception) -> str:
    """One line."""
    if isinstance(error, (TimeoutError, httpx.TimeoutException)):
        return "no answer in time"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
