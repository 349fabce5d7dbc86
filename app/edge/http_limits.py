"""How much a request may be, and how long it may take to arrive."""

from __future__ import annotations

from dataclasses import dataclass

HEADER_BYTES_MAX = 64 << 10
"""Drivers send their prepared statements in headers."""
HEADER_LINES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """``header_s`` and ``body_s``: from the first byte of each to the last, whatever comes in between; a TLS
    handshake has ``header_s``, too. ``idle_s``: how long a connection is kept on which nothing is asked, longer
    than clients keep one (httpx: 5 s), or they would ask on it while it is being closed.
    ``connections_max``: open at once from one address on all ports, but for sockets of pages, once they are let
    in, and for proxies that are trusted."""

    body_bytes_max: int = 4 << 20
    header_s: float = 10.0
    body_s: float = 30.0
    idle_s: int = 15
    connections_max: int = 100
