"""Errors of the client.

ClientError
├── ReadTimedOutError         no answer to a get within the time limit
├── ServersUnavailableError   no routing map, or no put carried out, in time: nothing was written
├── OutcomeUnknownError       no answer to a put within the time limit: it may have been applied
├── ConditionFailedError      the key is not as the write requires
├── OperationAbandonedError   a later write has abandoned the one with this operation id
├── IncompatibleServerError   the server's version is too far from the client's
└── RefusedByServerError      refused, and nothing was written; ``problem`` says why
    └── ZoneNotFoundError     there is no such zone
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

JsonObject = dict[str, Any]
SERVER_ERROR = 500
ZONE_NOT_FOUND = "ZONE_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class ProblemDocument:
    """A body of problem+json (RFC 9457), or what a member said in its own words: then ``status`` is 0.
    ``request_id``: by which the server's log has it."""

    status: int
    name: str
    detail: str
    code: int | str | None = None
    sql_state: str | None = None
    request_id: str | None = None

    @classmethod
    def from_body(cls, status: int, body: Mapping[str, Any]) -> ProblemDocument:
        return cls(
            status=status,
            name=str(body.get("name") or body.get("title") or "ERROR"),
            detail=str(body.get("detail") or body.get("title") or f"HTTP {status}"),
            code=body.get("code"),
            sql_state=body.get("sqlState"),
            request_id=body.get("request_id"),
        )

    def headline(self) -> str:
        """``NAME (code, SQLSTATE): message`` on one line, without what was not named; with the request's id
        where the server has failed, and its log says more."""
        codes = ", ".join(str(part) for part in (self.code, self.sql_state) if part not in (None, ""))
        detail = "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in self.detail)
        request = f"; request id {self.request_id}" if self.status >= SERVER_ERROR and self.request_id else ""
        return f"{self.name} ({codes}): {detail}{request}" if codes else f"{self.name}: {detail}{request}"


class ClientError(Exception):
    """Base of what the client raises."""


class ReadTimedOutError(ClientError):
    """No answer to a read in time. It may be repeated: a read changes nothing."""


class ServersUnavailableError(ClientError):
    """No server did it in time, and nothing was written; the message names the last reason."""


class OutcomeUnknownError(ClientError):
    """Write with an unknown outcome. It may be repeated with the same operation id for as long as ids are kept;
    the next write of the key by this client abandons it."""


class ConditionFailedError(ClientError):
    """Write whose condition failed. ``wants_absence``: the key was to be absent; else to have another
    revision."""

    def __init__(self, message: str, *, wants_absence: bool) -> None:
        super().__init__(message)
        self.wants_absence = wants_absence


class OperationAbandonedError(ClientError):
    """The write had not been applied when a later one named it as abandoned, and never will be."""


class IncompatibleServerError(ClientError):
    """Client and server may be one minor version apart. A write may have been carried out all the same."""


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
