"""Actions of the console: the functions of the REST API, called with what a form holds; sessions and tokens are
listed and ended, statements on users are run.

So a refusal, its words and its checks are the API's. What a route authorises before it calls the function is
authorised here, for the viewer. Each raises StatementError. Changes take the site, a name, who makes them and
why, and return what to tell that person.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, TypeVar

from fastapi.responses import Response
from pydantic import BaseModel, ValidationError

from app.api import alerts as alerts_api
from app.api import audit as audit_api
from app.api import nodes, rebalance, recovery
from app.api import operations as operations_api
from app.api import tokens as tokens_api
from app.api.bodies import ActionRequest, OperationPause
from app.console.fragments import when
from app.console.shared import Site
from app.console.viewer import current_viewer, may_use, require, sees
from app.contract.operations import KindName, StateName
from app.core.alerts import Labels
from app.security.policy import PageControl
from app.views.node_stop import can_stop
from catalog.core.audit import Action
from catalog.core.credentials import ConsoleSession
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.names import written
from catalog.core.zone import ZoneId
from parser.hidden_secrets import hide_secrets
from rebalance.controllers.operation_control import checked_id, not_found

Json = dict[str, Any]
Silenced = tuple[str, Labels]
"""Name (empty: any) and labels of alerts."""
AUDIT_ROWS = 50
"""Rows of a page of the audit log."""
M = TypeVar("M", bound=BaseModel)


async def drain(site: Site, node: str, by: str, reason: str) -> str:
    require(PageControl.DRAIN_NODE)
    request = _checked(nodes.DrainRequest, by=by, reason=reason)
    drained = body(await nodes.drain_node(node, request, site.services))
    if drained["members"] is None:
        return f"Draining {node}."
    copies = f" and {drained['copies']} copies" if drained["copies"] else ""
    return f"Draining {node}: {drained['members']} members{copies} to move."


async def undrain(site: Site, node: str, by: str, reason: str) -> str:
    require(PageControl.DRAIN_NODE)
    await nodes.undrain_node(node, site.services)
    return f"{node} can be used again."


async def remove_node(site: Site, node: str, by: str, reason: str) -> str:
    require(PageControl.REMOVE_NODE)
    request = _checked(nodes.RemovalRequest, by=by, reason=reason)
    removal = body(await nodes.remove_node(node, request, site.services))
    if removal["state"] == "REMOVED":
        return f"{node} is removed."
    return (
        f"{sum(removal['zones'].values())} replicas are being rebuilt on other nodes; remove {node} again once "
        f"they are."
    )


async def stop_check(site: Site, node: str) -> Json:
    """Return the answer of the API's can-stop, in a thread: it looks at every member of the node."""
    require(PageControl.CHECK_STOP)
    snapshot = await site.snapshot()
    zones = {zone.zone_id: zone.name for zone in snapshot.catalog.zones}
    return await asyncio.to_thread(can_stop, node, snapshot.views, zones, snapshot.silence)


async def limits(site: Site) -> tuple[Json, str]:
    """The limits, with the pauses of zones that the viewer sees, and their ETag."""
    answer = await rebalance.get_limits(site.services)
    return _seen_limits(body(answer)), answer.headers["ETag"]


async def change_limits(site: Site, change: Json, tag: str | None = None) -> Json:
    """``change`` as the API's PATCH takes it; ``tag``: only if the limits are as they were read."""
    require(PageControl.CHANGE_LIMITS)
    request = _checked(rebalance.LimitsChange, **change)
    return _seen_limits(body(await rebalance.change_limits(request, site.services, tag)))


def pause(by: str, reason: str, minutes: float | None) -> Json:
    """A pause as ``change_limits`` takes it; ``minutes`` None: until it is ended."""
    return {"by": by, "reason": reason, "for_s": None if minutes is None else minutes * 60}


async def pause_zone(site: Site, zone: str, by: str, reason: str) -> str:
    await site.zone(zone)
    await change_limits(site, {"zone_pauses": {zone: pause(by, reason, None)}})
    return f"Moves of zone {zone} are paused."


async def resume_zone(site: Site, zone: str, by: str, reason: str) -> str:
    await site.zone(zone)
    await change_limits(site, {"zone_pauses": {zone: None}})
    return f"Moves of zone {zone} are resumed."


