"""Partitions whose copies the node's store server keeps: its agent leaves them alone, and starts the server
once there may be one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from catalog.core.zone import STORE_ENGINE, Node, ZoneId, ZoneIntent, zone_engine
from rebalance.core.keys import Keyspace
from rebalance.core.readable import Unreadable, read
from rebalance.core.txn import KeyValue
from rebalance.hosting.background import Work
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore

STORE_DIRECTORY = "store"
"""Below the node's data directory: the files of its store server."""


class StorePartitions:
    """By the zone's profiles and what keeps these on ``node``. Nothing is read where no profile names the
    engine ``store``."""

    def __init__(self, node: Node, metastore: Metastore, keyspace: Keyspace, data_dir: Path) -> None:
        self._node = node
        self._directory = data_dir / STORE_DIRECTORY
        self._keyspace = keyspace
        self._intents = KeyspaceMirror(metastore, keyspace.intents)
        self._known: dict[ZoneId, tuple[KeyValue | None, bool]] = {}
        """By zone the answer of its intent, which is asked for with each partition."""
        self.is_used = any(engine == STORE_ENGINE for _, engine in node.engines)

    async def run(self) -> None:
        """Until cancelled."""
        await self._intents.run()

    def once_used(self, server: Work) -> Work:
        """``server`` from when there is a zone for it, or at once where it has run before: a node without
        either does not pay for one."""

        async def run() -> None:
            if not self._directory.is_dir():
                await self._begun()
            await server()

        return run

    async def _begun(self) -> None:
        begun = asyncio.Event()

        def look(changed: Iterable[str]) -> None:
            if any(map(self._is_kept, changed)):
                begun.set()

        ignore = self._intents.listen(look)
        look([item.key for item in self._intents.below(self._keyspace.intents)])
        try:
            await begun.wait()
        finally:
            ignore()

    def _is_kept(self, intent_key: str) -> bool:
        intent = read(self._intents.get(intent_key), ZoneIntent.decode)
        if intent is None or isinstance(intent, Unreadable) or intent.dropped:
            return False
        return zone_engine(intent.zone, (self._node,)) == STORE_ENGINE

    def keeps(self, zone_id: ZoneId) -> bool | None:
        """None: the zone is not known yet, or cannot be read."""
        if not self.is_used:
            return False
        item = self._intents.get(self._keyspace.intent(zone_id))
        known = self._known.get(zone_id)
        if known is not None and known[0] is item:
            return known[1]
        intent = read(item, ZoneIntent.decode)
        if intent is None or isinstance(intent, Unreadable):
            return None
        is_kept = zone_engine(intent.zone, (self._node,)) == STORE_ENGINE
        self._known[zone_id] = item, is_kept
        return is_kept
