"""A zone's routing map: where clients find the voters of each partition, so that they may ask them directly."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from catalog.core.zone import Zone
from rebalance.core.epoch import FIRST_EPOCH, EpochRecord, event_revision
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.readable import read
from rebalance.groups.key_hash import KEY_HASH_NAME
from rebalance.metastore.mirror import KeyspaceCopy
from rebalance.ports.groups import EndpointSource


@dataclass(frozen=True, slots=True)
class RoutingDocument:
    """``version``: (epoch, metastore revision) as one integer; the map was right at it. ``digest`` is of all
    but the version, so that it changes only when the map does."""

    body: dict[str, Any]
    version: int
    digest: str


class RoutingView:
    """Over the server's mirror and the addresses that its own router uses."""

    def __init__(self, mirror: KeyspaceCopy, keyspace: Keyspace, source: EndpointSource) -> None:
        self._mirror = mirror
        self._keyspace = keyspace
        self._source = source
        self._epoch = FIRST_EPOCH

    def document(self, zone: Zone) -> RoutingDocument:
        """``partitions[n].voters`` are client URLs, the one to ask first at the start; empty for a group that
        is not founded yet. A voter that is about to be removed is left out. ``generation``: which life of the
        group they belong to, None where nobody can tell."""
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
        record = read(self._mirror.get(self._keyspace.epoch), EpochRecord.decode) or EpochRecord()
        if isinstance(record, EpochRecord):
            # While it cannot be read the last one holds: versions never go back.
            self._epoch = record.epoch
        version = event_revision(self._epoch, self._mirror.revision)
        return RoutingDocument({**body, "version": version}, version, digest)
