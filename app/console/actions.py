"""What the console can do: the functions of the REST API, called with what a form holds.

So a refusal, its words and its checks are the API's. Each raises StatementError.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from fastapi.responses import Response
from pydantic import BaseModel, ValidationError

from app.api import audit as audit_api
from app.api import nodes, rebalance, recovery
from app.api import operations as operations_api
from app.api.operation_models import ActionRequest, OperationPause
from app.console.shared import Site
from app.contract.operations import StateName
from app.views.keyspace_views import KeyspaceViews
from app.views.node_stop import can_stop
from catalog.core.errors import ErrorKind, RefusedError

Json = dict[str, Any]
AUDIT_ROWS = 50
"""Of a page."""
B = TypeVar("B", bound=BaseModel)


async def drain(site: Site, node: str, by: str, reason: str) -> Json:
    return body(await nodes.drain_node(node, _read(nodes.DrainRequest, by=by, reason=reason), site.services))


async def undrain(site: Site, node: str) -> Json:
    return body(await nodes.undrain_node(node, site.services))


async def stop_check(site: Site, node: str) -> Json:
    """What the API's can-stop answers, in a thread: it looks at every member of the node."""
    snapshot = await site.snapshot()
    zones = {zone.zone_id: zone.name for zone in snapshot.catalog.zones}
    return await asyncio.to_thread(can_stop, node, KeyspaceViews(snapshot.keys, snapshot.keyspace), zones)


async def limits(site: Site) -> tuple[Json, str]:
    """The limits and their ETag."""
    answer = await rebalance.get_limits(site.services)
    return body(answer), answer.headers["ETag"]


async def change_limits(site: Site, change: Json, tag: str | None = None) -> Json:
    """``change`` as the API's PATCH takes it; ``tag``: only if the limits are as they were read."""
    asked = _read(rebalance.LimitsChange, **change)
    return body(await rebalance.change_limits(asked, site.services, tag))


async def operations(site: Site, zone: str | None, states: Sequence[StateName]) -> list[Json]:
    """The newest first; ``states`` empty: all."""
    answer = await operations_api.list_operations(
        site.services, zone, list(states), None, operations_api.PAGE_MAX, None
    )
    found: list[Json] = body(answer)["operations"]
    return found


async def operation(site: Site, name: str) -> Json:
    return body(await operations_api.get_operation(name, site.services, 0, plan=True))


async def pause_operation(site: Site, name: str, by: str, reason: str) -> str:
    asked = _read(OperationPause, by=by, reason=reason)
    await operations_api.pause_operation(name, asked, site.services)
    return f"Nothing more of operation {name} begins."


async def resume_operation(site: Site, name: str, by: str, reason: str) -> str:
    await operations_api.resume_operation(name, _read(ActionRequest, by=by, reason=reason), site.services)
    return f"Operation {name} goes on."


async def cancel_operation(site: Site, name: str, by: str, reason: str) -> str:
    asked = _read(ActionRequest, by=by, reason=reason)
    found = body(await operations_api.cancel_operation(name, asked, site.services))["cancelled"]
    told = (("given_up", "stay where they are"), ("going_back", "go back"), ("begun", "go on to their end"))
    parts = [f"{len(found[key])} {what}" for key, what in told if found[key]]
    return f"Operation {name} is cancelled; partitions: {', '.join(parts) or 'nothing was left'}."


async def reverse_operation(site: Site, name: str, by: str, reason: str) -> str:
    asked = _read(ActionRequest, by=by, reason=reason)
    found = body(await operations_api.reverse_operation(name, asked, site.services))
    return f"Reversed by catalog version {found['catalog_version']}."


async def audit(site: Site, action: str, subject: str, by: str, token: str | None) -> tuple[list[Json], str]:
    """Records, the newest first, and the token of the next page; empty: these are the last."""
    answer = await audit_api.list_audit(site.services, action, subject, by, AUDIT_ROWS, token)
    found = body(answer)
    records: list[Json] = found["records"]
    return records, found["next_page_token"] or ""


async def partition_states(site: Site, zone: str, numbers: Sequence[int]) -> list[Json]:
    """How healthy these partitions and their replicas are; ``numbers`` must not be empty."""
    states: list[Json] = body(await recovery.recovery_states(zone, site.services, list(numbers)))["partitions"]
    return states


async def reset_partitions(site: Site, zone: str, request: Json) -> list[Json]:
    """``request`` as the API's POST takes it: a dry run, or with what one has shown."""
    answer = await recovery.reset_partitions(zone, _read(recovery.ResetRequest, **request), site.services)
    resets: list[Json] = body(answer)["partitions"]
    return resets


async def resets(site: Site, zone: str) -> list[Json]:
    """Operations of resets of the zone, the newest first."""
    answer = await operations_api.list_operations(
        site.services, zone, None, ["RESET"], operations_api.PAGE_MAX, None
    )
    summaries: list[Json] = body(answer)["operations"]
    return summaries


async def operation_now(site: Site, name: str) -> Json:
    """Where it is and what waits, without its plan."""
    return body(await operations_api.get_operation(name, site.services, 0, plan=False))


def pause(by: str, reason: str, minutes: float | None) -> Json:
    """A pause as ``change_limits`` takes it; ``minutes`` None: until somebody resumes."""
    return {"by": by, "reason": reason, "for_s": None if minutes is None else minutes * 60}


def _read(model: Callable[..., B], **fields: object) -> B:
    try:
        return partial(model, **fields)()
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise RefusedError(ErrorKind.INVALID_REQUEST, found) from error


def body(answer: Response) -> Json:
    """What a function of the API answered."""
    found: Json = json.loads(bytes(answer.body))
    return found
