"""The client of the REST API for commands: one method asks any route, others those of several commands. Its
errors are in ``app.cli.problems``.
"""

from __future__ import annotations

import base64
import getpass
import ssl
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import httpx

from app.cli.address import Address
from app.cli.exits import ExitCode, UsageError
from app.cli.output import say
from app.cli.problems import (
    JsonObject,
    NoAnswerError,
    ProblemDocument,
    ProblemError,
    UnreachableError,
    UntrustedError,
    json_object,
)
from app.contract.keys import ABANDONS_FIELD, TIMEOUT_FIELD
from rebalance.core.keyspace.write_terms import ANY, WriteTerms
from rebalance.hosting.tls_handshakes import SharedContext

if TYPE_CHECKING:
    from app.contract.keys import GetResult, PutResult
    from app.contract.nodes import NodeBody
    from app.contract.statements import StatementOutcome
    from app.contract.zones import PartitionBody, Progress

CONNECT_TIMEOUT_S = 5.0

STATEMENT_TIMEOUT_S = 60.0
# The server itself repeats a put for up to 15 s before it says that the outcome is unknown.
DATA_TIMEOUT_S = 25.0
READ_TIMEOUT_S = 10.0
GRACE_S = 1.0
"""Seconds for which an answer is awaited beyond the time that the server is given: its own answer says more
than a timeout."""


def segment(text: str) -> str:
    """One path segment; dots are escaped too, because ``.`` and ``..`` would be taken for folders."""
    return quote(text, safe="").replace(".", "%2E")


def path_of(*steps: str) -> str:
    """Path of a route, by its segments."""
    return f"/api/v1/{'/'.join(map(segment, steps))}"


