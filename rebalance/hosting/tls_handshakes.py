"""What a TLS handshake leaves open when it is cancelled, as it is by a limit on the whole request: httpcore
closes its connection after errors and its own limits, and not then.

Source: the events of httpcore's ``trace`` extension (``connection.connect_tcp``, ``connection.start_tls``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

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
