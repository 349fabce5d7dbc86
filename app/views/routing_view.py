"""A zone's routing map: where clients find the voters of each partition, so that they may ask them directly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from catalog.core.zone import Zone, ZoneId
from rebalance.core.keyspace.epoch import FIRST_EPOCH, EpochRecord, event_revision
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import read
from rebalance.groups.calls.key_hash import KEY_HASH_NAME
from rebalance.metastore.mirror import KeyspaceCopy
from rebalance.ports.groups import EndpointSource

BODIES_MAX = 16
"""That are held."""


@dataclass(frozen=True, slots=True)
class RoutingDocument:
    """``version``: (epoch, metastore revision) as one integer; the map was right at it. ``digest`` is of all
    but the version, so that it changes only when the map does."""

    body: dict[str, Any]
    version: int
    digest: str


class RoutingView:
    """Over the server's mirror and the addresses that its own router uses."""

    def __init__(
        self,
        mirror: KeyspaceCopy,
        keyspace: Keyspace,
        source: EndpointSource,
        basis: Callable[[ZoneId], object | None] = lambda zone_id: None,
    ) -> None:
        """``basis``: what the routes of a zone follow from, where that is one value; equal ones give the same
        routes."""
        self._basis = basis
        self._bodies: dict[ZoneId, tuple[Zone, object, dict[str, Any], str]] = {}
        self._mirror = mirror
        self._keyspace = keyspace
        self._source = source
        self._epoch = FIRST_EPOCH

    def document(self, zone: Zone) -> RoutingDocument:
        """``partitions[n].voters`` are client URLs, the one to ask first at the start; empty for a group that
        is not founded yet. A voter that is about to be removed is left out. ``generation``: which life of the
        group they belong to, None where nobody can tell."""
        body, digest = self._body(zone)
        record = read(self._mirror.get(self._keyspace.epoch), EpochRecord.decode) or EpochRecord()
        if isinstance(record, EpochRecord):
            # While it cannot be read the last one holds: versions never go back.
            self._epoch = record.epoch
        version = event_revision(self._epoch, self._mirror.revision)
        return RoutingDocument({**body, "version": version}, version, digest)

    def _body(self, zone: Zone) -> tuple[dict[str, Any], str]:
        """All but the version, and its digest. A store zone has thousands of partitions: that is made anew only
        when an exchange has changed something."""
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
            if len(self._bodies) >= BODIES_MAX:
                del self._bodies[next(iter(self._bodies))]
            self._bodies[zone.zone_id] = zone, basis, body, digest
        return body, digest
