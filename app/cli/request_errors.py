"""How a request to the API fails.

RequestError
├── UnreachableError    nobody answers, or what answers is not Zonekeeper
│   └── UntrustedError  who answers shows a certificate that is not trusted: nothing was sent
├── NoAnswerError       the request was sent and no answer came: it may have been carried out
└── ProblemError        the server refused; ``problem`` is its problem+json
"""

from __future__ import annotations

from app.cli.address import CA_VARIABLE, Address
from app.cli.exits import CliError, ExitCode
from app.cli.problem_document import ProblemDocument

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
    """``exit_code`` is 4 when time ran out, 3 when the connection broke."""


class ProblemError(RequestError):
    def __init__(self, problem: ProblemDocument) -> None:
        code = ExitCode.TIMED_OUT if problem.status == GATEWAY_TIMEOUT else ExitCode.FAILED
        super().__init__(code, problem.headline())
        self.problem = problem


def may_pass(error: RequestError) -> bool:
    """A server that restarts, or waits for its stores, is asked again; a refusal is final."""
    return not isinstance(error, ProblemError) or error.problem.status >= SERVER_ERROR
