"""The requests of the REST API as values, and what its answers mean: no input or output here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from app.cli.problems import JsonObject
from app.contract.keys import ABANDONS_FIELD, TIMEOUT_FIELD
from rebalance.core.keyspace.write_terms import ANY, WriteTerms

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

T = TypeVar("T")

STATEMENT_TIMEOUT_S = 60.0
# The server itself repeats a put for up to 15 s before it says that the outcome is unknown.
DATA_TIMEOUT_S = 25.0
READ_TIMEOUT_S = 10.0
# Every zone is published again, one after the other.
ADOPT_TIMEOUT_S = 600.0
# The server waits for the exchange.
LOSS_TIMEOUT_S = 30.0
NONE: Mapping[str, str] = {}
GRACE_S = 1.0
"""So much longer than the server is told an answer is waited for: it says more than that none came."""


def _whole(body: JsonObject) -> Any:
    return body


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """``path`` is escaped and has the query. ``decode`` reads the JSON object of a success."""

    method: str
    path: str
    decode: Callable[[JsonObject], T]
    timeout_s: float = READ_TIMEOUT_S
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


def segment(text: str) -> str:
    """One path segment; dots are escaped too, because ``.`` and ``..`` would be taken for folders."""
    return quote(text, safe="").replace(".", "%2E")


def _get(path: str, query: Any = (), timeout_s: float = READ_TIMEOUT_S) -> Request[Any]:
    encoded = urlencode(query)
    return Request("GET", f"{path}?{encoded}" if encoded else path, _whole, timeout_s)


def _post(path: str, body: object, timeout_s: float = STATEMENT_TIMEOUT_S) -> Request[Any]:
    return Request("POST", path, _whole, timeout_s, body)


def _items(name: str) -> Callable[[JsonObject], Any]:
    return lambda body: tuple(body[name])


def _list(path: str, name: str) -> Request[Any]:
    return Request("GET", path, _items(name))


def _zone(name: str, rest: str = "") -> str:
    return f"/api/v1/zones/{segment(name)}{rest}"


def key_path(name: str, key: str) -> str:
    return _zone(name, f"/kv/{segment(key)}")


def _operation(name: str) -> str:
    return f"/api/v1/operations/{segment(name)}"


def execute(
    sql: str, base_version: int | None = None, plan_id: str | None = None
) -> Request[Sequence[StatementOutcome]]:
    """The results of a script's statements; a refusal carries those before the refused one.

    ``base_version``: only if the catalog is at it still, else CATALOG_VERSION_CONFLICT. ``plan_id``: only if
    exactly this plan would come out still, else PLAN_CHANGED.
    """
    headers = NONE if base_version is None else {"If-Match": f'"{base_version}"'}
    body = {"sql": sql} | ({} if plan_id is None else {"plan_id": plan_id})
    return Request("POST", "/api/v1/statements", _items("results"), STATEMENT_TIMEOUT_S, body, headers)


def plan(
    files: Sequence[tuple[str, str]], *, prune: Sequence[str] = (), plan_id: str | None = None
) -> Request[JsonObject]:
    """``files`` are names and texts; ``prune`` the zones, or patterns with ``*``, that may be dropped.
    ``plan_id``: PLAN_CHANGED when another plan comes out, or none where there is nothing to change any more."""
    body: JsonObject = {"files": [{"name": name, "text": text} for name, text in files], "prune": list(prune)}
    return _post("/api/v1/plan", body | ({} if plan_id is None else {"plan_id": plan_id}))


def progress(zone_id: int, version: int) -> Request[Progress]:
    return _get(f"/api/v1/progress/{zone_id}", {"version": version})


def zones() -> Request[Sequence[ZoneBody]]:
    return _list("/api/v1/zones", "zones")


def zone(name: str) -> Request[ZoneDetail]:
    return _get(_zone(name))


def verify(name: str, body: Mapping[str, object]) -> Request[VerifyBody]:
    """Reads copies, and changes nothing."""
    return _post(_zone(name, "/verify"), body)


def partitions(name: str) -> Request[Sequence[PartitionBody]]:
    return _list(_zone(name, "/partitions"), "partitions")


def nodes() -> Request[Sequence[NodeBody]]:
    return _list("/api/v1/nodes", "nodes")


def readiness() -> Request[JsonObject]:
    """The body comes with 503, too, when the server is not ready."""
    return _get("/readyz")


def metastore() -> Request[MetastoreState]:
    """Whether catalog and metastore belong together."""
    return _get("/api/v1/metastore")


def adopt_metastore(shown: MetastoreState) -> Request[AdoptionBody]:
    """``shown``: what ``metastore`` answered; SHOWN_STATE_CHANGED when it is not so any more."""
    body = {"epoch": shown["epoch"], "kind": shown["kind"], "reason": shown["reason"]}
    return _post("/api/v1/metastore/adopt", body, ADOPT_TIMEOUT_S)


def upgrade() -> Request[UpgradeBody]:
    """What runs, of which versions, and what may be replaced next."""
    return _get("/api/v1/upgrade")


def finalise_upgrade() -> Request[FinalisedBody]:
    """Brings the server's release level into force. UPGRADE_NOT_READY while an older build runs."""
    return _post("/api/v1/upgrade/finalise", {}, ADOPT_TIMEOUT_S)


