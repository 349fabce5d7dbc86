"""Bodies of statements: not read beyond their limit; and work for a client ends when the client is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Message

from app.services import Services
from catalog.core.errors import ErrorKind, ParseError, RefusedError

T = TypeVar("T")

JSON_BYTES = 4
"""JSON may write one byte of text as this many: \\u0000 for two of UTF-8, \\" for one."""
JSON_MORE_BYTES = 65_536
"""What a body may hold beside its texts."""


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


class BoundedRoute(APIRoute):
    """A route whose JSON body holds texts: one that is too long for them is refused before it is read whole."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            services = request.app.state.services
            assert isinstance(services, Services)
            bytes_max = JSON_BYTES * services.reader.limits.text_bytes_max + JSON_MORE_BYTES
            _check(int(request.headers.get("content-length", "0")), bytes_max)
            size = 0
            too_large: ParseError | None = None

            async def receive() -> Message:
                nonlocal size, too_large
                message = await request.receive()
                size += len(message.get("body", b""))
                try:
                    _check(size, bytes_max)
                except ParseError as error:
                    # The framework makes a 400 of any other exception while it reads a body.
                    too_large = error
                    raise HTTPException(413) from error
                return message

            try:
                return await handle(Request(request.scope, receive))
            except HTTPException:
                if too_large is not None:
                    raise too_large from None
                raise

        return bounded


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """The result of ``work``, which is cancelled when the client hangs up: changes that have begun are carried
    out to their end, and nobody hears of it. The body must have been read."""
    running = asyncio.ensure_future(work)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait([running, gone], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
            await asyncio.wait([running])
        if running.cancelled():
            raise RefusedError(ErrorKind.STATEMENT_CANCELED, "the client went away; nothing was changed")
        return running.result()
    finally:
        gone.cancel()
        running.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        message = f"a body with statements has at most {bytes_max} bytes here"
        raise ParseError(ErrorKind.TEXT_TOO_LARGE, message)
