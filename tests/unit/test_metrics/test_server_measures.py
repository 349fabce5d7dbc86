"""Counts of a server: requests, statements, members of the metastore."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from app.metrics.exposition import Exposition
from app.metrics.gauges import certificate_probe, publish_members
from app.metrics.outcomes import measured_put
from app.metrics.request_meter import RequestMeter, note_route
from app.sql.statements.results import ScriptError
from app.sql.statements.statement_meter import StatementMeter
from catalog.core.errors import ErrorKind, RefusedError, StoreError
from rebalance.core.keyspace.records import ProcessRole
from rebalance.hosting.tls import ends_of, loaded
from rebalance.ports.metastore import MemberHealth
from tests.fixtures.scraped import samples, text, value
from tests.fixtures.tls_files import tls_files


@pytest.fixture
def exposition() -> Exposition:
    return Exposition((ProcessRole.SERVER,))


async def zone(request: Request) -> Response:
    note_route(request.scope)
    return PlainTextResponse(request.path_params["zone"])


class OneRoute:
    """An application that copies the scope, as middlewares may."""

    def __init__(self) -> None:
        self._app = Starlette(routes=[Route("/api/v1/zones/{zone}", zone)])

    async def __call__(self, scope, receive, send) -> None:
        async def routed(inner, receive, send) -> None:
            inner["route"] = Route("/api/v1/zones/{zone}", zone)
            await self._app(inner, receive, send)

        await routed(dict(scope), receive, send)


@pytest.mark.parametrize(
    ("path", "route", "status"),
    [
        ("/api/v1/zones/secret", "/api/v1/zones/{zone}", "200"),
        ("/api/v1/nowhere/secret", "_other", "404"),
        ("/console/zones/secret", "/console/zones/{zone:segment}", "404"),
        ("/console/files/secret", "/console/*", "404"),
    ],
)
async def test_a_request_is_counted_by_its_template(
    exposition: Exposition, path: str, route: str, status: str
) -> None:
    transport = httpx.ASGITransport(RequestMeter(OneRoute(), exposition))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        assert str((await client.get(path)).status_code) == status
    labels = {"method": "GET", "route": route, "status": status}
    assert value(exposition, "zonekeeper_http_requests_total", **labels) == 1
    assert "secret" not in text(exposition).decode()


class Done:
    """The result of a statement."""

    def to_json(self) -> dict[str, Any]:
        return {}


async def ended(meter: StatementMeter, kinds: tuple[str, ...], error: BaseException) -> None:
    async with meter.statement() as measured:
        measured.kinds = kinds
        raise error


async def test_statements_before_the_one_that_failed_have_succeeded(exposition: Exposition) -> None:
    meter = StatementMeter(exposition)
    failed = RefusedError(ErrorKind.ZONE_NOT_FOUND, "there is no zone A")
    script = ScriptError(failed, [Done()])
    with pytest.raises(ScriptError):
        await ended(meter, ("CREATE_ZONE", "ALTER_ZONE", "DROP_ZONE"), script)
    name, counted = "zonekeeper_statements_total", {"code": "ZONE_NOT_FOUND", "outcome": "refused"}
    assert value(exposition, name, code="", kind="CREATE_ZONE", outcome="ok") == 1
    assert value(exposition, name, kind="ALTER_ZONE", **counted) == 1
    assert value(exposition, name, kind="DROP_ZONE", **counted) is None
    seconds = "zonekeeper_statement_seconds_count"
    assert value(exposition, seconds, kind="SCRIPT", outcome="refused") == 1


async def test_the_installation_fails_and_who_leaves_does_not(exposition: Exposition) -> None:
    meter = StatementMeter(exposition)
    for error in (StoreError(ErrorKind.METASTORE_UNAVAILABLE, "etcd is silent"), RuntimeError("a defect")):
        with pytest.raises(type(error)):
            await ended(meter, ("SHOW",), error)
    with pytest.raises(asyncio.CancelledError):
        await ended(meter, ("SHOW",), asyncio.CancelledError())
    counted = {
        dict(labels)["code"] for name, labels in samples(exposition) if name.endswith("statements_total")
    }
    assert counted == {"METASTORE_UNAVAILABLE", "INTERNAL_ERROR"}
    assert value(exposition, "zonekeeper_statement_seconds_count", kind="SHOW", outcome="failed") == 2


def test_a_put_that_was_refused_is_not_the_installation_s_fault(exposition: Exposition) -> None:
    with pytest.raises(RefusedError), measured_put(exposition):
        raise RefusedError(ErrorKind.ZONE_NOT_FOUND, "there is no zone A")
    with measured_put(exposition):
        pass
    assert value(exposition, "zonekeeper_puts_total", code="ZONE_NOT_FOUND", outcome="refused") == 1
    assert value(exposition, "zonekeeper_puts_total", code="", outcome="ok") == 1


def test_of_a_member_that_does_not_answer_only_that_is_said(exposition: Exposition) -> None:
    both = (
        MemberHealth("a:1", True, has_leader=True, in_use=10, allocated=20, alarms=("NOSPACE",)),
        MemberHealth("b:1", False),
    )
    publish_members(both, exposition, 100)
    assert value(exposition, "zonekeeper_etcd_member_up", member="a:1") == 1
    assert value(exposition, "zonekeeper_etcd_member_up", member="b:1") == 0
    assert value(exposition, "zonekeeper_etcd_member_in_use_bytes", member="a:1") == 10
    assert value(exposition, "zonekeeper_etcd_member_quota_bytes", member="a:1") == 100
    assert value(exposition, "zonekeeper_etcd_member_in_use_bytes", member="b:1") is None
    assert value(exposition, "zonekeeper_etcd_alarms", alarm="NOSPACE") == 1
    publish_members(both[1:], exposition, 0)
    assert value(exposition, "zonekeeper_etcd_alarms", alarm="NOSPACE") is None


def test_a_certificate_ends_in_use_and_in_its_file(exposition: Exposition, tmp_path: Path) -> None:
    """The authority that ends sooner than the certificate counts; a file that is no certificate changes what is
    in its file, and nothing of what is in use."""
    tls = tls_files(tmp_path, trustme.CA())
    ends = {file: ends_of(file) for file in (tls.ca, tls.certificate)}
    exposition.ask(certificate_probe("machine", loaded(tls), exposition))
    name = "zonekeeper_certificate_expiry_timestamp_seconds"
    soonest = min(end for end in ends.values() if end is not None)
    for source in ("file", "loaded"):
        assert value(exposition, name, certificate="machine", source=source) == soonest
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    tls_files(tmp_path / "later", trustme.CA(), ends=end).certificate.replace(tls.certificate)
    assert value(exposition, name, certificate="machine", source="file") == end.timestamp()
    assert value(exposition, name, certificate="machine", source="loaded") == soonest
