"""State of each zone, counted: for the overview, the list of zones and the map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from app.console.cells import HealthCell
from app.console.feed import PartitionFeed
from app.console.viewer import shown_cause
from app.console.zone_grid import MoveCounts, NodeLoad, ZoneGrid
from app.views.keyspace_views import KeyspaceViews
from catalog.core.zone import Zone, ZoneId
from rebalance.kernels.assessment import Spread, spread_of


@dataclass(frozen=True, slots=True)
class ZoneState:
    """``causes``: (cause, partitions), the commonest first; ``health``: (state, partitions). ``lost``:
    partitions without a majority of their voters."""

    zone: Zone
    moves: MoveCounts
    health: tuple[tuple[HealthCell, int], ...]
    causes: tuple[tuple[str, int], ...]
    lost: int = 0

    @property
    def is_settled(self) -> bool:
        return self.moves.done == self.moves.total

    @property
    def word(self) -> str:
        """Return the state in one word, which the counts explain."""
        if self.is_settled:
            return "settled"
        if self.moves.moving:
            return "moving"
        return "waiting" if self.moves.waiting else "being read"

    @property
    def percent(self) -> float:
        return 100 * self.moves.done / self.moves.total if self.moves.total else 100.0


def zone_state(zone: Zone, grid: ZoneGrid, whole_wait: str) -> ZoneState:
    """``whole_wait``: what all partitions wait for; empty: each of them tells for itself."""
    health = tuple((state, count) for state, count in grid.health_counts().items() if count)
    lost = int(np.count_nonzero(grid.lost))
    if whole_wait:
        total = grid.partitions
        return ZoneState(zone, MoveCounts(waiting=total), health, ((shown_cause(whole_wait), total),), lost)
    causes: Counter[str] = Counter()
    for cause, count in grid.cause_counts().items():
        causes[shown_cause(cause)] += count
    return ZoneState(zone, grid.move_counts(), health, tuple(causes.most_common()), lost)


def zone_states(feed: PartitionFeed, views: KeyspaceViews) -> list[ZoneState]:
    """Return the states of all zones that live, by name."""
    grids = feed.grids
    states = [
        zone_state(intent.zone, grids[zone_id], views.whole_wait(intent))
        for zone_id, intent in feed.intents.items()
        if zone_id in grids
    ]
    return sorted(states, key=lambda state: state.zone.name)


def node_loads(grids: Mapping[ZoneId, ZoneGrid]) -> dict[str, NodeLoad]:
    """Return what each node holds of all zones."""
    loads: dict[str, NodeLoad] = {}
    for grid in grids.values():
        for node, load in grid.loads().items():
            loads[node] = loads.get(node, NodeLoad()).plus(load)
    return loads


def skew_of(loads: Mapping[str, NodeLoad], data_nodes: Iterable[str]) -> dict[str, Spread]:
    """Return how even the data nodes hold a zone, by level; a node that holds nothing counts too."""
    names = list(data_nodes)
    empty = NodeLoad()
    levels = ("replicas", "voters", "leaders")
    return {
        level: spread_of(np.array([getattr(loads.get(name, empty), level) for name in names], dtype=np.int64))
        for level in levels
    }
