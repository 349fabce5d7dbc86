"""Handshakes with a server that accepts connections and never says hello, as one that is stopped does; and
handshakes of several threads at once."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx
import pytest

from rebalance.hosting.tls_handshakes import SharedContext, closed_handshakes
from zonekeeper_client.servers import Request, ServerFailedError, Servers

WAIT_S = 60.0
# A plain context sends wrong protocols in one of 2,000, or more.
HELLOS = 30_000
TURN_S = 2e-5
ALPN = b"\x08http/1.1"


class SilentServer:
    """``open``: connections that its clients have not closed."""

    def __init__(self) -> None:
        self.open = 0
        self.greeted = asyncio.Event()
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        await reader.read(1)
        self.greeted.set()
        await reader.read()
        self.open -= 1
        self.closed.set()
        writer.close()

    async def started(self) -> tuple[asyncio.Server, str]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return server, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_request_that_is_cancelled_in_its_handshake_closes_its_connection() -> None:
    silent = SilentServer()
    server, url = await silent.started()
    async with server, httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as client, asyncio.timeout(WAIT_S):
        asking = asyncio.create_task(client.get(url, extensions=closed_handshakes()))
        await silent.greeted.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await silent.closed.wait()
    assert silent.open == 0


async def test_a_client_that_gives_a_hung_server_up_closes_its_connection() -> None:
    silent = SilentServer()
    server, url = await silent.started()
    servers = Servers([url])
    async with server, asyncio.timeout(WAIT_S):
        with pytest.raises(ServerFailedError):
            await servers.ask(Request("GET", "/api/v1/zones"), 0.5)
        await silent.closed.wait()
        await servers.close()
    assert silent.open == 0


def client_hello(context: ssl.SSLContext) -> bytes:
    sent = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return sent.read()


@pytest.fixture
def short_turns() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("short_turns")
def test_threads_that_connect_at_once_say_what_they_speak() -> None:
    """httpcore names the protocols before each handshake: here one thread does nothing else."""
    context = SharedContext.trusting("")
    is_over = Event()

    def rename() -> None:
        while not is_over.is_set():
            context.set_alpn_protocols(["http/1.1"])

    with ThreadPoolExecutor(4) as threads:
        renaming = threads.submit(rename)
        try:
            hellos = list(threads.map(client_hello, [context] * HELLOS))
        finally:
            is_over.set()
        renaming.result()
    assert [hello for hello in hellos if ALPN not in hello] == []


def test_other_protocols_are_named_when_they_change() -> None:
    context = SharedContext.trusting("")
    context.set_alpn_protocols(["h2", "http/1.1"])
    assert b"\x02h2" + ALPN in client_hello(context)
