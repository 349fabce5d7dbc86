"""Following changes until their partitions are where the catalog wants them.

The server is asked four times a second. It may restart meanwhile: that is said once, and asking goes on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.cli.client import ApiClient, NoAnswerError, ProblemError, RequestError, UnreachableError
from app.cli.exits import ExitCode
from app.cli.followed import FollowedChange, FollowProgress, ProgressView

POLL_S = 0.25
SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class FollowOutcome:
    """``last`` holds the newest progress by zone id."""

    converged: bool
    seconds: float
    last: Mapping[int, FollowProgress] = field(default_factory=dict)

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK if self.converged else ExitCode.TIMED_OUT


def follow(
    client: ApiClient,
    changes: Sequence[FollowedChange],
    *,
    timeout_s: float | None = None,
    view: ProgressView | None = None,
) -> FollowOutcome:
    """Returns when every change has converged or the time limit passed.

    Raises ProblemError when the server refuses to tell (4xx), and UnreachableError when it never answered.
    """
    from app.cli.follow_view import choose_view

    started = time.monotonic()
    deadline = None if timeout_s is None else started + timeout_s
    last: dict[int, FollowProgress] = {}
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
                    return FollowOutcome(True, time.monotonic() - started, last)
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                shown.note(f"not converged after {timeout_s:g} s; the change itself goes on")
                return FollowOutcome(False, now - started, last)
            time.sleep(POLL_S if deadline is None else min(POLL_S, max(0.0, deadline - now)))


def _ask(client: ApiClient, change: FollowedChange) -> FollowProgress:
    return FollowProgress.from_body(change.zone, client.progress(change.zone_id, change.version))


def may_pass(error: RequestError) -> bool:
    """A server that restarts, or waits for its stores, is asked again; a refusal is final."""
    return not isinstance(error, ProblemError) or error.problem.status >= SERVER_ERROR


def brief(error: RequestError) -> str:
    if isinstance(error, ProblemError):
        return error.problem.headline()
    return type(error).__name__.removesuffix("Error").lower()
