"""State of a partition's move and, when it does not go on, the reason: every state names its cause.

The phases of a rebalance are here, too, each with its trigger, its steps and its result (I3A-028). They are
derived from the keys alone, so it can be read at any time, also after a restart: a phase that is over shows
what came of it, one that runs what was done so far and what it waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum

from catalog.core.quorum import majority
from rebalance.core.assignments.assignment import (
    NOTHING_MISSING,
    Assignments,
    ReplicaShortfall,
    nodes_of,
    shortfall,
)
from rebalance.core.causes.cause import Cause, cause_of
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    GivenUpRecord,
    KeptRecord,
    MemberRecord,
    MemberState,
    Stage,
)


class MoveState(Enum):
    """DONE: the group is what the target says. MOVING: steps are being taken. WAITING: something is missing."""

    DONE = "DONE"
    MOVING = "MOVING"
    WAITING = "WAITING"


@dataclass(frozen=True, slots=True)
class MoveStatus:
    """``cause`` is empty only for DONE; its first word is stable, the rest names nodes or numbers."""

    state: MoveState
    cause: str = ""


@dataclass(frozen=True, slots=True)
class StoreOwners:
    """Owners of a partition of the engine ``store``, by the last exchange: ``in_sync`` may own it,
    ``effective`` serve it, the primary first; ``filling`` are copies that the primary waits for while they are
    filled. Empty: the partition was not opened yet, or nobody may lead it. ``epoch``: the exchange that made
    the primary; ``counter``: of a record that every copy in the set has. ``servers``: whose store servers take
    part now. ``silent``: those of them that others suspect. ``is_resting``: the zone is deactivated."""

    in_sync: tuple[str, ...] = ()
    effective: tuple[str, ...] = ()
    is_lost: bool = False
    filling: tuple[str, ...] = ()
    epoch: int = 0
    counter: int = 0
    servers: AbstractSet[str] = frozenset()
    is_resting: bool = False
    silent: AbstractSet[str] = frozenset()

    @property
    def leader(self) -> str:
        """The primary, on a server that takes part still; empty: nobody leads."""
        first = self.effective[0] if self.effective else ""
        return first if first in self.servers else ""

    @property
    def copies(self) -> frozenset[str]:
        """Nodes that are known to have data of it."""
        return frozenset((*self.in_sync, *self.effective, *self.filling))


@dataclass(frozen=True, slots=True)
class PartitionView:
    """All that the keyspace says about one partition. ``members`` maps node -> record, and
    ``processed`` tells whether the newest target was taken up by this partition's trigger. ``admission``: why
    its move may not begin yet; empty: nothing holds it back."""

    target: Assignments | None
    stable: Assignments | None
    pending: Assignments | None
    planned: Assignments | None
    processed: bool
    members: Mapping[str, MemberRecord] = field(default_factory=dict)
    configuration: ConfigurationRecord | None = None
    recovered: bool = False
    """A recovery has written assignments of its own after the newest target: they hold until the next event."""
    admission: str = ""
    given_up: tuple[str, ...] = ()
    """Nodes of the newest target that it went on without (``given_up_of``)."""
    kept: Mapping[str, KeptRecord] = field(default_factory=dict)
    """Copies of members that have left, by the name of their key: the node, and ``@`` with the generation
    where that was given up."""
    reset_wait: str = ""
    """Condition that its automatic reset waits for, in a zone that helps itself; empty: none, or it has a
    majority."""
    owners: StoreOwners | None = None
    """Owners of its copies, where the engine ``store`` keeps them; None: they are a group of members."""
    unreadable: str = ""
    """Reason that nothing is decided about the partition: a key of it cannot be read, and is left out here.
    Empty: all can."""
    placement: Assignments | None = None
    """Assignments that the zone asks for, nodes that have left included (``available_target``); None:
    ``target``."""
    quorum: int = 0
    """The zone's explicit QUORUM SIZE; 0: it names none, or nobody asks."""

    def leader(self, alive: AbstractSet[str]) -> str:
        """The node that leads, as far as is known; empty: none. Who has published last that it leads does so no
        more once its lease has ended, its member does not run, or knows no leader."""
        if self.owners is not None:
            return self.owners.leader if self.owners.leader in alive else ""
        name = self.configuration.leader if self.configuration is not None else ""
        member = self.members.get(name)
        leads = member is not None and member.state is MemberState.RUNNING and member.position is None
        return name if leads and name in alive else ""


