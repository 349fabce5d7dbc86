"""Reader of ``placement_golden.jsonl``: outputs of the Java implementation itself, in preference order."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from catalog.core.quorum import ALL_REPLICAS
from catalog.core.zone import ZoneId
from rebalance.ports.placement import PlacementRequest, PlacementResult

FILE = Path(__file__).with_suffix(".jsonl")


@dataclass(frozen=True, slots=True)
class GoldenCase:
    """``rows[p]`` holds (node, is a peer) of partition ``p`` in preference order."""

    label: str
    request: PlacementRequest
    rows: list[list[tuple[str, bool]]]


def golden_cases() -> list[GoldenCase]:
    cases = []
    for number, line in enumerate(FILE.read_text(encoding="utf-8").splitlines(), 1):
        document = json.loads(line)
        replicas = ALL_REPLICAS if document["replicas"] == "ALL" else document["replicas"]
        request = PlacementRequest(
            ZoneId(number), tuple(document["nodes"]), document["partitions"], replicas, document["consensus"]
        )
        rows = [[(each["node"], each["peer"]) for each in row] for row in document["assignments"]]
        cases.append(GoldenCase(document["label"], request, rows))
    return cases


def rows_of(result: PlacementResult) -> list[list[tuple[str, bool]]]:
    """A result in the form of a case's rows."""
    return [
        [(result.nodes[index], column < result.consensus) for column, index in enumerate(row)]
        for row in result.matrix.tolist()
    ]
