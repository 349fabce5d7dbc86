"""The server's side of the sandbox: processes kept warm, one query at a time in each, ended when time is over.

A query waits for its turn (``app.sql.statements.statement_line``) before anything is read for it. One that is
cancelled or takes too long takes its process along; a spare one stands by already. Times count from the moment
in which a query begins; how long it may wait for that is a limit of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

from app.requests.context import current_actor, current_principal, current_scope
from app.sql.query.sandbox import UTC, read_frame, write_frame
from app.sql.statements.results import AnswerColumn, ResultSet, ResultType
from app.sql.statements.statement_line import (
    LineLimits,
    QueryClient,
    QueryEntry,
    QueryLine,
    Ticket,
    current_statement_id,
    has_waited,
)
from catalog.core.errors import ErrorKind, RefusedError, StatementError
from catalog.core.messages import Position
from parser.select import PreparedQuery
from rebalance.hosting.child import environment, guarded_command

log = structlog.get_logger(__name__)

START_TIMEOUT_S = 20.0
"""Time that a new process has to start, on top of what the query itself may take."""
SHOWN_CHARS_MAX = 1000
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
"""All that a sandbox gets to know of this machine."""

Load = Callable[[], Awaitable[Mapping[str, bytes]]]
"""Reads the tables of a query whose turn it is: Arrow streams by the names that it uses."""


_QueryAnswer = tuple[dict[str, Any], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """``timeout_s`` counts from when a query begins, ``waiting_s`` until then. ``cheap_s`` is the processor's
    time of one that was taken for cheap: when it is used up, the query goes back into the line and begins again
    as any other. (The time on the wall would say how busy the machine is.)"""

    timeout_s: float = 10.0
    rows_max: int = 100_000
    waiting_s: float = 60.0
    cheap_s: float = 1.0
    line: LineLimits = field(default_factory=LineLimits)


@dataclass(slots=True)
class _Turn:
    """A query between its arrival and its end."""

    ticket: Ticket
    statement_id: str
    sql: str
    arrived_s: float
    begun_s: float | None = None
    begins: asyncio.Event = field(default_factory=asyncio.Event)


class SandboxPool:
    """Belongs to one event loop, that of the main thread: a sandbox dies with the thread that spawned it.

    ``spares`` is how many processes stand by."""

    def __init__(self, limits: QueryLimits, spares: int = 1) -> None:
        self._limits = limits
        self._line = QueryLine(limits.line)
        self._turns: dict[int, _Turn] = {}
        self._spares = spares
        self._idle: list[_Sandbox] = []
        # A killed process is waited for in a thread, beside those that ask.
        self._threads = ThreadPoolExecutor(2 * limits.line.places, thread_name_prefix="query")
        self._closed = False

    def warm(self) -> None:
        """Starts all that stand by: neither the first query nor a cheap one beside it need wait for theirs."""
        while len(self._idle) < self._spares and not self._closed:
            self._idle.append(_Sandbox())

    def _take(self, is_cheap: bool) -> _Sandbox:
        """The process that stands by the longest is for cheap queries while others run."""
        alone = len(self._line.running) == 1
        if self._idle and (is_cheap or alone or len(self._idle) > 1):
            sandbox = self._idle.pop(0 if is_cheap else -1)
        else:
            sandbox = _Sandbox()
        self.warm()
        return sandbox

    @property
    def queries(self) -> tuple[QueryEntry, ...]:
        """Queries that run, and then those that wait, in the order of their turns."""
        now_s = time.monotonic()
        entries = [self._entry(ticket, 0, now_s) for ticket in self._line.running]
        waiting = enumerate(self._line.waiting(), start=1)
        return (*entries, *(self._entry(ticket, position, now_s) for position, ticket in waiting))

    def position(self, statement_id: str) -> int | None:
        """Position in line of a logged statement whose query waits, from 1; None when it does not wait."""
        waiting = enumerate(self._line.waiting(), start=1)
        ids = ((position, self._turns[ticket.number].statement_id) for position, ticket in waiting)
        return next((position for position, running_id in ids if running_id == statement_id), None)

    async def run(
        self, query: PreparedQuery, load: Load, *, is_cheap: bool = False, time_zone: str = UTC
    ) -> ResultSet:
        """``load`` is awaited when the query's turn has come, and again if it must begin anew.

        Raises StatementError."""
        async with self._turn(query, is_cheap) as turn:
            try:
                if is_cheap:
                    with suppress(_NotCheapError):
                        return await self._result(query, load, time_zone, self._limits.cheap_s)
                    self._line.demote(turn.ticket.number)
                    await self._begins(turn)
                return await self._result(query, load, time_zone)
            except TimeoutError as error:
                message = f"the query took longer than {self._limits.timeout_s:g} s and was ended"
                raise RefusedError(ErrorKind.QUERY_TIMEOUT, message) from error

    @asynccontextmanager
    async def _turn(self, query: PreparedQuery, is_cheap: bool) -> AsyncIterator[_Turn]:
        actor = current_actor()
        client = QueryClient(actor.address, actor.name, current_principal(), current_scope())
        ticket = self._line.arrive(client, is_cheap=is_cheap, has_waited=has_waited())
        shown = " ".join(query.text.split())[:SHOWN_CHARS_MAX]
        turn = _Turn(ticket, current_statement_id(), shown, time.monotonic())
        self._turns[ticket.number] = turn
        try:
            await self._begins(turn)
            yield turn
        finally:
            self._line.leave(ticket.number)
            del self._turns[ticket.number]
            self._admit()

    async def _begins(self, turn: _Turn) -> None:
        """Raises RefusedError (QUERY_WAIT_TIMEOUT)."""
        turn.begins.clear()
        turn.begun_s = None
        self._admit()
        try:
            async with asyncio.timeout(self._limits.waiting_s):
                await turn.begins.wait()
        except TimeoutError as error:
            message = f"the query waited {self._limits.waiting_s:g} s for its turn, and was not begun"
            raise RefusedError(ErrorKind.QUERY_WAIT_TIMEOUT, message) from error

    def _admit(self) -> None:
        for ticket in self._line.admit():
            turn = self._turns[ticket.number]
            turn.begun_s = time.monotonic()
            turn.begins.set()

    def _entry(self, ticket: Ticket, position: int, now_s: float) -> QueryEntry:
        turn = self._turns[ticket.number]
        begun_s = turn.begun_s if turn.begun_s is not None else now_s
        waited_ms, ran_ms = int((begun_s - turn.arrived_s) * 1000), int((now_s - begun_s) * 1000)
        return QueryEntry(
            turn.statement_id, position, ticket.client, ticket.is_cheap, waited_ms, ran_ms, turn.sql
        )

    async def _result(
        self, query: PreparedQuery, load: Load, time_zone: str, cpu_s_max: float | None = None
    ) -> ResultSet:
        """Raises TimeoutError when its time is over, _NotCheapError, StatementError."""
        header = {
            "sql": query.sql,
            "rows_max": self._limits.rows_max,
            "time_zone": time_zone,
            "user": current_actor().name,
            "columns": [(column.name, column.zone) for column in query.columns],
        }
        sandbox = self._take(cpu_s_max is not None)
        try:
            await self._started(sandbox)
            async with asyncio.timeout(self._limits.timeout_s):
                tables = dict(await load())
                answer, rows = await self._answer_of(sandbox, header, tables, cpu_s_max)
        except BaseException as error:
            self._end(sandbox)
            if isinstance(error, EOFError | OSError) and not isinstance(error, TimeoutError):
                raise _lost(sandbox, error) from error
            raise
        if self._closed or len(self._idle) > self._spares:
            self._end(sandbox)
        else:
            self._idle.append(sandbox)
        if "error" in answer:
            raise _refusal(answer, query)
        columns = tuple(AnswerColumn(name, ResultType(kind)) for name, kind in answer["columns"])
        return ResultSet(columns=columns, rows=rows)

    async def _answer_of(
        self, sandbox: _Sandbox, header: dict[str, Any], tables: dict[str, bytes], cpu_s_max: float | None
    ) -> _QueryAnswer:
        asking = asyncio.get_running_loop().run_in_executor(self._threads, sandbox.ask, header, tables)
        try:
            if cpu_s_max is not None:
                begun_s = sandbox.cpu_s()
                while not (await asyncio.wait([asking], timeout=cpu_s_max))[0]:
                    if sandbox.cpu_s() - begun_s >= cpu_s_max:
                        raise _NotCheapError
            return await asking
        finally:
            asking.cancel()

    async def _started(self, sandbox: _Sandbox) -> None:
        """Raises EOFError, and StatementError when it takes too long."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await asyncio.get_running_loop().run_in_executor(self._threads, sandbox.await_ready)
        except TimeoutError as error:
            raise _not_started() from error

    def _end(self, sandbox: _Sandbox) -> None:
        """Killed at once; the kernel may take a while to take its memory back."""
        sandbox.kill()
        if self._closed:
            sandbox.reap()
        else:
            self._threads.submit(sandbox.reap)

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            self._end(self._idle.pop())
        self._threads.shutdown(wait=False)


