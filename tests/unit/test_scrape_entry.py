"""Scrape entry of processes without an API: two paths, and limits on its clients."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from starlette.types import ASGIApp

from app.bootstrap.scrape_entry import (
    CONNECTIONS_MAX,
    admission_of,
    scrape_host,
    scraped_at,
    scraped_url,
    scraped_with,
)
from app.configuration.settings import Settings
from app.edge.request_rules import HEADER_BYTES_MAX
from app.edge.uvicorn_server import listen
from app.metrics.exposition import Exposition
from app.metrics.scrape_door import Admission, scrape_app
from app.security.token_secrets import TOKEN_CHARS_MIN, ScrapeToken, keep_scrape_token
from rebalance.core.keyspace.records import ProcessRole
from rebalance.hosting.tls import LoadedCertificate, TlsFiles
from rebalance.ports.metric_rows import Metric
from tests.fixtures.tls_files import tls_files

PATIENCE_S = 60.0


def app_of(metrics: Exposition | None = None, admits: Admission = lambda _: True) -> ASGIApp:
    return scrape_app(metrics or Exposition([ProcessRole.NODE]), admits)


@asynccontextmanager
async def listening(app: ASGIApp | None = None, tls: LoadedCertificate | None = None) -> AsyncIterator[int]:
    """The port."""
    with listen("127.0.0.1", 0) as bound:
        running = asyncio.ensure_future(scraped_at(bound, app or app_of(), tls)())
        try:
            yield int(bound.getsockname()[1])
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def sent(port: int, request: bytes, tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    """Status and body; 0 where the connection was closed without an answer."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        try:
            writer.write(request)
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        except (ConnectionError, ssl.SSLError):
            return 0, b""
        finally:
            writer.close()
    return int(head.split(b" ")[1]) if head else 0, body


def get(path: str, *, method: str = "GET", headers: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: node-3\r\nConnection: close\r\n{headers}\r\n".encode()


async def test_it_answers_what_is_measured_now() -> None:
    metrics = Exposition([ProcessRole.NODE])
    async with listening(app_of(metrics)) as port:
        for leads in (1, 2):
            metrics.set(Metric.NODE_LEADS, leads)
            for path in ("/metrics", "/metrics?name=x"):
                status, body = await sent(port, get(path))
                assert (status, f"zonekeeper_node_leads {leads}.0\n".encode() in body) == (200, True)
        assert await sent(port, get("/livez")) == (200, b"ok\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/"), 404),
        (get("/metrics/"), 404),
        (get("/metrics", method="POST"), 405),
        (b"hello\r\n\r\n", 400),
        (b"GET /metrics SPDY\r\n\r\n", 400),
        (get("/metrics", headers=f"X-Long: {'x' * HEADER_BYTES_MAX}\r\n"), 431),
    ],
)
async def test_it_refuses_everything_else(request_: bytes, status: int) -> None:
    async with listening() as port:
        assert (await sent(port, request_))[0] == status
        assert await sent(port, get("/livez")) == (200, b"ok\n")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Authorization: Bearer {token}\r\n", 200),
        ("authorization:  bearer {token} \r\n", 200),
        ("", 401),
        ("Authorization: Bearer {token}x\r\n", 401),
        ("Authorization: Basic {token}\r\n", 401),
        ("Authorization: Bearer {token}\r\nAuthorization: Bearer {token}\r\n", 401),
    ],
)
async def test_what_is_measured_is_for_who_shows_the_token(tmp_path: Path, headers: str, status: int) -> None:
    path = tmp_path / "metrics.token"
    keep_scrape_token(path)
    asked = get("/metrics", headers=headers.format(token=path.read_text().strip()))
    app = app_of(admits=admission_of(Settings(metrics_token_file=path)))
    async with listening(app) as port:
        assert (await sent(port, asked))[0] == status
        assert await sent(port, get("/livez")) == (200, b"ok\n")


def test_a_token_is_made_once_for_its_owner_and_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "metrics.token"
    token = ScrapeToken(path)
    assert not token.is_in("Bearer ")
    keep_scrape_token(path)
    first = path.read_text()
    keep_scrape_token(path)
    assert (path.read_text(), path.stat().st_mode & 0o777) == (first, 0o600)
    assert token.is_in(f"Bearer {first}")
    path.write_text("n" * TOKEN_CHARS_MIN)
    assert not token.is_in(f"Bearer {first}")
    assert token.is_in(f"Bearer {'n' * TOKEN_CHARS_MIN}")
    path.write_text("short")
    assert not token.is_in("Bearer short")