async def silence_alerts(site: Site, silenced: Silenced, for_s: int, by: str, reason: str) -> str:
    require(PageControl.SILENCE_ALERTS)
    name, labels = silenced
    named = {label: written(text) if label == "zone" else text for label, text in labels}
    request = _checked(
        alerts_api.SilenceRequest, alert=name or None, labels=named, for_s=for_s, by=by, reason=reason
    )
    begun = body(await alerts_api.silence_alerts(request, site.services))
    return f"Silenced until {when(begun['until'])}: {begun['alerts']} of the alerts that fire or are pending."


async def end_silence(site: Site, silence_id: str, by: str, reason: str) -> str:
    require(PageControl.SILENCE_ALERTS)
    ended = body(await alerts_api.end_silence(silence_id, site.services))
    return "The silence is ended." if ended["changed"] else "The silence no longer exists."


async def activate_zone(site: Site, zone: str, by: str, reason: str) -> str:
    return await _called(site, "activate_zone", zone) or f"Zone {zone} is active."


async def deactivate_zone(site: Site, zone: str, by: str, reason: str) -> str:
    return await _called(site, "deactivate_zone", zone) or f"Zone {zone} is deactivated."


async def _called(site: Site, procedure: str, zone: str) -> str:
    """The detail that the procedure answers with; empty where it is done."""
    require(PageControl.REST_ZONE, (await site.zone(zone)).zone_id)
    literal = zone.replace("'", "''")
    (done,) = await site.services.sql.run_script(f"CALL system.{procedure}('{literal}')")
    detail: str = done.to_json()["data"][0][-1]
    return detail


async def reset_lost_partitions(site: Site, zone: str, by: str, reason: str) -> str:
    require(PageControl.RECOVER_ZONE, (await site.zone(zone)).zone_id)
    answer = await recovery.reset_lost_partitions(zone, recovery.LossResetRequest(), site.services)
    resets = body(answer)["partitions"]
    owned = sum(reset["outcome"] == "OWNED" for reset in resets)
    details = "; ".join(sorted({reset["detail"] for reset in resets} - {""}))
    return f"{owned:,} of {len(resets):,} lost partitions are owned again{': ' if details else ''}{details}."


async def operations(
    site: Site, zone: str | None, states: list[StateName] | None = None, kinds: list[KindName] | None = None
) -> list[Json]:
    """The newest first, of zones that the viewer sees; of no states or kinds: of all."""
    if zone is not None:
        await site.zone(zone)
    answer = await operations_api.list_operations(
        site.services, zone, states, kinds, operations_api.PAGE_MAX, None
    )
    summaries: list[Json] = body(answer)["operations"]
    return [summary for summary in summaries if sees(ZoneId(int(summary["operation_id"].partition("-")[0])))]


async def operation(site: Site, name: str, *, plan: bool = True) -> Json:
    """Return an operation's state and waiting partitions; with ``plan`` also what it copies. One of a zone that
    the viewer does not see is not there."""
    _zone_of(name)
    return body(await operations_api.get_operation(name, site.services, 0, plan=plan))


async def pause_operation(site: Site, name: str, by: str, reason: str) -> str:
    require(PageControl.OPERATE_OPERATION, _zone_of(name))
    await operations_api.pause_operation(name, _checked(OperationPause, by=by, reason=reason), site.services)
    return f"Operation {name} is paused."


async def resume_operation(site: Site, name: str, by: str, reason: str) -> str:
    require(PageControl.OPERATE_OPERATION, _zone_of(name))
    await operations_api.resume_operation(name, _checked(ActionRequest, by=by, reason=reason), site.services)
    return f"Operation {name} is resumed."


async def cancel_operation(site: Site, name: str, by: str, reason: str) -> str:
    require(PageControl.OPERATE_OPERATION, _zone_of(name))
    request = _checked(ActionRequest, by=by, reason=reason)
    cancelled = body(await operations_api.cancel_operation(name, request, site.services))["cancelled"]
    outcomes = (("given_up", "withdrawn"), ("going_back", "going back"), ("begun", "finishing"))
    parts = [f"{len(cancelled[key])} {word}" for key, word in outcomes if cancelled[key]]
    return f"Operation {name} is cancelled. Partitions: {', '.join(parts) or 'none left'}."


