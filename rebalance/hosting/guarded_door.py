"""The beginning of each connection to a listener of ours: its address takes a place before anything is read, a
TLS handshake has its turn and a time, and only then the connection's own protocol has it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from rebalance.hosting.connection_places import ConnectionPlace, ConnectionPlaces
from rebalance.hosting.stranger_share import HANDSHAKE_S, StrangerShare, StrangerTurn

log = structlog.get_logger(__name__)

SHUTDOWN_S = 5.0
"""Time in seconds for the other side's part of the end of a TLS connection."""

Make = Callable[[ConnectionPlace], asyncio.Protocol]
"""The protocol of a connection, which gives the place back."""


class GuardedDoor(asyncio.Protocol):
    """Protocol before a server's own, for the handshake; what arrives before that is done is kept: a client may
    send its request along with its end. ``tls`` None: there is none. ``strangers`` None: handshakes wait for
    nothing."""

    def __init__(
        self,
        places: ConnectionPlaces,
        make: Make,
        tls: ssl.SSLContext | None,
        handshake_s: float,
        strangers: StrangerShare | None = None,
    ) -> None:
        self._strangers = strangers
        self._turn: StrangerTurn | None = None
        self._place: ConnectionPlace | None = None
        self._places = places
        self._make = make
        self._tls = tls
        self._handshake_s = handshake_s
        self._arrived: list[bytes] = []
        self._is_over = False
        self._shaking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is none of asyncio's classes.
        stream: asyncio.Transport = transport  # type: ignore[assignment]
        address = _address_of(stream)
        place = self._places.take(address, stream.abort)
        if place is None:
            stream.abort()
        elif self._tls is None:
            self._hand_over(stream, place)
        else:
            # Nothing is read before TLS has the transport; uvloop pauses none that does not read yet.
            stream.pause_reading()
            self._place = place
            begin = partial(self._begin, stream, self._tls, place, address)
            if self._strangers is None or not place.is_counted:
                begin()
            else:
                self._turn = self._strangers.ask(address, begin, HANDSHAKE_S)

    def data_received(self, data: bytes) -> None:
        self._arrived.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        if self._turn is not None:
            self._turn.forget()
        if self._shaking is None and self._place is not None:
            self._place.give_back()

    def _begin(
        self, transport: asyncio.Transport, tls: ssl.SSLContext, place: ConnectionPlace, address: str
    ) -> None:
        self._shaking = asyncio.create_task(self._shake(transport, tls, place, address))

    async def _shake(
        self, transport: asyncio.Transport, tls: ssl.SSLContext, place: ConnectionPlace, address: str
    ) -> None:
        loop = asyncio.get_running_loop()
        secure: asyncio.Transport | None = None
        try:
            started = loop.create_task(
                loop.start_tls(
                    transport,
                    self,
                    tls,
                    server_side=True,
                    ssl_handshake_timeout=self._handshake_s,
                    ssl_shutdown_timeout=SHUTDOWN_S,
                )
            )
            await asyncio.sleep(0)
            early, self._arrived = b"".join(self._arrived), []
            if early:
                # After TLS has heard of its connection, and before more is read.
                loop.call_soon(_feed, transport.get_protocol(), early)
            secure = await started
        except (OSError, RuntimeError, asyncio.CancelledError) as error:
            # Among them TimeoutError, what is no TLS, and uvloop's RuntimeError of a transport that has closed.
            log.info("no TLS connection", address=address, reason=str(error))
        if secure is None or self._is_over:
            place.give_back()
            transport.abort()
            return
        self._hand_over(secure, place)

    def _hand_over(self, transport: asyncio.Transport, place: ConnectionPlace) -> None:
        try:
            protocol = self._make(place)
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            for data in self._arrived:
                protocol.data_received(data)
        except Exception:
            # Nobody is told of the end of a connection that has closed before it began.
            place.give_back()
            transport.abort()
            raise


def _feed(tls: Any, data: bytes) -> None:
    """``tls``: a BufferedProtocol."""
    while data:
        buffer = tls.get_buffer(len(data))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        tls.buffer_updated(size)
        data = data[size:]


def _address_of(transport: asyncio.Transport) -> str:
    """Empty: it has gone already, or has none."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""
