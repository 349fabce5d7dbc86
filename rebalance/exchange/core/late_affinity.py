"""Late affinity: the primary stays where it is until its successor owns its copy, then all switch at once.

Invariant, from exchange to exchange: an effective primary owns its copy. The switch is an exchange of its own,
with a higher minor version, because an exchange is the only moment without open updates: so there are never two
primaries. Source: PME-079..087, PME-119, PME-128, PME-131..139.

A partition's in-sync set is made anew by each exchange, and one is asked for that would make a better set. The
set grows by copies that were filled, which the primary waited for already, and shrinks by copies that nobody
needs any more, which go only after this was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import (
    NO_RECORD,
    CopyReport,
    CopyState,
    FullMap,
    PrimaryStrategy,
    effective,
    surplus_copies,
)
from rebalance.core.partition_maps.topology_version import Cluster, ZoneSpec
from rebalance.exchange.core.exchange_messages import Lists, PartitionOutcome

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


def agreed_set(
    ideal: Sequence[str], effective: Sequence[str], states: Mapping[str, CopyState]
) -> tuple[str, ...]:
    """The owners that are needed, by name. A primary is needed as long as it leads."""
    owners = {node for node, state in states.items() if state is CopyState.OWNING}
    return tuple(sorted(owners - surplus_copies(ideal, states) | set(effective[:1])))


def waited_for(outcome: PartitionOutcome) -> frozenset[str]:
    """Copies that must have a write on their disks before it is acknowledged: owners, and those being filled,
    so that a copy that comes into the set has every acknowledged write."""
    return frozenset((*outcome.in_sync, *outcome.filling))


def partition_outcome(
    before: PartitionOutcome,
    ideal: Sequence[str],
    effective: Sequence[str],
    reports: Mapping[str, CopyReport],
    epoch: int,
    joined: Collection[str],
    is_lost: bool,
) -> PartitionOutcome:
    """``before`` has those that went out of its set already. ``epoch``: that of the exchange, for a primary
    that is another one than before, or another server of its name. Without an owner the set stays: who is in
    it may come back.

    ``before`` itself, with its lower position, if nothing but positions is different.
    """
    if is_lost:
        # Nobody leads it, whoever would by the lists: only the last one of the set can bring it back.
        lost = replace(before, filling=(), effective=(), is_lost=True)
        return before if lost == before else lost
    states = {node: item.state for node, item in reports.items()}
    owners = [node for node, state in states.items() if state is CopyState.OWNING]
    highest = max((reports[node].position for node in owners), default=NO_RECORD)
    if any(node in ideal and reports[node].position < highest for node in owners):
        # They are levelled by one that may be surplus, which is not shed before that.
        in_sync = tuple(sorted({*owners, *effective[:1]}))
    else:
        in_sync = agreed_set(ideal, effective, states) or before.in_sync
    # Without a primary there is nothing to be filled with, and nobody who waits for it.
    filling = tuple(node for node in ideal if states.get(node) is CopyState.MOVING and effective)
    stays = bool(effective) and effective[:1] == before.effective[:1] and effective[0] not in joined
    if stays or not effective:
        epoch = before.epoch
    known = min((reports[node].position for node in in_sync if node in reports), default=NO_RECORD)
    outcome = PartitionOutcome(in_sync, filling, known, epoch, tuple(effective))
    same = (outcome.in_sync, outcome.filling, outcome.epoch, outcome.effective, outcome.is_lost)
    is_same = same == (before.in_sync, before.filling, before.epoch, before.effective, before.is_lost)
    return before if is_same else outcome


def can_agree(
    affinity: ZoneAffinity, full: FullMap, outcomes: Sequence[PartitionOutcome], *, waits: bool = True
) -> bool:
    """Check that an exchange would take filled copies of the zone into a set, or surplus ones out of it; with
    ``waits`` only if nothing is being filled there any more for which it would have to be repeated."""
    if waits and _fills(affinity, full):
        return False
    owners = _owners(full, len(affinity.ideal))
    for number, (ideal, real) in enumerate(zip(affinity.ideal, affinity.effective, strict=True)):
        before = outcomes[number].in_sync if number < len(outcomes) else ()
        if not real or _is_agreed(owners[number], before, ideal, real[0]):
            continue
        if agreed_set(ideal, real, full.states(number)) != before:
            return True
    return False


def _owners(full: FullMap, partitions: int) -> list[list[str]]:
    """Return for each partition the names of the nodes that own it, in order."""
    owners: list[list[str]] = [[] for _ in range(partitions)]
    for node in sorted(full.nodes):
        for number, copy in full.nodes[node].items():
            if copy.state is CopyState.OWNING and number < partitions:
                owners[number].append(node)
    return owners


def _is_agreed(owners: Sequence[str], in_sync: Sequence[str], ideal: Sequence[str], primary: str) -> bool:
    """Check that the owners are the set, all needed, the primary among them: so it is nearly everywhere."""
    return tuple(owners) == in_sync and primary in in_sync and all(node in ideal for node in owners)


def _fills(affinity: ZoneAffinity, full: FullMap) -> bool:
    """Check that a copy that is needed, of a partition with a primary, is being filled."""
    return any(
        copy.state is CopyState.MOVING and affinity.effective[number] and node in affinity.ideal[number]
        for node, copies in full.nodes.items()
        for number, copy in copies.items()
        if number < len(affinity.ideal)
    )
