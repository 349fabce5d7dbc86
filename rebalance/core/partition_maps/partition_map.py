"""Partition maps: what each node says of its copies (single maps), and all of them together (full maps).

A node's own map is always up to date; a full map is what the coordinator had heard when it built it, and may
lag behind the nodes (PME-109). Maps are values: a change makes a new one. Source: Ignite 2's partition map
exchange (PME-062, PME-063, PME-065, PME-098, PME-106, PME-111, PME-140).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.affinity import CopyState
from rebalance.core.partition_maps.store_positions import StorePosition
from rebalance.core.partition_maps.topology_version import TopologyVersion

TRANSITIONS: Mapping[CopyState | None, frozenset[CopyState]] = MappingProxyType(
    {
        None: frozenset((CopyState.MOVING, CopyState.OWNING, CopyState.LOST)),
        CopyState.MOVING: frozenset((CopyState.OWNING, CopyState.RENTING, CopyState.LOST)),
        CopyState.OWNING: frozenset((CopyState.MOVING, CopyState.RENTING, CopyState.LOST)),
        # A renting copy that is wanted again is filled anew: part of it may be gone already.
        CopyState.RENTING: frozenset((CopyState.EVICTED, CopyState.MOVING, CopyState.LOST)),
        CopyState.EVICTED: frozenset((CopyState.MOVING, CopyState.OWNING, CopyState.LOST)),
        CopyState.LOST: frozenset((CopyState.OWNING, CopyState.MOVING, CopyState.RENTING)),
    }
)
"""From which state a copy may go to which; ``None``: there is no copy. An EVICTED copy is a mark without
data."""


class ImpossibleTransitionError(ValueError):
    """A copy cannot go from the one state to the other."""


def changed_state(before: CopyState | None, after: CopyState) -> CopyState:
    """``after``; staying is no change. Raises ImpossibleTransitionError, which names both (PME-140)."""
    if after is before or after in TRANSITIONS[before]:
        return after
    allowed = ", ".join(sorted(state.value for state in TRANSITIONS[before]))
    was = before.value if before is not None else "no copy"
    raise ImpossibleTransitionError(f"a copy does not go from {was} to {after.value}; allowed: {allowed}")


@dataclass(frozen=True, slots=True)
class CopyReport:
    """One copy as its node reports it.

    ``counter`` is the number of the newest update up to which the copy is complete, ``epoch`` that of its
    primary (0 where updates have none), ``size`` its rows.
    ``refill``: its server asks for it to be emptied and filled anew, which is done where others are in sync.
    ``term`` and ``leads`` come from a replication group: the term in which the copy knows a leader, and
    whether it is that leader.
    """

    state: CopyState
    counter: int = 0
    size: int = 0
    term: int = 0
    leads: bool = False
    epoch: int = 0
    refill: bool = False

    @property
    def position(self) -> StorePosition:
        return StorePosition(self.epoch, self.counter)


@dataclass(frozen=True, slots=True)
class SingleMap:
    """The copies of one zone on one node. ``sequence`` grows with every change that the node makes."""

    zone: ZoneId
    node: str
    version: TopologyVersion
    sequence: int
    copies: Mapping[int, CopyReport] = field(default_factory=dict)

    @property
    def moving(self) -> int:
        return sum(copy.state is CopyState.MOVING for copy in self.copies.values())

    @property
    def size(self) -> int:
        """How many partitions it names."""
        return len(self.copies)

    def describe(self) -> str:
        """The log line of a single map (PME-063)."""
        return (
            f"zone={self.zone} moving={self.moving} top={self.version} updateSeq={self.sequence} "
            f"size={self.size}"
        )


@dataclass(frozen=True, slots=True, order=True)
class MapStamp:
    """Which of two full maps of one version is the newer: the coordinator that joined later, then the later
    change. Coordinators follow each other in join order, so a successor's maps win."""

    order: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class FullMap:
    """All copies of one zone: node -> partition -> report (PME-111).

    ``heard`` has, by node, the sequence of the single map that is in here: an older one changes nothing.
    """

    zone: ZoneId
    version: TopologyVersion
    coordinator: str
    stamp: MapStamp
    nodes: Mapping[str, Mapping[int, CopyReport]] = field(default_factory=dict)
    heard: Mapping[str, int] = field(default_factory=dict)

    def states(self, partition: int) -> dict[str, CopyState]:
        """Node -> state of its copy of ``partition``."""
        return {node: copies[partition].state for node, copies in self.nodes.items() if partition in copies}

    def reports(self, partition: int) -> dict[str, CopyReport]:
        return {node: copies[partition] for node, copies in self.nodes.items() if partition in copies}

    def owners(self, partition: int) -> frozenset[str]:
        return frozenset(node for node, state in self.states(partition).items() if state is CopyState.OWNING)

    @property
    def size(self) -> int:
        """How many nodes it names."""
        return len(self.nodes)

    @property
    def entries(self) -> int:
        """How many copies it names, of all nodes."""
        return sum(map(len, self.nodes.values()))

    def without(self, node: str) -> FullMap:
        kept = {name: copies for name, copies in self.nodes.items() if name != node}
        heard = {name: sequence for name, sequence in self.heard.items() if name != node}
        return replace(self, nodes=kept, heard=heard)

    def describe(self) -> str:
        """The log line of a full map (PME-106)."""
        return (
            f"zone={self.zone} nodeId={self.coordinator} nodeOrder={self.stamp.order} "
            f"updateSeq={self.stamp.sequence} size={self.size} topVer={self.version}"
        )


