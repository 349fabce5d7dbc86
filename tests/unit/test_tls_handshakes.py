"""A server that accepts connections and never says hello, as one that is stopped does."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from app.client.requests import Request
from app.client.servers import ServerFailedError, Servers
from rebalance.hosting.tls_handshakes import closed_handshakes

WAIT_S = 60.0


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
            await servers.ask(Request("GET", "/api/v1/zones", dict), 0.5)
        await silent.closed.wait()
        await servers.close()
    assert silent.open == 0
