"""``/v1/statement``: the SQL protocol that existing drivers speak. Not part of the OpenAPI document: it has
its own specification, and its errors come with status 200."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import JSONResponse, Response

from app.api.services import ServicesOf
from app.api.statements import read_body, while_connected
from app.sql.trino.front import Page, TrinoFront
from app.sql.trino.trino_session import read_session
from catalog.core.errors import ErrorKind, ParseError
from parser.select import VERSION

router = APIRouter(prefix="/v1", include_in_schema=False)

KEY_CHARS_MAX = 200


async def _front(services: ServicesOf) -> TrinoFront:
    return TrinoFront(
        services.jobs, services.engine, services.views.progress, services.reader, services.require_metastore
    )


FrontOf = Annotated[TrinoFront, Depends(_front)]


@router.post("/statement")
async def post_statement(
    request: Request,
    front: FrontOf,
    services: ServicesOf,
    key: Annotated[str | None, Header(alias="Idempotency-Key", max_length=KEY_CHARS_MAX)] = None,
) -> Response:
    session = read_session(request.headers.items())
    try:
        sql = (await read_body(request, services.reader.limits.text_bytes_max)).decode()
    except UnicodeDecodeError as error:
        raise ParseError(ErrorKind.SYNTAX_ERROR, "a statement is UTF-8 text") from error
    origin = f"{request.client.host if request.client else ''} {request.headers.get('user-agent', '')}"
    return _answer(await while_connected(request, front.post(sql, session, key, origin, _base(request))))


@router.head("/statement")
async def head_statement() -> Response:
    """Confirm to drivers that this is a server of the protocol."""
    return Response(status_code=200)


@router.get("/statement/executing/{statement_id:segment}/{token}")
async def get_page(statement_id: str, token: int, front: FrontOf, request: Request) -> Response:
    return _answer(await front.get(statement_id, token, _base(request)))


@router.delete("/statement/executing/{statement_id:segment}/{token}")
async def delete_statement(statement_id: str, token: int, front: FrontOf) -> Response:
    await front.delete(statement_id)
    return Response(status_code=204)


@router.delete("/query/{statement_id:segment}")
async def delete_query(statement_id: str, front: FrontOf) -> Response:
    await front.delete(statement_id)
    return Response(status_code=204)


@router.get("/info")
async def server_info() -> Response:
    """Return the facts that drivers and desktop tools read first."""
    return JSONResponse(
        {
            "nodeVersion": {"version": VERSION},
            "environment": "zonekeeper",
            "coordinator": True,
            "starting": False,
            "uptime": "1.00m",
        }
    )


def _base(request: Request) -> str:
    """The base URL as the client sees it; the edge has applied the headers of a listed proxy in between."""
    return f"{request.url.scheme}://{request.url.netloc}"


def _answer(page: Page) -> Response:
    return JSONResponse(page.body, headers={"Cache-Control": "no-store", **page.headers})
