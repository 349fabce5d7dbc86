"""A zone's routing map as a client holds it: a value, read from the API's JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import mmh3

from zonekeeper_client.errors import ClientError, JsonObject

KEY_HASH_NAME = "murmur3-32"
GROUPS_ENGINE, STORE_ENGINE = "etcd", "store"


class Partition(NamedTuple):
    """A partition of a zone."""

    zone_id: int
    number: int

    def __str__(self) -> str:
        return f"{self.zone_id}/{self.number}"


@dataclass(frozen=True, slots=True)
class Route:
    """URLs to ask, the preferred one first. ``generation``: that of the group; None: any."""

    voters: tuple[str, ...] = ()
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class RoutingMap:
    """``routes[n]``: the voters of partition n, and the generation of its group; or the store servers of its
    owners. Of two maps the one with the higher ``version`` is the newer; ``tag`` (an ETag) says whether two are
    the same."""

    zone_id: int
    routes: tuple[Route, ...]
    version: int
    tag: str
    engine: str = GROUPS_ENGINE

    @classmethod
    def decode(cls, body: JsonObject, tag: str) -> Self:
        """Raises ClientError when the servers hash keys in a way that this client does not know."""
        if body["key_hash"] != KEY_HASH_NAME:
            raise ClientError(
                f"the server hashes keys by {body['key_hash']}; this client knows {KEY_HASH_NAME}"
            )
        routes = tuple(Route(tuple(each["voters"]), each.get("generation")) for each in body["partitions"])
        return cls(body["zone_id"], routes, body["version"], tag, body.get("engine", GROUPS_ENGINE))

    def partition_of(self, key: str) -> Partition:
        return Partition(self.zone_id, key_hash(key) % len(self.routes))


def key_hash(key: str) -> int:
    """MurmurHash3 x86 32-bit, seed 0, of the key in UTF-8, unsigned. Frozen: keys lie where it says."""
    return int(mmh3.hash(key.encode(), 0, signed=False))
