"""A stored target as the placement of a later event: what reversing an operation asks for."""

from __future__ import annotations

import numpy as np

from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.core.assignments.target import StoredTarget
from rebalance.core.topology.data_nodes import DataNodes, replica_counts
from rebalance.kernels.assessment import renumbered
from rebalance.ports.placement import Engine, PlacementResult

BALANCED = "balanced"


def why_not_restorable(target: StoredTarget, intent: ZoneIntent, data_nodes: DataNodes, partitions: int) -> str:
    """Return what stands against ``target`` as the placement of ``intent`` on ``data_nodes``; empty:
    nothing."""
    pointer = target.pointer
    missing = sorted(set(pointer.nodes) - set(data_nodes.nodes))
    if missing:
        matrix = np.frombuffer(b"".join(target.chunks), dtype="<i4")
        used = {pointer.nodes[index] for index in np.unique(matrix).tolist()}
        missing = [name for name in missing if name in used]
    if missing:
        return f"it placed copies on {', '.join(missing)}, and the zone's data nodes are now " + (
            ", ".join(data_nodes.nodes) or "none"
        )
    if pointer.partitions != partitions:
        return f"it has {pointer.partitions} partitions, and the zone {partitions}"
    counts = replica_counts(intent, data_nodes)
    if (pointer.replicas, pointer.consensus) != counts:
        return (
            f"it has {pointer.replicas} replicas of which {pointer.consensus} vote, and on the data nodes of "
            f"now there would be {counts[0]} of which {counts[1]} vote"
        )
    return ""


def restored(
    zone_id: ZoneId, target: StoredTarget, intent: ZoneIntent, data_nodes: DataNodes
) -> PlacementResult:
    """``target`` on the data nodes of now. Raises ValueError where ``why_not_restorable`` names a reason."""
    why = why_not_restorable(target, intent, data_nodes, intent.zone.partitions)
    if why:
        raise ValueError(f"the target before cannot be restored: {why}")
    pointer = target.pointer
    matrix = np.frombuffer(b"".join(target.chunks), dtype="<i4").astype(np.int32)
    rows = renumbered(
        pointer.nodes, matrix.reshape(pointer.partitions, pointer.replicas), data_nodes.nodes
    ).astype(np.int32)
    surplus = None
    if intent.zone.algorithm.value == BALANCED and rows.size:
        # Compiled kernels are loaded where a zone needs them: half a second of each start otherwise.
        from rebalance.kernels.balanced import Placed, surplus_of

        placed = Placed(data_nodes.nodes, rows, pointer.consensus)
        surplus = surplus_of(placed, data_nodes.weights, data_nodes.domains)
    return PlacementResult(zone_id, data_nodes.nodes, rows, pointer.consensus, Engine.LOCAL, surplus)
