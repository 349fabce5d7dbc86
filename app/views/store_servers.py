"""Store servers: those that take part, those that are missing, and the copies that they report, read from all
of them at once within a limit of time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from app.views.keyspace_views import KeyspaceViews
from catalog.core.zone import STORE_ENGINE
from rebalance.controllers.ring_mirror import RingReader, ServerAddress
from rebalance.core.causes.cause import Cause
from rebalance.hosting.tls import TlsFiles
from rebalance.store.core.store_copy import ListedCopy, listed_copies
from rebalance.store.shell.store_client import StoreChannel, StoreUnreachableError, server_url


def servers_up(views: KeyspaceViews) -> dict[str, bool]:
    """True or False by living node that keeps store zones: its server takes part. Empty while there is no store
    zone."""
    ownership = views.ownership
    if not ownership.ring.cluster.zones:
        return {}
    nodes = (record.node for record in views.live_records().values())
    keeping = {node.name for node in nodes if STORE_ENGINE in dict(node.engines).values()}
    return {name: name in ownership.servers for name in sorted(keeping)}


LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class ServerCopies:
    """Copies that a server reports; None: it did not answer, for ``reason``."""

    name: str
    copies: tuple[ListedCopy, ...] | None
    reason: str = ""


class StoreCopies:
    """Reader of the copies of all store servers. It has its own connections and closes them after each
    question, since only people ask, and seldom."""

    def __init__(self, ring: RingReader, tls: TlsFiles | None = None, limit_s: float = LIMIT_S) -> None:
        self._ring = ring
        self._tls = tls
        self._limit_s = limit_s

    async def read(self) -> tuple[ServerCopies, ...]:
        """Copies of all servers that take part, in the order of their names."""
        return tuple(await asyncio.gather(*map(self._of, sorted(self._ring.shown.servers))))

    async def _of(self, name: str) -> ServerCopies:
        address = self._ring.address(name)
        if address is None:
            return ServerCopies(name, None, Cause.NO_ANSWER.text("where it listens is not known"))
        try:
            return ServerCopies(name, await self._asked(name, address))
        except (StoreUnreachableError, ValueError) as error:
            return ServerCopies(name, None, Cause.NO_ANSWER.text(str(error)))

    async def _asked(self, name: str, at: ServerAddress) -> tuple[ListedCopy, ...]:
        channel = StoreChannel(server_url(at.host, at.port, name, at.incarnation), self._tls)
        try:
            answer = await channel.copies(self._limit_s)
            # Thousands of rows: the loop goes on meanwhile.
            return await asyncio.to_thread(lambda: tuple(listed_copies(answer)))
        finally:
            await channel.close()