class ApiClient:
    """One HTTP connection pool; safe to share between threads. Close it, or use it in a ``with``."""

    def __init__(self, address: Address, reason: str = "") -> None:
        """Open the pool. ``reason`` is sent with all requests."""
        self.address = address
        self._is_age_told = False
        # The environment's proxies are for the outside; a Zonekeeper is on this machine or near.
        try:
            self._http = httpx.Client(
                base_url=address.url,
                trust_env=False,
                headers={**_identity(reason), **_credential(address)},
                verify=_trusted(address),
                follow_redirects=False,
            )
        except httpx.InvalidURL as error:
            raise UsageError(f"{address.url} is not a URL such as https://zones.example:7443") from error

    def __enter__(self) -> ApiClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def readiness(self) -> JsonObject:
        """The body of /readyz: ``ready`` false comes with 503 and is an answer, not a failure. Raises
        RequestError, also where the server keeps its details from this user."""
        response = self._answer("GET", "/readyz")
        body = json_object(response)
        if body is None or "ready" not in body:
            raise UnreachableError(self.address, f"/readyz answered HTTP {response.status_code}")
        if "catalog" not in body:
            # The route answers everybody; one that needs the same privilege says what is missing.
            self.nodes()
        return body

    def get_raw(self, path: str, timeout_s: float) -> httpx.Response:
        """The response, whatever its status. Raises httpx.HTTPError."""
        return self._http.get(path, timeout=timeout_s)

    def ask(
        self,
        method: str,
        *steps: str,
        body: object = None,
        query: Any = (),
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """The JSON object that a route answers with. ``steps``: segments of its path, below the API's own.
        ``query``: as ``urlencode`` takes it. ``timeout_s`` None: as usual for the method. Raises
        RequestError."""
        path = path_of(*steps) + (f"?{urlencode(query)}" if query else "")
        usual_s = STATEMENT_TIMEOUT_S if method == "POST" else READ_TIMEOUT_S
        response = self._answer(method, path, body, headers, timeout_s or usual_s)
        answer = json_object(response)
        if answer is None:
            raise UnreachableError(self.address, f"HTTP {response.status_code} without a JSON object")
        if not response.is_success:
            raise ProblemError(ProblemDocument.from_body(response.status_code, answer))
        self._tell_age(answer)
        return answer

    def _tell_age(self, body: JsonObject) -> None:
        """Say once, on stderr, that the answers of a server which has lost its metastore are old."""
        since = body.get("metastore_silent_since")
        if since and not self._is_age_told:
            self._is_age_told = True
            say(f"As of {since}: the metastore has been silent since then.", out=sys.stderr)

    def _hint_of_https(self, error: httpx.TransportError) -> str:
        """Hint for an error of a port of HTTPS, which ends a connection that begins without TLS."""
        url = self.address.url
        is_plain = url.startswith("http://") and isinstance(error, httpx.RemoteProtocolError)
        return f"; if the port is one of HTTPS, use https{url.removeprefix('http')}" if is_plain else ""

    def _answer(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> httpx.Response:
        limits = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        perhaps = "" if method == "GET" else "; whether it was carried out is not known"
        ask = partial(self._http.request, method, path, json=body, headers=headers, timeout=limits)
        try:
            try:
                return ask()
            except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
                if method != "GET" or isinstance(error, httpx.ConnectError):
                    raise
                # A kept connection was closed just then, by the server or by another thread: this says nothing
                # of the server, and a question may be asked twice.
                return ask()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            if (doubt := _doubt_of_certificate(error)) is not None:
                raise UntrustedError(self.address, doubt) from error
            raise UnreachableError(self.address, str(error) or type(error).__name__) from error
        except httpx.TimeoutException as error:
            raise NoAnswerError(
                ExitCode.TIMED_OUT,
                f"{self.address.url} did not answer within {timeout_s:.0f} s{perhaps}",
            ) from error
        except httpx.TransportError as error:
            raise NoAnswerError(
                ExitCode.UNREACHABLE,
                f"the connection to {self.address.url} broke before an answer came ({error}){perhaps}"
                f"{self._hint_of_https(error)}",
            ) from error

    def execute(
        self,
        sql: str,
        base_version: int | None = None,
        plan_id: str | None = None,
        timeout_s: float = STATEMENT_TIMEOUT_S,
    ) -> Sequence[StatementOutcome]:
        """Run a script, and return its statements' results; a refusal carries those before the refused one.

        ``base_version``: only if the catalog is still at it, else CATALOG_VERSION_CONFLICT. ``plan_id``: only
        if the plan would still be exactly this one, else PLAN_CHANGED.
        """
        headers = {} if base_version is None else {"If-Match": f'"{base_version}"'}
        body = {"sql": sql} | ({} if plan_id is None else {"plan_id": plan_id})
        answer = self.ask("POST", "statements", body=body, headers=headers, timeout_s=timeout_s)
        return tuple(answer["results"])

    def progress(self, zone_id: int, version: int) -> Progress:
        progress: Progress = self.ask("GET", "progress", str(zone_id), query={"version": version})
        return progress

    def partitions(self, name: str) -> Sequence[PartitionBody]:
        return tuple(self.ask("GET", "zones", name, "partitions")["partitions"])

    def nodes(self) -> Sequence[NodeBody]:
        return tuple(self.ask("GET", "nodes")["nodes"])

    def write(
        self,
        name: str,
        key: str,
        value: str | None,
        operation_id: str,
        terms: WriteTerms = ANY,
        timeout_s: float | None = None,
    ) -> PutResult:
        """Write a key. ``value`` None: delete it; a missing key is no error. Repeating it with the same
        operation id changes nothing more."""
        query = {"if_revision": terms.if_revision, "if_absent": "true" if terms.if_absent else None}
        headers = {"Idempotency-Key": operation_id}
        if terms.abandons:
            headers[ABANDONS_FIELD] = " ".join(terms.abandons)
        method, body = ("DELETE", None) if value is None else ("PUT", {"value": value})
        written: PutResult = self._of_key(method, name, key, query, timeout_s, headers, body)
        return written

    def get(
        self,
        name: str,
        key: str,
        options: Mapping[str, str | int] | None = None,
        timeout_s: float | None = None,
    ) -> GetResult:
        """Read a key. ``options``: ``read``, ``at_revision``, ``at_time``, as the route documents them."""
        found: GetResult = self._of_key("GET", name, key, options or {}, timeout_s, {})
        return found

    def _of_key(
        self,
        method: str,
        name: str,
        key: str,
        query: Mapping[str, str | int | None],
        timeout_s: float | None,
        headers: Mapping[str, str],
        body: object = None,
    ) -> Any:
        """``timeout_s``: time limit that the server is given too; None: as long as the route takes."""
        stated = {option: value for option, value in query.items() if value is not None}
        within_s = DATA_TIMEOUT_S
        if timeout_s is not None:
            within_s, headers = timeout_s + GRACE_S, {**headers, TIMEOUT_FIELD: f"{timeout_s:.3f}"}
        steps = ("zones", name, "kv", key)
        return self.ask(method, *steps, body=body, query=stated, headers=headers, timeout_s=within_s)


def _doubt_of_certificate(error: BaseException) -> str | None:
    """Reason why the server's certificate is not trusted; None: the request failed for another reason."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause.verify_message
        cause = cause.__cause__ or cause.__context__
    return None


def _credential(address: Address) -> dict[str, str]:
    """Header with the address's credential; empty without TLS, even if there is a credential."""
    if not address.url.startswith("https://"):
        return {}
    if address.password is not None:
        text = ":".join(address.password).encode()
        return {"Authorization": f"Basic {base64.b64encode(text).decode()}"}
    return {"Authorization": f"Bearer {address.token}"} if address.token else {}


def _trusted(address: Address) -> ssl.SSLContext:
    """TLS context that trusts the address's authority. Raises UsageError."""
    if not address.url.startswith("https://"):
        # Trusts nobody, and costs nothing: reading the system's authorities takes longer than a request.
        return SharedContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return SharedContext.trusting(address.authority)
    except ssl.SSLError as error:
        raise UsageError(f"the authority of {address.url} is not a PEM certificate: {error}") from error


def _identity(reason: str) -> dict[str, str]:
    """Headers with the user's name, where there is one, and the reason, which records of changes keep."""
    headers = {"Zonekeeper-Via": "cli"}
    if reason:
        headers["Zonekeeper-Reason"] = quote(reason, errors="replace")
    try:
        return {**headers, "Zonekeeper-By": quote(getpass.getuser(), errors="replace")}
    except (KeyError, OSError):
        return headers
