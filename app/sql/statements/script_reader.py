"""Parsing of SQL text within limits; long texts are parsed in two threads of their own, in turns for their
senders, while these wait."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from app.requests.context import current_actor
from catalog.core.messages import Command
from parser.hidden_secrets import hide_secrets
from parser.queries import QueryPiece, cut_script, parse_statement
from parser.script import check_size
from parser.text import DEFAULT_LIMITS, NEVER, ScriptLimits, StopFlag
from parser.to_command import parse_ddl
from rebalance.hosting.fair_queue import FairThread

T = TypeVar("T")
P = ParamSpec("P")

SHORT_CHARS = 1_000
"""Cutting and reading so much takes less than handing it to a thread and back; queries take longer."""
LONG_CHARS = 65_536
"""Longer texts have a thread of their own, so that short ones do not wait for them."""


class ScriptReader:
    """One server's readers. Belongs to an event loop; ``close`` ends the threads.

    A caller that is cancelled while it waits stops its reading: the thread ends at its next checkpoint.
    """

    def __init__(self, limits: ScriptLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self._short = FairThread("parser")
        self._long = FairThread("long parser")

    async def script(self, sql: str) -> tuple[QueryPiece, ...]:
        """The statements of a script of any kind. Raises ParseError."""
        return await self._read(sql, partial(cut_script, sql, self.limits))

    async def statement(self, sql: str) -> QueryPiece:
        """The one statement of a text. Raises ParseError."""
        return await self._read(sql, partial(parse_statement, sql, self.limits))

    async def changes(self, sql: str, limits: ScriptLimits | None = None) -> tuple[Command, ...]:
        """The statements of a script that changes the catalog. Raises ParseError."""
        return await self._read(sql, partial(parse_ddl, sql, limits or self.limits), limits)

    async def shown(self, sql: str) -> str:
        """The text as it may be kept: without the secrets that it holds."""
        return await self._read(sql, lambda _: hide_secrets(sql))

    async def run(
        self, size: int, work: Callable[Concatenate[StopFlag, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Any other work on texts of ``size`` characters; it looks at the flag it is given."""
        stop = StopFlag()
        read = partial(work, stop, *args, **kwargs)
        is_long = size > LONG_CHARS
        thread, work_of = (self._long, partial(_uncollected, read)) if is_long else (self._short, read)
        try:
            return await thread.run(current_actor().sender, work_of)
        finally:
            stop.set()

    def close(self) -> None:
        for thread in (self._short, self._long):
            thread.close(wait=False)

    async def _read(self, sql: str, read: Callable[[StopFlag], T], limits: ScriptLimits | None = None) -> T:
        check_size(sql, limits or self.limits)
        return read(NEVER) if len(sql) <= SHORT_CHARS else await self.run(len(sql), read)


class _Collections:
    """The garbage collector rests while long texts are read. Up to 200,000 tokens are no garbage, and each look
    through all of them holds every request up for 0.1 to 0.2 s. The limits bound the memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0

    def __enter__(self) -> None:
        with self._lock:
            self._readers += 1
            gc.disable()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._readers -= 1
            if not self._readers:
                gc.enable()


_COLLECTIONS = _Collections()


def _uncollected(read: Callable[[], T]) -> T:
    with _COLLECTIONS:
        return read()


async def to_the_end(work: asyncio.Future[T]) -> T:
    """The result of ``work``, which goes on after a first cancellation, so that its commits and its result
    count. A second one ends it."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if work.cancelled():
            raise
        return await work
