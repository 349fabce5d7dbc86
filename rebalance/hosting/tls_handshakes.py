"""Corrections of what httpcore leaves to its users in TLS handshakes.

- One that is cancelled, as it is by a limit on the whole request, leaves its connection open: httpcore closes
  it after errors and its own limits, and not then. Source: the events of its ``trace`` extension
  (``connection.connect_tcp``, ``connection.start_tls``).
- It names the protocols (ALPN) anew in the shared context before each handshake. OpenSSL frees the old names
  then, and a connection that another thread makes meanwhile sends what is there instead.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Self

CONNECTED = "connection.connect_tcp.complete"
NOT_SECURED = "connection.start_tls.failed"

Trace = Callable[[str, Mapping[str, Any]], Awaitable[None]]


def closed_handshakes() -> dict[str, Trace]:
    """``extensions`` of one request of ``httpx.AsyncClient``: the connection that it opens is closed where its
    handshake fails for any reason."""
    opened: list[Any] = []

    async def noted(event: str, details: Mapping[str, Any]) -> None:
        if event == CONNECTED:
            opened[:] = [details["return_value"]]
        elif event == NOT_SECURED:
            for stream in opened:
                await stream.aclose()

    return {"trace": noted}


class SharedContext(ssl.SSLContext):
    """Context for the clients of several threads: protocols that it names already are not named anew."""

    _named: tuple[str, ...] = ()

    @classmethod
    def trusting(cls, authority: str) -> Self:
        """``authority`` (PEM) has signed the server's certificate; empty: one that the system trusts.

        Raises ssl.SSLError.
        """
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        if authority:
            context.load_verify_locations(cadata=authority)
        else:
            context.load_default_certs()
        context.set_alpn_protocols(["http/1.1"])
        return context

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        names = tuple(alpn_protocols)
        if names != self._named:
            super().set_alpn_protocols(names)
            self._named = names