class _NotCheapError(Exception):
    """A query has used up what a cheap one may."""


class _Sandbox:
    def __init__(self) -> None:
        # -I: neither the environment nor the current directory say where code comes from.
        self._process = subprocess.Popen(
            guarded_command([sys.executable, "-I", "-m", "app.sql.query.sandbox"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment((), ENVIRONMENT),
            start_new_session=True,
        )
        self.is_ready = False

    def await_ready(self) -> None:
        """Blocks. Raises EOFError when the process cannot start."""
        assert self._process.stdout is not None
        if not self.is_ready and read_frame(self._process.stdout) is None:
            raise EOFError("the sandbox did not start")
        self.is_ready = True

    def ask(self, header: dict[str, Any], tables: dict[str, bytes]) -> _QueryAnswer:
        """The answer and its rows. Blocks. Raises EOFError or OSError when the process ends first."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        write_frame(self._process.stdin, header, tables)
        frame = read_frame(self._process.stdout)
        if frame is None:
            raise EOFError("the sandbox ended without an answer")
        answer, blobs = frame
        # One blob after another: the interpreter's lock is free for the event loop in between.
        return answer, [tuple(row) for blob in blobs.values() for row in json.loads(blob)]

    def cpu_s(self) -> float:
        """The processor's time that the process has had; of one that is gone, none."""
        with suppress(OSError), open(f"/proc/{self._process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def kill(self) -> None:
        """A caller that waits in ``ask`` gets an EOFError or an OSError."""
        self._process.kill()

    def reap(self) -> None:
        """Blocks until a killed process is gone."""
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(OSError, ValueError):
                stream.close()


def _lost(sandbox: _Sandbox, error: Exception) -> StatementError:
    """Error for a process that ended by itself: it lacked memory, unless it was never ready."""
    log.warning("a sandbox ended by itself", ready=sandbox.is_ready, reason=str(error))
    if not sandbox.is_ready:
        return _not_started()
    message = "the query needs more memory than a query may use, and was ended"
    return RefusedError(ErrorKind.QUERY_MEMORY_LIMIT, message)


def _not_started() -> StatementError:
    return StatementError(ErrorKind.INTERNAL_ERROR, "the process that queries run in could not start")


def _refusal(answer: dict[str, Any], query: PreparedQuery) -> RefusedError:
    kind = ErrorKind[answer["error"]]
    if answer.get("detail"):
        # It may have literals of the query.
        log.debug("a query's error has no words of ours", error=kind.name, detail=answer["detail"])
    position: Position | None = query.places.get(str(answer.get("near") or "").rpartition(".")[2].lower())
    return RefusedError(kind, answer["message"], position)
