"""Which node leads a partition now: the *ideal* assignment against the one that holds in fact.

The ideal assignment comes from placement, its first node is the preferred primary. The *effective* one is what
is true while copies are missing or late: its first node must own its copy, so that the primary always has the
most actual data. In a stable topology the two are the same list. (PME-076..087; Ignite 2's late affinity.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum


class CopyState(Enum):
    """One copy of a partition, as its node reports it."""

    MOVING = "MOVING"  # it is being filled and must not lead
    OWNING = "OWNING"  # it is complete
    RENTING = "RENTING"  # complete, but nobody wants it any more
    EVICTED = "EVICTED"
    LOST = "LOST"


class PrimaryStrategy(Enum):
    """How a temporary primary is found. AVAILABILITY: at activation, after a change of the baseline, and when a
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
