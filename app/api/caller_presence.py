"""What a request sets going ends when nobody waits for its answer any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Annotated, Any, TypeVar

from fastapi import Header, Request

from app.contract.keys import TIMEOUT_FIELD, TIMEOUT_MAX_S
from catalog.core.errors import ErrorKind, StoreError

T = TypeVar("T")

TimeoutField = Annotated[
    float | None,
    Header(
        alias=TIMEOUT_FIELD,
        gt=0,
        le=TIMEOUT_MAX_S,
        allow_inf_nan=False,
        description="seconds the client waits for the answer; the server starts nothing for the request after "
        "that",
    ),
]


class Deadline:
    """Of a request, from when its route begins. ``limit_s``: what its caller waits; None: the route's own."""

    def __init__(self, limit_s: float | None, own_s: float) -> None:
        self._at = time.monotonic() + (own_s if limit_s is None else limit_s)

    @property
    def left_s(self) -> float:
        return max(self._at - time.monotonic(), 0.0)


async def while_present(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """``work``, which is cancelled when the caller has closed its connection. Raises StoreError
    (OUTCOME_UNKNOWN) then, which nobody reads."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
    raise StoreError(ErrorKind.OUTCOME_UNKNOWN, "the caller has closed its connection")


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
