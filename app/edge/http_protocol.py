"""uvicorn's HTTP protocol with a time limit on headers, which it has none of itself."""

from __future__ import annotations

import asyncio
import sys
from http import HTTPStatus
from typing import ClassVar, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.edge.connection_count import ConnectionCount
from app.edge.http_limits import HEADER_BYTES_MAX, HttpLimits
from app.edge.policies import headers_of
from app.edge.refusals import answer
from app.edge.request_rules import too_slow
from catalog.core.errors import ErrorKind, RefusedError


class BoundedProtocol(H11Protocol):
    """Headers must be whole some time after their first byte, however fast bytes come. A connection on which
    nothing was ever sent is closed after the same time without a word; one that has been answered, after
    uvicorn's own time."""

    limits: ClassVar[HttpLimits]
    count: ClassVar[ConnectionCount]
    counted: str | None = None
    """The address that the connection is counted for."""
    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        super().connection_made(transport)
        if self.counted is None:
            address = self.client[0] if self.client else ""
            if not self.count.take(address):
                transport.abort()
                return
            self.counted = address
        self._header_timer = self.loop.call_later(self.limits.header_s, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._discount()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        # Another protocol has the connection from now on, and is told of its end.
        self._stop_timer()
        self._discount()
        super().handle_websocket_upgrade(event)

    def _discount(self) -> None:
        if self.counted is not None:
            self.count.give_back(self.counted)
            self.counted = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._header_timer is None:
            # The next request of a connection that is kept.
            self._header_timer = self.loop.call_later(self.limits.header_s, self._give_up)

    def send_400_response(self, msg: str) -> None:
        """Called for what is no HTTP, while the parser's error is handled."""
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            message = f"a request's headers have at most {HEADER_BYTES_MAX} bytes"
            self._refuse(RefusedError(ErrorKind.HEADERS_TOO_LARGE, message))
        else:
            self._refuse(RefusedError(ErrorKind.REQUEST_MALFORMED, str(error or msg)))

    def _give_up(self) -> None:
        self._header_timer = None
        if self.transport.is_closing():
            return
        begun = bool(self.conn.trailing_data[0])
        if begun and self.conn.our_state is h11.IDLE:
            self._refuse(too_slow("header", self.limits.header_s))
        else:
            self.transport.close()

    def _refuse(self, refusal: RefusedError) -> None:
        """Where an answer can still be sent: not in the middle of another one."""
        self._stop_timer()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            status, headers, body = answer(refusal)
            events = (
                h11.Response(
                    status_code=status,
                    headers=[*headers, *headers_of("")],
                    reason=HTTPStatus(status).phrase.encode(),
                ),
                h11.Data(data=body),
                h11.EndOfMessage(),
            )
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def protocol_with(limits: HttpLimits, count: ConnectionCount) -> type[BoundedProtocol]:
    own = {"limits": limits, "count": count}
    return cast("type[BoundedProtocol]", type("Protocol", (BoundedProtocol,), own))
