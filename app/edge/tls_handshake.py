"""HTTPS before its first request: a connection counts from its beginning on, and its handshake has a time."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, ClassVar

import structlog
from uvicorn.protocols.utils import get_remote_addr

from app.edge.http_protocol import BoundedProtocol

log = structlog.get_logger(__name__)

SHUTDOWN_S = 5.0
"""For the other side's part of the end of a TLS connection."""


class TlsHandshake(asyncio.Protocol):
    """Hands the connection over to HTTP when the handshake is done. What arrives before is kept: a client may
    send its request along with the end of its handshake."""

    http: ClassVar[type[BoundedProtocol]]
    tls: ClassVar[ssl.SSLContext]

    def __init__(self, **parts: Any) -> None:
        """``parts``: as uvicorn makes its protocols."""
        self._parts = parts
        self._arrived: list[bytes] = []
        self._is_over = False
        self._shaking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "of a socket"
        client = get_remote_addr(transport)
        address = client[0] if client else ""
        if not self.http.count.take(address):
            transport.abort()
            return
        # Nothing is read before TLS has the transport.
        transport.pause_reading()
        self._shaking = asyncio.create_task(self._shake(transport, address))

    def data_received(self, data: bytes) -> None:
        self._arrived.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True

    async def _shake(self, transport: asyncio.Transport, address: str) -> None:
        secure: asyncio.Transport | None = None
        try:
            secure = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                self.tls,
                server_side=True,
                ssl_handshake_timeout=self.http.limits.header_s,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except (OSError, asyncio.CancelledError) as error:
            # Among them TimeoutError, and what is no TLS.
            log.info("no TLS connection", address=address, reason=str(error))
        if secure is None or self._is_over:
            self.http.count.give_back(address)
            transport.abort()
            return
        protocol = self.http(**self._parts)
        protocol.counted = address
        secure.set_protocol(protocol)
        protocol.connection_made(secure)
        for data in self._arrived:
            protocol.data_received(data)


def tls_with(http: type[BoundedProtocol], tls: ssl.SSLContext) -> type[asyncio.Protocol]:
    return type("Handshake", (TlsHandshake,), {"http": http, "tls": tls})
