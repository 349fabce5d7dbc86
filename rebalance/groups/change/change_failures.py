"""Why an attempt at a change ends, or does not go on at the moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rebalance.core.moves.step_checks import CheckedStep, NotYet, StepCondition
from rebalance.groups.calls.etcd_api import CallFailedError, FailureKind
from rebalance.ports.groups import FailureCode, ReconfigurationFailure

_CODES: Mapping[FailureKind, FailureCode] = {
    FailureKind.UNHEALTHY: FailureCode.UNHEALTHY_CLUSTER,
    FailureKind.NOT_ENOUGH_STARTED: FailureCode.MEMBER_NOT_STARTED,
    FailureKind.NOT_LEADER: FailureCode.LEADER_STEPPED_DOWN,
    FailureKind.NO_ANSWER: FailureCode.TIMED_OUT,
    FailureKind.NO_LEADER: FailureCode.TIMED_OUT,
}


class AttemptEndedError(Exception):
    def __init__(self, failure: ReconfigurationFailure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Blocked:
    """A step that its check does not allow."""

    step: CheckedStep
    by: NotYet

    @property
    def failure(self) -> ReconfigurationFailure:
        """As it is published, with the first member whose answer is missing."""
        lacks_votes = self.by.condition in (StepCondition.MAJORITY, StepCondition.NEXT_MAJORITY)
        code = FailureCode.NO_MAJORITY if lacks_votes else FailureCode.TIMED_OUT
        return ReconfigurationFailure(code, self.by.condition.value, next(iter(self.by.silent), ""))


def failure_of(failed: CallFailedError) -> ReconfigurationFailure:
    return ReconfigurationFailure(_CODES.get(failed.kind, FailureCode.REFUSED), str(failed))
