"""A zone's routing map as a client holds it: a value, read from the API's JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from app.client.errors import ClientError
from app.client.problem import JsonObject
from catalog.core.zone import ZoneId
from rebalance.core.keys import PartitionId
from rebalance.groups.key_hash import KEY_HASH_NAME, partition_of


@dataclass(frozen=True, slots=True)
class RoutingMap:
    """``voters[n]``: client URLs of partition n's voters, the one to ask first at the start. Of two maps the
    one with the higher ``version`` is the newer; ``tag`` (an ETag) says whether two are the same."""

    zone_id: ZoneId
    voters: tuple[tuple[str, ...], ...]
    version: int
    tag: str

    @classmethod
    def decode(cls, body: JsonObject, tag: str) -> Self:
        """Raises ClientError when the servers hash keys in a way that this client does not know."""
        if body["key_hash"] != KEY_HASH_NAME:
            raise ClientError(
                f"the server hashes keys by {body['key_hash']}; this client knows {KEY_HASH_NAME}"
            )
        voters = tuple(tuple(each["voters"]) for each in body["partitions"])
        return cls(ZoneId(body["zone_id"]), voters, body["version"], tag)

    def partition_of(self, key: str) -> PartitionId:
        return PartitionId(self.zone_id, partition_of(key, len(self.voters)))
