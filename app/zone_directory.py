"""Zone names to zones, without a catalog read on the data path.

Answers from the intents in the keyspace mirror; a name that is not there yet (its intent is still on the way)
is looked up in the catalog.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import Zone, ZoneIntent
from rebalance.core.keys import Keyspace
from rebalance.metastore.mirror import KeyspaceMirror


class ZoneDirectory:
    """``snapshot`` reads the catalog, the truth."""

    def __init__(
        self, mirror: KeyspaceMirror, keyspace: Keyspace, snapshot: Callable[[], Awaitable[CatalogSnapshot]]
    ) -> None:
        self._mirror = mirror
        self._keyspace = keyspace
        self._snapshot = snapshot
        self._by_name: dict[str, Zone] = {}
        mirror.listen(self._on_change)

    async def find(self, name: str) -> Zone:
        """Exactly this name, else as SQL reads it unquoted. Raises RefusedError (ZONE_NOT_FOUND)."""
        spellings = (name, name.upper())
        for spelling in spellings:
            if spelling in self._by_name:
                return self._by_name[spelling]
        zones = {zone.name: zone for zone in (await self._snapshot()).zones}
        for spelling in spellings:
            if spelling in zones:
                return zones[spelling]
        raise RefusedError(ErrorKind.ZONE_NOT_FOUND, f'zone "{name}" does not exist')

    def _on_change(self, changed: frozenset[str]) -> None:
        if not any(key.startswith(self._keyspace.intents) for key in changed):
            return
        intents = (ZoneIntent.decode(item.value) for item in self._mirror.below(self._keyspace.intents))
        self._by_name = {intent.zone.name: intent.zone for intent in intents if not intent.dropped}
