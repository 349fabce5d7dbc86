"""What the metrics tell of one partition: a pure reading of its view."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rebalance.core.causes.cause import Cause, cause_of, labels_of
from rebalance.core.causes.cause_table import PERMITTED
from rebalance.core.keyspace.records import MemberState, Stage
from rebalance.core.moves.majority_fact import lacks_majority
from rebalance.core.moves.move_status import (
    MoveState,
    MoveStatus,
    PartitionView,
    partition_status,
    shortfall_of,
)
from rebalance.core.moves.partition_state import UNSERVED, GlobalState, global_state


class MoveStage(Enum):
    """How far a partition is on its way to its target. REST: it is there."""

    REST = "REST"
    PLACEMENT = "PLACEMENT"
    """No target was computed."""
    ADMISSION = "ADMISSION"
    """There is a target, and the partition has not taken it up."""
    BEGIN = "BEGIN"
    """It was taken up; its leader has not begun."""
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
    """It has fewer replicas or voters than its zone asks for, and nothing is making them."""
    is_below_quorum: bool = False
    """It is short because too few nodes match for the zone's QUORUM SIZE."""
    is_broken: bool = False
    """A replica on a living node has failed."""
    is_unserved: bool = False
    """It takes no writes now, be it that it never had a leader. One of a deactivated zone is not meant."""
    is_degraded: bool = False
    """It serves with a replica less, and nothing that goes on or that somebody has asked for is the reason; one
    that is short is not meant."""


_TOLD_OTHERWISE = PERMITTED | {Cause.LEARNER_STARTING, Cause.REPLICAS_MISSING}
"""What holds a move back, is a copy of any size, or is a fact of its own."""
UNREAD = PartitionFacts(MoveState.WAITING, MoveStage.PLACEMENT, Cause.UNREADABLE, is_unreadable=True)


def facts_of(view: PartitionView, alive: frozenset[str]) -> PartitionFacts:
    """``alive``: the nodes whose lease lives."""
    status, short = partition_status(view, alive), shortfall_of(view, alive)
    is_founded = view.configuration is not None or view.owners is not None
    cause, state = labels_of(status.cause).cause, global_state(view, alive)
    is_resting = view.owners is not None and view.owners.is_resting
    return PartitionFacts(
        status.state,
        _stage(view, status),
        cause,
        lacks_majority=not _is_founded_anew(view) and lacks_majority(view, alive),
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


def _is_founded_anew(view: PartitionView) -> bool:
    """It has no majority to lose until that is done."""
    return view.pending is not None and bool(view.pending.forced)
