"""The background tasks of one process, and what goes wrong in them that nothing expected.

A task that should live as long as its process and ends, with an exception or without, is an error: it is logged
as one, reported by ``troubles``, and started again after a backoff. Nothing else of the process ends
with it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import structlog

from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.records import Trouble

log = structlog.get_logger(__name__)

RESTART = Backoff(0.5, 30.0)
STEADY_S = 60.0
"""A task that has run this long since it was started again is in order."""

Work = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class _Task:
    """``since``: when it was started, or ended (the event loop's seconds)."""

    since: float
    runs: bool = True
    ends: int = 0
    cause: str = ""
    restart: Backoff = RESTART


class Background:
    """One per process. Without ``restarts`` an end is raised instead, as tests want to see it."""

    def __init__(self, *, restarts: bool = True) -> None:
        self.defects = 0
        """Failures of single rounds that were not expected, since the process started."""
        self.last_defect = ""
        self.is_registered = False
        """True while the process tells its troubles with its own entry."""
        self._restarts = restarts
        self._tasks: dict[str, _Task] = {}
        self._held: dict[str, str] = {}
        self._chance = random.Random()

    @property
    def tasks(self) -> int:
        """Tasks that are kept now."""
        return len(self._tasks)

    async def keep(self, name: str, work: Work, final: tuple[type[Exception], ...] = ()) -> None:
        """Runs ``work`` until cancelled, again and again where it ends. Raises ``final`` errors only: those
        that the whole process is to end for."""
        loop = asyncio.get_running_loop()
        task = self._tasks[name] = _Task(loop.time())
        try:
            while True:
                try:
                    await work()
                    error: Exception | None = None
                except final:
                    raise
                except Exception as raised:
                    error = raised
                if not self._restarts:
                    raise error or RuntimeError(f"{name} has ended")
                await asyncio.sleep(self._note_end(name, task, error, loop.time()))
                task.runs, task.since = True, loop.time()
        finally:
            self._tasks.pop(name, None)

    async def attempt(self, name: str, work: Work) -> None:
        """Runs ``work`` once; what it raises is a defect and stops nothing else."""
        try:
            await work()
        except Exception as error:
            self.defect(name, error)

    def defect(self, where: str, error: Exception, **fields: object) -> None:
        """A round has failed with what nothing expected, and is tried again by the caller."""
        self.defects += 1
        self.last_defect = f"{where}: {describe(error)}"
        log.error("defect", where=where, error=describe(error), exc_info=error, **fields)

    def hold(self, name: str, cause: str) -> None:
        """Hold a task back: it is not started again before somebody has removed ``cause``; empty: it is."""
        if cause:
            self._held[name] = cause
        else:
            self._held.pop(name, None)

    def troubles(self) -> tuple[Trouble, ...]:
        """Return the tasks that are held or not in order, by name."""
        now = asyncio.get_running_loop().time()
        held = (Trouble(name, 0, cause, runs=False) for name, cause in sorted(self._held.items()))
        ended = (
            Trouble(name, task.ends, task.cause, task.runs)
            for name, task in sorted(self._tasks.items())
            if task.ends and not (task.runs and now - task.since > STEADY_S)
        )
        return (*held, *ended)

    def _note_end(self, name: str, task: _Task, error: Exception | None, now: float) -> float:
        """Seconds until it is started again."""
        before = RESTART if now - task.since > STEADY_S else task.restart
        task.runs, task.since, task.ends, task.restart = False, now, task.ends + 1, before.failed()
        task.cause = describe(error) if error is not None else "it returned"
        delay_s = task.restart.delay_s(self._chance.random())
        log.error(
            "background task ended",
            task=name,
            ends=task.ends,
            error=task.cause,
            again_in_s=round(delay_s, 1),
            exc_info=error,
        )
        return delay_s


@contextmanager
def cancellation_kept() -> Iterator[None]:
    """Cancel the task where a call inside has swallowed that: one of grpc.aio that fails in the moment of a
    cancellation raises its own error, or returns, and the task would go on for ever."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    except Exception:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from None
        raise
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


@asynccontextmanager
async def kept(background: Background, name: str, work: Work) -> AsyncIterator[None]:
    """``work`` is kept for as long as the block runs."""
    task = asyncio.create_task(background.keep(name, work), name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def describe(error: BaseException) -> str:
    """One line. Of a group: its first cause, which a task group wraps."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
