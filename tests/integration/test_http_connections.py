"""How many connections one address may hold open at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio
from starlette.responses import PlainTextResponse

from app.edge.http_limits import HttpLimits
from app.edge.trust import Trust
from app.edge.uvicorn_server import listen, serve_http

CONNECTIONS_MAX = 5
PROXY, HOME, ELSEWHERE = "127.0.0.2", "127.0.0.1", "127.0.0.3"
WAIT_S = 60
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

pytestmark = pytest.mark.timeout(300)


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    limits = HttpLimits(idle_s=WAIT_S, header_s=WAIT_S, connections_max=CONNECTIONS_MAX)
    started = asyncio.Event()
    with listen("127.0.0.1", 0) as listener:
        trust = Trust.parse(proxies=PROXY)
        app = PlainTextResponse("here")
        serving = asyncio.create_task(serve_http(app, listener, started.set, trust, limits))
        async with asyncio.timeout(WAIT_S):
            await started.wait()
        yield listener.getsockname()[1]
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


async def connect(port: int, address: str = HOME) -> Streams:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))


async def is_answered(streams: Streams) -> bool:
    reader, writer = streams
    writer.write(REQUEST)
    try:
        async with asyncio.timeout(WAIT_S):
            return (await reader.read(12)) == b"HTTP/1.1 200"
    except ConnectionError:
        return False


async def close(*all_streams: Streams) -> None:
    for _, writer in all_streams:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_an_address_has_so_many_connections_and_no_more(port: int) -> None:
    kept = [await connect(port) for _ in range(CONNECTIONS_MAX)]
    assert [await is_answered(streams) for streams in kept] == [True] * CONNECTIONS_MAX
    one_more = await connect(port)
    assert not await is_answered(one_more)
    elsewhere = await connect(port, ELSEWHERE)
    assert await is_answered(elsewhere)
    await close(kept.pop(), one_more)
    async with asyncio.timeout(WAIT_S):
        while not await is_answered(another := await connect(port)):
            await close(another)
    await close(another, elsewhere, *kept)


async def test_a_trusted_proxy_has_as_many_as_it_needs(port: int) -> None:
    kept = [await connect(port, PROXY) for _ in range(3 * CONNECTIONS_MAX)]
    assert all([await is_answered(streams) for streams in kept])
    await close(*kept)
