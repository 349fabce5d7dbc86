"""Audit over SQL, REST and the command line: who did what, with versions, and a name that is checked or not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.cli.main import main
from app.requests.context import acting, current_actor
from app.requests.request_audit import Audit
from catalog.core.audit import NOBODY, Action, Actor, AuditEntry, AuditFilter, Channel
from catalog.core.errors import ErrorKind, StoreError
from catalog.store import CatalogStore
from tests.fixtures.api_stub import ApiStub
from tests.fixtures.databases import migrated_file
from tests.unit.operations_world import VERIFIED, OperationsWorld, operations_world


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path) as made:
        yield made


async def records(api: OperationsWorld, **query: str) -> list[dict]:
    return (await api.get("/audit", **query))["records"]


@pytest.mark.row("VOL-089")
async def test_every_change_is_there(api: OperationsWorld) -> None:
    """VOL-089: each mutation of the API once, in its order, with who, why, from where and the versions; what is
    refused, asked or shown leaves nothing."""
    cli = {"Zonekeeper-By": "al%C3%AFce", "Zonekeeper-Via": "cli"}
    await api.run("CREATE ZONE orders (PARTITIONS 2, REPLICAS 1)", cli)
    await api.end_moves()
    await api.look()
    await api.run("ALTER ZONE orders SET (REPLICAS 2)", {VERIFIED: "bob", "Zonekeeper-By": "mallory"})
    await api.http.post("/statements", json={"sql": "DROP ZONE nowhere"})
    await api.http.post("/statements", json={"sql": "SELECT 1"})
    name = (await api.newest())["operation_id"]
    await api.http.patch("/rebalance/limits", json={"cluster_moves": 3})
    await api.world.settle()
    await api.post(f"/operations/{name}/pause", {"by": "carol", "reason": "backup", "for_s": 60})
    await api.post(f"/operations/{name}/resume", {"by": "carol"})
    await api.post(f"/operations/{name}/cancel", {"by": "carol", "reason": "wrong"})
    await api.post("/operations/1-999/cancel", {"by": "carol"}, 404)
    await api.end_moves()
    await api.look()
    await api.post(f"/operations/{name}/reverse", {"by": "dave", "reason": "slow"}, 202)
    await api.http.put("/nodes/n1/drain", json={"by": "erin", "reason": "disks"})
    await api.world.settle()
    await api.http.put("/nodes/n1/drain", json={"by": "erin", "reason": "again"})
    await api.http.delete("/nodes/n1/drain")
    found = list(reversed(await records(api)))
    told = [(each["action"], each["subject"], each["by"], each["verified"], each["reason"]) for each in found]
    assert told == [
        ("CREATE ZONE", "ORDERS", "alïce", False, ""),
        ("ALTER ZONE", "ORDERS", "bob", True, ""),
        ("CHANGE LIMITS", "cluster", None, False, ""),
        ("PAUSE OPERATION", name, "carol", False, "backup"),
        ("RESUME OPERATION", name, "carol", False, ""),
        ("CANCEL OPERATION", name, "carol", False, "wrong"),
        ("REVERSE OPERATION", "ORDERS", "dave", False, "slow"),
        ("DRAIN NODE", "n1", "erin", False, "disks"),
        ("UNDRAIN NODE", "n1", None, False, ""),
    ]
    versions = [(each["catalog_version_before"], each["catalog_version_after"]) for each in found]
    first = versions[0][0]
    assert versions == [
        *((first, first + 1), (first + 1, first + 2), *[(first + 2, first + 2)] * 4),
        *((first + 2, first + 3), *[(first + 3, first + 3)] * 2),
    ]
    assert [each["channel"] for each in found][:2] == ["CLI", "REST"]
    assert {each["address"] for each in found} == {"10.0.0.7"}
    assert found[1]["details"] == "ALTER ZONE orders SET (REPLICAS 2)"
    assert found[2]["details"] == '{"cluster_moves":3}'
    rows = await api.world.run("SELECT ACTION, ACTOR, IS_VERIFIED FROM SYSTEM.AUDIT ORDER BY AUDIT_NUMBER")
    assert list(rows.rows) == [(each["action"], each["by"], each["verified"]) for each in found]


async def test_filters_and_pages(api: OperationsWorld) -> None:
    for sql in ("CREATE ZONE a (PARTITIONS 1)", "CREATE ZONE b (PARTITIONS 1)", "DROP ZONE a"):
        await api.run(sql, {"X-Trino-User": "sqlclient"})
    assert [each["subject"] for each in await records(api, subject="a")] == ["A", "A"]
    assert [each["subject"] for each in await records(api, action="create zone")] == ["B", "A"]
    assert {each["channel"] for each in await records(api, by="sqlclient")} == {"SQL"}
    page = await api.get("/audit", page_size=2)
    rest = await api.get("/audit", page_size=2, page_token=page["next_page_token"])
    numbers = [each["number"] for each in page["records"] + rest["records"]]
    assert numbers == sorted(numbers, reverse=True)
    assert len(set(numbers)) == 3
    assert rest["next_page_token"] is None


async def test_a_change_is_not_undone_by_an_audit_that_cannot_be_written(
    api: OperationsWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    class Away:
        async def record(self, entry: AuditEntry) -> None:
            raise StoreError(ErrorKind.CATALOG_UNAVAILABLE, "away")

    audit = Audit(Away(), api.world.catalog.snapshot)
    with acting(Actor("alice", True, Channel.REST, "10.0.0.7")):
        await audit.record(Action.DRAIN_NODE, "n1", {"x": 1}, by="mallory", reason="disks")
    told = capsys.readouterr().out
    assert "audit not written" in told
    assert "alice" in told
    assert "disks" in told


def test_the_actor_ends_with_the_block() -> None:
    alice = Actor("alice", True)
    with acting(alice):
        assert current_actor() is alice
        assert current_actor().named("mallory") is alice
    assert current_actor() is NOBODY
    assert NOBODY.named("bob").name == "bob"


def test_what_is_too_long_is_cut(tmp_path: Path) -> None:
    """An audit that refuses is none."""
    url = migrated_file(tmp_path)
    store = CatalogStore.open(url)
    actor = Actor("x" * 500, False, Channel.SQL, "y" * 500)
    store.audit.record(AuditEntry("A" * 500, "s" * 5_000, actor, "r" * 5_000, "d" * 50_000, 1, 2))
    (record,) = store.audit.read(AuditFilter(), 10)
    assert (len(record.entry.actor.name), len(record.entry.subject)) == (100, 300)
    assert len(record.entry.details) == 10_000
    store.close()


def test_the_command(stub: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    record = {
        **{"number": 5, "at": "2026-01-01T10:00:00.000+00:00", "action": "ALTER ZONE", "subject": "ORDERS"},
        **{"by": "alice", "verified": False, "channel": "CLI", "address": "10.0.0.7", "reason": ""},
        **{"details": "ALTER ZONE\n orders SET (REPLICAS 3)"},
        **{"catalog_version_before": 6, "catalog_version_after": 7},
    }
    body = {"records": [record], "next_page_token": None}
    stub.answers["GET /api/v1/audit?page_size=5&subject=orders"] = (200, body)
    assert main(["audit", "--of", "orders", "--count", "5"]) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert "alice (unverified)" in line
    assert "6 -> 7" in line
    assert line.endswith("ALTER ZONE orders SET (REPLICAS 3)")
    assert main(["audit", "--of", "orders", "--count", "5", "--format", "json"]) == 0
    assert '"number": 5' in capsys.readouterr().out
