"""``POST /api/v1/plan``: what a set of DDL files would change. Nothing is changed by asking."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from app.api.problems import documented, problem_response
from app.services import ServicesOf
from app.sql.desired_state import DdlFile, DdlFileError

router = APIRouter(prefix="/api/v1", tags=["statements"])


class PlanFile(BaseModel):
    name: str = Field(description="what errors call it", examples=["zones.sql"])
    text: str = Field(description="statements that change the catalog", max_length=1_000_000)


class PlanRequest(BaseModel):
    files: list[PlanFile] = Field(description="run in this order", min_length=1, max_length=1_000)
    prune: bool = Field(False, description="also drop what is in no file")


class PlannedDifference(BaseModel):
    property: str
    before: str
    after: str


class PlannedChangeBody(BaseModel):
    action: Literal["create", "change", "drop"]
    kind: Literal["zone", "table"]
    name: str
    sql: str
    differences: list[PlannedDifference]


class ConflictBody(PlannedDifference):
    kind: Literal["zone", "table"]
    name: str
    reason: str


class Unmanaged(BaseModel):
    kind: Literal["zone", "table"]
    name: str


class PlanBody(BaseModel):
    catalog_version: int = Field(description="that the plan was made on: an If-Match for its statements")
    changes: list[PlannedChangeBody] = Field(description="statements to run in this order")
    conflicts: list[ConflictBody] = Field(description="differences that no statement can make")
    unmanaged: list[Unmanaged] = Field(description="lives, and is in no file")


@router.post("/plan", response_model=PlanBody, responses=documented(400, 404, 409, 422, 503))
async def make_plan(body: PlanRequest, services: ServicesOf) -> Response:
    """Compare the catalog with what a set of files declares.

    An error in a file is a problem document whose ``file`` names it; line and column are that file's."""
    services.require_metastore()
    files = [DdlFile(each.name, each.text) for each in body.files]
    try:
        plan = await services.plan(files, body.prune)
    except DdlFileError as error:
        return problem_response(error.cause, {"file": error.file.name})
    return JSONResponse(plan.to_json())
