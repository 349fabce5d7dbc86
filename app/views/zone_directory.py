"""Zone names to zones, without a catalog read on the data path.

Answers from the intents in the keyspace mirror; a name that is not there (its intent is still on the way, or
cannot be read) is looked up in the catalog.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.names import spellings
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import Zone, ZoneIntent
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import read
from rebalance.metastore.mirror import KeyspaceMirror


def zone_not_found(name: str) -> RefusedError:
    return RefusedError(ErrorKind.ZONE_NOT_FOUND, f'zone "{name}" does not exist')


class ZoneDirectory:
    """``snapshot`` reads the catalog, the truth. Follows the intents one by one: a DDL statement costs the same
    with ten zones and with ten thousand."""

    def __init__(
        self, mirror: KeyspaceMirror, keyspace: Keyspace, snapshot: Callable[[], Awaitable[CatalogSnapshot]]
    ) -> None:
        self._mirror = mirror
        self._keyspace = keyspace
        self._snapshot = snapshot
        self._by_key: dict[str, Zone] = {}
        self._by_name: dict[str, Zone] = {}
        mirror.listen(self._on_change)

    async def find(self, name: str, sees: Callable[[Zone], bool] = lambda _: True) -> Zone:
        """``name`` as SQL reads it (``names.spellings``); what is not seen is not there. Raises RefusedError
        (ZONE_NOT_FOUND)."""
        for spelling in spellings(name):
            zone = self._by_name.get(spelling)
            if zone is None:
                zone = (await self._snapshot()).zone(spelling)
            if zone is not None and sees(zone):
                return zone
        raise zone_not_found(name)

    def _on_change(self, changed: frozenset[str]) -> None:
        for key in changed:
            if not key.startswith(self._keyspace.intents):
                continue
            before = self._by_key.pop(key, None)
            # A renamed zone's old name may belong to another zone by now.
            if before is not None and self._by_name.get(before.name) is before:
                del self._by_name[before.name]
            intent = read(self._mirror.get(key), ZoneIntent.decode)
            if isinstance(intent, ZoneIntent) and not intent.dropped:
                self._by_key[key] = self._by_name[intent.zone.name] = intent.zone