def given_up_of(record: GivenUpRecord | None, processed: int | None) -> tuple[str, ...]:
    """``processed``: the event that the partition has taken up last; a later one asks for everything anew."""
    return record.names() if record is not None and record.event >= (processed or 0) else ()


def committed_voters(view: PartitionView) -> frozenset[str]:
    """Voters of the configuration that the group has committed, as published; empty before there is one."""
    return view.configuration.voters if view.configuration is not None else frozenset()


def voters_of(view: PartitionView) -> frozenset[str]:
    """Voters of the configuration that the group has committed; before there is one those of stable."""
    if view.configuration is not None and view.configuration.members:
        return view.configuration.voters
    return frozenset(view.stable.peers) if view.stable is not None else frozenset()


def listed_nodes(view: PartitionView) -> frozenset[str]:
    """Members of the configuration that the group has committed; before there is one the nodes of stable."""
    if view.configuration is not None and view.configuration.members:
        return frozenset(view.configuration.members)
    return nodes_of(view.stable)


def unseen_voters(view: PartitionView, alive: frozenset[str]) -> frozenset[str]:
    """Learners of the published configuration that may vote by now: its voters that live would be a majority,
    answer, and say that their group has no leader. A leader whose new voter dies at once cannot tell anybody
    that it votes (M11). Only a move adds learners."""
    voters = committed_voters(view)
    living = voters & alive
    if view.configuration is None or view.pending is None or len(living) < majority(len(voters)):
        return frozenset()
    records = [view.members.get(name) for name in living]
    leaderless = all(
        record is not None and record.state is MemberState.RUNNING and record.position is not None
        for record in records
    )
    return frozenset(view.configuration.members) - voters if leaderless else frozenset()


def joiner_gone(view: PartitionView) -> str:
    """The cause of a partition that rests short of its target for good; empty: it does not."""
    rests = view.processed and not view.recovered and view.pending is None and view.planned is None
    short = rests and view.given_up and view.stable is not None and view.stable != view.target
    return Cause.JOINER_GONE.text(f"{', '.join(view.given_up)}") if short else ""


def shortfall_of(view: PartitionView, alive: frozenset[str]) -> ReplicaShortfall:
    """Replicas that are missing, and those that are broken. Nothing is missing before the newest placement was
    taken up: the partition waits for that. A partition that is lost has no replica to repair."""
    asked = view.placement or view.target
    if asked is None or view.stable is None or not view.processed or view.unreadable:
        return NOTHING_MISSING
    going_to = view.planned or view.pending or view.stable
    return shortfall(asked, going_to, _broken(view, going_to.nodes & alive), view.quorum)


def _broken(view: PartitionView, nodes: frozenset[str]) -> frozenset[str]:
    if view.owners is not None:
        is_served = view.owners.is_lost or view.owners.is_resting
        return frozenset() if is_served else nodes - view.owners.servers
    return frozenset(node for node in nodes if node in view.members and view.members[node].has_failed)


def partition_status(view: PartitionView, alive: frozenset[str]) -> MoveStatus:
    """``alive`` are the nodes whose lease lives now."""
    if view.unreadable:
        return MoveStatus(MoveState.WAITING, view.unreadable)
    if view.target is None:
        return MoveStatus(MoveState.WAITING, Cause.PLACEMENT_NOT_COMPUTED.text())
    if not view.processed or view.stable is None:
        return MoveStatus(MoveState.WAITING, view.admission or Cause.TARGET_NOT_WRITTEN.text())
    if view.owners is not None and (status := _status_of_owners(view, view.owners, alive)) is not None:
        return status
    if view.pending is not None:
        return _status_of_move(view, view.stable, view.pending, alive)
    if view.stable != view.target and not view.recovered:
        return MoveStatus(MoveState.WAITING, joiner_gone(view) or Cause.TARGET_NOT_WRITTEN.text())
    cause = shortfall_of(view, alive).cause
    missing = MoveStatus(MoveState.WAITING, cause) if cause else None
    if view.owners is not None:
        return missing or MoveStatus(MoveState.DONE)
    return _status_at_rest(view, view.stable, alive, missing)


