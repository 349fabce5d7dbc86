"""The nodes that a zone uses, and the quorum size that follows (decision 1).

A zone's timers are not stored: what waits, and until when, follows from the topology's times, the zone's two
settings and the data nodes as they are. So ALTER of a timer counts from the event that started it, a restart
changes nothing, and there is nothing to cancel when a node comes back.

Their history has one entry for each change of the set, newest last, bounded. The past does not change: an entry
has the time at which the set was written, also when a timer was due earlier.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from catalog.core.codec import Codec, Extensible, Record, listed
from catalog.core.quorum import consensus_size, default_quorum, effective_replicas
from catalog.core.zone import EVERY_NODE, TIMER_OFF, ConsistencyMode, DistributionAlgorithm, Zone, ZoneIntent
from catalog.core.zone_options import NodeFilters, may_use
from rebalance.core.topology.node_presence import Topology

DEFAULT_WEIGHT = 1.0
AT_ONCE_MS = 0
OWN_DOMAIN = "node:"
"""Prefix of the failure domain of a node that names none."""


@dataclass(frozen=True, slots=True)
class DataNodes(Record):
    """Data nodes of a zone in name order, and its effective quorum size.

    ``replicas`` and ``nodes_filter`` are what they were chosen for: others in the intent mean to derive anew.
    ``gone``: data nodes on which no new replica is placed until they are back, in name order: in
    HIGH_AVAILABILITY zones those that have left, and in any zone those without which copies were asked for
    again.
    ``weights`` and ``domains`` have one entry a node in balanced zones; empty where all weights are equal
    or no node names a failure domain: there they decide nothing.
    ``asked``: how often nodes were asked again for copies that moves went on without (``joiners``).
    Nothing else of a zone is in here, so that a version which touches no placement parameter writes nothing
    (decision 12).
    """

    nodes: tuple[str, ...]
    quorum: int
    replicas: int
    nodes_filter: str = EVERY_NODE
    weights: tuple[float, ...] = ()
    domains: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    asked: int = 0

    def __post_init__(self) -> None:
        check_traits(self.nodes, self.weights, self.domains)

    def traits(self, name: str) -> tuple[float | None, str | None]:
        """Weight and failure domain of a data node, each None where it decides nothing. Raises ValueError for
        another node."""
        at = self.nodes.index(name)
        weight = self.weights[at] if self.weights else None
        domain = self.domains[at] if self.domains else None
        return weight, None if domain is None else domain.removeprefix(OWN_DOMAIN)

    def are_chosen_for(self, zone: Zone) -> bool:
        """False while ``zone`` has parameters that these data nodes do not know yet."""
        return (
            self.replicas == zone.replicas
            and self.nodes_filter == zone.nodes_filter
            and zone.quorum_size in (None, self.quorum)
        )


def check_traits(nodes: Sequence[str], weights: Sequence[float], domains: Sequence[str]) -> None:
    """Raises ValueError where nodes are named twice, or traits do not go with them."""
    if len(set(nodes)) != len(nodes):
        raise ValueError("a node is named twice")
    if len(weights) not in (0, len(nodes)) or len(domains) not in (0, len(nodes)):
        raise ValueError("weights and domains are not one for each node")
    if any(weight <= 0 for weight in weights):
        raise ValueError("a weight is not above 0")


DataNodes.codec = Codec(DataNodes, omit=("gone", "asked"), required=("nodes_filter",))


def compute_data_nodes(
    previous: DataNodes | None, topology: Topology, intent: ZoneIntent, filters: NodeFilters, now_ms: int
) -> DataNodes:
    """The zone's data nodes at ``now_ms`` (wall clock, milliseconds), by its two timers.

    A node that lives, has all of the zone's profiles and matches its filter comes in ``auto_scale_up`` seconds
    after it joined; one that left goes out ``auto_scale_down`` seconds after that, and not at all if it is back
    by then. A new zone and an altered filter take what lives and matches, at once. A node that lives and does
    not match (any more) leaves at once (IEP-012), and so does one that is drained, living or not. One that is
    only *missing* changes nothing. A node that is not drained any more comes in as one that joined when it did.

    The derived quorum is derived anew when REPLICAS or the filter are altered, and else only grows with the
    nodes: no departure lowers it (decision 1). Raises FilterError for a filter that is none, which no catalog
    holds.
    """
    zone = intent.zone
    if previous is None or previous.nodes_filter != zone.nodes_filter:
        nodes = {presence.node.name for presence in topology.seen if may_use(zone, presence.node, filters)}
        nodes -= set(topology.drained)
    else:
        nodes = set(previous.nodes)
        for name, due_ms in _waiting_changes(previous, topology, zone, filters):
            if due_ms <= now_ms:
                nodes ^= {name}
    return data_nodes_of_names(previous, topology, zone, tuple(sorted(nodes)))


def data_nodes_of_names(
    previous: DataNodes | None, topology: Topology, zone: Zone, names: tuple[str, ...]
) -> DataNodes:
    """The zone's data nodes once they are ``names`` (sorted), with the quorum and the traits that follow."""
    quorum = zone.quorum_size or default_quorum(zone.replicas, len(names))
    if previous and zone.quorum_size is None and previous.are_chosen_for(zone):
        quorum = max(quorum, previous.quorum)
    weights, domains = node_traits(previous, topology, zone, names)
    gone = _gone(previous, topology, zone, names)
    fields = names, quorum, zone.replicas, zone.nodes_filter, weights, domains, gone
    if previous is None:
        return DataNodes(*fields)
    return DataNodes(*fields, previous.asked, unknown=previous.unknown)


