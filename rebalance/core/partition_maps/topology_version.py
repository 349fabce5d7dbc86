"""Versions of the topology, the events that make them, and the cluster as it is after each event.

Events come in one order for all nodes (the ring): each gets the next version. Members that come or go count the
major number up (5.0 -> 6.0), everything else the minor one (6.0 -> 6.1). Source: PME-002..015, PME-019,
PME-020, PME-110, PME-112, PME-127.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from catalog.core.zone import DEFAULT_LOSS_POLICY, LossPolicy, ZoneId


@dataclass(frozen=True, slots=True, order=True)
class TopologyVersion:
    major: int
    minor: int = 0

    @property
    def next_major(self) -> TopologyVersion:
        return TopologyVersion(self.major + 1)

    @property
    def next_minor(self) -> TopologyVersion:
        return TopologyVersion(self.major, self.minor + 1)

    @classmethod
    def parse(cls, text: str) -> TopologyVersion:
        """Raises ValueError for anything but ``major.minor``."""
        major, dot, minor = text.partition(".")
        if not dot or not (major.isdecimal() and minor.isdecimal()):
            raise ValueError(f"a topology version is major.minor, as 6.1, not {text!r}")
        return cls(int(major), int(minor))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


NO_VERSION = TopologyVersion(0)


class Trigger(Enum):
    """Events that start an exchange. The first three change the members, all others are custom events."""

    NODE_JOINED = "NODE_JOINED"
    NODE_LEFT = "NODE_LEFT"  # in order
    NODE_FAILED = "NODE_FAILED"  # it stopped answering
    ACTIVATE = "ACTIVATE"  # of the zones that it names; of all where it names none
    DEACTIVATE = "DEACTIVATE"
    BASELINE_SET = "BASELINE_SET"
    ZONE_START = "ZONE_START"
    ZONE_STOP = "ZONE_STOP"
    SNAPSHOT_CREATE = "SNAPSHOT_CREATE"
    SNAPSHOT_RESTORE = "SNAPSHOT_RESTORE"
    LOG_SWITCH = "LOG_SWITCH"  # the write-ahead log of all nodes, on or off
    AFFINITY_CHANGE = "AFFINITY_CHANGE"  # new primaries are ready: the late affinity switch
    TARGET_SET = "TARGET_SET"  # other ideal lists: those of the revision that each zone names
    LOSS_RESET = "LOSS_RESET"  # somebody says that lost partitions may be used as they are

    @property
    def changes_members(self) -> bool:
        return self in (Trigger.NODE_JOINED, Trigger.NODE_LEFT, Trigger.NODE_FAILED)


@dataclass(frozen=True, slots=True)
class ZoneSpec:
    """A zone as an exchange sees it. ``copies`` counts the primary and its backups. ``targets``: the
    metastore's revision as of which its ideal lists are read, 0 where nodes compute them. ``life``: the zone's,
    which no exchange asks for."""

    zone_id: ZoneId
    partitions: int
    copies: int
    policy: LossPolicy = DEFAULT_LOSS_POLICY
    targets: int = 0
    life: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class DiscoveryEvent:
    """One event of the ring. ``node`` and ``order`` are those of the node that came or went; ``zones`` are
    started, stopped, activated, deactivated or reset by it, named by a snapshot, or brought by the node that
    joins; ``baseline`` belongs to BASELINE_SET, ``basis`` to AFFINITY_CHANGE: the exchange whose late primaries
    are ready; ``dead`` to LOSS_RESET: servers that will not be back, as somebody says."""

    version: TopologyVersion
    trigger: Trigger
    node: str = ""
    order: int = 0
    is_client: bool = False
    zones: tuple[ZoneSpec, ...] = ()
    baseline: frozenset[str] | None = None
    basis: TopologyVersion | None = None
    dead: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes that are there and zones that are open, as of ``version``.

    ``servers`` and ``clients`` map names to join orders. ``baseline``: the nodes that keep data, also while
    they are away; None means that every server does. ``born``: the version at which a zone was first opened.
    ``resting``: zones that are deactivated, besides ``active``, which is of all.
    """

    version: TopologyVersion = NO_VERSION
    servers: Mapping[str, int] = field(default_factory=dict)
    clients: Mapping[str, int] = field(default_factory=dict)
    baseline: frozenset[str] | None = None
    zones: Mapping[ZoneId, ZoneSpec] = field(default_factory=dict)
    born: Mapping[ZoneId, TopologyVersion] = field(default_factory=dict)
    active: bool = True
    resting: frozenset[ZoneId] = frozenset()

    @property
    def coordinator(self) -> str | None:
        """The oldest server: the one with the lowest order (PME-110). None when there is no server."""
        return min(self.servers, key=self.servers.__getitem__, default=None)

    @property
    def affinity_nodes(self) -> tuple[str, ...]:
        """Nodes that hold data, by name; those of a baseline also while they are away."""
        return tuple(sorted(self.servers if self.baseline is None else self.baseline))

    @property
    def open_zones(self) -> Mapping[ZoneId, ZoneSpec]:
        if not self.active:
            return {}
        if not self.resting:
            return self.zones
        return {zone_id: zone for zone_id, zone in self.zones.items() if zone_id not in self.resting}

    def version_after(self, trigger: Trigger) -> TopologyVersion:
        return self.version.next_major if trigger.changes_members else self.version.next_minor

    def new_zones(self, event: DiscoveryEvent) -> tuple[ZoneSpec, ...]:
        """Zones of the event that were not there before it."""
        return tuple(zone for zone in event.zones if zone.zone_id not in self.zones)

    def after(self, event: DiscoveryEvent) -> Cluster:
        """The cluster that the event makes. Raises ValueError when it is not the next event. A join may leave
        versions out: those of another life of the metastore."""
        due = self.version_after(event.trigger)
        skips = event.trigger is Trigger.NODE_JOINED and event.version > due and not event.version.minor
        if event.version != due and not skips:
            raise ValueError(f"event {event.trigger.value} has version {event.version}, the next one is {due}")
        moved = replace(self, version=event.version)
        match event.trigger:
            case Trigger.NODE_JOINED if event.is_client:
                return replace(moved, clients={**self.clients, event.node: event.order})
            case Trigger.NODE_JOINED:
                return replace(moved, servers={**self.servers, event.node: event.order})._opened(event)
            case Trigger.NODE_LEFT | Trigger.NODE_FAILED:
                servers = {name: order for name, order in self.servers.items() if name != event.node}
                clients = {name: order for name, order in self.clients.items() if name != event.node}
                return replace(moved, servers=servers, clients=clients)
            case Trigger.ACTIVATE:
                named = {zone.zone_id for zone in event.zones}
                born = {**dict.fromkeys(named or self.zones, event.version), **self.born}
                active, resting = self.active or not named, self.resting - named
                return replace(moved, active=active, resting=resting, born=born)
            case Trigger.DEACTIVATE if event.zones:
                return replace(moved, resting=self.resting | {zone.zone_id for zone in event.zones})
            case Trigger.DEACTIVATE:
                return replace(moved, active=False)
            case Trigger.BASELINE_SET:
                return replace(moved, baseline=event.baseline)
            case Trigger.ZONE_START:
                return moved._opened(event)
            case Trigger.TARGET_SET:
                changed = {each.zone_id: each for each in event.zones if each.zone_id in self.zones}
                return replace(moved, zones={**self.zones, **changed})
            case Trigger.ZONE_STOP:
                gone = {zone.zone_id for zone in event.zones}
                zones = {key: zone for key, zone in self.zones.items() if key not in gone}
                born = {key: version for key, version in self.born.items() if key not in gone}
                return replace(moved, zones=zones, born=born, resting=self.resting - gone)
            case Trigger.SNAPSHOT_RESTORE:
                reborn = {zone.zone_id: event.version for zone in event.zones}
                return replace(moved, born={**self.born, **reborn})
            case _:
                return moved

    def _opened(self, event: DiscoveryEvent) -> Cluster:
        """``self`` is at the event's version already. The first server's own zones are new too."""
        new = self.new_zones(event)
        zones = {**self.zones, **{zone.zone_id: zone for zone in new}}
        born = {**self.born, **({zone.zone_id: event.version for zone in new} if self.active else {})}
        return replace(self, zones=zones, born=born)
