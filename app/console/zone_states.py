"""State of each zone, counted, for the list of zones and the map; and the overview as a view model: health,
what moves, and what blocks the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.console.feed import PartitionFeed
from app.console.viewer import shown_cause
from app.console.zone_grid import HealthCell, MoveCounts, NodeLoad, ZoneGrid
from app.views.keyspace_views import KeyspaceViews
from catalog.core.zone import Zone, ZoneId
from rebalance.core.causes.cause import Cause, told_cause
from rebalance.core.causes.cause_table import anchor, row_of
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


CAUSES_MAX = 8
OF_LOSS = (Cause.NODE_DOWN.name, Cause.NO_MAJORITY.name, Cause.MEMBER_FAILED.name)
"""Causes that a lost majority may have."""
ZONES_MAX = 12


@dataclass(frozen=True, slots=True)
class Tile:
    """``tone`` is ok, warn, bad or idle; ``value`` says the same in words."""

    name: str
    value: str
    tone: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class OverviewCause:
    """Cause of partitions that are not where they should be: ``words`` for an ordinary cause; ``page`` explains
    it. ``zones`` are those that have such partitions, ``lost`` those of them with partitions without a
    majority, if that may be the cause's doing."""

    word: str
    detail: str
    partitions: int
    zones: tuple[str, ...]
    advice: str
    page: str = ""
    words: str = ""
    lost: tuple[str, ...] = ()


def tiles(readiness: Mapping[str, Any], alive: int, nodes_known: int) -> list[Tile]:
    """Return the tiles from ``/readyz``, which is some seconds old, and of ``alive`` nodes, as the pages of
    nodes have them; ``nodes_known``: those and the ones that still hold replicas."""
    spark_tone = {"ready": "ok", "starting": "warn", "down": "warn"}.get(readiness["spark"], "idle")
    controller = readiness["controller"]
    missing = nodes_known - alive
    return [
        _store("Catalog", readiness["catalog"]),
        _store("Metastore", readiness["metastore"]),
        Tile("Controller", controller or "no leader", "ok" if controller else "bad"),
        Tile("Spark", readiness["spark"], spark_tone, readiness["spark_message"]),
        Tile(
            "Nodes",
            f"{alive} of {nodes_known} alive" if missing else f"{alive} alive",
            "bad" if missing else "ok" if alive else "warn",
        ),
    ]


def _store(name: str, state: str) -> Tile:
    return Tile(name, "available" if state == "ok" else "unavailable", "ok" if state == "ok" else "bad", state)


def health_bar(states: Sequence[ZoneState]) -> list[tuple[HealthCell, int]]:
    """Partitions of all zones by health, in the order of ``Health``."""
    counts = dict.fromkeys(HealthCell, 0)
    for state in states:
        for health, count in state.health:
            counts[health] += count
    return [(health, count) for health, count in counts.items() if count]


def unsettled(states: Sequence[ZoneState]) -> list[ZoneState]:
    """Return what moves or waits, the furthest from its end first."""
    behind = [state for state in states if not state.is_settled]
    return sorted(behind, key=lambda state: state.percent)[:ZONES_MAX]


def stuck(states: Sequence[ZoneState]) -> list[OverviewCause]:
    """Return what is waited for, the commonest first; the detail is that of most partitions."""
    partitions: Counter[str] = Counter()
    zones: dict[str, dict[str, None]] = {}
    details: dict[str, tuple[int, str]] = {}
    for state in states:
        for cause, count in state.causes:
            kind = told_cause(cause)
            word = cause.partition(": ")[0] if kind is Cause.OTHER else kind.name
            detail = cause.partition(f"{word}: ")[2]
            partitions[word] += count
            zones.setdefault(word, {})[state.zone.name] = None
            details[word] = max(details.get(word, (0, "")), (count, detail))
    lost = {state.zone.name for state in states if state.lost}
    order = sorted(partitions, key=lambda word: (-partitions[word], word))[:CAUSES_MAX]
    return [
        OverviewCause(
            word,
            details[word][1],
            partitions[word],
            tuple(zones[word]),
            *((row.action, anchor(word), row.words) if (row := row_of(word)) is not None else ("", "", "")),
            tuple(zone for zone in zones[word] if word in OF_LOSS and zone in lost),
        )
        for word in order
    ]
