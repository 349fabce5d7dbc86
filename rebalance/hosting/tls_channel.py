"""A channel of gRPC whose next calls show another certificate once the files have changed: gRPC itself keeps
the one that a channel was made with, for each connection that it makes anew."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial, partialmethod
from typing import Any

import grpc.aio

from rebalance.hosting.tls import TlsFiles


class TlsChannel:
    """Channel for stubs, in the place of gRPC's own. Calls that are under way, watches among them, end on the
    connection where they began."""

    def __init__(self, address: str, tls: TlsFiles, options: Sequence[tuple[str, Any]] = ()) -> None:
        self._address = address
        self._options = options
        self._tls = tls
        self._pem = tls.pem()
        self._channel = self._open()
        self._calls: Counter[Any] = Counter()
        """Calls under way, by channel."""
        self._retired: set[Any] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def _method(self, kind: str, *method: Any, **coding: Any) -> _Method:
        return _Method(self, kind, method, coding)

    unary_unary = partialmethod(_method, "unary_unary")
    unary_stream = partialmethod(_method, "unary_stream")
    stream_stream = partialmethod(_method, "stream_stream")

    async def close(self, grace: float | None = None) -> None:
        """Close; after ``grace`` seconds calls that are under way are cut off."""
        closed = (channel.close(grace) for channel in (self._channel, *self._retired))
        await asyncio.gather(*self._closing, *closed)

    def present(self) -> Any:
        pem = self._tls.pem()
        if pem is not self._pem:
            before, self._pem, self._channel = self._channel, pem, self._open()
            self._retired.add(before)
            self._close_unused(before)
        return self._channel

    def began(self, channel: Any, call: Any) -> None:
        self._calls[channel] += 1
        call.add_done_callback(partial(self._ended, channel))

    def _ended(self, channel: Any, _: Any) -> None:
        self._calls[channel] -= 1
        self._close_unused(channel)

    def _close_unused(self, channel: Any) -> None:
        if channel in self._retired and not self._calls[channel]:
            self._retired.remove(channel)
            del self._calls[channel]
            task = asyncio.get_running_loop().create_task(channel.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _open(self) -> Any:
        return grpc.aio.secure_channel(self._address, self._tls.credentials(), options=self._options)


class _Method:
    def __init__(self, owner: TlsChannel, kind: str, method: tuple[Any, ...], coding: dict[str, Any]) -> None:
        self._owner = owner
        self._kind = kind
        self._method = method
        self._coding = coding
        self._made: tuple[Any, Any] = (None, None)

    def __call__(self, *request: Any, **options: Any) -> Any:
        channel = self._owner.present()
        if self._made[0] is not channel:
            self._made = channel, getattr(channel, self._kind)(*self._method, **self._coding)
        call = self._made[1](*request, **options)
        self._owner.began(channel, call)
        return call
