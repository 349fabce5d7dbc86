"""What the metrics tell of one partition: a pure reading of its view."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from catalog.core.quorum import majority
from rebalance.core.metric_row import OTHER
from rebalance.core.move_status import MoveState, MoveStatus, PartitionView, partition_status
from rebalance.core.records import MemberState, Stage

_FIRST_WORD = re.compile(r"[A-Z][A-Z_]*")


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
    """``cause``: what it waits for, as a label; empty: nothing. Many partitions share one value."""

    state: MoveState
    stage: MoveStage
    cause: str = ""
    lacks_majority: bool = False
    lacks_leader: bool = False
    is_lost: bool = False
    is_unreadable: bool = False


UNREAD = PartitionFacts(MoveState.WAITING, MoveStage.PLACEMENT, "UNREADABLE", is_unreadable=True)


def facts_of(view: PartitionView, alive: frozenset[str]) -> PartitionFacts:
    """``alive``: the nodes whose lease lives."""
    status = partition_status(view, alive)
    is_founded = view.configuration is not None or view.owners is not None
    return PartitionFacts(
        status.state,
        _stage(view, status),
        cause_label(status.cause),
        lacks_majority=_lacks_majority(view, alive),
        lacks_leader=is_founded and view.stable is not None and not view.leader,
        is_lost=view.owners is not None and view.owners.is_lost,
        is_unreadable=bool(view.unreadable),
    )


def cause_label(cause: str) -> str:
    """The first word, which is one of few; the rest names nodes and numbers."""
    if not cause:
        return ""
    word = _FIRST_WORD.match(cause)
    return word[0] if word is not None else OTHER


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


def _lacks_majority(view: PartitionView, alive: frozenset[str]) -> bool:
    """Of a group that was founded: fewer voters of what is stable live and run than make a majority. One that
    is being founded anew has none to lose."""
    if view.owners is not None:
        return view.owners.is_lost
    if view.stable is None or view.configuration is None or (view.pending is not None and view.pending.forced):
        return False
    running = [
        node
        for node in view.stable.peers
        if node in alive
        and (member := view.members.get(node)) is not None
        and member.state is MemberState.RUNNING
    ]
    return len(running) < majority(len(view.stable.peers))
