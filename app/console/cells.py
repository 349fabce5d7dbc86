"""Cells of one partition, from all that the keyspace says of it.

A *cell* is the copy of one partition on one node, as one byte: its role and how the copy is. A whole zone is
then a matrix of bytes (``zone_grid``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from catalog.core.quorum import majority
from rebalance.core.assignments.assignment import nodes_of
from rebalance.core.keyspace.records import MemberRole
from rebalance.core.moves.move_status import MoveState, PartitionView, partition_status
from rebalance.core.moves.partition_state import (
    GlobalState,
    LocalState,
    copies_of,
    global_state,
    is_learner,
    local_state,
)
from rebalance.core.operations.operation_progress import step_of
from rebalance.core.recovery.recovery_candidates import living_voters, possible_voters

COPIES, CODES = 8, 32
"""A cell is ``role * COPIES + copy``, below CODES."""


class Role(IntEnum):
    """NONE: a copy that neither the group nor the assignments name."""

    NONE = 0
    LEARNER = 1
    VOTER = 2
    LEADER = 3


class CopyCell(IntEnum):
    """State of a copy; the higher, the more it wants attention (UNREAD aside)."""

    NONE = 0
    UNREAD = 1  # the target names it, and nothing more was read yet
    HEALTHY = 2
    LEAVING = 3  # it goes when the move is over
    NOT_BEGUN = 4  # its node has not begun it
    JOINING = 5
    BROKEN = 6
    DOWN = 7


class MoveCell(IntEnum):
    """``MoveState`` as a byte."""

    UNREAD = 0
    DONE = 1
    MOVING = 2
    WAITING = 3


class HealthCell(IntEnum):
    """``GlobalState`` as a byte."""

    UNREAD = 0
    AVAILABLE = 1
    DEGRADED = 2
    READ_ONLY = 3
    UNAVAILABLE = 4


_COPY_OF = {
    LocalState.HEALTHY: CopyCell.HEALTHY,
    LocalState.INITIALIZING: CopyCell.JOINING,
    LocalState.INSTALLING_SNAPSHOT: CopyCell.JOINING,
    LocalState.CATCHING_UP: CopyCell.JOINING,
    LocalState.BROKEN: CopyCell.BROKEN,
    LocalState.UNAVAILABLE: CopyCell.DOWN,
}
_MOVE_OF = {state: MoveCell[state.name] for state in MoveState}
_HEALTH_OF = {state: HealthCell[state.name] for state in GlobalState}


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """``cells``: (node, cell) of each copy that is there or wanted, in no order. ``cause`` as in MoveStatus.
    ``arrived``: nothing of the newest operation is left to be done, though a node may be down. ``lost``: a
    founded group without a majority of its voters, which only a reset or returning nodes can help."""

    cells: tuple[tuple[str, int], ...]
    move: MoveCell
    health: HealthCell
    cause: str = ""
    arrived: bool = False
    lost: bool = False


def cell(role: Role, copy: CopyCell) -> int:
    return role * COPIES + copy


def read_partition(view: PartitionView, alive: frozenset[str]) -> PartitionReading:
    """``alive``: the nodes whose lease lives."""
    status = partition_status(view, alive)
    assigned = nodes_of(view.pending or view.stable or view.target)
    nodes = assigned | copies_of(view, alive)
    return PartitionReading(
        tuple((node, cell(_role(view, node, alive), _copy(view, node, assigned, alive))) for node in nodes),
        _MOVE_OF[status.state],
        _HEALTH_OF[global_state(view, alive)],
        status.cause,
        step_of(0, view, alive).state is MoveState.DONE,
        has_lost_majority(view, alive),
    )


def has_lost_majority(view: PartitionView, alive: frozenset[str]) -> bool:
    """Check for a lost majority as a reset judges it, of a group that has been founded."""
    voters = possible_voters(view, alive)
    return view.configuration is not None and len(living_voters(view, alive)) < majority(len(voters))


def _role(view: PartitionView, node: str, alive: frozenset[str]) -> Role:
    """Return the role as the group has committed it; where it has not, as the assignments ask."""
    if view.leader(alive) == node:
        return Role.LEADER
    if view.configuration is not None:
        configured = view.configuration.members.get(node)
        if configured is not None and configured.role is MemberRole.VOTER:
            return Role.VOTER
    if is_learner(view, node):
        return Role.LEARNER
    for assignments in (view.pending, view.stable, view.target):
        if assignments is not None and node in assignments.nodes:
            return Role.VOTER if node in assignments.peers else Role.LEARNER
    return Role.NONE


def _copy(view: PartitionView, node: str, assigned: frozenset[str], alive: frozenset[str]) -> CopyCell:
    if node not in copies_of(view, alive):
        return CopyCell.NOT_BEGUN if node in alive else CopyCell.DOWN
    copy = _COPY_OF[local_state(view, node, alive)]
    is_leaving = node not in assigned and copy in (CopyCell.HEALTHY, CopyCell.JOINING)
    return CopyCell.LEAVING if is_leaving else copy
