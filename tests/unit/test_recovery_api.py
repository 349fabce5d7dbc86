"""Recovery over REST and SQL while etcd does not do what is asked: each failure has its own kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.bootstrap.server import build_app
from app.sql.engine.calls import Procedures
from catalog.core.errors import StoreError
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import Zone, ZoneId
from parser.queries import Call, parse_statement
from rebalance.ports.metastore import ContendedError, MetastoreError, MetastoreUnavailableError
from tests.fixtures.partial_services import services_with
from tests.fixtures.served_app import served

ZONE = Zone(ZoneId(1), "ORDERS", 1, 1, None, ("default",))
SILENT = MetastoreUnavailableError("no answer in time")
UNKNOWN = MetastoreUnavailableError("no answer in time", outcome_unknown=True)


class Failing:
    """A server's services for a restart, which fails."""

    def __init__(self, error: MetastoreError) -> None:
        self._error = error

    async def find(self, _: str) -> Zone:
        return ZONE

    async def snapshot(self) -> Any:
        return SimpleNamespace(zone_with_id=lambda _: ZONE)

    def refuse_store(self, *_: object) -> None:
        """Accept the zone, as it is one of groups."""

    async def restart(self, *_: object, **__: object) -> Any:
        raise self._error


FAILURES = [
    (SILENT, 503, "METASTORE_UNAVAILABLE", "etcd does not answer: no answer in time"),
    (UNKNOWN, 504, "OUTCOME_UNKNOWN", "etcd does not answer: no answer in time"),
    (ContendedError("others wrote it"), 503, "METASTORE_UNAVAILABLE", "others wrote it; try again"),
]


@pytest.mark.parametrize(("error", "status", "name", "detail"), FAILURES)
async def test_a_restart_that_fails(error: MetastoreError, status: int, name: str, detail: str) -> None:
    failing, mirror = Failing(error), SimpleNamespace(is_loaded=True)
    services = services_with(
        zones=failing, snapshot=failing.snapshot, store_requests=failing, recovery=failing, mirror=mirror
    )
    async with served(build_app(services)) as http:
        answer = await http.post("/api/v1/zones/ORDERS/recovery/restart", json={"dry_run": True})
    assert (answer.status_code, answer.json()["name"], answer.json()["detail"]) == (status, name, detail)


@pytest.mark.parametrize(("error", "status", "name", "detail"), FAILURES)
async def test_a_call_that_fails(error: MetastoreError, status: int, name: str, detail: str) -> None:
    failing: Any = Failing(error)
    call = parse_statement("CALL system.restart_partitions('ORDERS', ARRAY[0], ARRAY['n1'])").statement
    assert isinstance(call, Call)
    with pytest.raises(StoreError) as raised:
        await Procedures(failing, failing).run(call, CatalogSnapshot(1, (ZONE,)))
    assert (raised.value.kind.http_status, raised.value.kind.name, raised.value.message) == (
        status,
        name,
        detail,
    )
