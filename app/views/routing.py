"""The way from a zone's name to its data: the zone of a name, the endpoints of each partition (its group's
members, or the store servers of its owners), and the routing map by which clients ask them directly.

On the data path names are looked up in the intents of the keyspace mirror, without reading the catalog; one
that is not there (its intent is still on the way, or cannot be read) is looked up in the catalog.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.names import spellings
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import STORE_ENGINE, Zone, ZoneId, ZoneIntent
from rebalance.controllers.ring_mirror import RingReader
from rebalance.core.keyspace.epoch import FIRST_EPOCH, EpochRecord, event_revision
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import read
from rebalance.groups.calls.key_hash import KEY_HASH_NAME
from rebalance.metastore.mirror import KeyspaceCopy, KeyspaceMirror
from rebalance.ports.groups import EndpointSource, Route
from rebalance.store.shell.store_client import server_url

BODIES_MAX = 16
"""Most maps that are kept."""


@dataclass(frozen=True, slots=True)
class RoutingDocument:
    """A zone's routing map. ``version``: (epoch, metastore revision) as one integer, at which the map was
    right. ``digest``: the hash of all but the version, so that it changes only when the map does."""

    body: dict[str, Any]
    version: int
    digest: str


class RoutingView:
    """Routing maps over the server's mirror and the addresses that its own router uses."""

    def __init__(
        self,
        mirror: KeyspaceCopy,
        keyspace: Keyspace,
        source: EndpointSource,
        basis: Callable[[ZoneId], object | None] = lambda zone_id: None,
    ) -> None:
        """Keep the mirror and ``source``. ``basis``: the value from which all routes of a zone follow, where
        there is one; equal values give the same routes."""
        self._basis = basis
        self._bodies: dict[ZoneId, tuple[Zone, object, dict[str, Any], str]] = {}
        self._mirror = mirror
        self._keyspace = keyspace
        self._source = source
        self._epoch = FIRST_EPOCH

    def document(self, zone: Zone) -> RoutingDocument:
        """The zone's routing map as of now. ``partitions[n].voters`` are client URLs, the one to ask first at
        the start; empty for a group that is not founded yet. A voter that is about to be removed is left out.
        ``generation``: that of the group to which they belong; None where it is not known."""
        body, digest = self._body(zone)
        record = read(self._mirror.get(self._keyspace.epoch), EpochRecord.decode) or EpochRecord()
        if isinstance(record, EpochRecord):
            # While it cannot be read the last one holds: versions never go back.
            self._epoch = record.epoch
        version = event_revision(self._epoch, self._mirror.revision)
        return RoutingDocument({**body, "version": version}, version, digest)

    def _body(self, zone: Zone) -> tuple[dict[str, Any], str]:
        """The map without its version, and its digest. A store zone has thousands of partitions: its map is
        made anew only when an exchange has changed something."""
        basis, known = self._basis(zone.zone_id), self._bodies.get(zone.zone_id)
        if basis is not None and known is not None and known[:2] == (zone, basis):
            return known[2], known[3]
        numbers = range(zone.partitions)
        routes = [self._source.route(PartitionId(zone.zone_id, number)) for number in numbers]
        partitions = [
            {"partition": number, "voters": list(route.voters), "generation": route.generation}
            for number, route in zip(numbers, routes, strict=True)
        ]
        body = {
            "zone": zone.name,
            "zone_id": zone.zone_id,
            "key_hash": KEY_HASH_NAME,
            "engine": routes[0].engine,
            "partitions": partitions,
        }
        digest = hashlib.blake2b(json.dumps(body).encode(), digest_size=12).hexdigest()
        if basis is not None:
            self._bodies.pop(zone.zone_id, None)
            if len(self._bodies) >= BODIES_MAX:
                del self._bodies[next(iter(self._bodies))]
            self._bodies[zone.zone_id] = zone, basis, body, digest
        return body, digest


class ZoneEndpoints:
    """An ``EndpointSource`` over the server's mirror. ``groups``: the source for partitions that are groups;
    ``is_store``: True for a zone that store servers will keep, though the ring does not have it yet."""

    def __init__(
        self,
        mirror: KeyspaceMirror,
        ring: RingReader,
        groups: EndpointSource,
        is_store: Callable[[ZoneId], bool],
    ) -> None:
        self._mirror = mirror
        self._ring = ring
        self._groups = groups
        self._is_store = is_store

    def route(self, partition: PartitionId) -> Route:
        """Endpoints of the partition. Of a store zone: the primary, then the other owners, on servers that take
        part; where no owner is known all servers, since each of them says which server serves what is left, and
        which is awaited."""
        owners = self._ring.shown.owners(partition.zone_id, partition.partition)
        if owners is not None:
            urls = self._urls(owners.effective) or self._urls(sorted(owners.servers))
            return Route(urls, engine=STORE_ENGINE)
        route = self._groups.route(partition)
        is_store = not route.voters and self._is_store(partition.zone_id)
        return Route(engine=STORE_ENGINE) if is_store else route

    def _urls(self, names: Iterable[str]) -> tuple[str, ...]:
        servers = ((name, self._ring.address(name)) for name in names)
        known = ((name, at) for name, at in servers if at is not None)
        return tuple(server_url(at.host, at.port, name, at.incarnation) for name, at in known)

    def basis(self, zone_id: ZoneId) -> object | None:
        """The value from which all routes of a store zone follow; None for a zone of groups."""
        ownership = self._ring.shown
        if not ownership.has(zone_id):
            return None
        return ownership, tuple(map(self._ring.address, sorted(ownership.servers)))

    def copy_urls(self, names: Iterable[str]) -> dict[str, str]:
        """URLs of store servers by name; empty for one that does not take part."""
        return {name: "".join(self._urls((name,))) for name in names}

    def learners(self, partition: PartitionId) -> tuple[str, ...]:
        """URLs of learners that answer reads; none in a store zone, whose primaries alone answer them."""
        is_store = self._ring.shown.has(partition.zone_id)
        return () if is_store else self._groups.learners(partition)

    async def wait_for_change(self, partition: PartitionId, seen: Route, timeout_s: float) -> None:
        if seen.engine == STORE_ENGINE or self._ring.shown.has(partition.zone_id):
            await self._mirror.wait_until(lambda: self.route(partition) != seen, timeout_s)
        else:
            await self._groups.wait_for_change(partition, seen, timeout_s)

    def doubt(self, partition: PartitionId) -> None:
        """Have a group's endpoints looked up anew. A store zone needs nothing: the mirror follows the metastore
        by itself."""
        self._groups.doubt(partition)


def zone_not_found(name: str) -> RefusedError:
    return RefusedError(ErrorKind.ZONE_NOT_FOUND, f'zone "{name}" does not exist')


class ZoneDirectory:
    """Zones by name. ``snapshot`` reads the catalog, which decides. The intents are followed one by one: a DDL
    statement costs the same with ten zones and with ten thousand."""

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
        """The zone of ``name``, as SQL reads it (``names.spellings``); one that the caller does not see counts
        as absent. Raises RefusedError (ZONE_NOT_FOUND)."""
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
