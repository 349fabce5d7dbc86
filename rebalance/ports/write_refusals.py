"""Refusals of requests that the group itself would take."""

from __future__ import annotations

from rebalance.ports.groups import GroupError


class NobodyAskedError(GroupError):
    """58000: no member of the group was known in time, so nothing was sent. Asking again is right."""

    code = 58000


class ConditionFailedError(GroupError):
    """``wants_absence``: no such key was wanted; else another revision of it."""

    def __init__(self, message: str, *, wants_absence: bool) -> None:
        super().__init__(message)
        self.wants_absence = wants_absence


class OperationAbandonedError(GroupError):
    """The write with this operation id had not been applied when a later one named it as abandoned, or when
    it was refused while attempts of it were late."""
