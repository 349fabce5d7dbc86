"""The REST API as the commands see it: one method a resource, and three ways to fail.

RequestError
├── UnreachableError    nobody answers, or what answers is not Zonekeeper
├── NoAnswerError       the request was sent and no answer came: it may have been carried out
└── ProblemError        the server refused; ``problem`` is its problem+json
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from app.cli.address import Address
from app.cli.exits import CliError, ExitCode

JsonObject = dict[str, Any]

CONNECT_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 60.0
# The server itself repeats a put for up to 15 s before it says that the outcome is unknown.
DATA_TIMEOUT_S = 25.0
READ_TIMEOUT_S = 10.0
# Every zone is published again, one after the other.
ADOPT_TIMEOUT_S = 600.0


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


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem+json body; ``results`` are those of the statements before the refused one."""

    status: int
    name: str
    detail: str
    code: int | str | None = None
    sql_state: str | None = None
    line: int | None = None
    column: int | None = None
    statement: int | None = None
    results: Sequence[JsonObject] = field(default=())
    file: str | None = None
    """Of several files that were sent, the one that is wrong."""

    @classmethod
    def from_body(cls, status: int, body: Mapping[str, Any]) -> Problem:
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
        )

    def headline(self) -> str:
        """``NAME (code, SQLSTATE): message``, without what the server did not name."""
        codes = ", ".join(str(part) for part in (self.code, self.sql_state) if part not in (None, ""))
        return f"{self.name} ({codes}): {self.detail}" if codes else f"{self.name}: {self.detail}"

    def as_json(self) -> JsonObject:
        return {
            "name": self.name,
            "code": self.code,
            "sqlState": self.sql_state,
            "message": self.detail,
            "line": self.line,
            "column": self.column,
            "statement": self.statement,
            "status": self.status,
        }


class ProblemError(RequestError):
    def __init__(self, problem: Problem) -> None:
        code = ExitCode.TIMED_OUT if problem.status == httpx.codes.GATEWAY_TIMEOUT else ExitCode.FAILED
        super().__init__(code, problem.headline())
        self.problem = problem


class ApiClient:
    """One HTTP connection pool; safe to share between threads. Close it, or use it in a ``with``."""

    def __init__(self, address: Address) -> None:
        self.address = address
        # The environment's proxies are for the outside; a Zonekeeper is on this machine or near.
        self._http = httpx.Client(base_url=address.url, trust_env=False)

    def __enter__(self) -> ApiClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def execute(self, sql: str, base_version: int | None = None) -> Sequence[JsonObject]:
        """The results of a script's statements; a ProblemError carries those before the refused one.

        ``base_version``: only if the catalog is at it still, else a problem CATALOG_VERSION_CONFLICT.
        """
        headers = {} if base_version is None else {"If-Match": f'"{base_version}"'}
        body = self._call("POST", "/api/v1/statements", STATEMENT_TIMEOUT_S, json={"sql": sql}, headers=headers)
        return tuple(body["results"])

    def plan(self, files: Sequence[tuple[str, str]], *, prune: bool) -> JsonObject:
        """``files`` are names and texts."""
        sent = {"files": [{"name": name, "text": text} for name, text in files], "prune": prune}
        return self._call("POST", "/api/v1/plan", STATEMENT_TIMEOUT_S, json=sent)

    def progress(self, zone_id: int, version: int) -> JsonObject:
        return self._call("GET", f"/api/v1/progress/{zone_id}?version={version}")

    def zones(self) -> Sequence[JsonObject]:
        return tuple(self._call("GET", "/api/v1/zones")["zones"])

    def partitions(self, zone: str) -> Sequence[JsonObject]:
        return tuple(self._call("GET", f"/api/v1/zones/{_segment(zone)}/partitions")["partitions"])

    def nodes(self) -> Sequence[JsonObject]:
        return tuple(self._call("GET", "/api/v1/nodes")["nodes"])

    def readiness(self) -> JsonObject:
        """The body of /readyz: ``ready`` false comes with 503 and is an answer, not a failure."""
        response = self._send("GET", "/readyz", READ_TIMEOUT_S)
        body = _json_object(response)
        if body is None or "ready" not in body:
            raise UnreachableError(self.address, f"/readyz answered HTTP {response.status_code}")
        return body

    def metastore(self) -> JsonObject:
        """Whether catalog and metastore belong together."""
        return self._call("GET", "/api/v1/metastore")

    def adopt_metastore(self) -> JsonObject:
        """Repeating it does nothing more once both stores agree."""
        return self._call("POST", "/api/v1/metastore/adopt", ADOPT_TIMEOUT_S)

    def limits(self) -> JsonObject:
        """How many partitions may move at once, and pauses."""
        return self._call("GET", "/api/v1/rebalance/limits")

    def change_limits(self, change: Mapping[str, object]) -> JsonObject:
        """Repeating it changes nothing more, but a pause begins anew."""
        return self._call("PATCH", "/api/v1/rebalance/limits", json=change)

    def drain(self, node: str, body: Mapping[str, object]) -> JsonObject:
        """Repeating it changes nothing more."""
        return self._call("PUT", f"/api/v1/nodes/{_segment(node)}/drain", json=body)

    def undrain(self, node: str) -> JsonObject:
        """Repeating it changes nothing more."""
        return self._call("DELETE", f"/api/v1/nodes/{_segment(node)}/drain")

    def can_stop(self, node: str) -> JsonObject:
        return self._call("GET", f"/api/v1/nodes/{_segment(node)}/can-stop")

    def put(self, zone: str, key: str, value: str, operation_id: str) -> JsonObject:
        """Repeating it with the same operation id changes nothing more."""
        return self._call(
            "PUT",
            _key_path(zone, key),
            DATA_TIMEOUT_S,
            json={"value": value},
            headers={"Idempotency-Key": operation_id},
        )

    def get(self, zone: str, key: str) -> JsonObject:
        return self._call("GET", _key_path(zone, key), DATA_TIMEOUT_S)

    def _call(
        self,
        method: str,
        path: str,
        timeout_s: float = READ_TIMEOUT_S,
        *,
        json: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        response = self._send(method, path, timeout_s, json=json, headers=headers)
        body = _json_object(response)
        if body is None:
            raise UnreachableError(self.address, f"HTTP {response.status_code} without a JSON object")
        if response.is_success:
            return body
        raise ProblemError(Problem.from_body(response.status_code, body))

    def _send(
        self,
        method: str,
        path: str,
        timeout_s: float,
        *,
        json: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        limits = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        try:
            return self._http.request(method, path, json=json, headers=headers, timeout=limits)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise UnreachableError(self.address, str(error) or type(error).__name__) from error
        except httpx.TimeoutException as error:
            raise NoAnswerError(
                ExitCode.TIMED_OUT,
                f"{self.address.url} did not answer within {timeout_s:.0f} s{_perhaps(method)}",
            ) from error
        except httpx.TransportError as error:
            raise NoAnswerError(
                ExitCode.UNREACHABLE,
                f"the connection to {self.address.url} broke before an answer came ({error}){_perhaps(method)}",
            ) from error


def _perhaps(method: str) -> str:
    return "" if method == "GET" else "; whether it was carried out is not known"


def _segment(text: str) -> str:
    """One path segment; dots are escaped too, because ``.`` and ``..`` would be taken for folders."""
    return quote(text, safe="").replace(".", "%2E")


def _key_path(zone: str, key: str) -> str:
    return f"/api/v1/zones/{_segment(zone)}/kv/{_segment(key)}"


def _json_object(response: httpx.Response) -> JsonObject | None:
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
