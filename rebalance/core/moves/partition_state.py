"""How healthy a partition is: the state of each replica, and of the whole (``SYSTEM`` partition states).

Voters are counted against the quorum of the configuration that the group has *committed*; learners never help
a quorum. A learner is judged by its mirror, for it has no member. "Every replica" means the replicas
that the assignments ask for now, so that a zone of REPLICAS ALL is available once each data node has its
replica; and what the placement asks for and nobody is making is missed (``shortfall_of``).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from enum import Enum

from catalog.core.quorum import majority
from rebalance.core.assignments.assignment import nodes_of
from rebalance.core.keyspace.records import MemberRecord, MemberRole, MemberState, MirrorRecord, Stage
from rebalance.core.moves.move_status import PartitionView, StoreOwners, shortfall_of
from rebalance.core.partition_maps.affinity import CopyState


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
"""It takes no writes."""


def is_learner(view: PartitionView, node: str) -> bool:
    """Whether the replica on ``node`` is a mirror: nobody counts a member there, and a key says that it learns.

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


def _mirror_state(mirror: MirrorRecord | None) -> LocalState:
    if mirror is None:
        return LocalState.INITIALIZING
    return _OF_MIRROR.get(mirror.state, LocalState.BROKEN)


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
        return _mirror_state(member.mirror)
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
    expected = view.stable.nodes if view.stable is not None else frozenset()
    if view.configuration is not None and view.configuration.members:
        members = view.configuration.members
        voters = frozenset(node for node, member in members.items() if member.role is MemberRole.VOTER)
        serving = frozenset(node for node in members if _answers(view.members.get(node), node, alive))
    else:
        voters = frozenset(view.stable.peers) if view.stable is not None else frozenset()
        serving = frozenset(node for node in expected if _answers(view.members.get(node), node, alive))
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
    expected = view.stable.nodes if view.stable is not None else frozenset()
    healthy = {node for node in expected if _owner_state(owners, node, alive) is LocalState.HEALTHY}
    return _of_serving(view, alive, is_whole=bool(expected) and healthy == expected)


def _answers(member: MemberRecord | None, node: str, alive: frozenset[str]) -> bool:
    return member is not None and node in alive and member.state is MemberState.RUNNING
