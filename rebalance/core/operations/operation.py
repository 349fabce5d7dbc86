"""Operations: each change that moves data, as a value with an id, a state and an end (VOL-020, VOL-089).

An operation belongs to one target of one zone, or to one reset. Its id is made of the zone and of the event
revision, so every writer, before or after a crash, writes the same one. It is a record beside the
target and decides nothing about partitions: those follow their own keys.

``STATES`` is the whole life of an operation: a change of state that is not in it does not happen.

How far it is, is counted from its partitions as they were seen, and never runs backwards (VOL-104). A partition
is *there* when it has processed the operation's event, its group is founded, what is stable is the target,
nothing is pending or planned, and its learners have their copies. Voters are not asked for again: a group that
has switched keeps its configuration, whichever node is down by now.

Progress is a partition that ended, a stage that was reached, or bytes that came. Its time is stored with the
operation, so that a controller that takes over goes on counting. As long as all that is left waits for what
somebody has asked for (a pause, a window, a cap, a rate, one operation at a time, a dead node that leaves), the
operation is *held*, and no time is counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from catalog.core.codec import Codec, Extensible, Form, Record, natural, sequence
from catalog.core.zone import PARTITIONS_LIMIT, ZoneId
from rebalance.core.causes.cause import Cause, labels_of, told_cause
from rebalance.core.causes.cause_table import PERMITTED
from rebalance.core.keyspace.records import MemberState
from rebalance.core.moves.move_status import MoveState, PartitionView, joiner_gone, partition_status

SHOWN_MAX = 20
"""Number of partitions that are named for each cause, at most."""


@dataclass(frozen=True, slots=True)
class Tally(Extensible):
    """Partitions and bytes as of ``at_ms``. ``bytes_total`` is the estimate of the bytes to copy, made once,
    when the operation began; ``bytes_done`` measures what copies that are there take on disk, on every node
    that got one, and may come out higher. 0 where it is not reported yet."""

    total: int = 0
    done: int = 0
    bytes_total: int = 0
    bytes_done: int = 0
    at_ms: int = 0

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """All of its numbers, none of which ever falls."""
        return self.total, self.done, self.bytes_total, self.bytes_done, self.at_ms


@dataclass(frozen=True, slots=True)
class PartitionStep:
    """State of one partition of an operation. ``cause`` is empty only when it is there. ``copy_bytes``: of all
    copies that the operation makes of it. ``untouched``: nothing of the operation has begun here. ``given_up``:
    it ended here without nodes that were gone, and is not there."""

    partition: int
    state: MoveState
    cause: str = ""
    copy_bytes: int = 0
    untouched: bool = False
    given_up: bool = False
    copied: int = 0
    """Figure that joining members report while they catch up; in no unit, only to see it grow."""


def step_of(number: int, view: PartitionView, alive: frozenset[str], copies: int = 0) -> PartitionStep:
    """``copies``: how many nodes get a copy of the partition by the operation.

    What was overtaken (a recovery or a cancel has written after the target) is there once it rests: nothing of
    the operation is left then.
    """
    size = view.configuration.size_bytes if view.configuration is not None else 0
    if view.unreadable:
        return PartitionStep(number, MoveState.WAITING, view.unreadable, copies * size)
    at_rest = view.pending is None and view.planned is None
    untouched = not view.processed and not view.recovered
    if view.recovered and at_rest:
        return PartitionStep(number, MoveState.DONE)
    if cause := joiner_gone(view):
        return PartitionStep(number, MoveState.WAITING, cause, copies * size, given_up=True)
    copied = sum(member.copied for member in view.members.values())
    status = partition_status(view, alive)
    if _is_there(view) and at_rest:
        return PartitionStep(number, MoveState.DONE, copy_bytes=copies * size)
    if status.state is MoveState.DONE:
        return PartitionStep(number, MoveState.WAITING, Cause.PLANNED_NEXT.text(), copies * size, untouched)
    return PartitionStep(number, status.state, status.cause, copies * size, untouched, copied=copied)


def _is_there(view: PartitionView) -> bool:
    if not view.processed or view.stable is None or view.stable != view.target:
        return False
    if view.owners is not None:
        return bool(view.owners.effective)
    if view.configuration is None:
        return False
    mirrors = (view.members[node].mirror for node in view.stable.learners if node in view.members)
    running = sum(mirror is not None and mirror.state is MemberState.RUNNING for mirror in mirrors)
    return running == len(view.stable.learners)


def advance(before: Tally, steps: Iterable[PartitionStep], at_ms: int) -> Tally:
    """The tally after another look. Invariants: no number falls, nothing is done that was not seen done, and
    the estimate stays what it was."""
    total = done = bytes_done = 0
    for step in steps:
        there = step.state is MoveState.DONE
        total, done = total + 1, done + there
        bytes_done += there * step.copy_bytes
    return Tally(
        total=max(before.total, total),
        done=max(before.done, done),
        bytes_total=before.bytes_total,
        bytes_done=max(before.bytes_done, bytes_done),
        at_ms=max(before.at_ms, at_ms),
    )


def is_finished(steps: Sequence[PartitionStep]) -> bool:
    """True if nothing is left, seen in one look. An operation without partitions has nothing to wait for."""
    return all(step.state is MoveState.DONE or step.given_up for step in steps)


def given_up_cause(steps: Sequence[PartitionStep]) -> str:
    """Cause for which a finished operation did not get everywhere; empty: it did."""
    causes = [step.cause for step in steps if step.given_up]
    if not causes:
        return ""
    first = Counter(causes).most_common(1)[0][0]
    return f"{first} ({len(causes)} of {len(steps)} partitions)"


@dataclass(frozen=True, slots=True)
class Estimate:
    """``rate``: bytes a second since it began, None when that is not known. ``left_s``: until the end at the
    same pace, by bytes while those copied are less than the estimate, else by partitions."""

    rate: float | None = None
    left_s: float | None = None


def estimate(tally: Tally, begun_ms: int | None, now_ms: int) -> Estimate:
    """Estimate an operation that runs: while nothing ends, the rate falls and the end goes further away."""
    if begun_ms is None or now_ms <= begun_ms:
        return Estimate()
    elapsed_s = (now_ms - begun_ms) / 1_000
    rate = tally.bytes_done / elapsed_s if tally.bytes_done else None
    done, total = tally.bytes_done, tally.bytes_total
    if not 0 < done < total:
        done, total = tally.done, tally.total
    left_s = elapsed_s * (total - done) / done if done else None
    return Estimate(rate, left_s)


@dataclass(frozen=True, slots=True)
class Waiting:
    """``partitions`` that do not move, and why; at most ``SHOWN_MAX`` are named, ``count`` has all."""

    cause: str
    count: int
    partitions: tuple[int, ...]


def stuck(steps: Iterable[PartitionStep]) -> tuple[Waiting, ...]:
    """Partitions that wait, by cause, the most frequent first."""
    numbers: dict[str, list[int]] = {}
    for step in steps:
        if step.state is MoveState.WAITING:
            numbers.setdefault(step.cause, []).append(step.partition)
    ranked = sorted(numbers.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(Waiting(cause, len(partitions), tuple(partitions[:SHOWN_MAX])) for cause, partitions in ranked)


STUCK_MS = 10 * 60 * 1_000
NOTED_MS = 10_000
"""Bytes that come are noted no more often: each note is a write."""

_UNTOUCHED, _BEGUN, _THERE = 0, 1, 5
_RANKS = {Cause.CATCHING_UP: 2, Cause.JOINT: 3, Cause.STABLE: 4}


@dataclass(frozen=True, slots=True)
class Movement(Extensible):
    """``stages``: the stages that all partitions have reached, added up; it never falls. ``copied``: what
    joining members said when it was noted. ``at_ms``: of the last progress, or of the begin or end of what held
    the operation; 0: nobody has looked yet."""

    stages: int = 0
    copied: int = 0
    at_ms: int = 0
    held: bool = False

    def is_stuck(self, now_ms: int) -> bool:
        """True if an operation that is not over has made no progress for ``STUCK_MS`` without being held."""
        return self.at_ms > 0 and not self.held and now_ms - self.at_ms >= STUCK_MS


def moved(
    before: Movement,
    steps: Sequence[PartitionStep],
    now_ms: int,
    *,
    limited: bool = False,
    leaving: Collection[str] = (),
) -> Movement:
    """The movement after another look. ``limited``: limits or pauses hold now, so that what was not begun may
    have to wait. ``leaving``: nodes that are drained and do not live."""
    stages, copied = sum(map(_rank, steps)), sum(step.copied for step in steps)
    left = [step for step in steps if step.state is not MoveState.DONE and not step.given_up]
    held = bool(left) and all(_is_held(step, limited, leaving) for step in left)
    if before.at_ms == 0 or stages > before.stages or held != before.held:
        return replace(before, stages=max(stages, before.stages), copied=copied, at_ms=now_ms, held=held)
    if copied < before.copied:
        # Copies that have ended are not counted any more, and one that begins anew has nothing yet.
        return replace(before, copied=copied)
    if copied > before.copied and now_ms - before.at_ms >= NOTED_MS:
        return replace(before, copied=copied, at_ms=now_ms)
    return before


def _rank(step: PartitionStep) -> int:
    if step.state is MoveState.DONE or step.given_up:
        return _THERE
    return _UNTOUCHED if step.untouched else _RANKS.get(labels_of(step.cause).stage, _BEGUN)


def _is_held(step: PartitionStep, limited: bool, leaving: Collection[str]) -> bool:
    if step.untouched and limited:
        return True
    cause = told_cause(step.cause)
    if cause is Cause.NODE_DOWN:
        names = step.cause.rpartition(f"{cause.name}: ")[2].split(", ")
        return all(name in leaving for name in names)
    return cause in PERMITTED


KEPT_MAX = 200
"""Operations of one zone that are remembered, the newest."""
NOTES_MAX = 20
"""Notes of one operation that are kept, the newest."""
NOTHING_YET = Tally()
NEVER_LOOKED = Movement()


class OperationKind(Enum):
    """Kind of change that began an operation."""

    CREATE_ZONE = "CREATE_ZONE"
    ALTER_ZONE = "ALTER_ZONE"
    NODES_CHANGED = "NODES_CHANGED"
    DRAIN = "DRAIN"
    RESET = "RESET"
    REVERSE = "REVERSE"
    ADOPTED = "ADOPTED"

    @property
    def moves_data(self) -> bool:
        """True if it waits for admission: groups that are founded do not."""
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
        """True if more of it may begin."""
        return self in (OperationState.WAITING, OperationState.RUNNING, OperationState.PAUSED)


class Step(Enum):
    """Steps that may happen to an operation; ``STATES`` has the states that they lead to."""

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
    """Note of an act that concerns an operation: ``action`` as the audit calls it, with who did it and why."""

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

    ``before`` is the event revision of the stored target that it started from (0: there was none),
    ``before_version`` the catalog version of that target: what a reverse goes back to. ``ended_ms`` is set when
    nothing of it is left, which for a cancelled one is later than its change of state. ``cause`` says why it is
    in its state where the state alone does not. ``parameters`` are those of the zone that the target was
    computed for, as text. ``partitions`` names those of a reset; empty: all of the zone. ``notes`` are its
    history after its begin, the oldest first.
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
        """True if nothing of it is left: it moves nothing any more, and nothing will change by it."""
        return self.ended_ms is not None

    def is_stuck(self, now_ms: int) -> bool:
        """True if nothing of it has moved for ten minutes, and nothing that was asked for holds it."""
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
        """Close an operation of which nothing is left: an open one is DONE then, one that was stopped is
        over."""
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
    """Event revisions of one zone's operations that are forgotten: all but the newest ``KEPT_MAX``."""
    return sorted(revisions)[:-KEPT_MAX]
