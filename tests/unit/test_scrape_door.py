"""Scrapers with the token are answered before any login, and so while no user can log in."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from app.metrics.exposition import Exposition
from app.metrics.scrape_door import ScrapeDoor
from app.security.token_secrets import ScrapeToken, keep_scrape_token
from rebalance.core.keyspace.records import ProcessRole


async def without_catalog(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("nobody can log in", 503)(scope, receive, send)


@pytest.mark.parametrize(
    ("method", "url", "shown", "status"),
    [
        ("GET", "https://server/metrics", ("{token}",), 200),
        ("GET", "https://server/metrics?name=x", ("{token}",), 200),
        ("GET", "http://server/metrics", ("{token}",), 503),
        ("GET", "https://server/metrics", (), 503),
        ("GET", "https://server/metrics", ("{token}", "{token}"), 503),
        ("GET", "https://server/metrics", ("another",), 503),
        ("POST", "https://server/metrics", ("{token}",), 503),
        ("GET", "https://server/metrics/", ("{token}",), 503),
        ("GET", "https://server/api/v1/zones", ("{token}",), 503),
    ],
)
async def test_the_token_opens_the_metrics_over_https(
    tmp_path: Path, method: str, url: str, shown: tuple[str, ...], status: int
) -> None:
    path = tmp_path / "metrics.token"
    keep_scrape_token(path)
    token = path.read_text().strip()
    app = ScrapeDoor(without_catalog, ScrapeToken(path), Exposition([ProcessRole.SERVER]))
    headers = [("Authorization", f"Bearer {text.format(token=token)}") for text in shown]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        answer = await client.request(method, url, headers=headers)
    assert answer.status_code == status
    assert ("zonekeeper_build_info" in answer.text) == (status == 200)
    if status == 200:
        assert answer.headers["cache-control"] == "no-store"
