"""Zone ids that are taken by what lies on nodes' disks, whatever catalog and metastore know of it."""

from __future__ import annotations

from catalog.core.zone import NO_ZONE, ZoneId
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import read
from rebalance.core.keyspace.records import NodeRecord
from rebalance.metastore.mirror import KeyspaceMirror


class HeldZones:
    """``mirror`` has the keys of nodes. A node that is away keeps what it has: what it reported counts on."""

    def __init__(self, mirror: KeyspaceMirror, keyspace: Keyspace) -> None:
        self._mirror = mirror
        self._nodes = keyspace.nodes
        self.highest = NO_ZONE
        """The highest id that any node has reported to hold something of."""
        mirror.listen(self._on_change)

    def _on_change(self, changed: frozenset[str]) -> None:
        for key in changed:
            if key.startswith(self._nodes):
                record = read(self._mirror.get(key), NodeRecord.decode)
                if isinstance(record, NodeRecord):
                    self.highest = max(self.highest, ZoneId(record.highest_zone))
