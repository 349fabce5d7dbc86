"""Work for a client ends when the client is gone, but for what comes to its end anyway."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request
from starlette.types import Message

from app.api.statements import while_connected
from app.sql.statements.script_reader import to_the_end
from catalog.core.errors import ErrorKind, RefusedError


class Client:
    """``leaves`` is set when the connection ends."""

    def __init__(self) -> None:
        self.leaves = asyncio.Event()
        self.request = Request({"type": "http"}, self._receive)

    async def _receive(self) -> Message:
        await self.leaves.wait()
        return {"type": "http.disconnect"}


class Endless:
    """Work that only a cancellation ends."""

    was_cancelled = False

    async def work(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


async def test_short_work_is_answered_even_when_the_client_has_left() -> None:
    client = Client()
    client.leaves.set()

    async def work() -> int:
        return 1

    assert await while_connected(client.request, work()) == 1


async def test_whoever_hangs_up_ends_the_work() -> None:
    client, endless = Client(), Endless()
    client.leaves.set()
    with pytest.raises(RefusedError) as refused:
        await while_connected(client.request, endless.work())
    assert refused.value.kind is ErrorKind.STATEMENT_CANCELED
    assert endless.was_cancelled


async def test_a_change_that_has_begun_is_carried_out_and_answered() -> None:
    client, release = Client(), asyncio.Event()

    async def commit() -> str:
        await release.wait()
        return "committed"

    change = asyncio.ensure_future(commit())
    answering = asyncio.create_task(while_connected(client.request, to_the_end(change)))
    client.leaves.set()
    asyncio.get_running_loop().call_later(0.5, release.set)
    assert await answering == "committed"


async def test_a_server_that_stops_takes_the_work_along() -> None:
    client, endless = Client(), Endless()
    answering = asyncio.create_task(while_connected(client.request, endless.work()))
    while not answering.done():
        await asyncio.sleep(0)
        answering.cancel()
    assert answering.cancelled()
    await asyncio.sleep(0)
    assert endless.was_cancelled