def _gone(previous: DataNodes | None, topology: Topology, zone: Zone, names: Sequence[str]) -> tuple[str, ...]:
    """Data nodes that stay data nodes for now and are placed around."""
    known = frozenset(previous.gone if previous is not None else ())
    seen = frozenset(presence.node.name for presence in topology.seen)
    present = {presence.node.name for presence in topology.nodes if not presence.has_left}
    is_narrowed = zone.consistency_mode is ConsistencyMode.HIGH_AVAILABILITY
    return tuple(
        name for name in names if (name in known and name not in seen) or (is_narrowed and name not in present)
    )


def node_traits(
    previous: DataNodes | None, topology: Topology, zone: Zone, names: Sequence[str]
) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Weights and failure domains of ``names``, each empty where it decides nothing (rendezvous zones too).

    A node that left and is not remembered keeps what it had. One that names no domain is a domain of its own.
    """
    if zone.algorithm is not DistributionAlgorithm.BALANCED:
        return (), ()
    own = {name: f"{OWN_DOMAIN}{name}" for name in names}
    weight_of, domain_of = dict.fromkeys(names, DEFAULT_WEIGHT), dict(own)
    if previous is not None:
        weight_of |= dict(zip(previous.nodes, previous.weights, strict=False))
        domain_of |= dict(zip(previous.nodes, previous.domains, strict=False))
    for presence in topology.nodes:
        node = presence.node
        weight_of[node.name] = node.weight
        domain_of[node.name] = node.failure_domain or f"{OWN_DOMAIN}{node.name}"
    weights, domains = tuple(weight_of[name] for name in names), tuple(domain_of[name] for name in names)
    return (
        weights if len(set(weights)) > 1 else (),
        domains if domains != tuple(own.values()) else (),
    )


def next_change_ms(data_nodes: DataNodes, topology: Topology, zone: Zone, filters: NodeFilters) -> int | None:
    """Time at which ``data_nodes`` change next if nothing else happens; None: never. In the past: they are
    behind."""
    return min((due_ms for _, due_ms in _waiting_changes(data_nodes, topology, zone, filters)), default=None)


def _waiting_changes(
    data_nodes: DataNodes, topology: Topology, zone: Zone, filters: NodeFilters
) -> Iterator[tuple[str, int]]:
    """``(node, when)`` of each node that will come in, or go out if it is in, however long ago it was due."""
    current, drained = frozenset(data_nodes.nodes), frozenset(topology.drained)
    for name in sorted(current & drained):
        yield name, AT_ONCE_MS
    for presence in topology.nodes:
        name = presence.node.name
        if name in drained:
            continue
        if presence.left_ms is not None:
            due_ms = _due_ms(presence.left_ms, zone.auto_scale_down) if name in current else None
        elif not presence.is_seen:
            continue
        elif not may_use(zone, presence.node, filters):
            due_ms = presence.joined_ms if name in current else None
        else:
            due_ms = None if name in current else _due_ms(presence.joined_ms, zone.auto_scale_up)
        if due_ms is not None:
            yield name, due_ms
    forgotten_ms = _due_ms(topology.forgotten_ms, zone.auto_scale_down)
    if forgotten_ms is not None:
        for name in current.difference(drained, (presence.node.name for presence in topology.nodes)):
            yield name, forgotten_ms


def _due_ms(since_ms: int, timer_s: int) -> int | None:
    return None if timer_s == TIMER_OFF else since_ms + 1_000 * timer_s


def replica_counts(intent: ZoneIntent, data_nodes: DataNodes) -> tuple[int, int]:
    """``(replicas, voters)`` of each partition; replicas that do not vote are learners (IEP-005)."""
    voters = consensus_size(data_nodes.quorum, intent.zone.replicas, len(data_nodes.nodes))
    return effective_replicas(intent.zone.replicas, len(data_nodes.nodes)), voters


ENTRIES_MAX = 64
NAMES_MAX = 20_000
"""Names in all entries together: the value stays far below what the metastore takes."""


@dataclass(frozen=True, slots=True)
class HistoryEntry(Extensible):
    """``nodes`` since ``at_ms``. ``revision`` is the metastore's at which they were written; 0 in the newest
    entry, whose revision is the key's own ``mod_revision``: a value cannot name the revision that writes it."""

    at_ms: int
    nodes: tuple[str, ...]
    revision: int = 0