def _status_of_owners(view: PartitionView, owners: StoreOwners, alive: frozenset[str]) -> MoveStatus | None:
    """Status of a partition of a store zone; None: it serves, and nothing of it moves."""
    if owners.is_lost:
        return MoveStatus(MoveState.WAITING, Cause.PARTITION_LOST.text(", ".join(owners.in_sync)))
    assigned = view.pending or view.stable
    if assigned is None:
        return None
    blocked = _first_of(
        _down(assigned.nodes, alive),
        _down(assigned.nodes, owners.servers, Cause.SERVER_DOWN),
        _down(assigned.nodes, assigned.nodes - owners.silent, Cause.SERVER_SILENT),
    )
    if blocked is not None:
        return blocked
    if owners.is_resting:
        is_moving = view.pending is not None
        return MoveStatus(MoveState.WAITING, Cause.ZONE_DEACTIVATED.text()) if is_moving else None
    if not owners.leader:
        return MoveStatus(MoveState.WAITING, Cause.OWNERS_AWAITED.text(", ".join(owners.in_sync) or "none yet"))
    missing = sorted(assigned.nodes - frozenset(owners.in_sync))
    surplus = sorted(frozenset(owners.in_sync) - assigned.nodes)
    if missing:
        return MoveStatus(MoveState.MOVING, Cause.FILLING.text(", ".join(missing)))
    if view.pending is None and not surplus:
        return None
    return MoveStatus(
        MoveState.MOVING, Cause.SURPLUS.text(", ".join(surplus)) if surplus else Cause.STABLE.text()
    )


def _status_of_move(
    view: PartitionView, stable: Assignments, pending: Assignments, alive: frozenset[str]
) -> MoveStatus:
    """Status of a partition with a pending set. Nothing waits for learners: a node that is to learn counts only
    through the leader's own reason."""
    voters = frozenset(pending.peers)
    blocked = _first_of(
        _no_majority(view, alive), _down(voters, alive), _majority_lost(stable, alive), _failed(view, voters)
    )
    if blocked is not None:
        return blocked
    configuration = view.configuration
    if configuration is not None and configuration.stage is not Stage.NONE:
        stage = configuration.stage.value
        if cause_of(configuration.reason) in (Cause.COPY_FAILED, Cause.COPY_STALLED):
            return MoveStatus(MoveState.WAITING, configuration.reason)
        cause = f"{stage}: {configuration.reason}" if configuration.reason else stage
        return MoveStatus(MoveState.MOVING, cause)
    missing = sorted(voters - _having_members(view))
    if missing:
        return MoveStatus(MoveState.WAITING, Cause.MEMBER_NOT_RESERVED.text(", ".join(missing)))
    reason = configuration.reason if configuration is not None else Cause.LEADER_UNKNOWN.text()
    return MoveStatus(MoveState.WAITING, reason or Cause.LEADER_HAS_NOT_BEGUN.text())


def _status_at_rest(
    view: PartitionView, stable: Assignments, alive: frozenset[str], missing: MoveStatus | None
) -> MoveStatus:
    """``missing``: that there are fewer replicas, or voters, than the zone asks for."""
    voters = frozenset(stable.peers)
    blocked = _first_of(_no_majority(view, alive), _down(stable.nodes, alive), _failed(view, voters))
    if blocked is not None:
        return blocked
    running = {node for node, member in view.members.items() if member.state is MemberState.RUNNING}
    starting = sorted(voters - running)
    if starting:
        return MoveStatus(MoveState.WAITING, Cause.MEMBER_STARTING.text(", ".join(starting)))
    if view.configuration is None or view.configuration.members.keys() != voters:
        return MoveStatus(MoveState.WAITING, Cause.LEADER_UNKNOWN.text())
    left = _first_of(missing, _learners(view, stable), _redundant(view, stable, alive))
    return left or MoveStatus(MoveState.DONE)


