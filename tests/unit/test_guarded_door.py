"""A connection that goes wrong at its beginning gives its place back, whatever goes wrong."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trustme
import uvloop

from rebalance.hosting.client_connections import ConnectionPlace, ConnectionPlaces, GuardedDoor, StrangerShare

LIMIT_S = 60.0
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Closed(ssl.SSLContext):
    """TLS context of a transport that closed before its handshake: uvloop says so by a RuntimeError."""

    def wrap_bio(self, *_: Any, **__: Any) -> ssl.SSLObject:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")


class Broken(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")


@asynccontextmanager
async def door(
    places: ConnectionPlaces,
    protocol: type[asyncio.Protocol],
    tls: ssl.SSLContext | None,
    strangers: StrangerShare | None = None,
) -> AsyncIterator[int]:
    def make(_: ConnectionPlace) -> asyncio.Protocol:
        return protocol()

    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: GuardedDoor(places, make, tls, LIMIT_S, strangers), "127.0.0.1", 0
    )
    async with server:
        yield server.sockets[0].getsockname()[1]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("is_tls", [False, True])
def test_a_beginning_that_fails_gives_its_place_back(
    is_tls: bool, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """The failure is in the handshake, or in what comes behind it."""

    async def three_times() -> None:
        places = ConnectionPlaces(1, 1)
        tls = Closed(ssl.PROTOCOL_TLS_SERVER) if is_tls else None
        async with door(places, Broken, tls) as port:
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                async with asyncio.timeout(LIMIT_S):
                    with suppress(ConnectionError):
                        assert await reader.read() == b""
                writer.close()
                await until(lambda: places.open == 0)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.get_loop().set_exception_handler(lambda *_: None)
        runner.run(three_times())


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_handshake_waits_for_its_turn(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """And one whose place another connection needs meanwhile is forgotten."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)

    async def waits() -> None:
        now_s = 0.0
        strangers = StrangerShare(clock=lambda: now_s)
        assert strangers.ask("192.0.2.1", lambda: None, 0.04).is_over
        places = ConnectionPlaces(1, 1, newest_first=True)
        async with door(places, asyncio.Protocol, server, strangers) as port:
            silent = await asyncio.open_connection("127.0.0.1", port)
            await until(lambda: strangers.waiting == 1)
            shaking = asyncio.create_task(asyncio.open_connection("127.0.0.1", port, ssl=client))
            with suppress(ConnectionError):
                assert await silent[0].read() == b""
            await until(lambda: strangers.waiting == 2)
            assert not shaking.done()
            now_s = 100.0
            async with asyncio.timeout(LIMIT_S):
                _, writer = await shaking
            assert places.open == 1
            writer.transport.abort()
            silent[1].close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(waits())
