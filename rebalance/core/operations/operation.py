"""Operations: each change that moves data, as a value with an id, a state and an end (VOL-020, VOL-089).

An operation belongs to one target of one zone, or to one reset. Its id is made of the zone and of the event
revision, so every writer, before or after a crash, writes the same one. It is a record beside the
target and decides nothing about partitions: those follow their own keys.

``STATES`` is the whole life of an operation: a change of state that is not in it does not happen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from catalog.core.codec import Codec, Extensible, Form, Record, natural, sequence
from catalog.core.zone import PARTITIONS_LIMIT, ZoneId
from rebalance.core.operations.operation_movement import Movement
from rebalance.core.operations.operation_progress import Tally

KEPT_MAX = 200
"""Operations of one zone that are remembered, the newest."""
NOTES_MAX = 20
"""Notes of one operation that are kept, the newest."""
NOTHING_YET = Tally()
NEVER_LOOKED = Movement()


class OperationKind(Enum):
    """What began it."""

    CREATE_ZONE = "CREATE_ZONE"
    ALTER_ZONE = "ALTER_ZONE"
    NODES_CHANGED = "NODES_CHANGED"
    DRAIN = "DRAIN"
    RESET = "RESET"
    REVERSE = "REVERSE"
    ADOPTED = "ADOPTED"

    @property
    def moves_data(self) -> bool:
        """Whether it waits for admission: groups that are founded do not."""
        return self not in (OperationKind.CREATE_ZONE, OperationKind.RESET)


class OperationState(Enum):
    """WAITING: nothing of it has begun. PAUSED: nothing more of it begins. CANCELLED and FAILED: nothing more
    of it will begin; what had begun goes on to its end. SUPERSEDED: a newer target of the zone took its place.
    REVERSED: the assignment before it was asked for again."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DONE = "DONE"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"
    REVERSED = "REVERSED"

    @property
    def is_open(self) -> bool:
        """Whether more of it may begin."""
        return self in (OperationState.WAITING, OperationState.RUNNING, OperationState.PAUSED)


class Step(Enum):
    """What may happen to an operation."""

    BEGUN = "BEGUN"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"
    FINISHED = "FINISHED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"
    REVERSED = "REVERSED"


@dataclass(frozen=True, slots=True)
class Note(Extensible):
    """What somebody did that concerns an operation: ``action`` as the audit calls it, with who and why."""

    at_ms: int
    action: str
    by: str
    reason: str = ""


_ENDS = {
    Step.FINISHED: OperationState.DONE,
    Step.CANCELLED: OperationState.CANCELLED,
    Step.FAILED: OperationState.FAILED,
    Step.SUPERSEDED: OperationState.SUPERSEDED,
    Step.REVERSED: OperationState.REVERSED,
}
_REVERSED = {Step.REVERSED: OperationState.REVERSED}

STATES: Mapping[OperationState, Mapping[Step, OperationState]] = {
    OperationState.WAITING: {
        **_ENDS,
        Step.BEGUN: OperationState.RUNNING,
        Step.PAUSED: OperationState.PAUSED,
    },
    OperationState.RUNNING: {**_ENDS, Step.PAUSED: OperationState.PAUSED},
    OperationState.PAUSED: {
        **_ENDS,
        # What had been admitted before the pause begins its steps: the pause holds all the same.
        Step.BEGUN: OperationState.PAUSED,
        Step.RESUMED: OperationState.WAITING,
    },
    OperationState.DONE: _REVERSED,
    OperationState.CANCELLED: _REVERSED,
    OperationState.FAILED: _REVERSED,
    OperationState.SUPERSEDED: {},
    OperationState.REVERSED: {},
}


def next_state(state: OperationState, step: Step, *, begun: bool = False) -> OperationState | None:
    """The state after ``step``; None: it cannot happen now. ``begun``: something of it has begun, so that
    resuming leads to RUNNING and not to WAITING."""
    after = STATES[state].get(step)
    if after is OperationState.WAITING and begun:
        return OperationState.RUNNING
    return after


def operation_id(zone_id: ZoneId, event_revision: int) -> str:
    return f"{zone_id}-{event_revision}"


