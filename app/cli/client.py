"""The client of the REST API for commands, with a method for each route. Its errors are in
``app.cli.problems``.
"""

from __future__ import annotations

import base64
import getpass
import ssl
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar
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
    from app.contract.audit import AuditRecords
    from app.contract.health import Alerts, SilenceBegun, SilenceBody, SilenceEnded
    from app.contract.keys import GetResult, PutResult, VerifyBody
    from app.contract.logins import ConsoleLink, NewToken, TokenBody, WhoAmI
    from app.contract.maintenance import (
        AdoptionBody,
        FinalisedBody,
        LevelChange,
        LevelReset,
        LogLevels,
        MetastoreState,
        UpgradeBody,
    )
    from app.contract.nodes import CanStop, DrainResult, NodeBody, NodeRemoval
    from app.contract.operations import OperationDetail, Operations
    from app.contract.recovery import LossResets, PartitionStates, Resets, Restarts
    from app.contract.statements import StatementOutcome
    from app.contract.zones import PartitionBody, Progress, ZoneBody, ZoneDetail

CONNECT_TIMEOUT_S = 5.0
T = TypeVar("T")

STATEMENT_TIMEOUT_S = 60.0
# The server itself repeats a put for up to 15 s before it says that the outcome is unknown.
DATA_TIMEOUT_S = 25.0
READ_TIMEOUT_S = 10.0
# Every zone is published again, one after the other.
ADOPT_TIMEOUT_S = 600.0
# The server waits for the exchange.
LOSS_TIMEOUT_S = 30.0
GRACE_S = 1.0
"""Seconds for which an answer is awaited beyond the time that the server is given: its own answer says more
than a timeout."""


