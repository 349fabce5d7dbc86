"""Limits of one connection, of any caller: its bytes keep the event loop for a moment at most, a stranger's
body is not read, and sockets keep their places until they are let in."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

import pytest
import trustme
from starlette.types import Message, Receive, Scope, Send

from app.edge.headers import Fields
from app.edge.request_rules import HttpLimits
from app.edge.trust import Trust
from app.edge.uvicorn_server import listen, serve_http
from rebalance.hosting.client_connections import StrangerShare, let_in

KEPT_S = 0.05
WAIT_S = 120
PLACES = 20
BODY_MAX = 1 << 20
KNOWN, UNKNOWN = "Authorization: known", "Authorization: unknown"
HEAD = "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n{}\r\n{}\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked"
UPGRADE = (
    "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(b"k" * 16).decode() + "\r\n{}\r\n\r\n"
)

pytestmark = pytest.mark.timeout(600)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Gate:
    """An application that knows one caller, and has the length of each body that it has read."""

    lengths: list[int] = field(default_factory=list)
    messages: int = 0
    asked: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_known = Fields.of(scope).first(b"authorization") == "known"
        if scope["type"] == "websocket":
            await self._socket(is_known, receive, send)
            return
        if is_known:
            let_in()
            self.asked += 1
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            self.lengths.append(len(message["body"]))
        status = 200 if is_known else 401
        headers = [(b"content-length", b"4")]
        if not is_known:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"done"})

    async def _socket(self, is_known: bool, receive: Receive, send: Send) -> None:
        await receive()
        if not is_known:
            await send({"type": "websocket.http.response.start", "status": 401, "headers": []})
            await send({"type": "websocket.http.response.body", "body": b""})
            return
        await send({"type": "websocket.accept"})
        message: Message = {"type": "websocket.receive"}
        while message["type"] == "websocket.receive":
            message = await receive()
            self.messages += 1


class LoopWatch:
    """``longest_s``: processor time of the longest turn of this thread's event loop; a busy machine adds
    nothing to it."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._is_over = False

    async def run(self) -> None:
        before = time.thread_time()
        while not self._is_over:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_s, before = max(self.longest_s, now - before), now


@asynccontextmanager
async def watched() -> AsyncIterator[LoopWatch]:
    watch = LoopWatch()
    task = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def serving(
    gate: Gate, tls: ssl.SSLContext | None = None, strangers: StrangerShare | None = None
) -> AsyncIterator[int]:
    limits = HttpLimits(BODY_MAX, WAIT_S, WAIT_S, WAIT_S, PLACES)
    started = asyncio.Event()
    with listen("127.0.0.1", 0) as listener:
        task = asyncio.create_task(
            serve_http(gate, listener, started.set, Trust(), limits, tls and (lambda: tls), None, strangers)
        )
        await started.wait()
        yield int(listener.getsockname()[1])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def attack(port: int, data: bytes) -> bytes:
    """Answer up to the end of the connection, or up to the server's sign that it is done. Another thread sends,
    so the watched one spends nothing but its reading."""
    return await asyncio.to_thread(_attack, port, data)


def _attack(port: int, data: bytes) -> bytes:
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
        with suppress(ConnectionError):
            connection.sendall(data)
        with suppress(ConnectionError):
            while b"done" not in answer and (part := connection.recv(1 << 16)):
                answer += part
    return answer


def frame(opcode: int, payload: bytes = b"", *, is_last: bool = True) -> bytes:
    """Masked, as of a client."""
    assert len(payload) < 126
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return bytes([opcode | (0x80 if is_last else 0), 0x80 | len(payload)]) + mask + masked


