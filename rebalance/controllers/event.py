"""Event of a zone: the wish of its intent and data nodes, and the check that its newest target is that
already.

A stored target can be the placement of a later event: that is what reversing an operation asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from catalog.core.zone import DistributionAlgorithm, ZoneId, ZoneIntent
from rebalance.controllers.targets import matrix_of
from rebalance.core.assignments.target import StoredTarget, TargetPointer, is_target_of
from rebalance.core.keyspace.epoch import event_revision, split_event_revision
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.txn import Compare, KeyValue
from rebalance.core.topology.data_nodes import DataNodes, replica_counts
from rebalance.kernels.assessment import renumbered
from rebalance.ports.placement import Engine, PlacementRequest, PlacementResult


@dataclass(frozen=True, slots=True)
class Event:
    """Placement that is due: intent and data nodes as of ``revision``, and the pointer as it was then."""

    zone_id: ZoneId
    intent: ZoneIntent
    intent_revision: int
    data_nodes: DataNodes
    data_nodes_revision: int
    pointer: KeyValue | None
    epoch: int
    fence: Compare
    taken_up: bool = False
    """Data nodes were written for the intent before, so something else asks for another target now."""

    @property
    def revision(self) -> int:
        """The event revision: what partitions' triggers are compared with."""
        return event_revision(self.epoch, max(self.intent_revision, self.data_nodes_revision))

    @property
    def is_placed(self) -> bool:
        """The newest target is this event's, or would be the same (after a rename, say). One of an earlier
        epoch is computed again: what the partitions made of it may be lost."""
        if self.pointer is None:
            return False
        pointer = readable(self.pointer, TargetPointer.decode)
        if split_event_revision(pointer.event_revision)[0] != self.epoch:
            return False
        if self.restores and pointer.catalog_version < self.intent.version:
            return False
        return pointer.event_revision >= self.revision or is_target_of(pointer, self.intent, self.data_nodes)

    @property
    def restores(self) -> int:
        """The event revision of the stored target that is asked for; 0: a new placement is."""
        return self.intent.origin.restores if self.intent.origin is not None else 0

    @property
    def is_stateful(self) -> bool:
        """Check that the placement starts from the one before."""
        return self.intent.zone.algorithm is DistributionAlgorithm.BALANCED

    def request(self) -> PlacementRequest:
        zone = self.intent.zone
        replicas, voters = replica_counts(self.intent, self.data_nodes)
        return PlacementRequest(
            self.zone_id,
            self.data_nodes.nodes,
            zone.partitions,
            replicas,
            voters,
            zone.algorithm.value,
            weights=self.data_nodes.weights,
            domains=self.data_nodes.domains,
        )


def why_not_restorable(target: StoredTarget, intent: ZoneIntent, data_nodes: DataNodes, partitions: int) -> str:
    """Return what stands against ``target`` as the placement of ``intent`` on ``data_nodes``; empty:
    nothing."""
    pointer = target.pointer
    missing = sorted(set(pointer.nodes) - set(data_nodes.nodes))
    if missing:
        used = {pointer.nodes[index] for index in np.unique(matrix_of(target)).tolist()}
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
    rows = renumbered(pointer.nodes, matrix_of(target), data_nodes.nodes).astype(np.int32)
    surplus = None
    if intent.zone.algorithm is DistributionAlgorithm.BALANCED and rows.size:
        # Compiled kernels are loaded where a zone needs them: half a second of each start otherwise.
        from rebalance.kernels.balanced import Placed, surplus_of

        placed = Placed(data_nodes.nodes, rows, pointer.consensus)
        surplus = surplus_of(placed, data_nodes.weights, data_nodes.domains)
    return PlacementResult(zone_id, data_nodes.nodes, rows, pointer.consensus, Engine.LOCAL, surplus)
