"""``/api/v1/metastore``: the comparison of catalog and metastore, and the adoption of a state where they
differ."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from app.api.problems import answered, answers
from app.api.services import ServicesOf
from app.contract.maintenance import AdoptionBody, DivergenceName, MetastoreState
from catalog.core.errors import ErrorKind, StoreError
from rebalance.controllers.store_guard import ShownState, StoreState
from rebalance.ports.metastore import MetastoreError

router = APIRouter(prefix="/api/v1/metastore", tags=["metastore"])


class AdoptionRequest(BaseModel):
    """The state that ``GET /api/v1/metastore`` has shown; if it has changed since, nothing is done (409)."""

    model_config = ConfigDict(extra="forbid")

    epoch: int = Field(ge=1)
    kind: DivergenceName = Field(description="empty: both agreed, and nothing is to be done")
    reason: str = Field(max_length=10_000, description="word for word; ignored while both agree")


@router.get("", **answers(MetastoreState, 503))
async def metastore_state(services: ServicesOf) -> Response:
    """Compare catalog and metastore now."""
    state = await answered(services.stores.check())
    return JSONResponse(_shown(state))


@router.post("/adopt", **answers(AdoptionBody, 400, 409, 415, 503))
async def adopt_metastore(body: AdoptionRequest, services: ServicesOf) -> Response:
    """Accept the current state of catalog and etcd in a new epoch: every zone is published again, and zones
    that only etcd knows are dropped with their data."""
    services.audit.require_reason()
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
    return JSONResponse(answer)


def _shown(state: StoreState) -> MetastoreState:
    divergence = state.divergence
    full = f"etcd has no space left: {state.full}" if state.full else ""
    return MetastoreState(
        state="DIVERGED" if divergence else "FULL" if full else "AGREED",
        kind=divergence.kind.value if divergence else "",
        reason=divergence.reason if divergence else full,
        epoch=state.epoch,
        revision=state.revision,
        cluster_id=state.cluster_id,
        catalog_version=state.catalog_version,
    )