def recovery_states(name: str, numbers: Sequence[int] = ()) -> Request[PartitionStates]:
    """Global and local states; every partition unless some are named."""
    return _get(_zone(name, "/recovery/states"), [("partition", number) for number in numbers])


def reset_partitions(name: str, body: Mapping[str, object]) -> Request[Resets]:
    """A reset under way is asked for again by a repetition: harmless, and of no use."""
    return _post(_zone(name, "/recovery/reset"), body)


def restart_partitions(name: str, body: Mapping[str, object]) -> Request[Restarts]:
    return _post(_zone(name, "/recovery/restart"), body)


def reset_lost_partitions(name: str, confirm_dead: Sequence[str]) -> Request[LossResets]:
    """Of a zone of store servers. A repetition finds nothing lost any more."""
    body = {"confirm_dead": confirm_dead} if confirm_dead else {}
    return _post(_zone(name, "/recovery/reset-lost"), body, LOSS_TIMEOUT_S)


def limits() -> Request[JsonObject]:
    """How many partitions may move at once, and pauses."""
    return _get("/api/v1/rebalance/limits")


def change_limits(change: Mapping[str, object]) -> Request[JsonObject]:
    """Repeating it changes nothing more, but a pause begins anew."""
    return Request("PATCH", "/api/v1/rebalance/limits", _whole, body=change)


def operations(query: Sequence[tuple[str, str | int]]) -> Request[Operations]:
    """The newest first; ``query`` has the filters and the page, as the route documents them."""
    return _get("/api/v1/operations", query)


def operation(name: str, wait_timeout_s: float = 0, *, with_plan: bool = True) -> Request[OperationDetail]:
    """With ``wait_timeout_s`` the answer comes when the operation is over, or after so long."""
    query: JsonObject = {} if with_plan else {"plan": "false"}
    query |= {"wait_timeout": round(wait_timeout_s, 3)} if wait_timeout_s else {}
    return _get(_operation(name), query, READ_TIMEOUT_S + wait_timeout_s)


def act_on_operation(name: str, action: str, body: Mapping[str, object]) -> Request[Any]:
    """The operation, or what the route of ``action`` documents. Repeating ``pause``, ``resume`` and ``cancel``
    changes nothing more; a second ``reverse`` is refused."""
    return _post(f"{_operation(name)}/{action}", body)


def alerts(state: str | None = None) -> Request[Alerts]:
    """As the server that answers judges them; ``state``: only these, of ``resolved`` the last that ended."""
    return _get("/api/v1/alerts", {} if state is None else {"state": state})


def silences() -> Request[Sequence[SilenceBody]]:
    return _list("/api/v1/alerts/silences", "silences")


def silence_alerts(body: Mapping[str, object]) -> Request[SilenceBegun]:
    """Repeating it changes nothing more, but its time begins anew."""
    return _post("/api/v1/alerts/silences", body)


def end_silence(silence_id: str) -> Request[SilenceEnded]:
    """Repeating it changes nothing more."""
    return Request("DELETE", f"/api/v1/alerts/silences/{segment(silence_id)}", _whole)