OPERATION_ID = "([1-9][0-9]{0,17})-([1-9][0-9]{0,18})"


def parse_operation_id(text: str) -> tuple[ZoneId, int] | None:
    """(zone, event revision); None for what is no id of an operation."""
    match = re.fullmatch(OPERATION_ID, text)
    return None if match is None else (ZoneId(int(match[1])), int(match[2]))


@dataclass(frozen=True, slots=True)
class Operation(Record):
    """One operation as it is stored. Times are milliseconds since 1970 by the clock of who wrote them.

    ``before`` is the event revision of the stored target that it started from (0: there was none), ``before_
    version`` the catalog version of that target: what a reverse goes back to. ``ended_ms`` is set when nothing
    of it is left, which for a cancelled one is later than its change of state. ``cause`` says why it is in
    its state where the state alone does not. ``parameters`` are those of the zone that the target was computed
    for, as text. ``partitions`` names those of a reset; empty: all of the zone. ``notes`` are its history after
    its begin, the oldest first.
    """

    kind: OperationKind
    zone_id: ZoneId
    zone: str
    event_revision: int
    catalog_version: int
    started_ms: int
    by: str = ""
    verified: bool = False
    reason: str = ""
    statement: str = ""
    parameters: str = ""
    before: int = 0
    before_version: int = 0
    moves: int = 0
    reverses: str = ""
    state: OperationState = OperationState.WAITING
    begun_ms: int | None = None
    ended_ms: int | None = None
    cause: str = ""
    tally: Tally = NOTHING_YET
    partitions: tuple[int, ...] = ()
    notes: tuple[Note, ...] = ()
    movement: Movement = NEVER_LOOKED

    @property
    def operation_id(self) -> str:
        return operation_id(self.zone_id, self.event_revision)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left: it moves nothing any more, and nothing will change by it."""
        return self.ended_ms is not None

    def is_stuck(self, now_ms: int) -> bool:
        """Whether nothing of it has moved for ten minutes, and nobody has asked for that."""
        return self.state.is_open and not self.is_over and self.movement.is_stuck(now_ms)

    def after(self, step: Step, now_ms: int, cause: str = "") -> Operation | None:
        """The operation after ``step``; None: that cannot happen to it now.

        Whether something that is CANCELLED or FAILED is over is for ``closed`` to say. Whatever else is not
        open is over, and an end that has a time keeps it.
        """
        state = next_state(self.state, step, begun=self.begun_ms is not None)
        if state is None:
            return None
        begun_ms = self.begun_ms
        if step is Step.BEGUN and begun_ms is None:
            begun_ms = now_ms
        lingers = state in (OperationState.CANCELLED, OperationState.FAILED)
        ended_ms = self.ended_ms
        if ended_ms is None and not state.is_open and not lingers:
            ended_ms = now_ms
        return replace(self, state=state, begun_ms=begun_ms, ended_ms=ended_ms, cause=cause)

    def closed(self, now_ms: int) -> Operation:
        """Nothing of it is left: an open one is DONE then, one that was stopped is over."""
        if self.is_over:
            return self
        if self.state.is_open:
            done = self.after(Step.FINISHED, now_ms)
            assert done is not None
            return done
        return replace(self, ended_ms=now_ms)

    def noted(self, note: Note) -> Operation:
        return replace(self, notes=(*self.notes, note)[-NOTES_MAX:])


def _numbers(value: Any) -> tuple[int, ...]:
    numbers: tuple[int, ...] = sequence(natural)(value)
    if any(number >= PARTITIONS_LIMIT for number in numbers):
        raise ValueError(f"a partition from {PARTITIONS_LIMIT} on")
    return numbers


Operation.codec = Codec(
    Operation,
    # Left out where there are none: so the document is what earlier builds read.
    omit=("notes", "movement"),
    required=("tally", "partitions", "state"),
    forms={"partitions": Form(_numbers, list)},
)


def too_old(revisions: list[int]) -> list[int]:
    """Of the event revisions of one zone's operations those that are forgotten: all but the newest."""
    return sorted(revisions)[:-KEPT_MAX]
