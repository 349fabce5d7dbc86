"""The client for programs without an event loop; it keeps one in a thread of its own.

with BlockingZoneClient() as client:
    client.put("ORDERS", "customer-17", "paid")
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from app.client.local_server import DATA_DIR
from app.client.zone_client import Found, KeyWriteOptions, Mode, Read, Stored, ZoneClient
from rebalance.groups.router import TIME_LIMIT_S
from rebalance.hosting.tls import TlsFiles


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
        self._make = partial(
            ZoneClient,
            tuple(urls),
            mode=mode,
            time_limit_s=time_limit_s,
            tls=tls,
            token=token,
            authority=authority,
            data_dir=data_dir,
        )
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal: BlockingPortal = stack.enter_context(start_blocking_portal("asyncio"))
            # Made in the loop's thread: its channels belong to that loop.
            client = self._portal.call(self._made)
            self._client: ZoneClient = stack.enter_context(self._portal.wrap_async_context_manager(client))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def put(
        self,
        zone: str,
        key: str,
        value: str,
        operation_id: str | None = None,
        **options: Unpack[KeyWriteOptions],
    ) -> Stored:
        """As ``ZoneClient.put``."""
        return self._portal.call(partial(self._client.put, zone, key, value, operation_id, **options))

    def delete(
        self, zone: str, key: str, operation_id: str | None = None, **options: Unpack[KeyWriteOptions]
    ) -> Stored:
        """As ``ZoneClient.delete``."""
        return self._portal.call(partial(self._client.delete, zone, key, operation_id, **options))

    def get(
        self,
        zone: str,
        key: str,
        *,
        read: Read = Read.LINEARIZABLE,
        at_revision: int | None = None,
        limit_s: float | None = None,
    ) -> Found | None:
        """As ``ZoneClient.get``."""
        get = partial(self._client.get, read=read, at_revision=at_revision, limit_s=limit_s)
        return self._portal.call(get, zone, key)

    async def _made(self) -> ZoneClient:
        return self._make()
