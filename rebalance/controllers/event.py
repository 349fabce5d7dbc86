"""Event of a zone: the wish of its intent and data nodes, and the check that its newest target is that
already."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.core.zone import DistributionAlgorithm, ZoneId, ZoneIntent
from rebalance.core.assignments.target import TargetPointer, is_target_of
from rebalance.core.keyspace.epoch import event_revision, split_event_revision
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.txn import Compare, KeyValue
from rebalance.core.topology.data_nodes import DataNodes, replica_counts
from rebalance.ports.placement import PlacementRequest


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