class Reception(Enum):
    """What became of a single map that reached a full map."""

    TAKEN = "TAKEN"
    REPEATED = "REPEATED"  # the same sequence was heard already
    STALE = "STALE"  # a later one was heard already
    UNKNOWN_NODE = "UNKNOWN_NODE"  # the node is not part of this topology
    GAP = "GAP"  # changes before these were not heard


def with_single(full: FullMap, single: SingleMap, since: int | None = None) -> tuple[FullMap, Reception]:
    """``full`` with the node's part replaced, its sequence one higher; or as it was, and why. With ``since``
    the single map has only what changed after the one of that sequence.

    Duplicates and messages that were overtaken change nothing (PME-109, PME-121).
    """
    if single.node not in full.nodes:
        return full, Reception.UNKNOWN_NODE
    heard = full.heard.get(single.node, -1)
    if single.sequence <= heard:
        return full, Reception.REPEATED if single.sequence == heard else Reception.STALE
    if since is not None and since != heard:
        return full, Reception.GAP
    grown = MapStamp(full.stamp.order, full.stamp.sequence + 1)
    copies = single.copies if since is None else {**full.nodes[single.node], **single.copies}
    nodes = {**full.nodes, single.node: copies}
    merged = replace(full, stamp=grown, nodes=nodes, heard={**full.heard, single.node: single.sequence})
    return merged, Reception.TAKEN


def changes_of(before: FullMap, after: FullMap) -> FullMap | None:
    """``after`` with those copies only that ``before`` has otherwise, or not at all. None where ``before`` has
    copies that ``after`` has not."""
    nodes: dict[str, Mapping[int, CopyReport]] = {}
    if not before.nodes.keys() <= after.nodes.keys():
        return None
    for node, copies in after.nodes.items():
        known = before.nodes.get(node, {})
        if copies is known:
            continue
        if not known.keys() <= copies.keys():
            return None
        changed = {number: copy for number, copy in copies.items() if known.get(number) != copy}
        if changed or node not in before.nodes:
            nodes[node] = changed
    return replace(after, nodes=nodes)


def with_changes(before: FullMap, changes: FullMap) -> FullMap:
    """The reverse: the map of which ``changes_of`` was made with ``before``."""
    nodes = {node: {**before.nodes.get(node, {}), **copies} for node, copies in changes.nodes.items()}
    return replace(changes, nodes={**before.nodes, **nodes})


def union(
    zone: ZoneId,
    version: TopologyVersion,
    coordinator: str,
    order: int,
    singles: Mapping[str, SingleMap],
) -> FullMap:
    """The full map as the single maps say it, before anything is decided (PME-017, PME-098). Nodes that have no
    copy of the zone are in it too, with no entry."""
    nodes = {node: singles[node].copies for node in sorted(singles)}
    heard = {node: singles[node].sequence for node in sorted(singles)}
    return FullMap(zone, version, coordinator, MapStamp(order, 0), nodes, heard)
