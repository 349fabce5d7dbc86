"""Members of a partition's in-sync set after an exchange, and the check for an exchange that would make a
better one.

The set grows by copies that were filled, which the primary waited for already, and shrinks by copies that
nobody needs any more, which go only after this was committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rebalance.core.partition_maps.affinity import CopyState, surplus_copies
from rebalance.core.partition_maps.partition_map import CopyReport, FullMap
from rebalance.core.partition_maps.store_positions import NO_RECORD
from rebalance.exchange.core.late_affinity import ZoneAffinity
from rebalance.exchange.core.result_record import PartitionOutcome


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