def _whole(body: JsonObject) -> Any:
    return body


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A request. ``path`` is escaped and has the query. ``decode`` reads the JSON object of a success."""

    method: str
    path: str
    body: object = None
    timeout_s: float = READ_TIMEOUT_S
    headers: Mapping[str, str] = field(default_factory=dict)
    decode: Callable[[JsonObject], T] = _whole


def segment(text: str) -> str:
    """One path segment; dots are escaped too, because ``.`` and ``..`` would be taken for folders."""
    return quote(text, safe="").replace(".", "%2E")


def _get(path: str, query: Any = (), timeout_s: float = READ_TIMEOUT_S) -> Request[T]:
    encoded = urlencode(query)
    return Request("GET", f"{path}?{encoded}" if encoded else path, None, timeout_s)


def _post(path: str, body: object, timeout_s: float = STATEMENT_TIMEOUT_S) -> Request[T]:
    return Request("POST", path, body, timeout_s)


def _items(name: str, body: JsonObject) -> Any:
    return tuple(body[name])


def _list(path: str, name: str) -> Request[T]:
    return Request("GET", path, decode=partial(_items, name))


def _zone(name: str, rest: str = "") -> str:
    return f"/api/v1/zones/{segment(name)}{rest}"


def key_path(name: str, key: str) -> str:
    return _zone(name, f"/kv/{segment(key)}")


def _operation(name: str) -> str:
    return f"/api/v1/operations/{segment(name)}"


READINESS: Request[JsonObject] = _get("/readyz")
"""Request for readiness. Its body also comes with 503, when the server is not ready."""


def within(request: Request[T], timeout_s: float | None) -> Request[T]:
    """The request with a time limit, which the server is given too; None: as long as its route takes."""
    if timeout_s is None:
        return request
    headers = {**request.headers, TIMEOUT_FIELD: f"{timeout_s:.3f}"}
    return replace(request, timeout_s=timeout_s + GRACE_S, headers=headers)


class ApiClient:
    """One HTTP connection pool; safe to share between threads. Close it, or use it in a ``with``."""

    def __init__(self, address: Address, reason: str = "") -> None:
        """Open the pool. ``reason`` is sent with all requests."""
        self.address = address
        self._is_age_told = False
        # The environment's proxies are for the outside; a Zonekeeper is on this machine or near.
        self._http = httpx.Client(
            base_url=address.url,
            trust_env=False,
            headers={**_identity(reason), **_credential(address)},
            verify=_trusted(address),
            follow_redirects=False,
        )

    def __enter__(self) -> ApiClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def readiness(self) -> JsonObject:
        """The body of /readyz: ``ready`` false comes with 503 and is an answer, not a failure. Raises
        RequestError, also where the server keeps its details from this user."""
        response = self._answer(READINESS)
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

    def send(self, request: Request[T]) -> T:
        """Send a request, and return its decoded answer. Raises RequestError."""
        response = self._answer(request)
        body = json_object(response)
        if body is None:
            raise UnreachableError(self.address, f"HTTP {response.status_code} without a JSON object")
        if response.is_success:
            self._tell_age(body)
            return request.decode(body)
        raise ProblemError(ProblemDocument.from_body(response.status_code, body))

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

    def _answer(self, request: Request[T]) -> httpx.Response:
        limits = httpx.Timeout(request.timeout_s, connect=CONNECT_TIMEOUT_S)
        perhaps = "" if request.method == "GET" else "; whether it was carried out is not known"
        ask = partial(
            self._http.request,
            request.method,
            request.path,
            json=request.body,
            headers=request.headers,
            timeout=limits,
        )
        try:
            try:
                return ask()
            except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
                if request.method != "GET" or isinstance(error, httpx.ConnectError):
                    raise
                # A kept connection was closed just then, by the server or by another thread: this says nothing
                # of the server, and a question may be asked twice.
                return ask()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            if (doubt := _doubt_of_certificate(error)) is not None:
                raise UntrustedError(self.address, doubt) from error
            raise UnreachableError(self.address, str(error) or type(error).__name__) from error
        except httpx.TimeoutException as error:
            raise NoAnswerError(
                ExitCode.TIMED_OUT,
                f"{self.address.url} did not answer within {request.timeout_s:.0f} s{perhaps}",
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
        results = partial(_items, "results")
        return self.send(Request("POST", "/api/v1/statements", body, timeout_s, headers, results))

    def plan(
        self, files: Sequence[tuple[str, str]], *, prune: Sequence[str] = (), plan_id: str | None = None
    ) -> JsonObject:
        """Plan the changes for files. ``files`` are names and texts; ``prune`` the zones, or patterns with
        ``*``, that may be dropped. ``plan_id``: PLAN_CHANGED when the plan is another one by now; no error
        where there is nothing to change any more."""
        body: JsonObject = {
            "files": [{"name": name, "text": text} for name, text in files],
            "prune": list(prune),
        }
        return self.send(_post("/api/v1/plan", body | ({} if plan_id is None else {"plan_id": plan_id})))

    def progress(self, zone_id: int, version: int) -> Progress:
        return self.send(_get(f"/api/v1/progress/{zone_id}", {"version": version}))

    def zones(self) -> Sequence[ZoneBody]:
        return self.send(_list("/api/v1/zones", "zones"))

    def zone(self, name: str) -> ZoneDetail:
        return self.send(_get(_zone(name)))

    def verify(self, name: str, body: Mapping[str, object]) -> VerifyBody:
        """Compare copies by sample keys; changes nothing."""
        return self.send(_post(_zone(name, "/verify"), body))

    def partitions(self, name: str) -> Sequence[PartitionBody]:
        return self.send(_list(_zone(name, "/partitions"), "partitions"))

    def nodes(self) -> Sequence[NodeBody]:
        return self.send(_list("/api/v1/nodes", "nodes"))

    def metastore(self) -> MetastoreState:
        """Compare catalog and metastore."""
        return self.send(_get("/api/v1/metastore"))

    def adopt_metastore(self, shown: MetastoreState) -> AdoptionBody:
        """Accept the state ``shown``, which ``metastore`` has returned; SHOWN_STATE_CHANGED when it has changed
        since."""
        body = {"epoch": shown["epoch"], "kind": shown["kind"], "reason": shown["reason"]}
        return self.send(_post("/api/v1/metastore/adopt", body, ADOPT_TIMEOUT_S))

    def upgrade(self) -> UpgradeBody:
        """Running processes with their versions, and those that may be replaced next."""
        return self.send(_get("/api/v1/upgrade"))

    def finalise_upgrade(self) -> FinalisedBody:
        """Bring the server's release level into force. UPGRADE_NOT_READY while an older build runs."""
        return self.send(_post("/api/v1/upgrade/finalise", {}, ADOPT_TIMEOUT_S))

    def recovery_states(self, name: str, numbers: Sequence[int] = ()) -> PartitionStates:
        """Global and local states; every partition unless some are named."""
        return self.send(_get(_zone(name, "/recovery/states"), [("partition", number) for number in numbers]))

    def reset_partitions(self, name: str, body: Mapping[str, object]) -> Resets:
        """Reset partitions. Repeating it while a reset is under way is harmless, and of no use."""
        return self.send(_post(_zone(name, "/recovery/reset"), body))

    def restart_partitions(self, name: str, body: Mapping[str, object]) -> Restarts:
        return self.send(_post(_zone(name, "/recovery/restart"), body))

    def reset_lost_partitions(self, name: str, confirm_dead: Sequence[str]) -> LossResets:
        """Reset lost partitions of a store zone. Repeating it changes nothing more."""
        body = {"confirm_dead": confirm_dead} if confirm_dead else {}
        return self.send(_post(_zone(name, "/recovery/reset-lost"), body, LOSS_TIMEOUT_S))

    def limits(self) -> JsonObject:
        """Limits of moves, and pauses."""
        return self.send(_get("/api/v1/rebalance/limits"))

    def change_limits(self, change: Mapping[str, object]) -> JsonObject:
        """Change limits. Repeating it changes nothing more, but a pause begins anew."""
        return self.send(Request("PATCH", "/api/v1/rebalance/limits", change))

    def operations(self, query: Sequence[tuple[str, str | int]]) -> Operations:
        """List operations, newest first; ``query`` has the filters and the page, as the route documents
        them."""
        return self.send(_get("/api/v1/operations", query))

    def operation(self, name: str, wait_timeout_s: float = 0, *, with_plan: bool = True) -> OperationDetail:
        """Read an operation; with ``wait_timeout_s`` once it is over, or after that time."""
        query: JsonObject = {} if with_plan else {"plan": "false"}
        query |= {"wait_timeout": round(wait_timeout_s, 3)} if wait_timeout_s else {}
        return self.send(_get(_operation(name), query, READ_TIMEOUT_S + wait_timeout_s))

    def act_on_operation(self, name: str, action: str, body: Mapping[str, object]) -> Any:
        """Act on an operation, and return it, or the answer that the route of ``action`` documents. Repeating
        ``pause``, ``resume`` and ``cancel`` changes nothing more; a second ``reverse`` is refused."""
        return self.send(_post(f"{_operation(name)}/{action}", body))

    def alerts(self, state: str | None = None) -> Alerts:
        """List alerts as the server that answers judges them; ``state``: only those in it; for ``resolved`` the
        last that ended."""
        return self.send(_get("/api/v1/alerts", {} if state is None else {"state": state}))

    def silences(self) -> Sequence[SilenceBody]:
        return self.send(_list("/api/v1/alerts/silences", "silences"))

    def silence_alerts(self, body: Mapping[str, object]) -> SilenceBegun:
        """Begin a silence. Repeating it changes nothing more, but its time begins anew."""
        return self.send(_post("/api/v1/alerts/silences", body))

    def end_silence(self, silence_id: str) -> SilenceEnded:
        """End a silence. Repeating it changes nothing more."""
        return self.send(Request("DELETE", f"/api/v1/alerts/silences/{segment(silence_id)}"))

    def audit(self, query: Mapping[str, str | int]) -> AuditRecords:
        """List changes with their authors, the newest first."""
        return self.send(_get("/api/v1/audit", query))

    def log_levels(self) -> LogLevels:
        return self.send(_get("/api/v1/log-levels"))

    def change_log_level(self, module: str, body: Mapping[str, object]) -> LevelChange:
        """Change a module's log level. Repeating it changes nothing more, but its time begins anew."""
        return self.send(Request("PUT", f"/api/v1/log-levels/{segment(module)}", body))

    def reset_log_level(self, module: str) -> LevelReset:
        """Reset a module's log level. Repeating it changes nothing more."""
        return self.send(Request("DELETE", f"/api/v1/log-levels/{segment(module)}"))

    def drain(self, node: str, body: Mapping[str, object]) -> DrainResult:
        """Drain a node. Repeating it changes nothing more."""
        return self.send(Request("PUT", f"/api/v1/nodes/{segment(node)}/drain", body))

    def undrain(self, node: str) -> DrainResult:
        """Return a node to service. Repeating it changes nothing more."""
        return self.send(Request("DELETE", f"/api/v1/nodes/{segment(node)}/drain"))

    def remove_node(self, node: str, body: Mapping[str, object]) -> NodeRemoval:
        return self.send(_post(f"/api/v1/nodes/{segment(node)}/removal", body))

    def can_stop(self, node: str) -> CanStop:
        return self.send(_get(f"/api/v1/nodes/{segment(node)}/can-stop"))

    def whoami(self) -> WhoAmI:
        return self.send(_get("/api/v1/whoami"))

    def tokens(self, everybody: bool = False) -> tuple[TokenBody, ...]:
        """List the caller's tokens, newest first; ``everybody``: those of all users."""
        return self.send(_list(f"/api/v1/tokens{'?all=true' if everybody else ''}", "tokens"))

    def create_token(self, lifetime_s: int | None, scope: str) -> NewToken:
        return self.send(_post("/api/v1/tokens", {"lifetime_s": lifetime_s, "scope": scope}))

    def revoke_token(self, token_id: str) -> TokenBody:
        """Revoke a token. Repeating it changes nothing more."""
        return self.send(Request("DELETE", f"/api/v1/tokens/{segment(token_id)}"))

    def create_console_link(self) -> ConsoleLink:
        return self.send(_post("/api/v1/console-links", {}))

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
        stated = urlencode({name: each for name, each in query.items() if each is not None})
        headers = {"Idempotency-Key": operation_id}
        if terms.abandons:
            headers[ABANDONS_FIELD] = " ".join(terms.abandons)
        method, body = ("DELETE", None) if value is None else ("PUT", {"value": value})
        path = key_path(name, key) + (f"?{stated}" if stated else "")
        request: Request[PutResult] = Request(method, path, body, DATA_TIMEOUT_S, headers)
        return self.send(within(request, timeout_s))

    def get(
        self,
        name: str,
        key: str,
        options: Mapping[str, str | int] | None = None,
        timeout_s: float | None = None,
    ) -> GetResult:
        """Read a key. ``options``: ``read``, ``at_revision``, ``at_time``, as the route documents them."""
        return self.send(within(_get(key_path(name, key), options or {}, DATA_TIMEOUT_S), timeout_s))


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
