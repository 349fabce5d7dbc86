"""The REST API as the commands see it: one method a resource. How requests fail: ``app.cli.request_errors``."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import quote, urlencode

import httpx

from app.cli.address import Address
from app.cli.exits import ExitCode
from app.cli.request_errors import NoAnswerError, ProblemError, UnreachableError
from app.client.problem import JsonObject, ProblemDocument, json_object
from app.client.resources import key_path, segment

CONNECT_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 60.0
# The server itself repeats a put for up to 15 s before it says that the outcome is unknown.
DATA_TIMEOUT_S = 25.0
READ_TIMEOUT_S = 10.0
# Every zone is published again, one after the other.
ADOPT_TIMEOUT_S = 600.0


class ApiClient:
    """One HTTP connection pool; safe to share between threads. Close it, or use it in a ``with``."""

    def __init__(self, address: Address, reason: str = "") -> None:
        """``reason`` goes along with everything that is asked."""
        self.address = address
        # The environment's proxies are for the outside; a Zonekeeper is on this machine or near.
        self._http = httpx.Client(base_url=address.url, trust_env=False, headers=_identity(reason))

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

    def execute_planned(self, sql: str, plan_id: str) -> Sequence[JsonObject]:
        """As ``execute``, only if exactly this plan would come out still, else a problem PLAN_CHANGED."""
        body = {"sql": sql, "plan_id": plan_id}
        return tuple(self._call("POST", "/api/v1/statements", STATEMENT_TIMEOUT_S, json=body)["results"])

    def plan(self, files: Sequence[tuple[str, str]], *, prune: bool, plan_id: str | None = None) -> JsonObject:
        """``files`` are names and texts. ``plan_id``: a problem PLAN_CHANGED when another plan comes out."""
        sent: JsonObject = {"files": [{"name": name, "text": text} for name, text in files], "prune": prune}
        sent |= {} if plan_id is None else {"plan_id": plan_id}
        return self._call("POST", "/api/v1/plan", STATEMENT_TIMEOUT_S, json=sent)

    def progress(self, zone_id: int, version: int) -> JsonObject:
        return self._call("GET", f"/api/v1/progress/{zone_id}?version={version}")

    def zones(self) -> Sequence[JsonObject]:
        return tuple(self._call("GET", "/api/v1/zones")["zones"])

    def zone(self, name: str) -> JsonObject:
        return self._call("GET", f"/api/v1/zones/{segment(name)}")

    def verify(self, zone: str, request: Mapping[str, object]) -> JsonObject:
        """Reads copies, and changes nothing."""
        return self._call("POST", f"/api/v1/zones/{segment(zone)}/verify", STATEMENT_TIMEOUT_S, json=request)

    def partitions(self, zone: str) -> Sequence[JsonObject]:
        return tuple(self._call("GET", f"/api/v1/zones/{segment(zone)}/partitions")["partitions"])

    def nodes(self) -> Sequence[JsonObject]:
        return tuple(self._call("GET", "/api/v1/nodes")["nodes"])

    def readiness(self) -> JsonObject:
        """The body of /readyz: ``ready`` false comes with 503 and is an answer, not a failure."""
        response = self._send("GET", "/readyz", READ_TIMEOUT_S)
        body = json_object(response)
        if body is None or "ready" not in body:
            raise UnreachableError(self.address, f"/readyz answered HTTP {response.status_code}")
        return body

    def metastore(self) -> JsonObject:
        """Whether catalog and metastore belong together."""
        return self._call("GET", "/api/v1/metastore")

    def adopt_metastore(self, shown: JsonObject) -> JsonObject:
        """``shown``: what ``metastore`` answered; a problem SHOWN_STATE_CHANGED when it is not so any more."""
        body = {name: shown[name] for name in ("epoch", "kind", "reason")}
        return self._call("POST", "/api/v1/metastore/adopt", ADOPT_TIMEOUT_S, json=body)

    def recovery_states(self, zone: str, partitions: Sequence[int] = ()) -> JsonObject:
        """Global and local states; every partition unless some are named."""
        query = "&".join(f"partition={number}" for number in partitions)
        return self._call("GET", f"{_recovery_path(zone)}/states{'?' if query else ''}{query}")

    def reset_partitions(self, zone: str, request: Mapping[str, object]) -> JsonObject:
        """A reset under way is asked for again by a repetition: harmless, and of no use."""
        return self._call("POST", f"{_recovery_path(zone)}/reset", STATEMENT_TIMEOUT_S, json=request)

    def restart_partitions(self, zone: str, request: Mapping[str, object]) -> JsonObject:
        return self._call("POST", f"{_recovery_path(zone)}/restart", STATEMENT_TIMEOUT_S, json=request)

    def limits(self) -> JsonObject:
        """How many partitions may move at once, and pauses."""
        return self._call("GET", "/api/v1/rebalance/limits")

    def change_limits(self, change: Mapping[str, object]) -> JsonObject:
        """Repeating it changes nothing more, but a pause begins anew."""
        return self._call("PATCH", "/api/v1/rebalance/limits", json=change)

    def operations(self, query: Sequence[tuple[str, str | int]]) -> JsonObject:
        """The newest first; ``query`` has the filters and the page, as the route documents them."""
        return self._call("GET", f"/api/v1/operations?{urlencode(query)}")

    def operation(self, name: str, wait_timeout_s: float = 0, *, with_plan: bool = True) -> JsonObject:
        """With ``wait_timeout_s`` the answer comes when the operation is over, or after so long."""
        query: dict[str, str | float] = {} if with_plan else {"plan": "false"}
        if wait_timeout_s:
            query["wait_timeout"] = round(wait_timeout_s, 3)
        path = f"/api/v1/operations/{segment(name)}{'?' if query else ''}{urlencode(query)}"
        return self._call("GET", path, READ_TIMEOUT_S + wait_timeout_s)

    def audit(self, query: Mapping[str, str | int]) -> JsonObject:
        """Who changed what, the newest first."""
        return self._call("GET", f"/api/v1/audit?{urlencode(query)}")

    def act_on_operation(self, name: str, action: str, body: Mapping[str, object]) -> JsonObject:
        """``pause``, ``resume``, ``cancel``: repeating it changes nothing more. A second ``reverse`` is
        refused."""
        path = f"/api/v1/operations/{segment(name)}/{action}"
        return self._call("POST", path, STATEMENT_TIMEOUT_S, json=body)

    def drain(self, node: str, body: Mapping[str, object]) -> JsonObject:
        """Repeating it changes nothing more."""
        return self._call("PUT", f"/api/v1/nodes/{segment(node)}/drain", json=body)

    def undrain(self, node: str) -> JsonObject:
        """Repeating it changes nothing more."""
        return self._call("DELETE", f"/api/v1/nodes/{segment(node)}/drain")

    def can_stop(self, node: str) -> JsonObject:
        return self._call("GET", f"/api/v1/nodes/{segment(node)}/can-stop")

    def put(self, zone: str, key: str, value: str, operation_id: str) -> JsonObject:
        """Repeating it with the same operation id changes nothing more."""
        return self._call(
            "PUT",
            key_path(zone, key),
            DATA_TIMEOUT_S,
            json={"value": value},
            headers={"Idempotency-Key": operation_id},
        )

    def get(self, zone: str, key: str, options: Mapping[str, str | int] | None = None) -> JsonObject:
        """``options``: ``read``, ``at_revision``, ``at_time``, as the route documents them."""
        query = f"?{urlencode(options)}" if options else ""
        return self._call("GET", f"{key_path(zone, key)}{query}", DATA_TIMEOUT_S)

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
        body = json_object(response)
        if body is None:
            raise UnreachableError(self.address, f"HTTP {response.status_code} without a JSON object")
        if response.is_success:
            return body
        raise ProblemError(ProblemDocument.from_body(response.status_code, body))

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
        ask = partial(self._http.request, method, path, json=json, headers=headers, timeout=limits)
        try:
            try:
                return ask()
            except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
                if method != "GET" or isinstance(error, httpx.ConnectError):
                    raise
                # A kept connection was closed just then, by the server or by another thread: this says nothing
                # of the server, and a question may be asked twice.
                return ask()
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


def _identity(reason: str) -> dict[str, str]:
    """Who asks and why, for what is kept of changes: the user's name, where there is one."""
    found = {"Zonekeeper-Via": "cli"}
    if reason:
        found["Zonekeeper-Reason"] = quote(reason, errors="replace")
    try:
        return {**found, "Zonekeeper-By": quote(getpass.getuser(), errors="replace")}
    except (KeyError, OSError):
        return found


def _perhaps(method: str) -> str:
    return "" if method == "GET" else "; whether it was carried out is not known"


def _recovery_path(zone: str) -> str:
    return f"/api/v1/zones/{segment(zone)}/recovery"
