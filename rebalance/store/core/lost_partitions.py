"""Servers of lost partitions, where the zone's policy has them served with what is left (PME-095)."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.core.zone import LossPolicy
from rebalance.core.partition_maps.affinity import CopyState
from rebalance.core.partition_maps.partition_map import CopyReport

SERVES_LOST = (LossPolicy.READ_ONLY_ALL, LossPolicy.READ_WRITE_ALL)


def stand_in(policy: LossPolicy, reports: Mapping[str, CopyReport]) -> str | None:
    """The server whose copy is complete up to the highest position, the first by name; None: nobody serves.
    ``reports``: of a lost partition in a full map, so every server comes to the same until the next.

    It serves alone, and is no owner: the in-sync set stays what it was, so that a member that comes back is
    preferred when the partition is reset.
    """
    left = [
        node
        for node, report in reports.items()
        # A copy that must be cleared says that it is not empty, and complete up to nothing.
        if report.state is CopyState.LOST and (report.counter or not report.size)
    ]
    if policy not in SERVES_LOST or not left:
        return None
    highest = max(reports[node].position for node in left)
    return min(node for node in left if reports[node].position == highest)
