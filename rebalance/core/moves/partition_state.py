"""Health of a partition: the state of each replica, and of the whole (``SYSTEM`` partition states).

Voters are counted against the quorum of the configuration that the group has *committed*; learners never help
a quorum. A learner is judged by its mirror, for it has no member. "Every replica" means the replicas
that the assignments ask for now, so that a zone of REPLICAS ALL is available once each data node has its
replica; and what the placement asks for and nobody is making is missed (``shortfall_of``).

``PartitionFacts`` is what the metrics tell of one partition. Whether it has the majority of its voters is a
fact of its own: a cause names one reason among several, and a move or a reset may stand before it.
``voter_count`` counts instead: the voters of ``stable`` whose node lives and whose member runs, against the
majority of them.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum

from catalog.core.quorum import majority
from rebalance.core.assignments.assignment import nodes_of
from rebalance.core.causes.cause import Cause, cause_of, labels_of
from rebalance.core.causes.cause_table import PERMITTED
from rebalance.core.keyspace.records import MemberRole, MemberState, Stage
from rebalance.core.moves.move_status import (
    MoveState,
    MoveStatus,
    PartitionView,
    StoreOwners,
    listed_nodes,
    partition_status,
    shortfall_of,
    voters_of,
)
from rebalance.core.partition_maps.partition_map import CopyState


class LocalState(Enum):
    """One replica, as far as its own node and its group tell."""

    HEALTHY = "HEALTHY"
    INITIALIZING = "INITIALIZING"
    INSTALLING_SNAPSHOT = "INSTALLING_SNAPSHOT"
    CATCHING_UP = "CATCHING_UP"
    BROKEN = "BROKEN"
    UNAVAILABLE = "UNAVAILABLE"


class GlobalState(Enum):
    """AVAILABLE: every replica is healthy, and none that the zone asks for is missing. DEGRADED: a quorum of
    voters. READ_ONLY: some replica."""

    AVAILABLE = "AVAILABLE"
    DEGRADED = "DEGRADED"
    READ_ONLY = "READ_ONLY"
    UNAVAILABLE = "UNAVAILABLE"


UNSERVED = frozenset({GlobalState.READ_ONLY, GlobalState.UNAVAILABLE})
"""States in which a partition takes no writes."""


def is_learner(view: PartitionView, node: str) -> bool:
    """True if the replica on ``node`` is a mirror: no voter is listed there, and a key says that it learns.

    A learner that is promoted remains one until its group lists the new member as a voter; a voter that is
    demoted is one once its group has removed it.
    """
    configured = view.configuration.members.get(node) if view.configuration is not None else None
    if configured is not None and configured.role is MemberRole.VOTER:
        return False
    named = frozenset(
        name for placed in (view.stable, view.pending) if placed is not None for name in placed.learners
    )
    member = view.members.get(node)
    return node in named and (member is None or not member.has_member or member.mirror is not None)


_OF_MIRROR = {
    MemberState.READY: LocalState.INITIALIZING,
    MemberState.STARTING: LocalState.INSTALLING_SNAPSHOT,
    MemberState.RUNNING: LocalState.HEALTHY,
}


def copies_of(view: PartitionView, alive: AbstractSet[str]) -> AbstractSet[str]:
    """Nodes that are known to have something of the partition. One that is gone cannot say that it has not any
    more: it has as long as the partition counts on it."""
    if view.owners is not None:
        return view.owners.copies
    counted = nodes_of(view.stable, view.pending, view.planned)
    counted |= view.configuration.members.keys() if view.configuration is not None else frozenset()
    return frozenset(name for name in view.members if name in alive or name in counted)


def local_state(view: PartitionView, node: str, alive: frozenset[str]) -> LocalState:
    """The state of the replica on ``node``, which must be in ``copies_of(view)``.

    A member that runs before its group lists it is INITIALIZING; one that the group lists as a learner while a
    voter is wanted is CATCHING_UP. A mirror that fetches its first copy is INSTALLING_SNAPSHOT.
    """
    if view.owners is not None:
        return _owner_state(view.owners, node, alive)
    member = view.members[node]
    if node not in alive:
        return LocalState.UNAVAILABLE
    if is_learner(view, node):
        mirror = member.mirror
        return LocalState.INITIALIZING if mirror is None else _OF_MIRROR.get(mirror.state, LocalState.BROKEN)
    if member.state is MemberState.FAILED:
        return LocalState.BROKEN
    if member.state is not MemberState.RUNNING:
        return LocalState.INITIALIZING
    if view.configuration is None:
        return LocalState.HEALTHY
    configured = view.configuration.members.get(node)
    if configured is None:
        return LocalState.INITIALIZING
    if configured.role is MemberRole.LEARNER and view.configuration.stage is not Stage.NONE:
        target = view.pending or view.stable
        if target is not None and node in target.peers:
            return LocalState.CATCHING_UP
    return LocalState.HEALTHY


def copy_states(view: PartitionView, alive: frozenset[str]) -> dict[str, CopyState]:
    """The copies on living nodes that the group has, or is being given (PME-076: what nodes report).

    A member that the group lists and that is not catching up owns its copy; one that was announced as leaving
    is RENTING. A member that the group does not list is MOVING while the assignments want it, else EVICTED.
    """
    assigned = nodes_of(view.stable, view.pending)
    if view.owners is not None:
        return _owner_copies(view.owners, assigned, alive)
    configured = view.configuration.members if view.configuration is not None else {}
    states = {}
    for node in view.members:
        state = local_state(view, node, alive)
        if state is LocalState.UNAVAILABLE:
            continue
        if state is LocalState.BROKEN:
            states[node] = CopyState.LOST
        elif node in configured and configured[node].leaving:
            states[node] = CopyState.RENTING
        elif state is LocalState.HEALTHY:
            states[node] = CopyState.OWNING
        else:
            states[node] = CopyState.MOVING if node in assigned else CopyState.EVICTED
    return states


def global_state(view: PartitionView, alive: frozenset[str]) -> GlobalState:
    """The state of the partition as a whole.

    Voters and quorum are those of the committed configuration, before there is one those of stable. A replica
    counts while its node lives and its process answers, catching up or not: a voter that lags still votes.
    Mirrors serve reads, so they make a partition without a quorum READ_ONLY, and no quorum. In a store zone one
    copy that leads is enough.
    """
    if view.owners is not None:
        return _global_of_owners(view, view.owners, alive)
    mirrors = {node for node, member in view.members.items() if node in alive and member.is_mirroring}
    expected, voters = nodes_of(view.stable), voters_of(view)
    serving = listed_nodes(view) & alive & _running(view)
    if not serving and not mirrors:
        return GlobalState.UNAVAILABLE
    if not voters or len(voters & serving) < majority(len(voters)):
        return GlobalState.READ_ONLY
    healthy = {
        node for node in expected & (serving | mirrors) if local_state(view, node, alive) is LocalState.HEALTHY
    }
    return _of_serving(view, alive, is_whole=bool(expected) and healthy == expected)


def _of_serving(view: PartitionView, alive: frozenset[str], *, is_whole: bool) -> GlobalState:
    is_short = shortfall_of(view, alive).is_short
    return GlobalState.AVAILABLE if is_whole and not is_short else GlobalState.DEGRADED


def _owner_state(owners: StoreOwners, node: str, alive: frozenset[str]) -> LocalState:
    if node not in alive or node not in owners.servers or node in owners.silent:
        return LocalState.UNAVAILABLE
    if owners.is_lost:
        return LocalState.BROKEN
    if node in owners.effective:
        return LocalState.HEALTHY
    return LocalState.CATCHING_UP if node in owners.filling else LocalState.INITIALIZING


def _owner_copies(owners: StoreOwners, assigned: frozenset[str], alive: frozenset[str]) -> dict[str, CopyState]:
    states = {}
    for node in owners.copies:
        state = _owner_state(owners, node, alive)
        if state is LocalState.BROKEN:
            states[node] = CopyState.LOST
        elif state is not LocalState.UNAVAILABLE:
            owning = CopyState.OWNING if node in assigned else CopyState.RENTING
            states[node] = owning if state is LocalState.HEALTHY else CopyState.MOVING
    return states


def _global_of_owners(view: PartitionView, owners: StoreOwners, alive: frozenset[str]) -> GlobalState:
    if owners.is_lost or owners.is_resting or not owners.leader:
        return GlobalState.UNAVAILABLE
    expected = nodes_of(view.stable)
    healthy = {node for node in expected if _owner_state(owners, node, alive) is LocalState.HEALTHY}
    return _of_serving(view, alive, is_whole=bool(expected) and healthy == expected)


def _running(view: PartitionView) -> frozenset[str]:
    return frozenset(node for node, member in view.members.items() if member.state is MemberState.RUNNING)


@dataclass(frozen=True, slots=True)
class VoterCount:
    """Count of one partition's running voters. ``needed``: the majority of them all, or in a store zone one
    replica that leads."""

    running: int
    needed: int

    @property
    def is_majority(self) -> bool:
        return self.running >= self.needed


def voter_count(view: PartitionView, alive: frozenset[str]) -> VoterCount | None:
    """``alive``: nodes whose lease lives. None: nothing can be said, as the partition is not founded yet, a
    record of it cannot be read, or its zone is deactivated."""
    if view.stable is None or view.unreadable:
        return None
    if view.owners is not None:
        if view.owners.is_resting:
            return None
        return VoterCount(int(view.owners.leader in alive), 1)
    if view.configuration is None:
        return None  # Its group has never had a leader, so it has had no majority to lose.
    voters = frozenset(view.stable.peers)
    return VoterCount(len(voters & alive & _running(view)), majority(len(voters)))


def lacks_majority(view: PartitionView, alive: frozenset[str]) -> bool:
    """True if the partition is known to be without the majority of its voters."""
    count = voter_count(view, alive)
    return count is not None and not count.is_majority


class MoveStage(Enum):
    """Stage of a partition on its way to its target. REST: it is there, or it has no move and nothing to clean
    up."""

    REST = "REST"
    PLACEMENT = "PLACEMENT"
    """No target was computed."""
    ADMISSION = "ADMISSION"
    """There is a target, and the partition has not taken it up."""
    BEGIN = "BEGIN"
    """The target was taken up; the group's leader has not begun."""
    CATCHING_UP = "CATCHING_UP"
    JOINT = "JOINT"
    STABLE = "STABLE"
    CLEAN_UP = "CLEAN_UP"
    """The group is what the target says; copies that are left over are removed."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """``cause``: what it waits for; NONE: nothing. Many partitions share one value."""

    state: MoveState
    stage: MoveStage
    cause: Cause = Cause.NONE
    lacks_majority: bool = False
    lacks_leader: bool = False
    is_lost: bool = False
    is_unreadable: bool = False
    is_filling: bool = False
    """A copy of a store zone is being filled."""
    is_short: bool = False
    """True if it has fewer replicas or voters than its zone asks for, and nothing is making them."""
    is_below_quorum: bool = False
    """True if it is short because too few nodes match for the zone's QUORUM SIZE."""
    is_broken: bool = False
    """A replica on a living node has failed."""
    is_unserved: bool = False
    """True if it takes no writes now, also where it never had a leader; not for one of a deactivated zone."""
    is_degraded: bool = False
    """True if it serves with a replica less, and nothing that goes on or that somebody has asked for is the
    reason; one that is short is not meant."""


