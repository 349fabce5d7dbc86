"""``/api/v1/metastore``: whether catalog and metastore belong together, and the way on when they do not."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from app.api.metastore_calls import answered
from app.api.problems import documented
from app.services import ServicesOf
from catalog.core.errors import ErrorKind, StoreError
from rebalance.controllers.store_guard import ShownState, StoreState
from rebalance.ports.metastore import MetastoreError

router = APIRouter(prefix="/api/v1/metastore", tags=["metastore"])


DivergenceName = Literal["", "METASTORE_WENT_BACK", "METASTORE_REPLACED", "CATALOG_WENT_BACK"]


class MetastoreState(BaseModel):
    state: Literal["AGREED", "DIVERGED", "FULL"] = Field(description="only AGREED takes statements")
    kind: DivergenceName
    reason: str = Field(description="why nothing is written; empty when everything is")
    epoch: int = Field(description="1, and one more with each adoption")
    revision: int = Field(description="etcd's, when it was looked at")
    cluster_id: str = Field(description="etcd's")
    catalog_version: int


class AdoptionRequest(BaseModel):
    """What ``GET /api/v1/metastore`` has shown: when it shows something else by now, nothing is done (409)."""

    model_config = ConfigDict(extra="forbid")

    epoch: int = Field(ge=1)
    kind: DivergenceName = Field(description="empty: both agreed, and nothing is to be done")
    reason: str = Field(max_length=10_000, description="word for word; ignored while both agree")


class AdoptionBody(BaseModel):
    adopted: bool = Field(description="false: both stores agreed, and nothing was done")
    epoch: int
    catalog_version: int = Field(description="the version that publishes every zone again")
    published: int = Field(description="zones whose intents were published again, the dropped ones included")
    dropped: list[str] = Field(description="zones that only etcd knew; their data is removed")


@router.get("", response_model=MetastoreState, responses=documented(503))
async def metastore_state(services: ServicesOf) -> Response:
    """Compare catalog and metastore now."""
    state = await answered(services.stores.check())
    return JSONResponse(_shown(state).model_dump())


@router.post("/adopt", response_model=AdoptionBody, responses=documented(400, 409, 415, 503))
async def adopt_metastore(body: AdoptionRequest, services: ServicesOf) -> Response:
    """Take what both stores hold now for the truth, in a new epoch: every zone is published again, and zones
    that only etcd knows are dropped with their data."""
    shown = ShownState(body.epoch, body.kind, body.reason if body.kind else "")
    services.require_metastore()
    try:
        done = await services.stores.adopt(shown)
    except MetastoreError as error:
        message = f"etcd does not answer: {error}; adopt again when it does"
        raise StoreError(ErrorKind.METASTORE_UNAVAILABLE, message) from error
    if done is not None:
        answer = AdoptionBody(
            adopted=True,
            epoch=done.epoch,
            catalog_version=done.catalog_version,
            published=done.published,
            dropped=list(done.dropped),
        )
    else:
        state = services.stores.state
        assert state is not None, "adopting compares the stores"
        answer = AdoptionBody(
            adopted=False, epoch=state.epoch, catalog_version=state.catalog_version, published=0, dropped=[]
        )
    return JSONResponse(answer.model_dump())


def _shown(state: StoreState) -> MetastoreState:
    found = state.divergence
    full = f"etcd has no space left: {state.full}" if state.full else ""
    return MetastoreState(
        state="DIVERGED" if found else "FULL" if full else "AGREED",
        kind=found.kind.value if found else "",
        reason=found.reason if found else full,
        epoch=state.epoch,
        revision=state.revision,
        cluster_id=state.cluster_id,
        catalog_version=state.catalog_version,
    )
