"""Which nodes a zone uses, and the quorum size that follows (decision 1; timers come with the protocol).

For now a node that joins with all of the zone's profiles is a data node at once, and one that left stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from catalog.core.quorum import consensus_size, default_quorum, effective_replicas
from catalog.core.zone import Node, ZoneIntent

DATA_NODES_FORMAT = 1


@dataclass(frozen=True, slots=True)
class DataNodes:
    """Data nodes of a zone in name order, and its effective quorum size as of ``zone_version``."""

    zone_version: int
    nodes: tuple[str, ...]
    quorum: int

    def encode(self) -> bytes:
        document = {"v": DATA_NODES_FORMAT, **asdict(self)}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> DataNodes:
        """Raises ValueError for a format that this build does not know."""
        found = json.loads(value)
        if found["v"] != DATA_NODES_FORMAT:
            raise ValueError(
                f"data nodes format {found['v']} is not known; this build reads {DATA_NODES_FORMAT}"
            )
        return cls(found["zone_version"], tuple(found["nodes"]), found["quorum"])


def compute_data_nodes(previous: DataNodes | None, live: Iterable[Node], intent: ZoneIntent) -> DataNodes:
    """The zone's data nodes now: those it had, and every living node with all of its profiles.

    The derived quorum only ever grows with the nodes: a departure never lowers it.
    """
    zone = intent.zone
    matching = {node.name for node in live if node.holds_profiles(zone.storage_profiles)}
    nodes = tuple(sorted(matching.union(previous.nodes if previous else ())))
    quorum = zone.quorum_size or default_quorum(zone.replicas, len(nodes))
    return DataNodes(intent.version, nodes, quorum)


def replica_counts(intent: ZoneIntent, data_nodes: DataNodes) -> tuple[int, int]:
    """``(replicas, voters)`` of each partition.

    Standing learners are not built yet, so a zone never gets more replicas than voters: DDL refuses
    parameters that would give learners, and nodes that join later only enlarge the consensus group.
    """
    voters = consensus_size(data_nodes.quorum, intent.zone.replicas, len(data_nodes.nodes))
    return min(effective_replicas(intent.zone.replicas, len(data_nodes.nodes)), voters), voters