def audit(query: Mapping[str, str | int]) -> Request[AuditRecords]:
    """Who changed what, the newest first."""
    return _get("/api/v1/audit", query)


def log_levels() -> Request[LogLevels]:
    return _get("/api/v1/log-levels")


def change_log_level(module: str, body: Mapping[str, object]) -> Request[LevelChange]:
    """Repeating it changes nothing more, but its time begins anew."""
    return Request("PUT", f"/api/v1/log-levels/{segment(module)}", _whole, body=body)


def reset_log_level(module: str) -> Request[LevelReset]:
    """Repeating it changes nothing more."""
    return Request("DELETE", f"/api/v1/log-levels/{segment(module)}", _whole)


def drain(node: str, body: Mapping[str, object]) -> Request[DrainResult]:
    """Repeating it changes nothing more."""
    return Request("PUT", f"/api/v1/nodes/{segment(node)}/drain", _whole, body=body)


def undrain(node: str) -> Request[DrainResult]:
    """Repeating it changes nothing more."""
    return Request("DELETE", f"/api/v1/nodes/{segment(node)}/drain", _whole)


def remove_node(node: str, body: Mapping[str, object]) -> Request[NodeRemoval]:
    return _post(f"/api/v1/nodes/{segment(node)}/removal", body)


def can_stop(node: str) -> Request[CanStop]:
    return _get(f"/api/v1/nodes/{segment(node)}/can-stop")


def whoami() -> Request[WhoAmI]:
    return _get("/api/v1/whoami")


def tokens(everybody: bool = False) -> Request[tuple[TokenBody, ...]]:
    """The newest first; ``everybody``: of all users."""
    return _list(f"/api/v1/tokens{'?all=true' if everybody else ''}", "tokens")


def create_token(lifetime_s: int | None, scope: str) -> Request[NewToken]:
    return _post("/api/v1/tokens", {"lifetime_s": lifetime_s, "scope": scope})


def revoke_token(token_id: str) -> Request[TokenBody]:
    """Repeating it changes nothing more."""
    return Request("DELETE", f"/api/v1/tokens/{segment(token_id)}", _whole)


def create_console_link() -> Request[ConsoleLink]:
    return _post("/api/v1/console-links", {})


def put(
    name: str,
    key: str,
    value: str,
    operation_id: str,
    terms: WriteTerms = ANY,
    timeout_s: float | None = None,
) -> Request[PutResult]:
    """Repeating it with the same operation id changes nothing more."""
    return _write("PUT", name, key, {"value": value}, operation_id, terms, timeout_s)


def delete(
    name: str, key: str, operation_id: str, terms: WriteTerms = ANY, timeout_s: float | None = None
) -> Request[PutResult]:
    """As ``put``; a key that does not exist stays so."""
    return _write("DELETE", name, key, None, operation_id, terms, timeout_s)


def _write(
    method: str,
    name: str,
    key: str,
    body: object,
    operation_id: str,
    terms: WriteTerms,
    timeout_s: float | None,
) -> Request[PutResult]:
    query: dict[str, str | int] = {}
    if terms.if_revision is not None:
        query["if_revision"] = terms.if_revision
    if terms.if_absent:
        query["if_absent"] = "true"
    headers = {"Idempotency-Key": operation_id}
    if terms.abandons:
        headers[ABANDONS_FIELD] = " ".join(terms.abandons)
    path = key_path(name, key) + (f"?{urlencode(query)}" if query else "")
    return within(Request(method, path, _whole, DATA_TIMEOUT_S, body, headers), timeout_s)


def get(
    name: str, key: str, options: Mapping[str, str | int] | None = None, timeout_s: float | None = None
) -> Request[GetResult]:
    """``options``: ``read``, ``at_revision``, ``at_time``, as the route documents them."""
    return within(_get(key_path(name, key), options or {}, DATA_TIMEOUT_S), timeout_s)


def within(request: Request[T], timeout_s: float | None) -> Request[T]:
    """Waits so many seconds for the answer, and says so; None: as long as its route takes."""
    if timeout_s is None:
        return request
    headers = {**request.headers, TIMEOUT_FIELD: f"{timeout_s:.3f}"}
    return replace(request, timeout_s=timeout_s + GRACE_S, headers=headers)
