"""``POST /api/v1/plan``: what a script or a set of DDL files would change. Nothing is changed by asking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from app.api.bodies import RequestBody
from app.api.problems import documented, problem_response
from app.api.services import Services, ServicesOf
from app.api.statement_bodies import while_connected
from app.contract.statements import Warned
from app.sql.plan.ddl_files import DdlFile, DdlFileError
from catalog.core.errors import ErrorKind, RefusedError, StoreError
from parser.text_limits import OWN_TEXT

router = APIRouter(prefix="/api/v1", tags=["statements"])

ATTEMPTS_MAX = 5
NO_PLAN = {"plan_id": None, "data_nodes_revision": None, "target_revision": None}


class PlanFile(RequestBody):
    name: str = Field(description="name of the file in errors", examples=["zones.sql"])
    text: str = Field(description="statements that change the catalog")


PlanId = Annotated[
    str | None,
    Field(
        max_length=80,
        pattern=r"^[0-9]{1,18}-[0-9]{1,18}-[0-9]{1,18}-[0-9a-f]{12}$",
        description="id of a plan that was shown; if the plan would differ now, 409 says what changed",
        examples=["12-340-355-9f3a2c41b07e"],
    ),
]


class PlanRequest(RequestBody):
    """Either ``files``, which define completely what they name, or ``sql``, a script to run."""

    files: list[PlanFile] | None = Field(None, description="in any order", min_length=1, max_length=1_000)
    prune: list[str] | bool = Field(
        False,
        description="with files: names of the zones that are dropped with their tables if they are in no file;"
        " `*` stands for any characters. `true` is refused: other zones may be in others' files",
        examples=[["ORDERS", "TEAM_A_*"]],
    )
    sql: str | None = Field(None, description="a script of changes")
    plan_id: PlanId = None


class PlannedDifference(BaseModel):
    property: str
    before: str
    after: str


class EffectBody(BaseModel):
    """A row of EXPLAIN: parameters, data nodes, replicas that move, and the balance."""

    section: str = Field(examples=["MOVE", "ADD", "REMOVE", "ROLE", "PARAMETER"])
    name: str
    before: str | None
    after: str | None
    replicas: int | None
    bytes: int | None = Field(description="bytes to copy, estimated by current sizes")
    note: str


class PlannedChangeBody(BaseModel):
    action: Literal["create", "change", "drop", "noop"]
    kind: Literal["zone", "table"]
    name: str
    sql: str
    differences: list[PlannedDifference]
    effects: list[EffectBody] | None = Field(description="null: the plan has more than 50 statements")
    warnings: list[Warned] = Field(description="risks to consider before the statement is run")


class ConflictBody(PlannedDifference):
    kind: Literal["zone", "table"]
    name: str
    reason: str


class Unmanaged(BaseModel):
    kind: Literal["zone", "table"]
    name: str


class PlanBody(BaseModel):
    plan_id: str | None = Field(
        description="id to apply exactly this plan; null: there is nothing to change, or a conflict"
    )
    data_nodes_revision: int | None = Field(
        description="metastore revision of the topology and of the data nodes of the changed zones"
    )
    target_revision: int | None = Field(description="metastore revision of the newest target of those zones")
    catalog_version: int = Field(
        description="version that the plan was made on, an If-Match for its statements"
    )
    changes: list[PlannedChangeBody] = Field(description="statements in the order to run them")
    conflicts: list[ConflictBody] = Field(description="differences that no statement can make")
    unmanaged: list[Unmanaged] = Field(description="zones and tables that are in no file")


@router.post("/plan", response_model=PlanBody, responses=documented(400, 404, 409, 413, 422, 503))
async def make_plan(request: Request, body: PlanRequest, services: ServicesOf) -> Response:
    """Plan what a script, or a set of files compared with the catalog, would change and move.

    ``plan_id`` is made of all that the plan was computed from; ``POST /statements`` with it carries out exactly
    this plan, or says what changed (40001). An error in a file is a problem document whose ``file`` names it;
    line and column are that file's."""
    services.require_metastore()
    if (body.files is None) == (body.sql is None):
        raise RefusedError(ErrorKind.INVALID_REQUEST, "a plan is made of either files or sql")
    if body.prune is True:
        message = "prune names the zones that may be dropped, as ['ORDERS', 'TEAM_A_*'], and is not true"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    if body.sql is not None:
        return JSONResponse(await while_connected(request, _of_script(body.sql, body.plan_id, services)))
    files = [DdlFile(file.name, file.text) for file in body.files or ()]
    try:
        return JSONResponse(await while_connected(request, _of_files(files, body, services)))
    except DdlFileError as error:
        return problem_response(error.cause, {"file": error.file.name})


async def _of_script(sql: str, plan_id: str | None, services: Services) -> dict[str, Any]:
    """Raises StatementError."""
    return (await services.sql.change_plan(sql, plan_id)).to_json()


async def _of_files(files: Sequence[DdlFile], body: PlanRequest, services: Services) -> dict[str, Any]:
    """Raises StatementError and DdlFileError."""
    for _ in range(ATTEMPTS_MAX):
        plan = await services.sql.plan(files, body.prune if isinstance(body.prune, list) else ())
        answer = {**NO_PLAN, **plan.to_json()}
        is_refused = plan.conflicts or not plan.changes
        if is_refused:
            answer["changes"] = [{**change, "effects": None, "warnings": []} for change in answer["changes"]]
        if is_refused and (body.plan_id is None or not plan.conflicts):
            # With an id as well: what it planned has been done.
            return answer
        statements = ";\n".join(change.sql for change in plan.changes)
        moves = await services.sql.change_plan(statements, body.plan_id, OWN_TEXT)
        if is_refused:
            return answer
        if moves.plan_id.catalog_version == plan.catalog_version:
            pairs = zip(answer["changes"], moves.to_json()["changes"], strict=True)
            changes = [{**judged, **change} for change, judged in pairs]
            return {**answer, **moves.basis_json(), "changes": changes}
    message = f"other statements changed it during each of {ATTEMPTS_MAX} attempts"
    raise StoreError(ErrorKind.CATALOG_VERSION_CONFLICT, message)
