"""Bounds on the connections of one address, over HTTP and HTTPS together, and on the time of a handshake."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest
import pytest_asyncio
import trustme
from starlette.responses import PlainTextResponse

from app.edge.request_rules import HttpLimits
from app.edge.trust import Trust
from app.edge.uvicorn_server import listen, places_of, serve_http

CONNECTIONS_MAX = 5
PROXY, HOME, ELSEWHERE = "127.0.0.2", "127.0.0.1", "127.0.0.3"
WAIT_S = 60
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

pytestmark = pytest.mark.timeout(300)


AUTHORITY = trustme.CA()


@dataclass(frozen=True)
class Ports:
    """Ports of one server, whose connections count together."""

    http: int
    https: int


@asynccontextmanager
async def serving(header_s: float = WAIT_S) -> AsyncIterator[Ports]:
    limits = HttpLimits(idle_s=WAIT_S, header_s=header_s, connections_max=CONNECTIONS_MAX)
    trust = Trust.parse(proxies=PROXY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    connections = places_of(limits, trust)
    started = (asyncio.Event(), asyncio.Event())
    app = PlainTextResponse("here")
    with listen("127.0.0.1", 0) as plain, listen("127.0.0.1", 0) as secure:
        tasks = [
            asyncio.create_task(serve_http(app, listener, event.set, trust, limits, tls, connections))
            for listener, event, tls in zip((plain, secure), started, (None, lambda: context), strict=True)
        ]
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*(event.wait() for event in started))
        yield Ports(plain.getsockname()[1], secure.getsockname()[1])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest_asyncio.fixture
async def ports() -> AsyncIterator[Ports]:
    async with serving() as opened:
        yield opened


async def connect(port: int, address: str = HOME) -> Streams:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))


async def connect_securely(port: int, address: str = HOME) -> Streams:
    """Raises ConnectionError or ssl.SSLError when the server takes no handshake."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0), ssl=context)


async def is_answered(streams: Streams) -> bool:
    reader, writer = streams
    writer.write(REQUEST)
    try:
        async with asyncio.timeout(WAIT_S):
            return (await reader.read(12)) == b"HTTP/1.1 200"
    except ConnectionError:
        return False


async def end_of(streams: Streams) -> None:
    """Wait until the server has ended the connection, without an answer."""
    with suppress(ConnectionError):
        async with asyncio.timeout(WAIT_S):
            assert b"HTTP" not in await streams[0].read()
    await close(streams)


async def close(*all_streams: Streams) -> None:
    for _, writer in all_streams:
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def test_an_address_has_so_many_connections_and_no_more(ports: Ports) -> None:
    kept = [await connect(ports.http) for _ in range(CONNECTIONS_MAX)]
    assert [await is_answered(streams) for streams in kept] == [True] * CONNECTIONS_MAX
    one_more = await connect(ports.http)
    assert not await is_answered(one_more)
    elsewhere = await connect(ports.http, ELSEWHERE)
    assert await is_answered(elsewhere)
    await close(kept.pop(), one_more)
    async with asyncio.timeout(WAIT_S):
        while not await is_answered(another := await connect(ports.http)):
            await close(another)
    await close(another, elsewhere, *kept)


async def test_a_connection_without_a_request_is_idle_and_not_slow() -> None:
    """Begin the time of a header with its first bytes, not with the end of the answer before."""
    async with serving(header_s=1.5) as ports:
        kept = await connect(ports.http)
        reader, writer = kept
        for _ in range(2):
            writer.write(REQUEST)
            async with asyncio.timeout(WAIT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                await reader.readexactly(len("here"))
            await asyncio.sleep(2.5)
        writer.write(REQUEST[:20])
        async with asyncio.timeout(WAIT_S):
            assert (await reader.read()).startswith(b"HTTP/1.1 408")
        await close(kept)


async def test_both_ports_count_together(ports: Ports) -> None:
    kept = [await connect_securely(ports.https) for _ in range(CONNECTIONS_MAX - 1)]
    assert all([await is_answered(streams) for streams in kept])
    last = await connect(ports.http)
    assert await is_answered(last)
    await end_of(await connect(ports.http))
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await connect_securely(ports.https)
    await close(last, *kept)


async def test_a_connection_counts_before_its_handshake_is_done(ports: Ports) -> None:
    """Count connections that only reach the port of HTTPS: they use up the address's share."""
    silent = [await connect(ports.https) for _ in range(CONNECTIONS_MAX)]
    await end_of(await connect(ports.https))
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await connect_securely(ports.https)
    elsewhere = await connect_securely(ports.https, ELSEWHERE)
    assert await is_answered(elsewhere)
    await close(*silent)
    async with asyncio.timeout(WAIT_S):
        while True:
            with suppress(ConnectionError, ssl.SSLError):
                another = await connect_securely(ports.https)
                break
    assert await is_answered(another)
    await close(another, elsewhere)


async def test_a_handshake_has_a_time() -> None:
    """Silent, begun and not gone on with, and none at all: each ends, and its place is free again."""
    async with serving(header_s=1.0) as ports:
        for beginning in (b"", b"\x16\x03\x01\x02\x00\x01", REQUEST):
            halves = [await connect(ports.https) for _ in range(CONNECTIONS_MAX)]
            for _, writer in halves:
                writer.write(beginning)
            for half in halves:
                await end_of(half)
        whole = await connect_securely(ports.https)
        assert await is_answered(whole)
        await close(whole)


async def test_a_request_that_comes_with_the_end_of_its_handshake_is_answered(ports: Ports) -> None:
    """Answer a request in the segment that ends the handshake, as TLS 1.3 lets clients send it."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    secure = context.wrap_bio(received, sent, server_hostname="127.0.0.1")
    streams = reader, writer = await connect(ports.https)
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                secure.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(sent.read())
                received.write(await reader.read(1 << 16))
        secure.write(REQUEST)
        writer.write(sent.read())
        while True:
            try:
                assert secure.read(12) == b"HTTP/1.1 200"
                break
            except ssl.SSLWantReadError:
                received.write(await reader.read(1 << 16))
    await close(streams)


async def test_a_trusted_proxy_has_as_many_as_it_needs(ports: Ports) -> None:
    kept = [await connect(ports.http, PROXY) for _ in range(3 * CONNECTIONS_MAX)]
    kept += [await connect_securely(ports.https, PROXY) for _ in range(3 * CONNECTIONS_MAX)]
    assert all([await is_answered(streams) for streams in kept])
    await close(*kept)
