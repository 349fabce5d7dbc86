"""Pages for a browser where the server cannot answer have no script: the answer itself has it ask again."""

from __future__ import annotations

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from app.security.login_check import refuse
from catalog.core.errors import ErrorKind, RefusedError, StatementError, StoreError

UNREACHABLE = StoreError(ErrorKind.CATALOG_UNAVAILABLE, "the catalog does not answer")
FORBIDDEN = RefusedError(ErrorKind.ORIGIN_REFUSED, "not yours")


@pytest.mark.parametrize(
    ("error", "method", "accept", "again"),
    [
        (UNREACHABLE, "GET", "text/html,*/*", "2"),
        (UNREACHABLE, "GET", "application/json", None),
        (UNREACHABLE, "POST", "text/html", None),
        (FORBIDDEN, "GET", "text/html", None),
    ],
)
async def test_a_page_is_asked_for_again_while_the_server_is_at_fault(
    error: StatementError, method: str, accept: str, again: str | None
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await refuse(error, scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        answer = await client.request(method, "/console/zones", headers={"Accept": accept})
    assert answer.status_code == error.kind.http_status
    assert answer.headers.get("refresh") == again