def _learners(view: PartitionView, stable: Assignments) -> MoveStatus | None:
    """Learners whose copies are not there yet, with what they wait for; what failed comes first."""
    failed: list[str] = []
    starting: list[str] = []
    for node in sorted(stable.learners):
        member = view.members.get(node)
        mirror = member.mirror if member is not None else None
        if mirror is None or mirror.state is not MemberState.RUNNING:
            detail = f"{node} ({mirror.reason})" if mirror is not None and mirror.reason else node
            (failed if mirror is not None and mirror.state is MemberState.FAILED else starting).append(detail)
    if failed:
        return MoveStatus(MoveState.WAITING, Cause.LEARNER_FAILED.text(", ".join(failed)))
    return MoveStatus(MoveState.WAITING, Cause.LEARNER_STARTING.text(", ".join(starting))) if starting else None


def _redundant(view: PartitionView, stable: Assignments, alive: frozenset[str]) -> MoveStatus | None:
    """Status of replicas on living nodes that are left over; None: there are none. What is on a dead node is
    cleaned up when the node returns; nothing waits for that."""
    mirrors = {node for node, member in view.members.items() if member.mirror is not None}
    surplus = (_having_members(view) - frozenset(stable.peers)) | (mirrors - frozenset(stable.learners))
    nodes = sorted(surplus & alive)
    return MoveStatus(MoveState.MOVING, Cause.CLEAN_UP.text(", ".join(nodes))) if nodes else None


def _having_members(view: PartitionView) -> frozenset[str]:
    return frozenset(node for node, member in view.members.items() if member.has_member)


def _first_of(*statuses: MoveStatus | None) -> MoveStatus | None:
    return next((status for status in statuses if status is not None), None)


def _down(nodes: frozenset[str], alive: AbstractSet[str], cause: Cause = Cause.NODE_DOWN) -> MoveStatus | None:
    down = sorted(nodes - alive)
    return MoveStatus(MoveState.WAITING, cause.text(", ".join(down))) if down else None


def _majority_lost(stable: Assignments, alive: frozenset[str]) -> MoveStatus | None:
    voters = frozenset(stable.peers)
    if len(voters & alive) >= majority(len(voters)):
        return None
    return MoveStatus(MoveState.WAITING, Cause.NODE_DOWN.text(", ".join(sorted(voters - alive))))


def _no_majority(view: PartitionView, alive: frozenset[str]) -> MoveStatus | None:
    """Status of a group of which so many voters are gone that no move can go on, and nothing can be written
    (M11); None: it is not so. A group of one that is down has nothing to be a majority of."""
    if view.pending is not None and view.pending.forced:
        return None  # it is being founded anew
    voters = committed_voters(view) | unseen_voters(view, alive)
    if len(voters) < 2 or len(voters & alive) >= majority(len(voters)):
        return None
    waits = f"; {view.reset_wait}" if view.reset_wait else ""
    return MoveStatus(MoveState.WAITING, Cause.NO_MAJORITY.text(f"{', '.join(sorted(voters - alive))}{waits}"))


def _failed(view: PartitionView, nodes: frozenset[str]) -> MoveStatus | None:
    failed = [
        f"{node} ({member.reason})" if member.reason else node
        for node, member in sorted(view.members.items())
        if node in nodes and member.state is MemberState.FAILED
    ]
    is_damaged = any(
        cause_of(view.members[node].reason) is Cause.COPY_DAMAGED for node in nodes & view.members.keys()
    )
    cause = Cause.COPY_DAMAGED if is_damaged else Cause.MEMBER_FAILED
    return MoveStatus(MoveState.WAITING, cause.text(", ".join(failed))) if failed else None


class PhaseName(Enum):
    """Phases of a move, in the order in which they follow each other."""

    WRITE_INTENTION = "WRITE_INTENTION"
    MOVE_GROUP = "MOVE_GROUP"
    SWITCH_STABLE = "SWITCH_STABLE"
    CLEAN_UP = "CLEAN_UP"


