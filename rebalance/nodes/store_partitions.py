"""Partitions whose copies the node's store server keeps: its agent leaves them alone, and starts the server
once there may be one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from catalog.core.zone import STORE_ENGINE, Node, ZoneId, zone_engine
from rebalance.core.keyspace.keys import Keyspace
from rebalance.hosting.background import Work
from rebalance.nodes.member_starts import StrongZones

STORE_DIRECTORY = "store"
"""Below the node's data directory: the files of its store server."""


class StorePartitions:
    """Partitions that store servers keep, by the profiles of ``zones`` and what keeps these on ``node``; none
    where no profile names the engine ``store``."""

    def __init__(self, node: Node, zones: StrongZones, keyspace: Keyspace, data_dir: Path) -> None:
        self._node = node
        self._zones = zones
        self._keyspace = keyspace
        self._directory = data_dir / STORE_DIRECTORY
        self._is_used = any(engine == STORE_ENGINE for _, engine in node.engines)

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

        intents = self._zones.intents
        ignore = intents.listen(look)
        look([item.key for item in intents.below(self._keyspace.intents)])
        try:
            await begun.wait()
        finally:
            ignore()

    def _is_kept(self, intent_key: str) -> bool:
        zone_id = self._keyspace.parse_intent(intent_key)
        intent = self._zones.intent(zone_id) if zone_id is not None else None
        return intent is not None and not intent.dropped and bool(self.keeps(intent.zone.zone_id))

    def keeps(self, zone_id: ZoneId) -> bool | None:
        """Check that the zone is kept by store servers; None: it is not known yet, or cannot be read."""
        if not self._is_used:
            return False
        intent = self._zones.intent(zone_id)
        return None if intent is None else zone_engine(intent.zone, (self._node,)) == STORE_ENGINE
