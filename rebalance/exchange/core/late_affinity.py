"""Late affinity: the primary stays where it is until its successor owns its copy, then all switch at once.

Invariant, from exchange to exchange: an effective primary owns its copy. The switch is an exchange of its own,
with a higher minor version, because an exchange is the only moment without open updates: so there are never two
primaries. Source: PME-079..087, PME-119, PME-128, PME-131..139.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.affinity import CopyState, PrimaryStrategy, effective, surplus_copies
from rebalance.core.partition_maps.partition_map import FullMap
from rebalance.core.partition_maps.topology_version import Cluster, ZoneSpec
from rebalance.exchange.core.exchange_messages import Lists
from rebalance.exchange.core.result_record import PartitionOutcome

AffinityFunction = Callable[[ZoneSpec, tuple[str, ...]], Lists]
"""(zone, nodes that hold data) -> ideal lists. Deterministic: every node computes the same (PME-035,
PME-077)."""


@dataclass(frozen=True, slots=True)
class ZoneAffinity:
    """``ideal`` is what the affinity function wants, ``effective`` what holds: one list per partition each."""

    ideal: Lists
    effective: Lists

    @property
    def diff(self) -> dict[int, tuple[str, ...]]:
        """Partitions whose effective list is not the ideal one (PME-105)."""
        pairs = zip(self.ideal, self.effective, strict=True)
        return {number: real for number, (ideal, real) in enumerate(pairs) if ideal != real}

    def primary(self, partition: int) -> str | None:
        real = self.effective[partition]
        return real[0] if real else None

    @classmethod
    def from_diff(cls, ideal: Lists, diff: Mapping[int, tuple[str, ...]]) -> ZoneAffinity:
        return cls(ideal, tuple(diff.get(number, each) for number, each in enumerate(ideal)))


def ideal_lists(function: AffinityFunction, zone: ZoneSpec, cluster: Cluster) -> Lists:
    """Return the lists of the affinity function, without nodes of the baseline that are away: their copies wait
    for them on their disks and are not made anew elsewhere."""
    lists = function(zone, cluster.affinity_nodes)
    if all(node in cluster.servers for node in cluster.affinity_nodes):
        return lists
    return tuple(tuple(node for node in wanted if node in cluster.servers) for wanted in lists)


def late_effective(
    ideal: Sequence[str],
    states: Mapping[str, CopyState],
    previous: Sequence[str],
    strategy: PrimaryStrategy,
    joined: Collection[str] = (),
    keeps_primary: bool = False,
) -> tuple[str, ...]:
    """The list that holds after an exchange. ``previous``: the one before it, empty when there is none.

    With ``keeps_primary`` the primary of ``previous`` stays as long as it owns its copy; the rest follows
    ``effective``.
    """
    current = previous[0] if previous else None
    if keeps_primary and current is not None and states.get(current) is CopyState.OWNING:
        return (current, *(node for node in ideal if node != current))
    return effective(ideal, states, strategy, joined)


def zone_affinity(
    full: FullMap,
    ideal: Lists,
    previous: Lists,
    strategy: PrimaryStrategy,
    joined: Collection[str],
    keeps_primaries: bool,
    waits: bool = False,
    settled: Container[int] = (),
) -> ZoneAffinity:
    """``late_effective`` over a zone. A node of ``previous`` that is not in ``full`` counts for nothing.
    ``waits``: a primary stays where the ideal one is not ready, as the switch is that of other partitions.
    ``settled``: partitions where the ideal list holds."""

    def effective_of(number: int, wanted: Sequence[str]) -> tuple[str, ...]:
        states = full.states(number)
        before = previous[number] if number < len(previous) else ()
        keeps = keeps_primaries or (waits and not _is_ready(wanted, states))
        return late_effective(wanted, states, before, strategy, joined, keeps)

    return ZoneAffinity(
        ideal,
        tuple(
            wanted if number in settled else effective_of(number, wanted) for number, wanted in enumerate(ideal)
        ),
    )


def _is_ready(ideal: Sequence[str], states: Mapping[str, CopyState]) -> bool:
    return bool(ideal) and states.get(ideal[0]) is CopyState.OWNING


def has_ready_primaries(affinity: ZoneAffinity, full: FullMap) -> bool:
    """Check that some late primary is ready, whatever the others are."""
    late = affinity.diff
    states = states_by_partition(full, len(affinity.ideal)) if late else []
    return any(real and _is_ready(affinity.ideal[number], states[number]) for number, real in late.items())


def wait_list(
    affinities: Mapping[ZoneId, ZoneAffinity], maps: Mapping[ZoneId, FullMap]
) -> dict[tuple[ZoneId, int], str]:
    """Late primaries that are not ready: (zone, partition) -> the ideal primary, whose copy is being filled.

    The coordinator asks for the switch when it is empty (PME-134, PME-138). It follows from what every server
    knows, so whoever takes over has it at once.
    """
    waiting = {}
    for zone, affinity in affinities.items():
        late = affinity.diff
        if not late:
            continue
        states = states_by_partition(maps[zone], len(affinity.ideal))
        for number, real in late.items():
            # A lost partition has no primary that could be late: it must not hold up the others.
            first = affinity.ideal[number][0] if real and affinity.ideal[number] else None
            if first is not None and states[number].get(first) is not CopyState.OWNING:
                waiting[zone, number] = first
    return waiting


def can_switch(affinities: Mapping[ZoneId, ZoneAffinity], maps: Mapping[ZoneId, FullMap]) -> bool:
    """Check that something is late, and every new primary is ready. A partition without an owner or without an
    ideal node is not late: no switch can help it."""
    if wait_list(affinities, maps):
        return False
    return any(
        real and each.ideal[number] for each in affinities.values() for number, real in each.diff.items()
    )


def is_rebalanced(
    affinities: Mapping[ZoneId, ZoneAffinity],
    maps: Mapping[ZoneId, FullMap],
    settled: Mapping[ZoneId, Container[int]] | None = None,
) -> bool:
    """Every effective list is the ideal one, and every node in it owns its copy (PME-080). ``settled``:
    partitions that are known to be so."""
    for zone, affinity in affinities.items():
        known = (settled or {}).get(zone, ())
        for number, (wanted, real) in enumerate(zip(affinity.ideal, affinity.effective, strict=True)):
            if number in known:
                continue
            states = maps[zone].states(number)
            if wanted != real or any(states.get(node) is not CopyState.OWNING for node in wanted):
                return False
    return True


def surplus_partitions(
    full: FullMap,
    affinity: ZoneAffinity,
    node: str,
    own: Mapping[int, CopyState],
    outcomes: Sequence[PartitionOutcome] = (),
) -> frozenset[int]:
    """Partitions whose copy ``node`` has although nobody needs it: ``node`` is in neither list, and every ideal
    node owns its copy as far as the full map tells (PME-119). It becomes RENTING.

    ``own``: the node's own states, which the map may not have yet. A copy that was still being filled goes
    whoever owns the others. One that ``outcomes`` has in the in-sync set stays until a result is committed
    without it.
    """
    found = []
    for number, state in own.items():
        ideal, real = affinity.ideal[number], affinity.effective[number]
        if node in ideal or node in real or (number < len(outcomes) and node in outcomes[number].in_sync):
            continue
        if state is CopyState.MOVING or (
            state is CopyState.OWNING
            and ideal
            and node in surplus_copies(ideal, {**full.states(number), node: state})
        ):
            found.append(number)
    return frozenset(found)


def without_node(affinity: ZoneAffinity, node: str) -> ZoneAffinity:
    """Return both lists as they are once ``node`` left: the next one in each list is the first (PME-005)."""
    ideal, real = (
        tuple(tuple(each for each in nodes if each != node) for nodes in lists)
        for lists in (affinity.ideal, affinity.effective)
    )
    return ZoneAffinity(ideal, real)


def states_by_partition(full: FullMap, partitions: int) -> list[dict[str, CopyState]]:
    """One pass over the map: for each partition, node -> state."""
    states: list[dict[str, CopyState]] = [{} for _ in range(partitions)]
    for node, copies in full.nodes.items():
        for partition, each in copies.items():
            if partition < partitions:
                states[partition][node] = each.state
    return states
