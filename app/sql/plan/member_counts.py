"""Counts of the members and mirrors that each node holds or will hold, from the catalog and the kernel; both
are called members here, for both are processes of the node.

Used by the engine's limit check of a DDL statement (54000). Placement is a pure function, so a zone's count
is computed once for each (parameters, data nodes) and kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from catalog.core.quorum import effective_replicas
from catalog.core.zone import STORE_ENGINE, DistributionAlgorithm, Node, Zone, ZoneId, zone_engine
from catalog.core.zone_options import may_use
from catalog.filters.json_path import JSON_PATH
from rebalance.kernels.rendezvous import place

CACHED_ZONES_MAX = 20_000
COMPARED_AT_ONCE = 512


class MemberCounts:
    """``stored_nodes`` answers with a zone's data nodes as the metastore has them (empty: none yet)."""

    def __init__(self, stored_nodes: Callable[[ZoneId], tuple[str, ...]]) -> None:
        self._stored_nodes = stored_nodes
        self._cache: dict[tuple[int, int, tuple[str, ...]], Mapping[str, int]] = {}
        self._live: tuple[Node, ...] = ()
        self._counted: dict[ZoneId, tuple[Zone, Mapping[str, int]]] = {}
        self._total: Counter[str] = Counter()
        self._seen: tuple[Zone, ...] = ()

    def of_others(self, zones: Sequence[Zone], besides: ZoneId, live: tuple[Node, ...]) -> Mapping[str, int]:
        """Members by node over all of ``zones`` but one.

        A total is kept from call to call: a zone is counted again only when it, or the set of living nodes, is
        another one, so that a statement costs the same with ten zones and with ten thousand. From one catalog
        version to the next few zones differ, and the others are skipped as slices.
        """
        if live != self._live:
            self._live, self._counted, self._seen = live, {}, ()
            self._total.clear()
        zones = tuple(zones)
        start = _equal_at_start(zones, self._seen)
        end = _equal_at_start(zones[start:][::-1], self._seen[start:][::-1])
        changed = zones[start : len(zones) - end]
        for gone in {zone.zone_id for zone in self._seen[start : len(self._seen) - end]} - {
            zone.zone_id for zone in changed
        }:
            self._total.subtract(self._counted.pop(gone)[1])
        for zone in changed:
            self._count(zone, self.of_zone(zone, live))
        self._seen = zones
        others = Counter(self._total)
        others.subtract(self._counted[besides][1] if besides in self._counted else {})
        return others

    def _count(self, zone: Zone, members: Mapping[str, int]) -> None:
        before = self._counted.get(zone.zone_id)
        if before is not None:
            self._total.subtract(before[1])
        self._total.update(members)
        self._counted[zone.zone_id] = (zone, members)

    def of_zone(self, zone: Zone, live: Iterable[Node]) -> Mapping[str, int]:
        """Members by node that this zone needs; a node that needs none is left out. Copies of the engine
        ``store`` are no processes: they do not count."""
        live = tuple(live)
        if zone_engine(zone, live) == STORE_ENGINE:
            return {}
        matching = {node.name for node in live if may_use(zone, node, JSON_PATH)}
        # As ``compute_data_nodes``: a stored node that lives and may not be used (any more) leaves.
        departed = set(self._stored_nodes(zone.zone_id)).difference(node.name for node in live)
        nodes = tuple(sorted(matching | departed))
        if not nodes:
            return {}
        replicas = effective_replicas(zone.replicas, len(nodes))
        if zone.algorithm is DistributionAlgorithm.BALANCED:
            members = -(-zone.partitions * replicas // len(nodes))
            return dict.fromkeys(nodes, members)
        key = (zone.partitions, replicas, nodes)
        if key not in self._cache:
            if len(self._cache) >= CACHED_ZONES_MAX:
                self._cache.clear()
            matrix = place(nodes, range(zone.partitions), replicas)
            counts = np.bincount(matrix.ravel(), minlength=len(nodes))
            self._cache[key] = {name: int(count) for name, count in zip(nodes, counts, strict=True) if count}
        return self._cache[key]


def _equal_at_start(some: tuple[Zone, ...], others: tuple[Zone, ...]) -> int:
    """Number of zones that are equal at the beginning. Slices are compared at once, identical zones at no
    cost."""
    limit = min(len(some), len(others))
    at = 0
    while at < limit and some[at : at + COMPARED_AT_ONCE] == others[at : at + COMPARED_AT_ONCE]:
        at += COMPARED_AT_ONCE
    while at < limit and some[at] == others[at]:
        at += 1
    return min(at, limit)
