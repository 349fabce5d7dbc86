"""Members that may not run, because recovery has given their group up.

A recovery founds the group anew on one node (pending with ``forced``). From the moment that pending is written
until stable is switched no other member may serve, and a member of an earlier generation never runs again: two
of them together could be a majority of a group that nobody counts on any more.
"""

from __future__ import annotations

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.records import GroupRecord


def why_fenced(node: str, generation: int, pending: Assignments | None, group: GroupRecord | None) -> str:
    """Return why the member of ``node``, whose data is of ``generation``, must not run; empty: it may."""
    if pending is not None and pending.forced and node != pending.primary:
        return Cause.FENCED.text(f"the group is founded anew on {pending.primary}")
    if is_given_up(generation, group):
        return Cause.FENCED.text("its group was given up, and founded anew without it")
    return ""


def is_given_up(generation: int, group: GroupRecord | None) -> bool:
    """Check that data of ``generation`` belongs to an earlier life of the group."""
    return group is not None and generation < group.generation
