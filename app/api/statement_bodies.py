"""Bodies of statements: not read beyond their limit; and work for a client ends when the client is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from fastapi import Request

from catalog.core.errors import ErrorKind, ParseError, RefusedError

T = TypeVar("T")

WATCHED_AFTER_S = 0.1
"""What is done sooner need not know whether anybody is there to hear of it."""


async def read_body(request: Request, bytes_max: int) -> bytes:
    """Raises ParseError (TEXT_TOO_LARGE) as soon as it is known, without reading on."""
    _check(int(request.headers.get("content-length", "0")), bytes_max)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        _check(size, bytes_max)
        parts.append(part)
    return b"".join(parts)


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """The result of ``work``, which is cancelled when the client hangs up: changes that have begun are carried
    out to their end, and nobody hears of it. The body must have been read."""
    running = asyncio.ensure_future(work)
    gone: asyncio.Task[None] | None = None
    try:
        await asyncio.wait([running], timeout=WATCHED_AFTER_S)
        if not running.done():
            gone = asyncio.create_task(_gone(request))
            await asyncio.wait([running, gone], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
            await asyncio.wait([running])
        if running.cancelled():
            raise RefusedError(ErrorKind.STATEMENT_CANCELED, "the client went away; nothing was changed")
        return running.result()
    finally:
        if gone is not None:
            gone.cancel()
        running.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        message = f"a body with statements has at most {bytes_max} bytes here"
        raise ParseError(ErrorKind.TEXT_TOO_LARGE, message)
