"""uvicorn inside our own process: its signals are ours, it stops when its task is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from app.edge.middleware import Edge
from app.edge.protocols import BoundedSocket, protocol_with
from app.edge.request_rules import HEADER_BYTES_MAX, HttpLimits
from app.edge.trust import Trust
from rebalance.hosting.client_connections import (
    ConnectionPlace,
    ConnectionPlaces,
    GuardedDoor,
    StrangerShare,
    connections_bound,
)

GRACE_S = 3
BACKLOG = 512
"""Connections that wait in the kernel."""
ACCEPTED_AT_ONCE = 8
"""asyncio takes as many before it does anything else as it has let wait."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process decides what a signal means: uvicorn would raise it again in the middle of our clean-up.
        yield


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one. Raises OSError, naming the address, when it is taken."""
    try:
        listener = socket.create_server((host, port), backlog=BACKLOG)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    # Inherited by each connection. asyncio sets it only on sockets whose protocol number says TCP, which an
    # accepted one's does not; without it an answer waits 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def places_of(limits: HttpLimits, trust: Trust) -> ConnectionPlaces:
    """Places for connections, of all ports of a server together."""
    return ConnectionPlaces(limits.connections_max, connections_bound(), is_exempt=trust.is_proxy)


async def serve_http(
    app: ASGIApp,
    listener: socket.socket,
    on_started: Callable[[], None],
    trust: Trust | None = None,
    limits: HttpLimits | None = None,
    tls: Callable[[], ssl.SSLContext] | None = None,
    connections: ConnectionPlaces | None = None,
    strangers: StrangerShare | None = None,
) -> None:
    """Serve until cancelled; requests that run get ``GRACE_S`` seconds to finish. Without ``trust`` no proxy is
    believed. ``tls`` gives the context of HTTPS, for each connection anew. ``connections``: places of all ports
    of the server; None: it has no other port. ``strangers``: likewise, turns of all ports; None: no login is
    required."""
    limits, trust = limits or HttpLimits(), trust or Trust()
    places = connections or places_of(limits, trust)
    http = protocol_with(limits, strangers)

    def door(**parts: Any) -> GuardedDoor:
        def protocol(place: ConnectionPlace) -> asyncio.Protocol:
            return http(place, **parts)

        return GuardedDoor(places, protocol, tls and tls(), limits.header_s, strangers)

    config = uvicorn.Config(
        Edge(app, trust, limits),
        http=cast("type[asyncio.Protocol]", door),
        ws=BoundedSocket,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        timeout_keep_alive=limits.idle_s,
        ws_max_size=limits.body_bytes_max,
        # The edge knows which proxies to believe; uvicorn would believe everybody on this machine.
        proxy_headers=False,
        lifespan="off",
        log_config=None,
        backlog=ACCEPTED_AT_ONCE,
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    config.load()
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        listener.listen(BACKLOG)
        on_started()
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await serving
