"""Ownership of the partitions of store zones, as of the ring's last event and the last result: a value for
views, routing and controllers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from catalog.core.zone import ZoneId
from rebalance.core.moves.move_status import StoreOwners
from rebalance.core.partition_maps.topology_version import NO_VERSION, TopologyVersion
from rebalance.exchange.core.exchange_messages import Outcomes, PartitionOutcome
from rebalance.store.core.ring_records import RingState

NO_OUTCOME = PartitionOutcome()


@dataclass(frozen=True, slots=True, eq=False)
class StoreOwnership:
    """Equal only to itself. ``outcomes``: of the last result, which is of version ``result``; ``gone``: who
    left or failed since, in order; ``silent``: members that may have failed, but were not found so yet."""

    ring: RingState = field(default_factory=RingState)
    outcomes: Outcomes = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    result: TopologyVersion = NO_VERSION
    silent: frozenset[str] = frozenset()

    @property
    def servers(self) -> AbstractSet[str]:
        """Names of those that take part now."""
        return self.ring.incarnations.keys()

    def has(self, zone_id: ZoneId) -> bool:
        """Check that the ring has the zone."""
        return zone_id in self.ring.cluster.zones

    def is_resting(self, zone_id: ZoneId) -> bool:
        """Check that the zone is deactivated."""
        return self.has(zone_id) and zone_id not in self.ring.cluster.open_zones

    def lost_partitions(self, zone_id: ZoneId) -> int:
        """Count the zone's lost partitions."""
        return sum(outcome.is_lost for outcome in self.outcomes.get(zone_id, ()))

    def outcome(self, zone_id: ZoneId, partition: int) -> PartitionOutcome:
        """An empty one before the first result."""
        outcomes = self.outcomes.get(zone_id, ())
        outcome = outcomes[partition] if partition < len(outcomes) else NO_OUTCOME
        return outcome.without(self.gone) if self.gone else outcome

    def copies(self) -> Counter[str]:
        """Count the copies of each node, by name."""
        counts: Counter[str] = Counter()
        for zone_id in self.ring.cluster.zones:
            for outcome in self.outcomes.get(zone_id, ()):
                counts.update({*outcome.in_sync, *outcome.effective, *outcome.filling})
        return counts

    def held_by(self, node: str) -> Iterator[tuple[ZoneId, int]]:
        """Partitions that ``node`` has a copy of, in the order of zones."""
        for zone_id in sorted(self.ring.cluster.zones):
            for number, outcome in enumerate(self.outcomes.get(zone_id, ())):
                if node in (*outcome.in_sync, *outcome.effective, *outcome.filling):
                    yield zone_id, number

    def changed_since(self, before: StoreOwnership, zone_id: ZoneId) -> Sequence[int]:
        """Partitions of which something may be different."""
        outcomes, known = self.outcomes.get(zone_id, ()), before.outcomes.get(zone_id, ())
        count = self.ring.cluster.zones[zone_id].partitions if self.has(zone_id) else len(known)
        is_same = self.servers == before.servers and self.gone == before.gone and self.silent == before.silent
        is_same = is_same and self.is_resting(zone_id) == before.is_resting(zone_id)
        if not is_same or self.has(zone_id) != before.has(zone_id) or len(outcomes) != len(known):
            return range(count)
        pairs = zip(outcomes, known, strict=True)
        return [number for number, (now, earlier) in enumerate(pairs) if now is not earlier]

    def owners(self, zone_id: ZoneId, partition: int) -> StoreOwners | None:
        """Return the owners of a partition; None: the ring has no such zone."""
        if not self.has(zone_id):
            return None
        outcome = self.outcome(zone_id, partition)
        return StoreOwners(
            outcome.in_sync,
            outcome.effective,
            outcome.is_lost,
            outcome.filling,
            outcome.epoch,
            outcome.position.counter,
            self.servers,
            self.is_resting(zone_id),
            self.silent,
        )
