"""Two ways to show progress, both on stderr: live bars on a terminal, else one line per change."""

from __future__ import annotations

import sys
from typing import Self, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from app.cli.followed import FollowedChange, FollowProgress, ProgressView
from app.cli.say import say
from catalog.core.visible import visible


def choose_view(out: TextIO | None = None) -> ProgressView:
    """Bars need a terminal; a log file gets lines."""
    stream = out or sys.stderr
    return BarView(Console(file=stream)) if stream.isatty() else LineView(stream)


class LineView:
    """A line whenever the counts or the causes of a zone change."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown: dict[int, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, change: FollowedChange, progress: FollowProgress) -> None:
        reasons = f": {progress.reasons()}" if progress.causes else ""
        state = "converged" if progress.converged else "moving"
        line = f"{change.zone}: {state}, {progress.counts()}{reasons}"
        if self._shown.get(change.zone_id) != line:
            self._shown[change.zone_id] = line
            self.note(line)

    def note(self, text: str) -> None:
        say(text, out=self._out)


class BarView:
    """A bar a zone: partitions done of all, what moves, what waits and why."""

    def __init__(self, console: Console) -> None:
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
        )
        self._tasks: dict[int, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def update(self, change: FollowedChange, progress: FollowProgress) -> None:
        if change.zone_id not in self._tasks:
            self._tasks[change.zone_id] = self._bars.add_task(
                escape(visible(change.zone)), start=True, total=1, state=""
            )
        if progress.converged:
            state = "[green]converged[/green]"
        else:
            state = f"{progress.moving} moving, {progress.waiting} waiting"
            if progress.causes:
                state += f" [yellow]{escape(visible(progress.reasons()))}[/yellow]"
        # A dropped zone has no partitions left: an empty bar would look undone.
        total = max(1, progress.total)
        done = total if progress.converged else progress.done
        task = self._tasks[change.zone_id]
        self._bars.update(task, total=total, completed=done, state=state, refresh=True)

    def note(self, text: str) -> None:
        self._bars.console.print(escape(visible(text)))
