"""The server's side of the sandbox: processes kept warm, one query at a time in each, ended when time is over.

A query that is cancelled or takes too long takes its process along; the next query gets a new one. At most
``workers`` run at once, others wait for their turn for a while.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from app.sql.results import Column, ColumnType, ResultSet
from app.sql.sandbox import read_frame, write_frame
from catalog.core.errors import ErrorKind, RefusedError, StatementError
from catalog.core.messages import Position
from parser.select import PreparedQuery
from rebalance.hosting.child import guarded_command
from rebalance.hosting.environment import environment

log = structlog.get_logger(__name__)

WORKERS = 2
START_TIMEOUT_S = 20.0
"""For waiting and for a new process, on top of what the query itself may take."""
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
"""All that a sandbox is told of this machine."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    timeout_s: float = 10.0
    rows_max: int = 100_000


class SandboxPool:
    """Belongs to one event loop, that of the main thread: a sandbox dies with the thread that spawned it."""

    def __init__(self, limits: QueryLimits, workers: int = WORKERS) -> None:
        self._limits = limits
        self._turn = asyncio.Semaphore(workers)
        self._idle: list[_Sandbox] = []
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="query")
        self._closed = False

    def warm(self) -> None:
        """Starts one process, so that the first query need not wait for it."""
        if not self._idle and not self._closed:
            self._idle.append(_Sandbox())

    async def run(self, query: PreparedQuery, tables: Mapping[str, bytes]) -> ResultSet:
        """``tables`` are Arrow streams by the names that ``query`` uses. Raises StatementError."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S + self._limits.timeout_s), self._turn:
                answer = await self._answer(query, dict(tables))
        except TimeoutError as error:
            message = f"the query took longer than {self._limits.timeout_s:g} s and was ended"
            raise RefusedError(ErrorKind.QUERY_TIMEOUT, message) from error
        if "error" in answer:
            raise _refusal(answer, query)
        columns = tuple(Column(name, ColumnType(kind)) for name, kind in answer["columns"])
        return ResultSet(columns=columns, rows=[tuple(row) for row in answer["rows"]])

    async def _answer(self, query: PreparedQuery, tables: dict[str, bytes]) -> dict[str, Any]:
        sandbox = self._idle.pop() if self._idle else _Sandbox()
        header = {"sql": query.sql, "rows_max": self._limits.rows_max}
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._threads, sandbox.await_ready)
            async with asyncio.timeout(self._limits.timeout_s):
                answer = await loop.run_in_executor(self._threads, sandbox.ask, header, tables)
        except BaseException as error:
            sandbox.kill()
            if isinstance(error, EOFError | OSError) and not isinstance(error, TimeoutError):
                raise _lost(sandbox, error) from error
            raise
        if self._closed:
            sandbox.kill()
        else:
            self._idle.append(sandbox)
        return answer

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().kill()
        self._threads.shutdown(wait=False)


class _Sandbox:
    def __init__(self) -> None:
        # -I: neither the environment nor the current directory say where code comes from.
        self._process = subprocess.Popen(
            guarded_command([sys.executable, "-I", "-m", "app.sql.sandbox"]),
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

    def ask(self, header: dict[str, Any], tables: dict[str, bytes]) -> dict[str, Any]:
        """Blocks. Raises EOFError or OSError when the process ends first."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        write_frame(self._process.stdin, header, tables)
        frame = read_frame(self._process.stdout)
        if frame is None:
            raise EOFError("the sandbox ended without an answer")
        return frame[0]

    def kill(self) -> None:
        """Whoever waits in ``ask`` gets an EOFError or an OSError."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(OSError, ValueError):
                stream.close()


def _lost(sandbox: _Sandbox, error: Exception) -> StatementError:
    """Why a process ended by itself: memory, unless it has never run."""
    log.warning("a sandbox ended by itself", ready=sandbox.is_ready, reason=str(error))
    if not sandbox.is_ready:
        return StatementError(ErrorKind.INTERNAL_ERROR, "the process that queries run in could not start")
    message = "the query needs more memory than a query may use, and was ended"
    return RefusedError(ErrorKind.QUERY_MEMORY_LIMIT, message)


def _refusal(answer: dict[str, Any], query: PreparedQuery) -> RefusedError:
    kind = ErrorKind[answer["error"]]
    position: Position | None = query.places.get(str(answer.get("near") or "").rpartition(".")[2].lower())
    return RefusedError(kind, answer["message"], position)
