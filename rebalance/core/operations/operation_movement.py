"""When an operation made progress last, and whether it is stuck.

Progress is a partition that ended, a stage that was reached, or bytes that came. Its time is stored with the
operation, so that a controller that takes over goes on counting. As long as all that is left waits for what
somebody has asked for (a pause, a window, a cap, a rate, one operation at a time, a dead node that leaves), the
operation is *held*, and no time is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from catalog.core.codec import Extensible
from rebalance.core.causes.cause import Cause, labels_of, told_cause
from rebalance.core.causes.cause_table import PERMITTED
from rebalance.core.moves.move_status import MoveState
from rebalance.core.operations.operation_progress import PartitionStep

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
        """Of an operation that is not over."""
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
        names = step.cause.rpartition(f"{cause.value}: ")[2].split(", ")
        return all(name in leaving for name in names)
    return cause in PERMITTED
