"""Metadata of a Voldemort cluster: nodes, the owner of each partition, and the stores.

Partitions are numbered and never change; keys belong to them for good. Only their owner changes, and always of
a whole partition (VOL-011). Replicas of a partition follow from the ring: the owners of the next partitions,
each node once. So a partition that changes its owner changes replicas of the partitions before it: those are
the secondary moves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

RO_FORMAT = "ro2"
"""The storage format of read-only stores that can be fetched by partition (VOL-029)."""


class StoreKind(Enum):
    READ_ONLY = "read-only"
    READ_WRITE = "read-write"


class ClusterFormatError(ValueError):
    """Cluster or stores metadata that say nothing sensible; the message tells where."""


@dataclass(frozen=True, slots=True)
class StoreDefinition:
    """``replication``: nodes that have a copy of each partition."""

    name: str
    replication: int
    kind: StoreKind = StoreKind.READ_WRITE


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """``nodes``: ids, ascending; some may own nothing. ``owners[p]``: the node that owns partition p."""

    nodes: tuple[int, ...]
    owners: tuple[int, ...]

    @classmethod
    def of(cls, partitions: Mapping[int, Iterable[int]]) -> ClusterMetadata:
        """Make metadata from the partitions of each node. Raises ClusterFormatError unless 0..P-1 are each
        owned once."""
        owners: dict[int, int] = {}
        for node, owned in partitions.items():
            for number in owned:
                if number in owners:
                    raise ClusterFormatError(f"partition {number} is owned by node {owners[number]} and {node}")
                owners[number] = node
        missing = sorted(set(range(max(owners, default=0) + 1)) - owners.keys())
        if missing or min(owners) < 0:
            raise ClusterFormatError(f"partitions are numbered from 0 without gaps; {missing} have no owner")
        return cls(tuple(sorted(partitions)), tuple(owners[number] for number in range(len(owners))))

    @classmethod
    def decode(cls, text: str) -> ClusterMetadata:
        """Decode ``{"nodes": {"0": [0, 3], "1": []}}``. Raises ClusterFormatError."""
        try:
            nodes = json.loads(text)["nodes"]
            partitions = {int(node): [int(number) for number in owned] for node, owned in nodes.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ClusterFormatError(
                f'cluster metadata is {{"nodes": {{"0": [partitions]}}}}, found {text[:80]!r}'
            ) from error
        return cls.of(partitions)

    def encode(self) -> str:
        return json.dumps({"nodes": {str(node): self.partitions_of(node) for node in self.nodes}})

    def partitions_of(self, node: int) -> tuple[int, ...]:
        """The primary partitions of a node, ascending."""
        return tuple(number for number, owner in enumerate(self.owners) if owner == node)

    def with_nodes(self, nodes: Iterable[int]) -> ClusterMetadata:
        """The metadata with these nodes too; they own nothing yet (VOL-026)."""
        return ClusterMetadata(tuple(sorted({*self.nodes, *nodes})), self.owners)

    def with_owners(self, owners: Mapping[int, int]) -> ClusterMetadata:
        """``owners``: of the partitions that change."""
        changed = tuple(owners.get(number, owner) for number, owner in enumerate(self.owners))
        return ClusterMetadata(self.nodes, changed)

    def replicas(self, partition: int, replication: int) -> tuple[int, ...]:
        """Nodes with a copy of the partition, its owner first; fewer than asked for when there are no more."""
        return preference_lists(self.owners, replication)[partition]


@lru_cache(maxsize=256)
def preference_lists(owners: tuple[int, ...], replication: int) -> tuple[tuple[int, ...], ...]:
    """The first ``replication`` different owners on the ring from each partition on."""
    count = len(owners)
    lists = []
    for first in range(count):
        nodes: dict[int, None] = {}
        for step in range(count):
            nodes[owners[(first + step) % count]] = None
            if len(nodes) == replication:
                break
        lists.append(tuple(nodes))
    return tuple(lists)


def decode_stores(text: str) -> tuple[StoreDefinition, ...]:
    """Decode ``[{"name": "s", "replication": 2, "kind": "read-only"}]``; read-write unless said otherwise.
    Raises ClusterFormatError."""
    try:
        stores = tuple(
            StoreDefinition(
                fields["name"], int(fields["replication"]), StoreKind(fields.get("kind", "read-write"))
            )
            for fields in json.loads(text)
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterFormatError(
            'stores are [{"name": ..., "replication": ..., "kind": "read-only" | "read-write"}], '
            f"found {text[:80]!r}"
        ) from error
    for store in stores:
        if store.replication < 1:
            raise ClusterFormatError(
                f"store {store.name}: replication {store.replication}; at least 1 is needed"
            )
    return stores
