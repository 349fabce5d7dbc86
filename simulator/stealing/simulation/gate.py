"""Requests pass, a change of state waits for those inside and keeps new ones out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Gate that keeps what a request has checked true until it ends: a stealer does not own a partition
    half-way."""

    def __init__(self) -> None:
        self._inside = 0
        self._changed = asyncio.Condition()
        self._is_changing = False

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._is_changing)
            self._inside += 1
        try:
            yield
        finally:
            async with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def change(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._is_changing)
            self._is_changing = True
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._inside)
            yield
        finally:
            async with self._changed:
                self._is_changing = False
                self._changed.notify_all()
