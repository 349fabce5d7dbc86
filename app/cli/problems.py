"""Errors of requests to the API, and the printing of a refusal, a problem document (RFC 9457): for people with
a caret below the spot, for programs as one JSON object.

RequestError
├── UnreachableError    no server answers, or the one that does is not Zonekeeper
│   └── UntrustedError  the server's certificate is not trusted: nothing was sent
├── NoAnswerError       the request was sent and no answer came: it may have been carried out
└── ProblemError        the server refused; ``problem`` is its problem+json
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.cli.address import CA_VARIABLE, Address
from app.cli.exits import CliError, ExitCode
from app.cli.options import OutputFormat
from app.cli.output import json_text
from app.cli.sql_source import Script
from catalog.core.visible import hidden_character, visible

if TYPE_CHECKING:
    import httpx

    from app.contract.statements import StatementOutcome


JsonObject = dict[str, Any]
SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class ProblemDocument:
    """A problem+json body; ``results`` are those of the statements before the refused one."""

    status: int
    name: str
    detail: str
    code: int | str | None = None
    sql_state: str | None = None
    line: int | None = None
    column: int | None = None
    statement: int | None = None
    results: Sequence[StatementOutcome] = field(default=())
    file: str | None = None
    """The file that is wrong, of several that were sent."""
    request_id: str | None = None
    """Id of the request in the server's log."""

    @classmethod
    def from_body(cls, status: int, body: Mapping[str, Any]) -> ProblemDocument:
        return cls(
            status=status,
            name=str(body.get("name") or body.get("title") or "ERROR"),
            detail=str(body.get("detail") or body.get("title") or f"HTTP {status}"),
            code=body.get("code"),
            sql_state=body.get("sqlState"),
            line=body.get("line"),
            column=body.get("column"),
            statement=body.get("statement"),
            results=tuple(body.get("results") or ()),
            file=body.get("file"),
            request_id=body.get("request_id"),
        )

    def headline(self) -> str:
        """``NAME (code, SQLSTATE): message``, without codes that the server did not give; with the request's id
        where the server has failed, since its log says more."""
        codes = ", ".join(str(part) for part in (self.code, self.sql_state) if part not in (None, ""))
        detail = visible(self.detail)
        request = f"; request id {self.request_id}" if self.status >= SERVER_ERROR and self.request_id else ""
        return f"{self.name} ({codes}): {detail}{request}" if codes else f"{self.name}: {detail}{request}"

    def as_json(self) -> JsonObject:
        told = {"name": self.name, "code": self.code, "sqlState": self.sql_state, "message": self.detail}
        return told | {name: getattr(self, name) for name in ("line", "column", "statement", "status")}


def json_object(response: httpx.Response) -> JsonObject | None:
    """The JSON object of a body; None for another body."""
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


_WORD = re.compile(r"\w+|\"[^\"]*\"|'[^']*'")
TAB_STOP = 8
HIDDEN_MARK = "\ufffd"


def render_problem(problem: ProblemDocument, form: OutputFormat, script: Script | None = None) -> str:
    """Render a problem in a format. ``script``: the text to which its ``line`` and ``column`` refer."""
    if form in (OutputFormat.JSON, OutputFormat.JSONL):
        file = {} if script is None else {"file": script.name}
        return json_text({**problem.as_json(), **file})
    return problem.headline() if script is None else describe_problem(script, problem)


def describe_problem(script: Script, problem: ProblemDocument) -> str:
    """``FILE:line:column: NAME (code, SQLSTATE): message``, the line itself, and a caret below the spot."""
    if problem.line is None:
        return f"{script.name}: {problem.headline()}"
    column = problem.column or 1
    headline = f"{script.name}:{problem.line}:{column}: {problem.headline()}"
    if not 1 <= problem.line <= len(script.lines):
        return headline
    source = script.lines[problem.line - 1].rstrip("\r")
    if _holds_a_secret(script, problem.line):
        return headline
    return f"{headline}\n  {_shown(source.expandtabs(TAB_STOP))}\n  {_caret(source, column)}"


def _holds_a_secret(script: Script, line: int) -> bool:
    """True if a line has a secret, which must not be printed: terminals are scrolled back, and logs of
    pipelines are kept."""
    # Loading the parser takes longer than most commands.
    from parser.hidden_secrets import hide_secrets

    shown = hide_secrets("\n".join(script.lines)).split("\n")
    return len(shown) != len(script.lines) or shown[line - 1] != script.lines[line - 1]


def _shown(source: str) -> str:
    """The line with hidden characters replaced one by one, so that the caret stays below the spot."""
    return "".join(HIDDEN_MARK if hidden_character(char) else char for char in source)


def _caret(source: str, column: int) -> str:
    start = column - 1
    before = _width(source[:start].expandtabs(TAB_STOP))
    word = _WORD.match(source, start)
    length = _width(word.group()) if word else 1
    return " " * before + "^" + "~" * (length - 1)


def _width(text: str) -> int:
    """Width of a text in terminal cells: wide characters (as CJK) take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


GATEWAY_TIMEOUT = 504


class RequestError(CliError):
    """Base of the tree in this module's docstring."""


class UnreachableError(RequestError):
    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(
            ExitCode.UNREACHABLE,
            f"no Zonekeeper answers at {address.url} ({address.origin}): {reason}. "
            "Start one with `zonectl up`, or name one with --url or ZONEKEEPER_URL.",
        )


class UntrustedError(UnreachableError):
    def __init__(self, address: Address, reason: str) -> None:
        RequestError.__init__(
            self,
            ExitCode.UNREACHABLE,
            f"the certificate of {address.url} ({address.origin}) is not trusted: {reason}. "
            f"Name the authority that signed it with {CA_VARIABLE} or `zonectl login --ca-file`; "
            "on the machine of a `zonectl up` name its directory with --data-dir.",
        )


class NoAnswerError(RequestError):
    """Request without an answer; ``exit_code`` is 4 when time ran out, 3 when the connection broke."""


class ProblemError(RequestError):
    def __init__(self, problem: ProblemDocument) -> None:
        code = ExitCode.TIMED_OUT if problem.status == GATEWAY_TIMEOUT else ExitCode.FAILED
        super().__init__(code, problem.headline())
        self.problem = problem


def may_pass(error: RequestError) -> bool:
    """True if a retry may help: the server may be restarting, or waiting for its stores; a refusal is final."""
    return not isinstance(error, ProblemError) or error.problem.status >= SERVER_ERROR
