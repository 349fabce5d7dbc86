"""A zone's routing map as a client holds it: a value, read from the API's JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from app.client.errors import ClientError
from app.client.problem import JsonObject
from catalog.core.zone import DEFAULT_ENGINE, ZoneId
from rebalance.core.keys import PartitionId
from rebalance.groups.key_hash import KEY_HASH_NAME, partition_of
from rebalance.ports.groups import Route


@dataclass(frozen=True, slots=True)
class RoutingMap:
    """``routes[n]``: the voters of partition n, and the generation of its group; or the store servers of its
    owners. Of two maps the one with the higher ``version`` is the newer; ``tag`` (an ETag) says whether two are
    the same."""

    zone_id: ZoneId
    routes: tuple[Route, ...]
    version: int
    tag: str

    @classmethod
    def decode(cls, body: JsonObject, tag: str) -> Self:
        """Raises ClientError when the servers hash keys in a way that this client does not know. A server of an
        earlier build names no generations: then members of any are taken."""
        if body["key_hash"] != KEY_HASH_NAME:
            raise ClientError(
                f"the server hashes keys by {body['key_hash']}; this client knows {KEY_HASH_NAME}"
            )
        engine = body.get("engine", DEFAULT_ENGINE)
        routes = tuple(
            Route(tuple(route["voters"]), route.get("generation"), engine) for route in body["partitions"]
        )
        return cls(ZoneId(body["zone_id"]), routes, body["version"], tag)

    def partition_of(self, key: str) -> PartitionId:
        return PartitionId(self.zone_id, partition_of(key, len(self.routes)))
