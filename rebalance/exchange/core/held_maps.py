"""Knowledge of one node after its last exchange: full maps, assignments, lost partitions. A value.

``basis`` is the last exchange that decided states; ``version`` the topology version, which may be higher, since
clients that come and go count it up. State updates name the basis, so that one from before an exchange cannot
change what the exchange decided.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import (
    FullMap,
    MapStamp,
    Reception,
    SingleMap,
    changes_of,
    with_changes,
    with_single,
)
from rebalance.core.partition_maps.topology_version import NO_VERSION, Cluster, DiscoveryEvent, TopologyVersion
from rebalance.exchange.core.exchange_messages import FullMessage, PartitionOutcome, ResultState, SingleMessage
from rebalance.exchange.core.late_affinity import (
    ZoneAffinity,
    can_agree,
    can_switch,
    has_ready_primaries,
    wait_list,
    without_node,
)

NOT_AGREED = -1
"""Sequence of maps that each server made for itself: they may differ until the coordinator publishes its
own."""


@dataclass(frozen=True, slots=True)
class HeldMaps:
    version: TopologyVersion = NO_VERSION
    basis: TopologyVersion = NO_VERSION
    maps: Mapping[ZoneId, FullMap] = field(default_factory=dict)
    affinities: Mapping[ZoneId, ZoneAffinity] = field(default_factory=dict)
    lost: Mapping[ZoneId, frozenset[int]] = field(default_factory=dict)
    rebalanced: bool = False
    results: ResultState | None = None
    """Results committed until now; None where results are not kept."""

    @property
    def late(self) -> dict[tuple[ZoneId, int], str]:
        """The wait list of the affinity switch (PME-138)."""
        return wait_list(self.affinities, self.maps)

    @property
    def has_updates(self) -> bool:
        """Check for states that changed since the last exchange, as far as is known here."""
        return any(each.stamp.sequence > 0 for each in self.maps.values())

    def is_ready(self, zone: ZoneId, *, waits: bool = True) -> bool:
        """Check that a switch is due in the zone: every late primary is ready, or sets are to be changed and
        nothing is filled any more. Without ``waits`` also while some copies are not ready."""
        affinity, full = self.affinities[zone], self.maps[zone]
        if can_switch({zone: affinity}, self.maps) or (not waits and has_ready_primaries(affinity, full)):
            return True
        results = self.results
        return results is not None and can_agree(affinity, full, results.outcomes.get(zone, ()), waits=waits)

    def outcome(self, zone: ZoneId, partition: int) -> PartitionOutcome | None:
        """Return the outcome as committed with the last exchange."""
        outcomes = self.results.outcomes.get(zone, ()) if self.results is not None else ()
        return outcomes[partition] if partition < len(outcomes) else None

    def news_of(self, single: SingleMap) -> tuple[SingleMap, int | None] | None:
        """Return what the full map does not have of that node's states, and the sequence after which that
        changed; the whole map without a sequence where copies are gone; None where there is nothing. Counters
        and sizes change with every update, and are told with the next exchange."""
        full = self.maps.get(single.zone)
        if full is None or single.node not in full.nodes:
            return None
        known = full.nodes[single.node]
        if not known.keys() <= single.copies.keys():
            return single, None
        copies = {
            number: copy
            for number, copy in single.copies.items()
            if (other := known.get(number)) is None or other.state is not copy.state
        }
        return (replace(single, copies=copies), full.heard.get(single.node, -1)) if copies else None

    def after_exchange(
        self,
        message: FullMessage,
        affinities: Mapping[ZoneId, ZoneAffinity],
        zones: Collection[ZoneId] = (),
    ) -> HeldMaps:
        """``zones``: of the cluster, deactivated ones too."""
        return replace(
            self,
            version=message.version,
            basis=message.basis or message.version,
            maps=message.maps,
            affinities=affinities,
            lost=message.lost,
            rebalanced=message.rebalanced,
            results=self.results and self.results.after_message(message.version, message.outcomes, zones),
        )

    def can_lose(self, node: str) -> bool:
        """Check that ``node`` may leave without an exchange: nothing is late, and every partition has another
        node. All servers answer alike, because it follows from the last exchange only (PME-005)."""
        lists = (real for each in self.affinities.values() for real in each.effective)
        return self.rebalanced and not self.lost and all(real and real != (node,) for real in lists)

    def after_leave(self, event: DiscoveryEvent, after: Cluster) -> HeldMaps:
        """A node of the baseline left in order: the next in each list is in front now, and nothing is
        copied."""
        coordinator = after.coordinator or ""
        stamp = MapStamp(after.servers.get(coordinator, 0), NOT_AGREED)
        maps = {
            zone: replace(each.without(event.node), version=event.version, coordinator=coordinator, stamp=stamp)
            for zone, each in self.maps.items()
        }
        affinities = {zone: without_node(each, event.node) for zone, each in self.affinities.items()}
        return replace(self, version=event.version, basis=event.version, maps=maps, affinities=affinities)

    def with_state(self, message: SingleMessage, order: int) -> tuple[HeldMaps, Reception]:
        """Take in a node's state update, on the coordinator. The strongest reception of its maps; STALE when it
        speaks of another exchange."""
        if message.basis != self.basis:
            return self, Reception.STALE
        maps, receptions = dict(self.maps), []
        for zone, single in message.maps.items():
            if zone not in maps:
                continue
            changed, reception = with_single(maps[zone], single, message.since.get(zone))
            receptions.append(reception)
            if reception is Reception.TAKEN:
                # Maps of a coordinator that went are continued under the order of the one that is.
                stamp = MapStamp(max(order, changed.stamp.order), changed.stamp.sequence)
                maps[zone] = replace(changed, stamp=stamp)
        if Reception.TAKEN in receptions:
            return replace(self, maps=maps), Reception.TAKEN
        return self, receptions[0] if receptions else Reception.STALE

    def with_update(self, message: FullMessage) -> tuple[HeldMaps, bool]:
        """A full message without an exchange: newer maps of the same basis replace those that are held, or
        change them. And whether changes before these are missing here."""
        newer: dict[ZoneId, FullMap] = {}
        is_missing = False
        for zone, full in message.maps.items() if message.version == self.basis else ():
            held = self.maps.get(zone)
            if held is None or full.stamp <= held.stamp:
                continue
            since = message.since.get(zone)
            if since is None:
                newer[zone] = full
            elif since == held.stamp:
                newer[zone] = with_changes(held, full)
            else:
                is_missing = True
        return (replace(self, maps={**self.maps, **newer}) if newer else self), is_missing

    def changes_after(self, before: HeldMaps, order: int) -> FullMessage:
        """Return the coordinator's message to the others after a change of states (PME-118, PME-121): of
        thousands of copies a few."""
        maps: dict[ZoneId, FullMap] = {}
        since: dict[ZoneId, MapStamp] = {}
        for zone, full in self.maps.items():
            known = before.maps[zone]
            if known is full:
                continue
            changes = changes_of(known, full)
            maps[zone] = full if changes is None else changes
            if changes is not None:
                since[zone] = known.stamp
        return FullMessage(None, self.basis, order, maps, since=since)

    def stamps_message(self, order: int) -> FullMessage:
        """Return a message of the maps that are current: a node that has missed changes asks for all."""
        maps = {zone: replace(full, nodes={}) for zone, full in self.maps.items()}
        return FullMessage(
            None, self.basis, order, maps, since={zone: full.stamp for zone, full in maps.items()}
        )

    def update_message(self, order: int) -> FullMessage:
        """All maps, for somebody who has missed changes."""
        return FullMessage(None, self.basis, order, self.maps)

    def restamped(self, order: int) -> HeldMaps:
        """The maps as the next change of the coordinator of ``order``."""
        maps = {
            zone: replace(each, stamp=MapStamp(order, max(each.stamp.sequence, 0) + 1))
            for zone, each in self.maps.items()
        }
        return replace(self, maps=maps)
