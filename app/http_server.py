"""uvicorn inside our own process: its signals are ours, it stops when its task is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

GRACE_S = 3
BACKLOG = 512


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


async def serve_http(app: FastAPI, listener: socket.socket, on_started: Callable[[], None]) -> None:
    """Until cancelled; requests that run get ``GRACE_S`` to finish."""
    config = uvicorn.Config(
        app,
        # The console's packages bring another parser, which uvicorn would take by itself.
        http="h11",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        on_started()
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await serving
