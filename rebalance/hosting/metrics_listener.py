"""A small HTTP listener for ``GET /metrics`` and ``GET /livez``, for processes without an API.

One request a connection, strict limits, nothing read after the headers. It knows neither who may ask nor what
is measured: whoever opens it sees to the address, and gives both.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus

import structlog

from rebalance.hosting.connection_places import ConnectionPlace, ConnectionPlaces
from rebalance.hosting.guarded_door import GuardedDoor

log = structlog.get_logger(__name__)

HEAD_BYTES_MAX = 8 * 1_024
TIME_LIMIT_S = 5.0
"""Time limit in seconds, from the connection to the last byte of the answer. A TLS handshake may take as long
again."""
CONNECTIONS_MAX = 8
"""Maximum connections from one address."""
ALL_CONNECTIONS_MAX = 64
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"

Body = Callable[[], bytes]
Admission = Callable[[str], bool]
"""Check of a request's ``Authorization`` header, empty without one; True: it is given the measurements."""


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class MetricsListener:
    """``body``: all series in Prometheus's text format; called in the event loop, so it is small. ``tls``:
    asked for each connection; None: plain HTTP."""

    def __init__(
        self,
        listener: socket.socket,
        body: Body,
        admits: Admission,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._listener = listener
        self._body = body
        self._admits = admits
        self._tls = tls
        self._places = ConnectionPlaces(CONNECTIONS_MAX, ALL_CONNECTIONS_MAX)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    async def run(self) -> None:
        """Run until cancelled; connections that are open then are closed."""
        server = await asyncio.get_running_loop().create_server(
            lambda: GuardedDoor(self._places, self._protocol, self._tls and self._tls(), TIME_LIMIT_S),
            # A copy: a task that is started again finds the socket open.
            sock=self._listener.dup(),
        )
        async with server:
            await server.serve_forever()

    def _protocol(self, place: ConnectionPlace) -> asyncio.Protocol:
        reader = asyncio.StreamReader(HEAD_BYTES_MAX)
        return asyncio.StreamReaderProtocol(reader, partial(self._serve, place))

    async def _serve(
        self, place: ConnectionPlace, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(TIME_LIMIT_S):
                writer.write(await self._answer(reader))
                await writer.drain()
        except (TimeoutError, OSError):
            writer.transport.abort()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            place.give_back()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            path, authorization = await _requested(reader)
            if path == "/livez":
                return _response(HTTPStatus.OK, b"ok\n")
            if path == "/metrics" and not self._admits(authorization):
                raise _RefusedError(HTTPStatus.UNAUTHORIZED)
            if path == "/metrics":
                return _response(HTTPStatus.OK, self._body(), CONTENT_TYPE)
            raise _RefusedError(HTTPStatus.NOT_FOUND)
        except _RefusedError as refused:
            return _response(refused.status, f"{refused.status.phrase}\n".encode())
        except Exception as error:
            log.error("metrics not written", error=f"{type(error).__name__}: {error}")
            return _response(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the log\n")


async def _requested(reader: asyncio.StreamReader) -> tuple[str, str]:
    """The path of a GET, without its query, and what logs in; empty: nothing, or more than one header of it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise _RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from error
    except asyncio.IncompleteReadError as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST) from error
    words = head.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise _RefusedError(HTTPStatus.BAD_REQUEST)
    if words[0] != b"GET":
        raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED)
    fields = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    shown = [value.strip().decode("latin-1") for name, _, value in fields if name.lower() == b"authorization"]
    return words[1].partition(b"?")[0].decode("latin-1"), shown[0] if len(shown) == 1 else ""


_MORE = {
    HTTPStatus.METHOD_NOT_ALLOWED: "Allow: GET\r\n",
    HTTPStatus.UNAUTHORIZED: 'WWW-Authenticate: Bearer realm="metrics"\r\n',
}


def _response(status: HTTPStatus, body: bytes, content_type: str = PLAIN) -> bytes:
    more = _MORE.get(status, "")
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nX-Content-Type-Options: nosniff\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode() + body
