"""Following changes until their partitions are where the catalog wants them.

The server is asked four times a second. It may restart meanwhile: that is said once, and asking goes on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from app.cli.client import ApiClient, NoAnswerError, ProblemError, RequestError, UnreachableError
from app.cli.exits import ExitCode

POLL_S = 0.25
SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class Change:
    """A zone as of a catalog version: what is followed."""

    zone_id: int
    zone: str
    version: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Partitions of one zone; ``causes`` says why some wait: (cause, partitions)."""

    zone: str
    converged: bool
    total: int
    done: int
    moving: int
    waiting: int
    causes: tuple[tuple[str, int], ...] = ()
    engine: str | None = None

    @classmethod
    def from_body(cls, zone: str, body: Mapping[str, Any]) -> Progress:
        counts = body.get("partitions") or {}
        return cls(
            zone=zone,
            converged=body["state"] == "CONVERGED",
            total=counts.get("total", 0),
            done=counts.get("done", 0),
            moving=counts.get("moving", 0),
            waiting=counts.get("waiting", 0),
            causes=tuple((str(item["cause"]), int(item["partitions"])) for item in body.get("causes") or ()),
            engine=body.get("engine"),
        )

    def counts(self) -> str:
        """``5/8 done, 2 moving, 1 waiting``."""
        return f"{self.done}/{self.total} done, {self.moving} moving, {self.waiting} waiting"

    def reasons(self) -> str:
        """``NODE_DOWN: n3 (1); ...``, empty when nothing waits."""
        return "; ".join(f"{cause} ({partitions})" for cause, partitions in self.causes)


@dataclass(frozen=True, slots=True)
class Outcome:
    """``last`` holds the newest progress by zone id."""

    converged: bool
    seconds: float
    last: Mapping[int, Progress] = field(default_factory=dict)

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK if self.converged else ExitCode.TIMED_OUT


class ProgressView(AbstractContextManager["ProgressView"], Protocol):
    """Where progress is shown; a view ignores what it has shown already."""

    def __enter__(self) -> Self: ...

    def update(self, change: Change, progress: Progress) -> None: ...

    def note(self, text: str) -> None:
        """A line for people that is not progress of a zone."""
        ...


def follow(
    client: ApiClient,
    changes: Sequence[Change],
    *,
    timeout_s: float | None = None,
    view: ProgressView | None = None,
) -> Outcome:
    """Returns when every change has converged or the time limit passed.

    Raises ProblemError when the server refuses to tell (4xx), and UnreachableError when it never answered.
    """
    from app.cli.follow_view import choose_view

    started = time.monotonic()
    deadline = None if timeout_s is None else started + timeout_s
    last: dict[int, Progress] = {}
    with view or choose_view() as shown:
        away = False
        while True:
            try:
                for change in changes:
                    last[change.zone_id] = _ask(client, change)
                    shown.update(change, last[change.zone_id])
            except (UnreachableError, NoAnswerError, ProblemError) as error:
                if not may_pass(error):
                    raise
                if not away:
                    shown.note(f"the server does not answer ({brief(error)}); still asking")
                away = True
            else:
                if away:
                    shown.note("the server answers again")
                away = False
                if all(last[change.zone_id].converged for change in changes):
                    return Outcome(True, time.monotonic() - started, last)
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                shown.note(f"not converged after {timeout_s:g} s; the change itself goes on")
                return Outcome(False, now - started, last)
            time.sleep(POLL_S if deadline is None else min(POLL_S, max(0.0, deadline - now)))


def _ask(client: ApiClient, change: Change) -> Progress:
    return Progress.from_body(change.zone, client.progress(change.zone_id, change.version))


def may_pass(error: RequestError) -> bool:
    """A server that restarts, or waits for its stores, is asked again; a refusal is final."""
    return not isinstance(error, ProblemError) or error.problem.status >= SERVER_ERROR


def brief(error: RequestError) -> str:
    if isinstance(error, ProblemError):
        return error.problem.headline()
    return type(error).__name__.removesuffix("Error").lower()
