"""All partitions of a zone as arrays: 65,000 partitions on 100 nodes take 6.5 MB and milliseconds to count.

Rows are partitions, columns are nodes; a column once given stays, so that rows can be read one by one. A *cell*
is the copy of one partition on one node, as one byte: its role and how the copy is, from all that the keyspace
says of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from enum import IntEnum
from operator import add

import numpy as np
import numpy.typing as npt

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
from rebalance.core.operations.operation import step_of
from rebalance.core.recovery.recovery_plan import living_voters, possible_voters

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


Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

SPARE_COLUMNS = 8

ROLE_OF = np.arange(CODES, dtype=np.uint8) // COPIES
COPY_OF = np.arange(CODES, dtype=np.uint8) % COPIES
"""State of the copy by cell."""


@dataclass(frozen=True, slots=True)
class MoveCounts:
    """Partitions by what they do; ``unread`` were not looked at yet."""

    done: int = 0
    moving: int = 0
    waiting: int = 0
    unread: int = 0

    @property
    def total(self) -> int:
        return self.done + self.moving + self.waiting + self.unread


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """Load of a node: ``replicas`` are all of its copies, ``joining`` and ``troubled`` are some of them."""

    replicas: int = 0
    voters: int = 0
    leaders: int = 0
    learners: int = 0
    joining: int = 0
    troubled: int = 0

    def plus(self, other: NodeLoad) -> NodeLoad:
        return NodeLoad(*map(add, astuple(self), astuple(other)))


class ZoneGrid:
    """``cells`` uint8 [P, columns], ``moves`` (``Move``) and ``health`` (``Health``) uint8 [P], ``arrived``
    and ``lost`` bool [P], ``causes`` a text for each partition, empty where it is done."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.version = 0
        """Grows with every change."""
        self.event = 0
        """Event of the target that ``arrived`` and ``moves`` are about; 0: none."""
        self.nodes: list[str] = []
        self.moves: Bytes = np.zeros(partitions, dtype=np.uint8)
        self.health: Bytes = np.zeros(partitions, dtype=np.uint8)
        self.arrived: npt.NDArray[np.bool_] = np.zeros(partitions, dtype=np.bool_)
        self.lost: npt.NDArray[np.bool_] = np.zeros(partitions, dtype=np.bool_)
        self.causes: list[str] = [""] * partitions
        self._columns: dict[str, int] = {}
        self._loads: tuple[int, dict[str, NodeLoad]] = (-1, {})
        self._cells: Bytes = np.zeros((partitions, SPARE_COLUMNS), dtype=np.uint8)
        self._table: Numbers = np.zeros((SPARE_COLUMNS, CODES), dtype=np.int64)
        self._by_cause: Counter[str] = Counter()

    @property
    def cells(self) -> Bytes:
        """uint8 [P, N], columns in the order of ``nodes``."""
        return self._cells[:, : len(self.nodes)]

    def column(self, node: str) -> int:
        """The node's column, a new one if it has none."""
        at = self._columns.get(node)
        if at is None:
            at = self._columns[node] = len(self.nodes)
            self.nodes.append(node)
            if at >= self._cells.shape[1]:
                more = np.zeros((self.partitions, max(SPARE_COLUMNS, at)), dtype=np.uint8)
                self._cells = np.concatenate([self._cells, more], axis=1)
                spare = np.zeros((more.shape[1], CODES), dtype=np.int64)
                self._table = np.concatenate([self._table, spare])
        return at

    def seed(self, nodes: Sequence[str], matrix: npt.NDArray[np.int32], voters: int) -> None:
        """Set the cells to what a target says, until partitions are read: ``matrix`` int32 [P, R] of indexes
        into ``nodes``, the first ``voters`` columns vote."""
        self.version += 1
        columns = np.array([self.column(node) for node in nodes], dtype=np.int64)
        rows = np.arange(len(matrix))
        for place in range(matrix.shape[1]):
            role = Role.VOTER if place < max(voters, 1) else Role.LEARNER
            self._cells[rows, columns[matrix[:, place]]] = cell(role, CopyCell.UNREAD)
        self._table = self._counted(self._cells)

    def aim(self, event: int) -> None:
        """Aim at the target of another ``event``: what was read of an earlier one says nothing about it."""
        if event != self.event:
            self.event = event
            self.arrived[:] = False
            self.moves[:] = MoveCell.UNREAD
            self.version += 1

    def place(self, numbers: Sequence[int], readings: Iterable[PartitionReading]) -> None:
        """Readings of some partitions, each named once, replace what was known of them."""
        changed = np.array(numbers, dtype=np.int64)
        before = self._counted(self._cells[changed])
        for number, reading in zip(numbers, readings, strict=True):
            columns = [(self.column(node), code) for node, code in reading.cells]
            self._cells[number] = 0
            for at, code in columns:
                self._cells[number, at] = code
            self.moves[number] = reading.move
            self.health[number] = reading.health
            self.arrived[number] = reading.arrived
            self.lost[number] = reading.lost
            if self.causes[number] != reading.cause:
                self._by_cause[self.causes[number]] -= 1
                self._by_cause[reading.cause] += 1
                self.causes[number] = reading.cause
        self._table += self._counted(self._cells[changed])
        self._table[: len(before)] -= before
        self.version += 1

    def _counted(self, cells: Bytes) -> Numbers:
        """Copies by column and code: int64 [columns, CODES]; code 0 is not counted."""
        columns = cells.shape[1]
        places = np.flatnonzero(cells != 0)
        key = (places % columns) * CODES + cells.ravel()[places]
        return np.bincount(key, minlength=columns * CODES).reshape(columns, CODES)

    def move_counts(self) -> MoveCounts:
        unread, done, moving, waiting = np.bincount(self.moves, minlength=len(MoveCell)).tolist()
        return MoveCounts(done, moving, waiting, unread)

    def health_counts(self) -> dict[HealthCell, int]:
        counts = np.bincount(self.health, minlength=len(HealthCell)).tolist()
        return dict(zip(HealthCell, counts, strict=True))

    def cause_counts(self) -> Counter[str]:
        """Partitions by cause."""
        return Counter({cause: count for cause, count in self._by_cause.items() if cause and count > 0})

    def lost_numbers(self) -> list[int]:
        """Partitions without a majority of their voters, ascending."""
        numbers: list[int] = np.flatnonzero(self.lost).tolist()
        return numbers

    def loads(self) -> dict[str, NodeLoad]:
        """Every node that holds or held a copy; counted once for each version."""
        version = self.version
        if self._loads[0] != version:
            self._loads = version, self._count_loads()
        return self._loads[1]

    def _count_loads(self) -> dict[str, NodeLoad]:
        if not self.nodes:
            return {}
        table = self._table[: len(self.nodes)]
        held = COPY_OF != CopyCell.NOT_BEGUN

        def total(which: npt.NDArray[np.bool_]) -> list[int]:
            totals: list[int] = table[:, which].sum(axis=1).tolist()
            return totals

        leads = ROLE_OF == Role.LEADER
        levels = (
            total(held & (np.arange(CODES) > 0)),
            total(held & (leads | (ROLE_OF == Role.VOTER))),
            total(held & leads),
            total(held & (ROLE_OF == Role.LEARNER)),
            total(COPY_OF == CopyCell.JOINING),
            total(COPY_OF >= CopyCell.BROKEN),
        )
        return {node: NodeLoad(*counts) for node, *counts in zip(self.nodes, *levels, strict=True)}

    def held_by(self, nodes: Iterable[str]) -> Numbers:
        """Partitions that have a cell on one of the nodes, ascending."""
        columns = [self._columns[node] for node in nodes if node in self._columns]
        return np.flatnonzero(self._cells[:, columns].any(axis=1))