_TOLD_OTHERWISE = PERMITTED | {Cause.LEARNER_STARTING, Cause.REPLICAS_MISSING}
"""Causes that make no partition degraded: each holds a move back as asked, is of a copy of any size, or is a
fact of its own."""
UNREAD = PartitionFacts(MoveState.WAITING, MoveStage.PLACEMENT, Cause.UNREADABLE, is_unreadable=True)


def facts_of(view: PartitionView, alive: frozenset[str]) -> PartitionFacts:
    """``alive``: the nodes whose lease lives."""
    status, short = partition_status(view, alive), shortfall_of(view, alive)
    is_founded = view.configuration is not None or view.owners is not None
    cause, state = labels_of(status.cause).cause, global_state(view, alive)
    is_resting = view.owners is not None and view.owners.is_resting
    # It has no majority to lose until that is done.
    is_founded_anew = view.pending is not None and bool(view.pending.forced)
    return PartitionFacts(
        status.state,
        _stage(view, status),
        cause,
        lacks_majority=not is_founded_anew and lacks_majority(view, alive),
        lacks_leader=is_founded and view.stable is not None and not view.leader(alive),
        is_lost=view.owners is not None and view.owners.is_lost,
        is_unreadable=bool(view.unreadable),
        is_filling=view.owners is not None and bool(view.owners.filling),
        is_short=short.is_short,
        is_below_quorum=short.quorum > 0,
        is_broken=bool(short.broken),
        is_unserved=not is_resting and view.stable is not None and state in UNSERVED,
        is_degraded=state is GlobalState.DEGRADED
        and status.state is MoveState.WAITING
        and cause not in _TOLD_OTHERWISE
        and not short.is_short,
    )


def full_nodes(view: PartitionView) -> frozenset[str]:
    """Nodes whose member ended because it found no space."""
    return frozenset(
        node
        for node, member in view.members.items()
        if member.state is MemberState.FAILED and cause_of(member.reason) is Cause.DISK_FULL
    )


def _stage(view: PartitionView, status: MoveStatus) -> MoveStage:
    if status.state is MoveState.DONE:
        return MoveStage.REST
    if view.target is None:
        return MoveStage.PLACEMENT
    if view.pending is None:
        if not view.processed or view.stable is None:
            return MoveStage.ADMISSION
        return MoveStage.CLEAN_UP if status.state is MoveState.MOVING else MoveStage.REST
    stage = view.configuration.stage if view.configuration is not None else Stage.NONE
    return MoveStage.BEGIN if stage is Stage.NONE else MoveStage(stage.value)
