"""``/api/v1/audit``: changes, with their authors, times, reasons and origins."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response

from app.api.problems import answers
from app.api.services import ServicesOf
from app.contract.audit import AuditBody, AuditRecords
from app.contract.columns import body_of
from app.requests.request_audit import audit_facts
from app.sql.statements.paging import page_offset, page_token
from catalog.core.audit import AuditFilter

router = APIRouter(prefix="/api/v1/audit", tags=["audit"])

RECORDS_DEFAULT = 100
PAGE_MAX = 1000


@router.get("", **answers(AuditRecords, 400, 503))
async def list_audit(
    services: ServicesOf,
    action: Annotated[str, Query(max_length=64, description="only this action, for example DRAIN NODE")] = "",
    subject: Annotated[
        str, Query(max_length=300, description="only changes of this zone, table, node or operation")
    ] = "",
    by: Annotated[str, Query(max_length=100, description="only changes made under this name")] = "",
    page_size: Annotated[int, Query(ge=1, le=PAGE_MAX)] = RECORDS_DEFAULT,
    token: Annotated[str | None, Query(alias="page_token", max_length=100)] = None,
) -> Response:
    """List changes made over SQL, REST and the command line: of zones and tables, drains, limits, recoveries,
    pauses, cancels, reverses and adoptions. Names come from an authenticating proxy (``verified``), else from
    the client."""
    page = f"audit/{action}/{subject}/{by}"
    below = page_offset(page, token) or None
    records = await services.audit.read(AuditFilter(action, subject, by), page_size + 1, below)
    shown = records[:page_size]
    following = page_token(page, shown[-1].number) if len(records) > page_size else None
    return JSONResponse(
        {"records": [body_of(AuditBody, audit_facts(record)) for record in shown], "next_page_token": following}
    )
