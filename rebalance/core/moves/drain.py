"""Nodes that leave: what a drain leaves of each zone, and whether a node can be stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from catalog.core.codec import Codec, Record
from catalog.core.quorum import majority
from rebalance.core.keyspace.records import MemberState
from rebalance.core.moves.move_status import PartitionView, StoreOwners, listed_nodes, voters_of


@dataclass(frozen=True, slots=True)
class Drain(Record):
    """A node is leaving since ``since_ms``: it is no data node of any zone, and serves what it holds until that
    has moved. Kept by name, so a restart of the node changes nothing."""

    by: str
    reason: str
    since_ms: int
    verified: bool = False
    """``by`` had logged in."""


Drain.codec = Codec(Drain, omit=("verified",))


class DrainLoss(Enum):
    """Loss to a partition when a node stops. LEADER alone is no loss of data or service: another member
    leads within seconds."""

    LAST_COPY = "LAST_COPY"
    MAJORITY = "MAJORITY"
    LEADER = "LEADER"

    @property
    def hinders(self) -> bool:
        return self is not DrainLoss.LEADER


def losses(view: PartitionView, node: str, alive: frozenset[str]) -> Iterator[tuple[DrainLoss, str]]:
    """Yield what the partition would lose if ``node`` stopped now, explained; nothing if it does not matter.

    Voters are those of the committed configuration, before there is one those of stable. A member counts while
    its node lives and its process runs. A member that the group does not list is no copy. Of a partition that
    cannot be read nobody can tell, so it is taken to lose its majority. Copies of a store zone have no
    majority: any that is in sync goes on alone.
    """
    if view.unreadable:
        yield DrainLoss.MAJORITY, view.unreadable
        return
    if view.owners is not None:
        yield from _losses_of_copies(view.owners, node, alive)
        return
    configuration, listed, voters = view.configuration, listed_nodes(view), voters_of(view)
    if node not in listed:
        return
    running = frozenset(
        name for name in listed & alive & view.members.keys() if view.members[name].state is MemberState.RUNNING
    )
    others = running - {node}
    if not others:
        yield DrainLoss.LAST_COPY, f"no other copy runs; the group has {_names(listed)}"
    elif node in voters and len(others & voters) < majority(len(voters)):
        needed = majority(len(voters))
        detail = f"{_names(others & voters)} of {_names(voters)} would be left, a majority is {needed}"
        yield DrainLoss.MAJORITY, detail
    if configuration is not None and configuration.leader == node and others:
        yield DrainLoss.LEADER, f"it leads the group; one of {_names(others)} takes over"


def _losses_of_copies(owners: StoreOwners, node: str, alive: frozenset[str]) -> Iterator[tuple[DrainLoss, str]]:
    others = (frozenset(owners.in_sync) & owners.servers & alive) - {node}
    if node in owners.in_sync and not others:
        yield DrainLoss.LAST_COPY, f"no other copy runs that is in sync; the set is {_names(owners.in_sync)}"
    elif owners.leader == node:
        yield DrainLoss.LEADER, f"it is the primary; one of {_names(others)} takes over"


def left_without(
    data_nodes: Iterable[tuple[str, Iterable[str]]], living: frozenset[str], drained: frozenset[str]
) -> tuple[str, ...]:
    """Zones none of whose data nodes would live and not be drained. ``data_nodes``: by zone name; a zone that
    has none now loses none."""
    usable = living - drained
    zones = ((zone, frozenset(nodes)) for zone, nodes in data_nodes)
    return tuple(zone for zone, nodes in zones if nodes & living and not nodes & usable)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
