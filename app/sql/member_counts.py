"""How many group members each node holds or will hold, from the catalog and the kernel.

Used by the engine's limit check of a DDL statement (54000). Placement is a pure function, so a zone's count
is computed once for each (parameters, data nodes) and kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from catalog.core.node_filter import NodeFilters, may_use
from catalog.core.quorum import consensus_size, default_quorum, effective_replicas
from catalog.core.zone import Node, Zone, ZoneId
from catalog.filters.json_path import JSON_PATH
from rebalance.kernels.rendezvous import place

CACHED_ZONES_MAX = 20_000


class MemberCounts:
    """``stored_nodes`` answers with a zone's data nodes as the metastore has them (empty: none yet)."""

    def __init__(
        self, stored_nodes: Callable[[ZoneId], tuple[str, ...]], filters: NodeFilters = JSON_PATH
    ) -> None:
        self._stored_nodes = stored_nodes
        self._filters = filters
        self._cache: dict[tuple[int, int, tuple[str, ...]], Mapping[str, int]] = {}

    def of_zones(self, zones: Iterable[Zone], live: Iterable[Node]) -> Mapping[str, int]:
        """Members by node over all of ``zones``."""
        live = tuple(live)
        total: Counter[str] = Counter()
        for zone in zones:
            total.update(self.of_zone(zone, live))
        return total

    def of_zone(self, zone: Zone, live: Iterable[Node]) -> Mapping[str, int]:
        """Members by node that this zone needs; a node that needs none is left out."""
        live = tuple(live)
        matching = {node.name for node in live if may_use(zone, node, self._filters)}
        # As ``compute_data_nodes``: a stored node that lives and may not be used (any more) leaves.
        departed = set(self._stored_nodes(zone.zone_id)).difference(node.name for node in live)
        nodes = tuple(sorted(matching | departed))
        if not nodes:
            return {}
        quorum = zone.quorum_size or default_quorum(zone.replicas, len(nodes))
        voters = consensus_size(quorum, zone.replicas, len(nodes))
        replicas = min(effective_replicas(zone.replicas, len(nodes)), voters)
        key = (zone.partitions, replicas, nodes)
        if key not in self._cache:
            if len(self._cache) >= CACHED_ZONES_MAX:
                self._cache.clear()
            matrix = place(nodes, range(zone.partitions), replicas)
            counts = np.bincount(matrix.ravel(), minlength=len(nodes))
            self._cache[key] = {name: int(count) for name, count in zip(nodes, counts, strict=True) if count}
        return self._cache[key]
