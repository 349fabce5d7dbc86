"""The overview as a view model: health, what moves, and what blocks the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.console.cells import HealthCell
from app.console.zone_states import ZoneState

CAUSES_MAX = 8
OF_LOSS = ("NODE_DOWN", "NO_MAJORITY", "MEMBER_FAILED")
"""Causes that a lost majority may have."""
ZONES_MAX = 12

_RAISE_LIMIT = "A limit applies: raise it on the rebalance page, or wait."

ADVICE = {
    "NODE_DOWN": "Start the node, or wait: its replicas move once the zone's scale-down time has passed.",
    "NO_MAJORITY": "Start the nodes that are named. If that is not possible, reset the partitions.",
    "MEMBER_FAILED": "Check the reason. The node keeps retrying.",
    "MEMBER_STARTING": "Members are starting. No action is needed.",
    "MEMBER_NOT_RESERVED": "The nodes have not reserved a member yet.",
    "PAUSED": "Moves are paused: resume them on the rebalance page.",
    "CLUSTER_CAP": _RAISE_LIMIT,
    "ZONE_CAP": _RAISE_LIMIT,
    "NODE_CAP": _RAISE_LIMIT,
    "BATCH": "The previous batch is still running.",
    "NODE_MEMBER_LIMIT": "The node is full: add nodes, or raise its member limit.",
    "NO_DATA_NODES": "No living node matches the zone's filter and storage profiles.",
    "PLACEMENT_NOT_COMPUTED": "Placement is running. Without Spark, it is computed locally after ten seconds.",
    "TARGET_NOT_WRITTEN": "A controller is about to write the target assignment.",
    "COPY_STALLED": "The new replica receives no data: check the disk and network of its node, or cancel.",
    "CATCHING_UP": "A joining learner is catching up.",
    "JOINT": "Voters are being replaced.",
    "CLEAN_UP": "Replicas that are no longer needed are being removed.",
    "RECORD_NOT_READABLE": "Repair the key that is named, or upgrade all processes to the build that wrote it.",
    "UNREADABLE": "The console could not read the partition. See the server's log.",
    "LEADER_UNKNOWN": "The group has not reported its leader yet.",
    "LEARNER_STARTING": "A learner is receiving its first data.",
    "SERVER_DOWN": "The node's store server is starting, or ends again and again: see the node's log.",
    "SERVER_SILENT": "Other servers do not reach the node's store server. It is failed soon, or answers again.",
    "OWNERS_AWAITED": "Start the nodes that are named: they have all acknowledged writes.",
    "FILLING": "New replicas are being filled.",
    "SURPLUS": "Replicas that are no longer needed are leaving the in-sync set.",
    "STABLE": "A controller is about to write the new assignment.",
    "PARTITION_LOST": "Start the nodes that are named if possible, then reset the partitions: see the zone.",
    "ZONE_DEACTIVATED": "Activate the zone on its page: its moves go on then.",
}
"""What can be done about a cause, by its first word."""


@dataclass(frozen=True, slots=True)
class Tile:
    """``tone`` is ok, warn, bad or idle; ``value`` says the same in words."""

    name: str
    value: str
    tone: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class OverviewCause:
    """Why partitions are not where they should be; ``zones`` are those that have such partitions, ``lost``
    those of them with partitions without a majority, if that may be the cause's doing."""

    word: str
    detail: str
    partitions: int
    zones: tuple[str, ...]
    advice: str
    lost: tuple[str, ...] = ()


def tiles(readiness: Mapping[str, Any], nodes_known: int) -> list[Tile]:
    """From ``/readyz``; ``nodes_known``: living nodes and those that still hold replicas."""
    spark_tone = {"ready": "ok", "starting": "warn", "down": "warn"}.get(readiness["spark"], "idle")
    controller = readiness["controller"]
    alive = readiness["nodes"]
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
    """What moves or waits, the furthest from its end first."""
    behind = [state for state in states if not state.is_settled]
    return sorted(behind, key=lambda state: state.percent)[:ZONES_MAX]


def stuck(states: Sequence[ZoneState]) -> list[OverviewCause]:
    """By the cause's first word, the commonest first; the detail is that of most partitions."""
    partitions: Counter[str] = Counter()
    zones: dict[str, dict[str, None]] = {}
    details: dict[str, tuple[int, str]] = {}
    for state in states:
        for cause, count in state.causes:
            word, _, detail = cause.partition(": ")
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
            ADVICE.get(word, ""),
            tuple(zone for zone in zones[word] if word in OF_LOSS and zone in lost),
        )
        for word in order
    ]