def test_without_a_token_strangers_on_the_machine_get_nothing_where_users_log_in(files: TlsFiles) -> None:
    assert not admission_of(Settings())("")
    assert admission_of(Settings(auth=False))("")
    # What scrapers show there is a certificate.
    assert admission_of(over_tls(files))("")


async def test_what_cannot_be_measured_costs_its_own_series() -> None:
    metrics = Exposition([ProcessRole.NODE])

    def broken() -> None:
        raise ValueError("a secret")

    metrics.ask(broken)
    async with listening(app_of(metrics)) as port:
        for _ in range(2):
            status, body = await sent(port, get("/metrics"))
            assert (status, b"secret" in body, b"zonekeeper_build_info" in body) == (200, False, True)


async def test_what_cannot_be_answered_is_an_error_and_tells_no_more() -> None:
    def broken(_: str) -> bool:
        raise ValueError("a secret")

    async with listening(app_of(admits=broken)) as port:
        status, body = await sent(port, get("/metrics"))
        assert (status, b"secret" in body) == (500, False)
        assert (await sent(port, get("/livez")))[0] == 200


async def test_connections_on_which_nothing_is_sent_keep_nobody_out() -> None:
    async with listening() as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        # They are accepted in their order, so that all of them are open by now.
        assert (await sent(port, get("/livez")))[0] == 200
        async with asyncio.timeout(PATIENCE_S):
            assert await held[0][0].read() == b""
        for _, writer in held:
            writer.close()


@pytest.mark.parametrize(("begun", "status"), [(b"", 0), (b"GET /metrics HT", 408)])
async def test_who_sends_no_whole_request_is_closed(begun: bytes, status: int) -> None:
    async with listening() as port:
        assert (await sent(port, begun))[0] == status


def over_tls(files: TlsFiles) -> Settings:
    return Settings(
        metrics_host="0.0.0.0", https_certificate=files.certificate, https_key=files.key, tls_ca=files.ca
    )


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return tls_files(tmp_path, trustme.CA())


async def test_over_tls_a_scraper_shows_a_certificate_of_the_authority(files: TlsFiles) -> None:
    certificate = scraped_with(over_tls(files))
    assert certificate is not None
    stranger = ssl.create_default_context(cafile=str(files.ca))
    async with listening(tls=certificate) as port:
        assert (await sent(port, get("/metrics"), files.context()))[0] == 200
        assert await sent(port, get("/metrics"), stranger) == (0, b"")
        assert (await sent(port, get("/livez"), files.context()))[0] == 200


def test_a_node_with_tls_is_scraped_where_its_members_are(files: TlsFiles) -> None:
    """The entry's own setting goes before; without TLS only the machine itself reaches it."""
    tls = {"tls_ca": files.ca, "tls_certificate": files.certificate, "tls_key": files.key}
    node = Settings(node_host="192.0.2.7", **tls)
    assert scrape_host(node) == "192.0.2.7"
    assert scraped_with(node) is not None
    assert scrape_host(Settings(**tls)) == "127.0.0.1"
    assert scrape_host(Settings(node_host="192.0.2.7")) == "127.0.0.1"
    assert scrape_host(node.model_copy(update={"metrics_host": "127.0.0.1"})) == "127.0.0.1"


def test_an_address_that_others_reach_needs_certificates(files: TlsFiles) -> None:
    assert scraped_with(Settings()) is None
    with pytest.raises(ValueError, match=r"others reach 0\.0\.0\.0"):
        scraped_with(Settings(metrics_host="0.0.0.0"))
    with pytest.raises(ValueError, match=r"others reach 0\.0\.0\.0"):
        scraped_with(over_tls(files).model_copy(update={"tls_ca": None}))


def test_a_process_that_listens_everywhere_is_scraped_by_its_machines_name() -> None:
    assert scraped_url("http", "127.0.0.1", 9) == "http://127.0.0.1:9/metrics"
    assert "0.0.0.0" not in scraped_url("https", "0.0.0.0", 9)
