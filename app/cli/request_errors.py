"""How a request to the API fails.

RequestError
├── UnreachableError    nobody answers, or what answers is not Zonekeeper
├── NoAnswerError       the request was sent and no answer came: it may have been carried out
└── ProblemError        the server refused; ``problem`` is its problem+json
"""

from __future__ import annotations

from app.cli.address import Address
from app.cli.exits import CliError, ExitCode
from app.client.problem import ProblemDocument

SERVER_ERROR = 500
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


class NoAnswerError(RequestError):
    """``exit_code`` is 4 when time ran out, 3 when the connection broke."""


class ProblemError(RequestError):
    def __init__(self, problem: ProblemDocument) -> None:
        code = ExitCode.TIMED_OUT if problem.status == GATEWAY_TIMEOUT else ExitCode.FAILED
        super().__init__(code, problem.headline())
        self.problem = problem


def may_pass(error: RequestError) -> bool:
    """A server that restarts, or waits for its stores, is asked again; a refusal is final."""
    return not isinstance(error, ProblemError) or error.problem.status >= SERVER_ERROR