class PhaseState(Enum):
    """State of a phase. NOT_BEGUN: its trigger has not come."""

    NOT_BEGUN = "NOT_BEGUN"
    RUNNING = "RUNNING"
    DONE = "DONE"


@dataclass(frozen=True, slots=True)
class MovePhase:
    """``trigger``: the event that begins it, or what is waited for; ``steps``: what is done, in order;
    ``result``: what came of it, or why it does not go on."""

    name: PhaseName
    state: PhaseState
    trigger: str
    steps: tuple[str, ...]
    result: str


def phases_of(view: PartitionView, event_revision: int | None, alive: frozenset[str]) -> tuple[MovePhase, ...]:
    """All four. ``event_revision``: the partition's trigger; ``alive``: nodes whose lease lives."""
    if view.owners is not None:
        return (
            _write_intention(view, event_revision),
            _fill_copies(view, view.owners, alive),
            _switch_of_owners(view, view.owners),
            _drop_copies(view, view.owners),
        )
    return (
        _write_intention(view, event_revision),
        _move_group(view, alive),
        _switch_stable(view),
        _clean_up(view, alive),
    )


def _write_intention(view: PartitionView, event_revision: int | None) -> MovePhase:
    name = PhaseName.WRITE_INTENTION
    if view.target is None:
        return MovePhase(name, PhaseState.NOT_BEGUN, "a placed target", (), Cause.PLACEMENT_NOT_COMPUTED.text())
    if not view.processed:
        steps = (f"target: {_shown(view.target)}",)
        return MovePhase(name, PhaseState.RUNNING, "a newer target", steps, Cause.TARGET_NOT_WRITTEN.text())
    keys = (("stable", view.stable), ("pending", view.pending), ("planned", view.planned))
    written = tuple(f"{key}: {_shown(assignments)}" for key, assignments in keys if assignments is not None)
    kind = "a reset" if view.recovered else "an event"
    return MovePhase(
        name,
        PhaseState.DONE,
        f"{kind} of revision {event_revision}",
        (f"target: {_shown(view.target)}", *written),
        f"processed up to event revision {event_revision}",
    )


def _move_group(view: PartitionView, alive: frozenset[str]) -> MovePhase:
    name = PhaseName.MOVE_GROUP
    if view.pending is None:
        return MovePhase(name, PhaseState.NOT_BEGUN, "a pending set", (), "nothing is pending")
    stable = view.stable.nodes if view.stable is not None else frozenset()
    joining = sorted(view.pending.nodes - stable)
    steps = [
        f"member of {node}: {view.members[node].state.value if node in view.members else 'not reserved'}"
        for node in joining
    ]
    configuration = view.configuration
    if configuration is not None:
        steps += [
            f"{member.role.value.lower()}: {node}" for node, member in sorted(configuration.members.items())
        ]
        steps.append(f"stage: {configuration.stage.value}")
    forced = "forced to" if view.pending.forced else "pending:"
    done = configuration is not None and configuration.stage is Stage.STABLE
    status = partition_status(view, alive)
    return MovePhase(
        name,
        PhaseState.DONE if done else PhaseState.RUNNING,
        f"{forced} {_shown(view.pending)}",
        tuple(steps),
        "the group is what pending asks for" if done else status.cause,
    )


def _switch_stable(view: PartitionView) -> MovePhase:
    name = PhaseName.SWITCH_STABLE
    configuration = view.configuration
    if configuration is None or view.stable is None:
        return MovePhase(
            name, PhaseState.NOT_BEGUN, "a committed configuration", (), Cause.LEADER_UNKNOWN.text()
        )
    members = ", ".join(sorted(configuration.members))
    committed = f"term {configuration.term} under {configuration.leader} committed {members}"
    is_stable = configuration.members.keys() == frozenset(view.stable.peers)
    done = "stable is what the group is" if is_stable else ""
    return _switch(view, committed, "the group", done, is_pending=configuration.stage is Stage.STABLE)


