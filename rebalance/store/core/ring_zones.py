"""The leading controller's part of the ring that concerns zones: which begin and end, and whose lists are new.

Pure. A zone's ideal lists are read by servers as of the revision that its event names; so an event is due
where the lists of now are other ones than those of that revision. Another loss policy goes the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from catalog.core.zone import DEFAULT_LOSS_POLICY, LossPolicy, ZoneId
from rebalance.core.partition_maps.topology_version import Trigger, ZoneSpec
from rebalance.exchange.core.exchange_messages import Lists
from rebalance.store.core.ring_records import RingState


@dataclass(frozen=True, slots=True)
class AssignedZone:
    """A zone of the engine ``store`` and its ideal lists as of the metastore's ``revision``."""

    zone_id: ZoneId
    partitions: int
    lists: Lists
    revision: int
    policy: LossPolicy = DEFAULT_LOSS_POLICY
    life: str = ""

    @property
    def is_complete(self) -> bool:
        """Every partition was placed."""
        return len(self.lists) == self.partitions and all(self.lists)

    @property
    def spec(self) -> ZoneSpec:
        """Return the zone's spec, with ``revision`` as that of its targets."""
        copies = max(map(len, self.lists), default=0)
        return ZoneSpec(self.zone_id, self.partitions, copies, self.policy, self.revision, self.life)


@dataclass(frozen=True, slots=True)
class AppendZones:
    """Append ``trigger`` with ``zones`` and ``dead``, if the ring's last event is still ``after``."""

    after: int
    trigger: Trigger
    zones: tuple[ZoneSpec, ...]
    dead: frozenset[str] = frozenset()


def next_zone_event(
    state: RingState,
    placed: Collection[AssignedZone],
    dropped: Collection[ZoneId],
    targets: Mapping[ZoneId, Lists | None],
    *,
    may_set: bool,
) -> AppendZones | None:
    """``targets``: the lists that servers read for each zone of the ring; None: they are compacted, and
    who joins now would read others. ``may_set``: False so soon after a TARGET_SET that changes are collected.

    Zones begin when they are placed and a server is there, and end only when they are known to be dropped.
    """
    opened = state.cluster.zones
    stopped = tuple(spec for zone, spec in sorted(opened.items()) if zone in dropped)
    if stopped:
        return AppendZones(state.number, Trigger.ZONE_STOP, stopped)
    complete = [zone for zone in sorted(placed, key=lambda zone: zone.zone_id) if zone.is_complete]
    started = tuple(zone.spec for zone in complete if zone.zone_id not in opened)
    if started and state.cluster.servers:
        return AppendZones(state.number, Trigger.ZONE_START, started)
    changed = tuple(
        zone.spec
        for zone in complete
        if zone.zone_id in opened
        and (targets.get(zone.zone_id) != zone.lists or opened[zone.zone_id].policy is not zone.policy)
    )
    return AppendZones(state.number, Trigger.TARGET_SET, changed) if changed and may_set else None