async def reverse_operation(site: Site, name: str, by: str, reason: str) -> str:
    require(PageControl.REVERSE_OPERATION, _zone_of(name))
    request = _checked(ActionRequest, by=by, reason=reason)
    reversal = body(await operations_api.reverse_operation(name, request, site.services))
    return f"Reversed by catalog version {reversal['catalog_version']}."


async def audit(site: Site, search: dict[str, str], token: str | None) -> tuple[list[Json], str]:
    """Records, the newest first, and the token of the next page; empty: these are the last."""
    require(PageControl.READ_STATEMENTS)
    page = body(await audit_api.list_audit(site.services, **search, page_size=AUDIT_ROWS, token=token))
    return page["records"], page["next_page_token"] or ""


async def partition_states(site: Site, zone: str, numbers: Sequence[int]) -> list[Json]:
    """Return how healthy these partitions and their replicas are; ``numbers`` must not be empty."""
    await site.zone(zone)
    states: list[Json] = body(await recovery.recovery_states(zone, site.services, list(numbers)))["partitions"]
    return states


async def reset_partitions(site: Site, zone: str, request: Json) -> list[Json]:
    """``request`` as the API's POST takes it: a dry run, or with what one has shown."""
    require(PageControl.RECOVER_ZONE, (await site.zone(zone)).zone_id)
    answer = await recovery.reset_partitions(zone, _checked(recovery.ResetRequest, **request), site.services)
    resets: list[Json] = body(answer)["partitions"]
    return resets


def _zone_of(name: str) -> ZoneId:
    """Return the zone of an operation. Raises RefusedError (OPERATION_NOT_FOUND) where the viewer does not see
    the zone, and INVALID_REQUEST."""
    zone_id = ZoneId(int(checked_id(name).partition("-")[0]))
    if not sees(zone_id):
        raise not_found(name)
    return zone_id


def _seen_limits(limits: Json) -> Json:
    pauses = [pause for pause in limits["zone_pauses"] if sees(ZoneId(pause["zone_id"]))]
    return {**limits, "zone_pauses": pauses}


def _checked(model: type[M], **fields: object) -> M:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise RefusedError(ErrorKind.INVALID_REQUEST, "; ".join(faults)) from error


def body(answer: Response) -> Json:
    """Return the body of an answer of the API's functions."""
    document: Json = json.loads(bytes(answer.body))
    return document


async def tokens(site: Site, *, everybody: bool) -> list[Json]:
    """The viewer's own, or those of all users; the newest first. Empty where no login is required."""
    if everybody:
        require(PageControl.MANAGE_USERS)
    if current_viewer() is None:
        return []
    listed: list[Json] = body(await tokens_api.list_tokens(site.services, everybody))["tokens"]
    return listed


async def sessions(site: Site, *, everybody: bool) -> tuple[ConsoleSession, ...]:
    """List the sessions that hold, as ``tokens``."""
    if everybody:
        require(PageControl.MANAGE_USERS)
    viewer, view = current_viewer(), site.services.sessions
    if viewer is None or view is None:
        return ()
    return await view.listed(None if everybody else viewer.caller.principal)


async def revoke_token(site: Site, token_id: str, by: str, reason: str) -> str:
    """Revoke a token; of another user's it needs ADMIN, which the API's function asks for."""
    require(PageControl.END_OWN_LOGIN)
    revoked = body(await tokens_api.revoke_token(token_id, site.services))
    return f"Token {token_id} of {revoked['owner']} is revoked."


async def end_session(site: Site, session_id: str, by: str, reason: str) -> str:
    require(PageControl.END_OWN_LOGIN)
    listed = await sessions(site, everybody=may_use(PageControl.MANAGE_USERS))
    session = next((one for one in listed if one.session_id == session_id), None)
    if session is None or site.services.sessions is None:
        raise RefusedError(ErrorKind.INVALID_REQUEST, f"there is no session {session_id}, or it has ended")
    await site.services.sessions.end_listed(session)
    await site.services.audit.record(Action.END_SESSION, session_id, {"owner": str(session.owner)})
    return f"Session {session_id} of {session.owner.name} is ended."


async def run_statement(site: Site, sql: str) -> str:
    """One statement on users, roles or grants."""
    require(PageControl.MANAGE_USERS)
    (result,) = await site.services.sql.run_script(sql)
    return hide_secrets(sql) if result.to_json()["applied"] else f"Nothing to change: {hide_secrets(sql)}"
