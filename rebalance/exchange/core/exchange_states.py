"""One partition map exchange as planned from its event: its type, what it does, and what may join it.

Every node plans for itself from the same events, and comes to the same plan. Source: PME-001..015,
PME-025..033, PME-067..070, PME-085, PME-093, PME-097.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import PrimaryStrategy
from rebalance.core.partition_maps.topology_version import Cluster, DiscoveryEvent, Trigger, ZoneSpec


class ExchangeType(Enum):
    """ALL: every server takes part. CLIENT: this node, a client, asks the coordinator for the full map.
    NONE: only the topology version changes."""

    ALL = "ALL"
    CLIENT = "CLIENT"
    NONE = "NONE"


class Phase(Enum):
    """Phase of a node's running exchange. A server passes them in this order, from LATCH on with the others."""

    INIT = "INIT"
    TOPOLOGY = "TOPOLOGY"  # the write lock is asked for, to make this exchange the topology future
    RELEASE = "RELEASE"  # updates of earlier versions end here
    LATCH = "LATCH"  # ... and on every other server
    COMMITS = "COMMITS"  # commits from primaries to backups end here
    PREPARE = "PREPARE"  # history is reserved, copies are restored and created
    SENT = "SENT"  # the single map is on its way; no copy of this node changes its state
    COLLECT = "COLLECT"  # the same on the coordinator: single maps come in
    COMMIT = "COMMIT"  # ... and what was concluded is written down before anybody is told
    DONE = "DONE"


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """``is_local``: a node of the baseline left in order while every copy was in place. Each server puts the
    next owner in front for itself, and nobody waits for anybody (PME-005)."""

    type: ExchangeType
    is_local: bool = False
    starts: tuple[ZoneSpec, ...] = ()
    stops: tuple[ZoneId, ...] = ()
    assigns_states: bool = False
    detects_lost: bool = False

    @property
    def is_distributed(self) -> bool:
        return self.type is ExchangeType.ALL and not self.is_local


def plan_exchange(event: DiscoveryEvent, before: Cluster, viewer: str, rebalanced: bool) -> ExchangePlan:
    """The plan of ``viewer`` for ``event``, ``before`` being the cluster until then.

    ``rebalanced``: the exchange before left every effective assignment ideal and every copy in place; all
    servers know that from its full message.
    """
    after = before.after(event)
    if viewer in after.clients:
        own_or_servers = event.node == viewer or not event.is_client
        return ExchangePlan(ExchangeType.CLIENT if own_or_servers else ExchangeType.NONE)
    if event.is_client:
        return ExchangePlan(ExchangeType.NONE)
    return ExchangePlan(
        ExchangeType.ALL,
        is_local=rebalanced and _leaves_in_order(event, before),
        starts=_starts(event, before, after, viewer),
        stops=_stops(event, before),
        assigns_states=assigns_states(event),
        detects_lost=detects_lost(event),
    )


def assigns_states(event: DiscoveryEvent) -> bool:
    """Check that outdated owners are looked for (PME-093, PME-137)."""
    return not event.is_client and event.trigger in (
        Trigger.NODE_JOINED,
        Trigger.ACTIVATE,
        Trigger.BASELINE_SET,
        Trigger.TARGET_SET,
        Trigger.ZONE_START,
        Trigger.SNAPSHOT_RESTORE,
    )


def detects_lost(event: DiscoveryEvent) -> bool:
    """Instead of the above (PME-097)."""
    return not event.is_client and event.trigger in (Trigger.NODE_LEFT, Trigger.NODE_FAILED)


def is_mergeable(event: DiscoveryEvent, before: Cluster) -> bool:
    """Check that an exchange that was collected already may take this one along (PME-067, PME-070): members
    that come or go, but not one that brings a new zone, and no custom event."""
    return event.trigger.changes_members and not before.new_zones(event)


def needs_single_map(event: DiscoveryEvent) -> bool:
    """A merged join waits for that server's single map (PME-069)."""
    return event.trigger is Trigger.NODE_JOINED and not event.is_client


def affinity_strategy(events: tuple[DiscoveryEvent, ...]) -> PrimaryStrategy:
    """Choose how temporary primaries are found (PME-085, PME-086): JOIN while nodes only joined."""
    servers = tuple(each for each in events if not each.is_client)
    joined_only = bool(servers) and all(each.trigger is Trigger.NODE_JOINED for each in servers)
    return PrimaryStrategy.JOIN if joined_only else PrimaryStrategy.AVAILABILITY


def keeps_primaries(events: tuple[DiscoveryEvent, ...]) -> bool:
    """Check that a primary that still owns its copy stays, even where the ideal one does too (PME-131,
    PME-136)."""
    return not any(
        each.trigger in (Trigger.NODE_LEFT, Trigger.NODE_FAILED, Trigger.AFFINITY_CHANGE, Trigger.ACTIVATE)
        and not each.is_client
        for each in events
    )


def waits_for_primaries(events: tuple[DiscoveryEvent, ...]) -> bool:
    """Check that a primary stays where the ideal one is not ready yet: the switch of one zone is none of the
    others', whose copies may be filled for long."""
    return any(each.trigger is Trigger.AFFINITY_CHANGE for each in events)


def _leaves_in_order(event: DiscoveryEvent, before: Cluster) -> bool:
    return (
        event.trigger is Trigger.NODE_LEFT
        and before.baseline is not None
        and event.node in before.baseline
        and len(before.servers) > 1
    )


def _starts(event: DiscoveryEvent, before: Cluster, after: Cluster, viewer: str) -> tuple[ZoneSpec, ...]:
    """Zones to open before the affinity is computed (PME-029, PME-031, PME-032)."""
    if not after.active:
        return ()
    if event.trigger is Trigger.ACTIVATE and event.zones:
        return event.zones
    if event.trigger is Trigger.ACTIVATE or (event.trigger is Trigger.NODE_JOINED and event.node == viewer):
        return tuple(after.open_zones.values())
    if event.trigger is Trigger.SNAPSHOT_RESTORE:
        return event.zones
    return before.new_zones(event) if event.trigger in (Trigger.NODE_JOINED, Trigger.ZONE_START) else ()


def _stops(event: DiscoveryEvent, before: Cluster) -> tuple[ZoneId, ...]:
    """Zones whose public interface closes (PME-030)."""
    if event.trigger is Trigger.DEACTIVATE and not event.zones:
        return tuple(before.zones)
    if event.trigger in (Trigger.DEACTIVATE, Trigger.ZONE_STOP, Trigger.SNAPSHOT_RESTORE):
        return tuple(each.zone_id for each in event.zones)
    return ()
