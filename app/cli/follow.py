"""Following a change until it is done: the one loop, and the views of its progress. The server may restart
meanwhile: the command says so once, and goes on asking.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO, TypeVar

from app.cli.exits import ExitCode
from app.cli.output import say
from app.cli.problems import ProblemError, RequestError, UnreachableError, may_pass
from catalog.core.visible import visible
from rebalance.core.causes.cause_table import anchor, in_words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from app.cli.client import ApiClient
    from app.contract.statements import StatementOutcome

POLL_S = 0.25
PAGES_MAX = 5
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FollowedChange:
    """A zone as of a catalog version, which is followed."""

    zone_id: int
    zone: str
    version: int


@dataclass(frozen=True, slots=True)
class FollowProgress:
    """Counts of one zone's partitions; ``causes``: those for which some wait, as (cause, partitions)."""

    zone: str
    converged: bool
    total: int
    done: int
    moving: int
    waiting: int
    causes: tuple[tuple[str, int], ...] = ()
    engine: str | None = None
    copies: tuple[int, int] | None = None
    """Copies of a store zone that are in sync, and all that it is to have."""

    @classmethod
    def from_body(cls, zone: str, body: Mapping[str, Any]) -> FollowProgress:
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
            copies=(copies["in_sync"], copies["assigned"]) if (copies := body.get("copies")) else None,
        )

    def counts(self) -> str:
        """The counts as ``5/8 done, 2 moving, 1 waiting``, for a store zone with ``, 20/24 copies in sync``."""
        copies = ", {}/{} copies in sync".format(*self.copies) if self.copies is not None else ""
        return f"{self.done}/{self.total} done, {self.moving} moving, {self.waiting} waiting{copies}"

    def reasons(self) -> str:
        """The causes as ``NODE_DOWN: n3 (1); ...``, ordinary ones in words; empty when nothing waits."""
        return "; ".join(f"{in_words(cause)} ({partitions})" for cause, partitions in self.causes)


def say_pages(causes: Iterable[str]) -> None:
    """Print a line with the pages that explain the causes, in their order; none where nothing waits."""
    pages = [page for page in dict.fromkeys(map(anchor, causes)) if page]
    if pages:
        rest = " and others" if len(pages) > PAGES_MAX else ""
        say(f"Explained in {', '.join(pages[:PAGES_MAX])}{rest}")


class ProgressView(AbstractContextManager["ProgressView"], Protocol):
    """View of progress; it ignores what it has shown already."""

    def __enter__(self) -> Self: ...

    def update(self, change: FollowedChange, progress: FollowProgress) -> None: ...

    def note(self, text: str) -> None:
        """A line for people that is not progress of a zone."""
        ...


def choose_view(out: TextIO | None = None) -> ProgressView:
    """Choose the view for stderr: bars on a terminal, lines in a log file."""
    stream = out or sys.stderr
    if not stream.isatty():
        return LineView(stream)
    from rich.console import Console

    return BarView(Console(file=stream))


class LineView:
    """View with a line whenever the counts or the causes of a zone change."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._shown: dict[int, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, change: FollowedChange, progress: FollowProgress) -> None:
        reasons = f": {progress.reasons()}" if progress.causes else ""
        state = "converged" if progress.converged else "moving"
        self.line(f"{change.zone}: {state}, {progress.counts()}{reasons}", change.zone_id)

    def line(self, text: str, subject: int = 0) -> None:
        """Print the line unless it is the subject's latest."""
        if self._shown.get(subject) != text:
            self._shown[subject] = text
            self.note(text)

    def note(self, text: str) -> None:
        say(text, out=self._out)


class BarView:
    """View with a bar for each zone: partitions done, moving and waiting, with the causes."""

    def __init__(self, console: Console) -> None:
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
        )
        self._tasks: dict[int, TaskID] = {}
        self._escape = escape

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def update(self, change: FollowedChange, progress: FollowProgress) -> None:
        if change.zone_id not in self._tasks:
            self._tasks[change.zone_id] = self._bars.add_task(visible(change.zone), total=1, state="")
        state = f"{progress.moving} moving, {progress.waiting} waiting"
        if progress.causes:
            state += f" [yellow]{self._escape(visible(progress.reasons()))}[/yellow]"
        # A dropped zone has no partitions left: an empty bar would look undone.
        total = max(1, progress.total)
        self._bars.update(
            self._tasks[change.zone_id],
            total=total,
            completed=total if progress.converged else progress.done,
            state="[green]converged[/green]" if progress.converged else state,
            refresh=True,
        )

    def note(self, text: str) -> None:
        self._bars.console.print(visible(text), markup=False)


def watch(
    ask: Callable[[float], T],
    is_done: Callable[[T], bool],
    view: ProgressView,
    timeout_s: float | None,
    late: str,
    *,
    pause_s: float = POLL_S,
    must_answer: bool = False,
) -> bool:
    """Ask until an answer ``is_done``, which also shows it. When the time limit has passed ``late`` is shown,
    and the result is False.

    ``ask`` gets the seconds that are left (``inf`` without a limit). ``pause_s``: the time between two answers.
    ``must_answer``: before the first answer it is an error that no server answers at the address. Raises
    RequestError for errors that do not pass by themselves.
    """
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    away = False
    while True:
        left_s = max(0.0, deadline - time.monotonic())
        pause = pause_s
        try:
            answer = ask(left_s)
        except RequestError as error:
            if not may_pass(error) or (must_answer and not away and isinstance(error, UnreachableError)):
                raise
            if not away:
                view.note(f"the server does not answer ({_brief(error)}); still asking")
            away, pause = True, POLL_S
        else:
            if away:
                view.note("the server answers again")
            away = must_answer = False
            if is_done(answer):
                return True
        left_s = max(0.0, deadline - time.monotonic())
        if not left_s:
            view.note(late)
            return False
        time.sleep(min(pause, left_s))


def _brief(error: RequestError) -> str:
    if isinstance(error, ProblemError):
        return error.problem.headline()
    return type(error).__name__.removesuffix("Error").lower()


@dataclass(frozen=True, slots=True)
class FollowOutcome:
    """Outcome of following changes; ``last`` holds the newest progress by zone id."""

    converged: bool
    last: Mapping[int, FollowProgress] = field(default_factory=dict)

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK if self.converged else ExitCode.TIMED_OUT


def follow(
    client: ApiClient, changes: Sequence[FollowedChange], *, timeout_s: float | None = None
) -> FollowOutcome:
    """Follow changes until all have converged or the time limit passed. Raises ProblemError (4xx)."""
    last: dict[int, FollowProgress] = {}

    def ask(_: float) -> None:
        for change in changes:
            body = client.progress(change.zone_id, change.version)
            last[change.zone_id] = FollowProgress.from_body(change.zone, body)
            view.update(change, last[change.zone_id])

    def is_done(_: None) -> bool:
        return all(last[change.zone_id].converged for change in changes)

    with choose_view() as view:
        late = f"not converged after {timeout_s or 0:g} s; the change itself goes on"
        return FollowOutcome(watch(ask, is_done, view, timeout_s, late), last)


def touched_zones(results: Sequence[StatementOutcome]) -> tuple[FollowedChange, ...]:
    """The last change of each zone, in the order in which the script first names the zones."""
    last: dict[int, FollowedChange] = {}
    for result in results:
        zone_id, version = result.get("zone_id"), result.get("catalog_version")
        if zone_id is None or version is None:
            continue
        name = str((result.get("effect") or {}).get("zone") or f"zone {zone_id}")
        last[zone_id] = FollowedChange(zone_id, name, version)
    return tuple(last.values())