def _switch(view: PartitionView, committed: str, what: str, done: str, *, is_pending: bool) -> MovePhase:
    """``done``: what is so once stable is ``what`` there is, as ``committed``; empty: it is not."""
    name = PhaseName.SWITCH_STABLE
    if view.pending is None:
        result = done or f"{what} is on its way to stable"
        return MovePhase(
            name,
            PhaseState.DONE if done else PhaseState.RUNNING,
            committed,
            (f"stable: {_shown(view.stable)}",),
            result,
        )
    if not is_pending:
        return MovePhase(name, PhaseState.NOT_BEGUN, f"{what} as pending asks for it", (), committed)
    following = f"then pending: {_shown(view.planned)}" if view.planned is not None else "then no pending"
    steps = (f"stable: {_shown(view.pending)}", following)
    return MovePhase(name, PhaseState.RUNNING, committed, steps, "to be written")


def _clean_up(view: PartitionView, alive: frozenset[str]) -> MovePhase:
    name = PhaseName.CLEAN_UP
    assigned = nodes_of(view.stable, view.pending)
    redundant = sorted(view.members.keys() - assigned)
    if not redundant:
        running = sum(member.state is MemberState.RUNNING for member in view.members.values())
        return MovePhase(
            name, PhaseState.DONE, "a switch of stable", (), f"{running} members run, none is redundant"
        )
    steps = tuple(f"destroy the member of {node}" for node in redundant)
    gone = [node for node in redundant if node not in alive]
    result = Cause.NODE_DOWN.text(", ".join(gone)) if gone else Cause.CLEAN_UP.text(", ".join(redundant))
    return MovePhase(name, PhaseState.RUNNING, "a switch of stable", steps, result)


def _fill_copies(view: PartitionView, owners: StoreOwners, alive: frozenset[str]) -> MovePhase:
    """Phase MOVE_GROUP of a store zone."""
    name = PhaseName.MOVE_GROUP
    if view.pending is None:
        return MovePhase(name, PhaseState.NOT_BEGUN, "a pending set", (), "nothing is pending")
    steps = [f"in sync: {node}" for node in owners.in_sync]
    steps += [f"being filled: {node}" for node in owners.filling]
    done = view.pending.nodes == frozenset(owners.in_sync) == frozenset(owners.effective)
    result = "the in-sync set is what pending asks for" if done else partition_status(view, alive).cause
    state = PhaseState.DONE if done else PhaseState.RUNNING
    return MovePhase(name, state, f"pending: {_shown(view.pending)}", tuple(steps), result)


def _switch_of_owners(view: PartitionView, owners: StoreOwners) -> MovePhase:
    name = PhaseName.SWITCH_STABLE
    if not owners.effective or view.stable is None:
        return MovePhase(
            name, PhaseState.NOT_BEGUN, "the result of an exchange", (), Cause.OWNERS_AWAITED.text()
        )
    committed = f"the last exchange made {owners.effective[0]} the primary of {', '.join(owners.in_sync)}"
    in_sync = frozenset(owners.in_sync)
    is_pending = view.pending is not None and view.pending.nodes == in_sync
    done = "stable is the in-sync set" if view.stable.nodes == in_sync else ""
    return _switch(view, committed, "the in-sync set", done, is_pending=is_pending)


def _drop_copies(view: PartitionView, owners: StoreOwners) -> MovePhase:
    redundant = sorted(owners.copies - nodes_of(view.stable, view.pending))
    state = PhaseState.RUNNING if redundant else PhaseState.DONE
    steps = tuple(f"drop the copy of {node}" for node in redundant)
    count = len(owners.copies)
    result = Cause.CLEAN_UP.text(", ".join(redundant)) if redundant else f"{count} copies, none is redundant"
    return MovePhase(PhaseName.CLEAN_UP, state, "a switch of stable", steps, result)


def _shown(assignments: Assignments | None) -> str:
    if assignments is None:
        return "-"
    learners = f" (learners {', '.join(assignments.learners)})" if assignments.learners else ""
    return ", ".join(assignments.peers) + learners