_ENTRY = Codec(HistoryEntry, required=("revision",))


@dataclass(frozen=True, slots=True)
class DataNodesHistory(Record):
    entries: tuple[HistoryEntry, ...] = ()

    def extended(self, nodes: tuple[str, ...], now_ms: int, mod_revision: int) -> DataNodesHistory:
        """Return the history with ``nodes`` since ``now_ms``; ``mod_revision`` is this history's own, as read.

        The oldest entries go when there are too many, the last one never. The same nodes again add nothing,
        and times never go back.
        """
        *older, last = self.entries or (None,)
        if last is None:
            return replace(self, entries=(HistoryEntry(now_ms, nodes),))
        if last.nodes == nodes:
            return self
        entry = HistoryEntry(max(now_ms, last.at_ms), nodes)
        kept = [entry, replace(last, revision=mod_revision), *reversed([past for past in older if past])]
        names = 0
        for count, kept_entry in enumerate(kept):
            names += len(kept_entry.nodes)
            if count and (count >= ENTRIES_MAX or names > NAMES_MAX):
                kept = kept[:count]
                break
        return replace(self, entries=tuple(reversed(kept)))

    def at_time(self, at_ms: int) -> tuple[str, ...] | None:
        """The nodes at a wall-clock time; None: before what is kept."""
        node_sets = [entry.nodes for entry in self.entries if entry.at_ms <= at_ms]
        return node_sets[-1] if node_sets else None

    def at_revision(self, revision: int, mod_revision: int) -> tuple[str, ...] | None:
        """The nodes at a metastore revision; ``mod_revision`` is this history's own. None: before what is
        kept."""
        node_sets = [entry.nodes for entry in self.entries if (entry.revision or mod_revision) <= revision]
        return node_sets[-1] if node_sets else None


DataNodesHistory.codec = Codec(
    DataNodesHistory,
    required=("entries",),
    forms={"entries": listed(_ENTRY.form)},
)
