"""Nodes as the console lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from app.console.fragments import natural
from app.console.grids import grid_row
from app.console.zone_grid import NodeLoad, ZoneGrid
from app.contract.columns import Facts, body_of
from app.contract.nodes import NodeBody
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.moves.drain import Drain

Row = dict[str, Any]

DOWN = "down"


def node_rows(
    live: Mapping[str, NodeRecord],
    drains: Mapping[str, Drain],
    loads: Mapping[str, NodeLoad],
    copies: Mapping[str, int],
) -> list[Row]:
    """One for each node that lives, is drained, or is missed: it still has copies. ``copies``: how many of them
    are of store zones, which no limit of members counts."""
    missed = {name for name, load in loads.items() if load.replicas}
    return [
        node_row(name, live.get(name), drains.get(name), loads.get(name, NodeLoad()), copies.get(name, 0))
        for name in sorted({*live, *drains, *missed}, key=natural)
    ]


def node_row(name: str, record: NodeRecord | None, drain: Drain | None, load: NodeLoad, copies: int = 0) -> Row:
    limit = record.node.member_limit if record is not None else None
    members = max(load.replicas - copies, 0)
    values = {"name": name, "alive": record is not None, "members": members, "copies": copies, "drain": None}
    return {
        **grid_row(NodeBody, body_of(NodeBody, Facts(record, values))),
        "state": _state(record, drain, load),
        **asdict(load),
        "filled": round(100 * members / limit) if limit else None,
    }


def holdings(grids: Mapping[str, ZoneGrid], name: str) -> list[tuple[str, NodeLoad]]:
    """Return what the node holds of each zone, also while it is down. ``grids`` by the name of the zone."""
    loads = ((zone, grid.loads().get(name, NodeLoad())) for zone, grid in sorted(grids.items()))
    return [(zone, load) for zone, load in loads if load.replicas]


def _state(record: NodeRecord | None, drain: Drain | None, load: NodeLoad) -> str:
    if drain is not None:
        return "drained" if not load.replicas else "draining" if record is not None else "draining, down"
    return "alive" if record is not None else DOWN
