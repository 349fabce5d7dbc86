"""Partitions whose copies the node's store server keeps: its agent leaves them alone."""

from __future__ import annotations

from catalog.core.zone import STORE_ENGINE, Node, ZoneId, ZoneIntent, zone_engine
from rebalance.core.keys import Keyspace
from rebalance.core.readable import Unreadable, read
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore


class StorePartitions:
    """By the zone's profiles and what keeps these on ``node``. Nothing is read where no profile names the
    engine ``store``."""

    def __init__(self, node: Node, metastore: Metastore, keyspace: Keyspace) -> None:
        self._node = node
        self._keyspace = keyspace
        self._intents = KeyspaceMirror(metastore, keyspace.intents)
        self.is_used = any(engine == STORE_ENGINE for _, engine in node.engines)

    async def run(self) -> None:
        """Until cancelled."""
        await self._intents.run()

    def keeps(self, zone_id: ZoneId) -> bool | None:
        """None: the zone is not known yet, or cannot be read."""
        if not self.is_used:
            return False
        intent = read(self._intents.get(self._keyspace.intent(zone_id)), ZoneIntent.decode)
        if intent is None or isinstance(intent, Unreadable):
            return None
        return zone_engine(intent.zone, (self._node,)) == STORE_ENGINE
