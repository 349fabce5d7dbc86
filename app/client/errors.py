"""Errors of the client; the tree is drawn in the package's docstring."""

from __future__ import annotations

from app.client.problem import ProblemDocument

ZONE_NOT_FOUND = "ZONE_NOT_FOUND"


class ClientError(Exception):
    """Base of what the client raises, beside ``OutcomeUnknownError`` of the data path."""


class ReadTimedOutError(ClientError):
    """Asking again is right: a read changes nothing."""


class ServersUnavailableError(ClientError):
    """No server did it in time, and nothing was written; the message names the last reason."""


class RefusedByServerError(ClientError):
    """Repeating the same request does not help."""

    def __init__(self, problem: ProblemDocument) -> None:
        super().__init__(problem.headline())
        self.problem = problem


class ZoneNotFoundError(RefusedByServerError):
    """There is no zone of this name."""


def refusal(problem: ProblemDocument) -> RefusedByServerError:
    """The error that a server's refusal becomes."""
    return ZoneNotFoundError(problem) if problem.name == ZONE_NOT_FOUND else RefusedByServerError(problem)
