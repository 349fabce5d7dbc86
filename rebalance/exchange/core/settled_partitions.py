"""Partitions of which an exchange changes nothing, found in one pass: of thousands most are so, and each of the
others is looked at by itself.

Invariant: for a settled partition the long way (``decide_states``, ``late_effective``, ``partition_outcome``)
decides what was, whatever the event is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rebalance.core.partition_maps.affinity import CopyState
from rebalance.core.partition_maps.partition_map import FullMap
from rebalance.core.partition_maps.store_positions import StorePosition
from rebalance.exchange.core.result_record import PartitionOutcome


def settled_partitions(
    full: FullMap,
    ideal: Sequence[Sequence[str]],
    outcomes: Sequence[PartitionOutcome],
    previous: Sequence[Sequence[str]],
    changed: Collection[str],
    lost: Collection[int] = (),
) -> dict[int, StorePosition]:
    """Partition -> the position of its owners: the ideal nodes have a copy, all alike, and nobody else has one;
    they are the in-sync set of the last result and its effective list; nothing is filled or lost.

    ``full``: as reported. ``outcomes``: of the last result, ``previous``: the effective lists before.
    ``changed``: servers that came or went since that result; where one has a copy, nothing is settled.
    """
    copies = [0] * len(ideal)
    for reported in full.nodes.values():
        for number in reported:
            if number < len(copies):
                copies[number] += 1
    sets: dict[Sequence[str], tuple[str, ...]] = {}
    settled: dict[int, StorePosition] = {}
    for number, outcome in enumerate(outcomes[: len(ideal)]):
        nodes = ideal[number]
        if not nodes or outcome.effective != nodes or copies[number] != len(nodes) or number in lost:
            continue
        in_sync = sets.get(nodes)
        if in_sync is None:
            # None but the members where one of them came or went.
            in_sync = sets[nodes] = () if set(nodes) & set(changed) else tuple(sorted(nodes))
        if outcome.in_sync != in_sync or outcome.filling or outcome.is_lost:
            continue
        if number < len(previous) and previous[number][:1] != nodes[:1]:
            continue
        position = _position(full, number, nodes)
        if position is not None:
            settled[number] = position
    return settled


def _position(full: FullMap, number: int, nodes: Sequence[str]) -> StorePosition | None:
    """Return the position of all copies; None where they are not all owners and alike."""
    first = full.nodes[nodes[0]].get(number)
    if first is None or first.state is not CopyState.OWNING:
        return None
    for node in nodes[1:]:
        other = full.nodes[node].get(number)
        if other is not first and other != first:
            return None
    return first.position


NOTHING_SETTLED: Mapping[int, StorePosition] = {}
