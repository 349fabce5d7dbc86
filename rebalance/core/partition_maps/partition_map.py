"""Partition maps: what each node says of its copies (single maps), and all of them together (full maps).

A node's own map is always up to date; a full map is what the coordinator had heard when it built it, and may
lag behind the nodes (PME-109). Maps are values: a change makes a new one. Source: Ignite 2's partition map
exchange (PME-062, PME-063, PME-065, PME-098, PME-106, PME-111, PME-140).

A pointer names the chunks of the full map that holds for a zone. Its ``version`` is the cluster's topology
version for this zone: the major number is that of the recorded topology (nodes joined or left), the minor one
counts changes of primaries since. ``sequence`` counts every published change.

Two assignments say which node leads a partition. The *ideal* one comes from placement, its first node is the
preferred primary. The *effective* one is what is true while copies are missing or late: its first node must own
its copy, so that the primary always has the most actual data. In a stable topology the two are the same list.
(PME-076..087; Ignite 2's late affinity.)

A record stands at a position in a partition's log. A counter alone does not say whose record it is: the tail of
a dead primary that nobody acknowledged may have a higher counter than records that were acknowledged since. So
all comparisons are of positions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from catalog.core.codec import Codec, Record
from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.topology_version import TopologyVersion


class CopyState(Enum):
    """One copy of a partition, as its node reports it."""

    MOVING = "MOVING"  # it is being filled and must not lead
    OWNING = "OWNING"  # it is complete
    RENTING = "RENTING"  # complete, but nobody wants it any more
    EVICTED = "EVICTED"
    LOST = "LOST"


class PrimaryStrategy(Enum):
    """Strategy for a temporary primary. AVAILABILITY: at activation, after a change of the baseline, and when a
    node left. JOIN: when nodes joined, whose first role is that of a backup."""

    AVAILABILITY = "AVAILABILITY"
    JOIN = "JOIN"


def effective(
    ideal: Sequence[str],
    states: Mapping[str, CopyState],
    strategy: PrimaryStrategy = PrimaryStrategy.AVAILABILITY,
    joined: Collection[str] = (),
) -> tuple[str, ...]:
    """The assignment that holds: ``ideal`` with an owner of the partition in front.

    ``states``: node -> state of its copy, living nodes only. With JOIN a node of ``joined`` never comes first
    while another owner is there. An owner outside of ``ideal`` leads only when none in it
    owns a copy, in name order; without any owner nobody may lead, and the answer is empty.
    """
    late = frozenset(joined) if strategy is PrimaryStrategy.JOIN else frozenset()
    owners = [node for node in ideal if states.get(node) is CopyState.OWNING]
    others = sorted(node for node, state in states.items() if state is CopyState.OWNING and node not in ideal)
    if not owners and not others:
        return ()
    ranked = sorted(owners, key=lambda node: node in late)
    primary = (ranked or others)[0]
    if ranked and ranked[0] in late and others:
        primary = others[0]
    return (primary, *(node for node in ideal if node != primary))


def surplus_copies(ideal: Sequence[str], states: Mapping[str, CopyState]) -> frozenset[str]:
    """Owners that nobody needs any more: outside of ``ideal``, and every ideal node owns its copy (PME-082).
    They become RENTING."""
    if any(states.get(node) is not CopyState.OWNING for node in ideal):
        return frozenset()
    return frozenset(node for node, state in states.items() if state is CopyState.OWNING and node not in ideal)


def preferred_primary(peers: Sequence[str], alive: Collection[str]) -> str | None:
    """The first voter that lives: who should lead. None when none of them does (IEP-037: never a learner)."""
    return next((node for node in peers if node in alive), None)


MINOR_BITS = 32


class StorePosition(NamedTuple):
    """``epoch``: the exchange that made the primary which wrote the record (``epoch_of``). ``counter`` counts
    the records of the partition from 1 and goes on over epochs.

    A tuple, since servers compare and keep millions of them: order and hash are those of the pair.
    """

    epoch: int
    counter: int

    def __str__(self) -> str:
        return f"{version_of(self.epoch)}:{self.counter}"


NO_RECORD = StorePosition(0, 0)
"""Position before the first record."""


def epoch_of(version: TopologyVersion) -> int:
    """The version as one number below 2**63 that keeps the order. Raises ValueError beyond 2**31 major or 2**32
    minor versions."""
    if version.major >> 31 or version.minor >> MINOR_BITS:
        raise ValueError(f"version {version} is beyond 2147483647.4294967295")
    return version.major << MINOR_BITS | version.minor


def version_of(epoch: int) -> TopologyVersion:
    """The reverse of ``epoch_of``."""
    return TopologyVersion(epoch >> MINOR_BITS, epoch & (1 << MINOR_BITS) - 1)


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
"""States to which a copy may go, by the state that it is in; ``None``: there is no copy. An EVICTED copy is a
mark without data."""


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
        """Number of partitions that it names."""
        return len(self.copies)

    def describe(self) -> str:
        """The log line of a single map (PME-063)."""
        return (
            f"zone={self.zone} moving={self.moving} top={self.version} updateSeq={self.sequence} "
            f"size={self.size}"
        )


@dataclass(frozen=True, slots=True, order=True)
class MapStamp:
    """Rank of a full map among those of one version: newer is that of the coordinator that joined later, then
    the later change. Coordinators follow each other in join order, so a successor's maps win."""

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
        """Number of nodes that it names."""
        return len(self.nodes)

    @property
    def entries(self) -> int:
        """Number of copies that it names, of all nodes."""
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
    """Outcome for a single map that reached a full map."""

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


MAP_PERIOD_S = 1.0
"""Shortest time between two writes of a node's map, and of zones' maps by the leading controller."""


@dataclass(frozen=True, slots=True)
class ZoneMapPointer(Record):
    """``coordinator``: the controller that merged it. ``chunks`` keys hold ``size_bytes`` bytes together.

    Three CRC-32 tell what changed: ``primaries``; ``routes``, all that clients route by; ``content``,
    everything.
    """

    version: TopologyVersion
    sequence: int
    coordinator: str
    chunks: int
    size_bytes: int
    primaries: int
    routes: int
    content: int

    @property
    def tag(self) -> str:
        """Names this state of the map, for caches: equal tags, equal maps."""
        return f"{self.version}-{self.sequence}"


ZoneMapPointer.codec = Codec(ZoneMapPointer)


def next_version(before: ZoneMapPointer | None, topology: int, primaries: int) -> TopologyVersion:
    """The version of a map that is merged now. It never goes back, also if the record of the topology did."""
    if before is None or topology > before.version.major:
        return TopologyVersion(topology)
    return before.version.next_minor if primaries != before.primaries else before.version
