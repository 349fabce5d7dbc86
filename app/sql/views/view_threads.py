"""Threads in which rows of views are made, so that a zone of 65,000 partitions delays nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from app.sql.views.view_snapshot import SystemSnapshot
from catalog.core.errors import ErrorKind, RefusedError

T = TypeVar("T")

THREADS = 4
"""One more than queries run at once, so that nobody who only asks for a list waits for theirs."""


class ViewThreads:
    """``close`` ends them."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="views")

    async def run(self, snapshot: SystemSnapshot, work: Callable[[], T]) -> T:
        """``work`` on the snapshot. Raises RefusedError (QUERY_TIMEOUT). When given up, the thread stops at its
        next checkpoint."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await loop.run_in_executor(self._threads, work)
        except TimeoutError as error:
            message = f"reading the views took longer than {self._timeout_s:g} s"
            raise RefusedError(ErrorKind.QUERY_TIMEOUT, message) from error
        finally:
            snapshot.given_up.set()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
