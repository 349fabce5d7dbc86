"""How far an operation is: counted from its partitions as they were seen, never running backwards (VOL-104).

A partition is *there* when it has processed the operation's event, its group is founded, what is stable is the
target, nothing is pending or planned, and its learners have their copies. Voters are not asked for again: a
group that has switched keeps its configuration, whichever node is down by now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from catalog.core.codec import Extensible
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.records import MemberState
from rebalance.core.moves.move_status import MoveState, PartitionView, joiner_gone, partition_status

SHOWN_MAX = 20
"""So many partitions are named for each cause."""


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
        """None of which ever falls."""
        return self.total, self.done, self.bytes_total, self.bytes_done, self.at_ms


@dataclass(frozen=True, slots=True)
class PartitionStep:
    """Where one partition of an operation is. ``cause`` is empty only when it is there. ``copy_bytes``: of all
    copies that the operation makes of it. ``untouched``: nothing of the operation has begun here. ``given_up``:
    it ended here without nodes that were gone, and is not there."""

    partition: int
    state: MoveState
    cause: str = ""
    copy_bytes: int = 0
    untouched: bool = False
    given_up: bool = False
    copied: int = 0
    """By what joining members say, while they catch up; in no unit, only to see it grow."""


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
    """Whether nothing is left, seen in one look. An operation without partitions has nothing to wait for."""
    return all(step.state is MoveState.DONE or step.given_up for step in steps)


def given_up_cause(steps: Sequence[PartitionStep]) -> str:
    """Why a finished operation did not get everywhere; empty: it did."""
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
    """Of an operation that runs: while nothing ends, the rate falls and the end goes further away."""
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
    """What waits, by cause, the most frequent first."""
    numbers: dict[str, list[int]] = {}
    for step in steps:
        if step.state is MoveState.WAITING:
            numbers.setdefault(step.cause, []).append(step.partition)
    ranked = sorted(numbers.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(Waiting(cause, len(partitions), tuple(partitions[:SHOWN_MAX])) for cause, partitions in ranked)
