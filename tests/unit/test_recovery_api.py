"""Recovery over REST while etcd does not do what is asked: each failure has its own kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.bootstrap.server import build_app
from catalog.core.zone import Zone, ZoneId
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


@pytest.mark.parametrize(
    ("error", "status", "name", "detail"),
    [
        (SILENT, 503, "METASTORE_UNAVAILABLE", "etcd does not answer: no answer in time"),
        (UNKNOWN, 504, "OUTCOME_UNKNOWN", "etcd does not answer: no answer in time"),
        (ContendedError("others wrote it"), 503, "METASTORE_UNAVAILABLE", "others wrote it; try again"),
    ],
)
async def test_a_restart_that_fails(error: MetastoreError, status: int, name: str, detail: str) -> None:
    failing, mirror = Failing(error), SimpleNamespace(is_loaded=True)
    services = services_with(
        zones=failing, snapshot=failing.snapshot, store_requests=failing, recovery=failing, mirror=mirror
    )
    async with served(build_app(services)) as http:
        answer = await http.post("/api/v1/zones/ORDERS/recovery/restart", json={"dry_run": True})
    assert (answer.status_code, answer.json()["name"], answer.json()["detail"]) == (status, name, detail)