ONE_BYTE = b"1\r\nx\r\n" * (BODY_MAX // 6)
EXTENSIONS = (b"1;" + b"e" * 8_000 + b"\r\nx\r\n") * 100
TRAILERS = b"0\r\n" + b"a: b\r\n" * 40_000 + b"\r\n"
BODIES = {"chunks of one byte": ONE_BYTE, "extensions of chunks": EXTENSIONS, "trailers": TRAILERS}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("caller", [KNOWN, UNKNOWN])
async def test_no_body_keeps_the_loop(name: str, caller: str) -> None:
    """Read no body of a stranger; bound a known caller's data that is no body."""
    gate = Gate()
    status, count = {KNOWN: (b"HTTP/1.1 400 ", 1), UNKNOWN: (b"HTTP/1.1 401 ", 8)}[caller]
    async with serving(gate) as port, watched() as watch:
        head = HEAD.format(caller, CHUNKED).encode()
        answers = await asyncio.gather(*(attack(port, head + BODIES[name]) for _ in range(count)))
    assert watch.longest_s < KEPT_S
    assert [answer[:13] for answer in answers] == [status] * count
    assert gate.lengths == []


async def test_chunks_that_are_no_attack_are_taken() -> None:
    """Many of one byte, and all others of some hundred."""
    gate = Gate()
    head = HEAD.format(KNOWN, CHUNKED).encode()
    bodies = [
        (2_000, b"1\r\nx\r\n" * 2_000),
        (512_000, (b"200\r\n" + b"x" * 512 + b"\r\n") * 1_000),
        (BODY_MAX, b"%x\r\n" % BODY_MAX + b"x" * BODY_MAX + b"\r\n"),
    ]
    async with serving(gate) as port, watched() as watch:
        for _, body in bodies:
            assert (await attack(port, head + body + b"0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    assert watch.longest_s < KEPT_S
    assert gate.lengths == [length for length, _ in bodies]


async def test_pipelined_requests_are_answered_in_order() -> None:
    """Answer pipelined requests in order, with either end of the body before them; none after a body that was
    not read."""
    gate = Gate()
    chunked = HEAD.format(KNOWN, CHUNKED).encode() + b"3\r\nabc\r\n0\r\n\r\n"
    whole = HEAD.format(KNOWN, "Content-Length: 4").encode() + b"four"
    async with serving(gate) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((chunked + whole) * 50)
        unknown = HEAD.format(UNKNOWN, CHUNKED).encode() + b"3\r\nabc\r\n0\r\n\r\n"
        writer.write(unknown + whole)
        async with asyncio.timeout(WAIT_S):
            answer = await reader.read()
        writer.close()
    assert (answer.count(b"HTTP/1.1 200 "), answer.count(b"HTTP/1.1 401 ")) == (100, 1)
    assert gate.lengths == [3, 4] * 50


@pytest.mark.parametrize(
    "lines",
    ["Content-Length: 4\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 0"],
)
async def test_a_body_has_one_length(lines: str) -> None:
    """And nothing behind it is taken for a request."""
    gate = Gate()
    behind = HEAD.format(KNOWN, "Content-Length: 0").encode()
    async with serving(gate) as port:
        answer = await attack(port, HEAD.format(KNOWN, lines).encode() + b"0\r\n\r\n" + behind)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"REQUEST_MALFORMED"' in answer
    assert b"connection: close" in answer
    assert answer.count(b"\r\ndate: ") == 1
    assert gate.asked == 0


async def test_strangers_wait_for_each_other_and_nobody_for_them() -> None:
    """Answer a connection that has logged in while no time is left for strangers, whose bytes stay unread; then
    the strangers are answered, too."""
    now_s = 0.0
    strangers = StrangerShare(clock=lambda: now_s)
    known, unknown = (
        HEAD.format(caller, "Content-Length: 4").encode() + b"four" for caller in (KNOWN, UNKNOWN)
    )
    async with serving(Gate(), None, strangers) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def asks() -> None:
            writer.write(known)
            async with asyncio.timeout(WAIT_S):
                assert b"200" in await reader.readuntil(b"done")

        await asks()
        assert strangers.ask("192.0.2.1", lambda: None, 0.1).is_over
        asking = [asyncio.create_task(attack(port, unknown + b"x" * BODY_MAX)) for _ in range(15)]
        async with asyncio.timeout(WAIT_S):
            while not strangers.waiting:
                await asks()
        for _ in range(100):
            await asks()
        assert strangers.waiting
        async with asyncio.timeout(WAIT_S):
            while not all(task.done() for task in asking):
                now_s += 1.0
                await asyncio.sleep(0.01)
        writer.close()
    assert [(await task)[:13] for task in asking] == [b"HTTP/1.1 401 "] * len(asking)


@pytest.mark.parametrize("line", [b"a:\r\n", b"a: " + b"b" * 60 + b"\r\n"])
async def test_no_head_keeps_the_loop(line: bytes) -> None:
    gate = Gate()
    data = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + line * (400_000 // len(line)) + b"\r\n"
    async with serving(gate) as port, watched() as watch:
        answer = await attack(port, data)
    assert watch.longest_s < KEPT_S
    assert answer.startswith(b"HTTP/1.1 431 ") or not answer


async def test_another_protocol_is_not_upgraded_to() -> None:
    """Cleartext HTTP/2 least of all: its request is one of HTTP/1.1."""
    gate = Gate()
    upgrade = "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__"
    async with serving(gate) as port:
        answer = await attack(port, HEAD.format(UNKNOWN, upgrade).encode())
        assert answer.startswith(b"HTTP/1.1 401 ")


class Upgrades:
    """WebSockets that are asked for, each with a connection of its own; they end with the context."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._tls = tls
        self._opened: list[asyncio.StreamWriter] = []

    async def __call__(self, caller: str) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)
        self._opened.append(writer)
        writer.write(UPGRADE.format(caller).encode())
        return reader, writer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self._opened:
            writer.transport.abort()
        for writer in self._opened:
            with suppress(OSError):
                await writer.wait_closed()


async def status_of(streams: Streams) -> bytes:
    with suppress(ConnectionError, ssl.SSLError):
        async with asyncio.timeout(WAIT_S):
            return (await streams[0].read(12))[9:]
    return b""


async def test_sockets_of_strangers_keep_their_places(caplog: pytest.LogCaptureFixture) -> None:
    """Keep the places of strangers' sockets, also while the other side takes no part in the end of its TLS
    connection; nothing is logged about it."""
    gate, authority = Gate(), trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)

    def refused(port: int) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        secure = client.wrap_socket(connection, server_hostname="127.0.0.1")
        secure.sendall(UPGRADE.format(UNKNOWN).encode())
        assert secure.recv(12)[9:] == b"401"
        return secure

    async with serving(gate, server) as port:
        with ExitStack() as stack:
            for _ in range(PLACES):
                stack.enter_context(await asyncio.to_thread(refused, port))
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await asyncio.to_thread(refused, port)
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []


async def test_a_socket_that_is_let_in_is_no_connection_of_its_address() -> None:
    async with serving(Gate()) as port, Upgrades(port) as upgraded:
        for _ in range(2 * PLACES):
            assert await status_of(await upgraded(KNOWN)) == b"101"


async def test_an_upgrade_that_is_none_ends() -> None:
    """End an upgrade with more headers than a WebSocket's may have: it gets no answer, and its place is free
    again."""
    many = "\r\n".join(f"x-{number}: y" for number in range(300))
    async with serving(Gate()) as port, Upgrades(port) as upgraded:
        for _ in range(2 * PLACES):
            assert await attack(port, UPGRADE.format(many).encode()) == b""
        assert await status_of(await upgraded(KNOWN)) == b"101"


FRAMES = {
    "messages of no bytes": frame(0x2) * 40_000,
    "pings": frame(0x9) * 40_000,
    "fragments of no bytes": frame(0x2, is_last=False) + frame(0x0, is_last=False) * 40_000,
}


@pytest.mark.parametrize("name", FRAMES)
async def test_no_frames_keep_the_loop(name: str) -> None:
    gate = Gate()
    async with serving(gate) as port, Upgrades(port) as upgraded:
        reader, writer = await upgraded(KNOWN)
        assert await status_of((reader, writer)) == b"101"
        async with watched() as watch, asyncio.timeout(WAIT_S):
            await sent(writer, FRAMES[name] + frame(0x8, b"\x03\xe8"))
            with suppress(ConnectionError):
                await reader.read()
    assert watch.longest_s < KEPT_S
    assert gate.messages == {"messages of no bytes": 40_001}.get(name, 1)


async def sent(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send data in parts, which cost this side little."""
    with suppress(ConnectionError):
        for at in range(0, len(data), 32 << 10):
            writer.write(data[at : at + (32 << 10)])
            await writer.drain()


async def test_frames_of_a_stranger_are_not_read() -> None:
    """Read no frames that come with the upgrade, before their sender is known."""
    gate = Gate()
    async with serving(gate) as port, watched() as watch:
        data = UPGRADE.format(UNKNOWN).encode() + frame(0x9) * 20_000
        assert b" 401 " in (await attack(port, data))[:20]
    assert watch.longest_s < KEPT_S
