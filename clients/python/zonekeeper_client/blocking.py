"""The client for programs without an event loop; it keeps one in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Self, TypeVar, Unpack

from zonekeeper_client.local_server import DATA_DIR
from zonekeeper_client.tls import TlsFiles
from zonekeeper_client.zone_client import (
    TIME_LIMIT_S,
    Found,
    KeyWriteOptions,
    Mode,
    Read,
    Stored,
    ZoneClient,
)

T = TypeVar("T")


class BlockingZoneClient:
    """``ZoneClient``, call by call; safe to share between threads. Use it in a ``with``."""

    def __init__(
        self,
        urls: Sequence[str] = (),
        *,
        mode: Mode = Mode.ROUTED,
        time_limit_s: float = TIME_LIMIT_S,
        tls: TlsFiles | None = None,
        token: str = "",
        authority: str = "",
        data_dir: Path = DATA_DIR,
    ) -> None:
        self._new_client = partial(
            ZoneClient,
            tuple(urls),
            mode=mode,
            time_limit_s=time_limit_s,
            tls=tls,
            token=token,
            authority=authority,
            data_dir=data_dir,
        )

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="zonekeeper client", daemon=True)
        self._thread.start()
        try:
            self._client = self._done(self._made())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._done(self._client.close())
        finally:
            self._end()

    def put(
        self,
        zone: str,
        key: str,
        value: str,
        operation_id: str | None = None,
        **options: Unpack[KeyWriteOptions],
    ) -> Stored:
        """Put a key as ``ZoneClient.put`` does."""
        return self._done(self._client.put(zone, key, value, operation_id, **options))

    def delete(
        self, zone: str, key: str, operation_id: str | None = None, **options: Unpack[KeyWriteOptions]
    ) -> Stored:
        """Delete a key as ``ZoneClient.delete`` does."""
        return self._done(self._client.delete(zone, key, operation_id, **options))

    def get(
        self,
        zone: str,
        key: str,
        *,
        read: Read = Read.LINEARIZABLE,
        at_revision: int | None = None,
        limit_s: float | None = None,
    ) -> Found | None:
        """Get a key as ``ZoneClient.get`` does."""
        return self._done(self._client.get(zone, key, read=read, at_revision=at_revision, limit_s=limit_s))

    async def _made(self) -> ZoneClient:
        """Make the client in the loop's thread, since its connections belong to that loop."""
        return self._new_client()

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        """The result; what is interrupted is cancelled."""
        result = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return result.result()
        except BaseException:
            result.cancel()
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        # Of calls that were interrupted.
        if left := asyncio.all_tasks(self._loop):
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(left))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
