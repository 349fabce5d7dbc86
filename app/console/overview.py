"""The overview as a view model: is it well, what moves, what is stuck and why, what was changed last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.console.cells import HealthCell
from app.console.zone_states import ZoneState

CAUSES_MAX = 8
OF_LOSS = ("NODE_DOWN", "NO_MAJORITY", "MEMBER_FAILED")
"""Causes that a lost majority may have."""
ZONES_MAX = 12

ADVICE = {
    "NODE_DOWN": "Start the node, or wait: the zone's scale-down time decides when its replicas move.",
    "NO_MAJORITY": "Start the nodes that are named; if that is not possible, reset the partitions.",
    "MEMBER_FAILED": "Look at the reason; the node goes on trying.",
    "MEMBER_STARTING": "Members are being started; nothing has to be done.",
    "MEMBER_NOT_RESERVED": "The nodes have not answered yet; they reserve a place first.",
    "PAUSED": "Somebody paused moves: resume on the rebalance page.",
    "CLUSTER_CAP": "A limit holds: raise it on the rebalance page, or wait.",
    "ZONE_CAP": "A limit holds: raise it on the rebalance page, or wait.",
    "NODE_CAP": "A limit holds: raise it on the rebalance page, or wait.",
    "BATCH": "The batch before is not over yet.",
    "NODE_MEMBER_LIMIT": "The node is full: add nodes, or raise its member limit.",
    "NO_DATA_NODES": "No living node fits the zone's filter and storage profiles.",
    "PLACEMENT_NOT_COMPUTED": "Placement runs; without Spark the same kernel runs here after ten seconds.",
    "TARGET_NOT_WRITTEN": "A controller is about to write it.",
    "COPY_STALLED": "Nothing reaches the new copy: look at its node's disk and network, or cancel.",
    "CATCHING_UP": "A new copy is being filled.",
    "JOINT": "Voters are being exchanged.",
    "CLEAN_UP": "Copies that are not needed any more are removed.",
    "RECORD_NOT_READABLE": "Repair the key that is named, or bring all processes to the build that wrote it.",
    "UNREADABLE": "The console could not read the partition: the server's log says why.",
    "LEADER_UNKNOWN": "The group has not said who leads yet.",
    "LEARNER_STARTING": "A learner's first copy is being fetched.",
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


@dataclass(frozen=True, slots=True)
class ChangeRow:
    version: int
    at: str
    statement: str


def tiles(readiness: Mapping[str, Any], nodes_known: int) -> list[Tile]:
    """From ``/readyz``; ``nodes_known``: living nodes and those that are missed."""
    spark_tone = {"ready": "ok", "starting": "warn", "down": "warn"}.get(readiness["spark"], "idle")
    controller = readiness["controller"]
    alive = readiness["nodes"]
    missing = nodes_known - alive
    return [
        _store("Catalog", readiness["catalog"]),
        _store("Metastore", readiness["metastore"]),
        Tile("Controller", controller or "nobody leads", "ok" if controller else "bad"),
        Tile("Spark", readiness["spark"], spark_tone, readiness["spark_message"]),
        Tile(
            "Nodes",
            f"{alive} of {nodes_known} alive" if missing else f"{alive} alive",
            "bad" if missing else "ok" if alive else "warn",
        ),
    ]


def _store(name: str, state: str) -> Tile:
    return Tile(name, "answers" if state == "ok" else "in trouble", "ok" if state == "ok" else "bad", state)


def health_bar(states: Sequence[ZoneState]) -> list[tuple[HealthCell, int]]:
    """Partitions of all zones by health, in the order of ``Health``."""
    counts = dict.fromkeys(HealthCell, 0)
    for state in states:
        for health, count in state.health:
            counts[health] += count
    return [(health, count) for health, count in counts.items() if count]


def unsettled(states: Sequence[ZoneState]) -> list[ZoneState]:
    """What moves or waits, the furthest from its end first."""
    return sorted((each for each in states if not each.is_settled), key=lambda each: each.percent)[:ZONES_MAX]


def stuck(states: Sequence[ZoneState]) -> list[OverviewCause]:
    """By the cause's first word, the commonest first; the detail is that of most partitions."""
    partitions: dict[str, int] = {}
    zones: dict[str, dict[str, None]] = {}
    details: dict[str, tuple[int, str]] = {}
    for state in states:
        for cause, count in state.causes:
            word, _, detail = cause.partition(": ")
            partitions[word] = partitions.get(word, 0) + count
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
