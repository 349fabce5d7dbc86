"""Read-only resource of the nodes."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from app.api.models import Nodes
from app.api.problems import documented
from app.services import ServicesOf

router = APIRouter(prefix="/api/v1", tags=["nodes"])


@router.get("/nodes", response_model=Nodes, responses=documented(503))
async def list_nodes(services: ServicesOf) -> Response:
    """Living nodes, and those that are down but are data nodes of a zone or hold members."""
    services.require_metastore()
    return JSONResponse({"nodes": services.views.nodes()})
