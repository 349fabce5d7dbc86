"""``zonectl plan`` and ``zonectl apply`` against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.cli.main import main
from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.api_server import ApiServer, serving
from tests.fixtures.databases import new_postgres
from tests.fixtures.etcd_server import Etcd

ZONES = "CREATE ZONE orders (PARTITIONS 8, REPLICAS 3);\nCREATE ZONE users (REPLICAS 1);\n"
TABLES = "CREATE TABLE sales (id INT PRIMARY KEY, n INT) ZONE orders;\n"


@pytest.fixture(scope="module")
def shared_server(
    etcd_server: Etcd, postgres_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    directory = tmp_path_factory.mktemp("plans")
    with serving(directory, etcd_server, Keyspace("test-plans/"), new_postgres(postgres_server)) as servers:
        yield servers[0]


@pytest.fixture
def server(shared_server: ApiServer) -> Iterator[ApiServer]:
    """Server with an empty catalog; what a test leaves is dropped, tables before their zones."""
    yield shared_server
    with httpx.Client(base_url=shared_server.url, trust_env=False, timeout=60) as client:
        empty = {"files": [{"name": "empty.sql", "text": "DROP ZONE IF EXISTS nothing"}], "prune": ["*"]}
        plan = client.post("/api/v1/plan", json=empty).raise_for_status().json()
        for change in plan["changes"]:
            client.post("/api/v1/statements", json={"sql": change["sql"]}).raise_for_status()
        assert client.get("/api/v1/zones").raise_for_status().json()["zones"] == []


def version_of(server: ApiServer) -> int:
    """The catalog's: other tests changed it before."""
    found = httpx.get(f"{server.url}/api/v1/zones", trust_env=False, timeout=60).raise_for_status().json()
    return int(found["catalog_version"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ddl" / "tables").mkdir(parents=True)
    (tmp_path / "ddl" / "10-zones.sql").write_text(ZONES)
    (tmp_path / "ddl" / "tables" / "sales.sql").write_text(TABLES)
    (tmp_path / "ddl" / "README.txt").write_text("not SQL")
    return tmp_path / "ddl"


def zonectl(server: ApiServer, *arguments: object) -> int:
    return main([*map(str, arguments), "--url", f"http://127.0.0.1:{server.port}"])


def test_plan_apply_and_apply_again(
    server: ApiServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = version_of(server)
    assert zonectl(server, "plan", folder, "--check") == 5
    planned = capsys.readouterr().out
    assert "+ CREATE ZONE ORDERS (PARTITIONS 8, REPLICAS 3, " in planned
    assert "+ CREATE TABLE SALES " in planned
    assert planned.endswith("Plan: 3 to create, 0 to change, 0 to drop.\n")
    assert zonectl(server, "apply", folder) == 0
    assert "Done: 3 created, 0 changed, 0 dropped.\n" in capsys.readouterr().out
    for _ in range(2):
        assert zonectl(server, "apply", folder) == 0
        nothing = f"Nothing to change: the catalog (version {before + 3}) matches the files.\n"
        assert capsys.readouterr().out == nothing
    assert zonectl(server, "plan", folder, "--check") == 0


def test_changes_drops_and_what_is_in_no_file(
    server: ApiServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert zonectl(server, "apply", folder) == 0
    (folder / "10-zones.sql").write_text("CREATE ZONE orders (PARTITIONS 8, REPLICAS 2, AUTO SCALE UP 5);")
    capsys.readouterr()
    assert zonectl(server, "plan", folder) == 0
    told = capsys.readouterr().out
    assert "~ zone ORDERS\n    REPLICAS: 3 -> 2\n" in told
    assert "In no file, kept (--prune with a zone's name drops it): zone USERS\n" in told
    (folder / "10-zones.sql").write_text("CREATE ZONE orders (PARTITIONS 8, REPLICAS 2);")
    assert zonectl(server, "apply", folder, "--prune", "use*", "--prune", "nothing", "--format", "json") == 0
    done = json.loads(capsys.readouterr().out)
    assert [(each["action"], each["name"]) for each in done["changes"]] == [
        ("change", "ORDERS"),
        ("drop", "USERS"),
    ]
    assert all(each["result"]["applied"] for each in done["changes"])


def test_a_conflict_refuses_the_whole_plan(
    server: ApiServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert zonectl(server, "apply", folder) == 0
    (folder / "10-zones.sql").write_text(ZONES.replace("8", "16") + "CREATE ZONE more;")
    capsys.readouterr()
    assert zonectl(server, "plan", folder) == 1
    assert "! zone ORDERS\n    PARTITIONS: 8 -> 16\n" in capsys.readouterr().out
    assert zonectl(server, "apply", folder) == 1
    printed = capsys.readouterr()
    assert "nothing was changed" in printed.err
    assert zonectl(server, "sql", "-e", "SHOW ZONES LIKE 'MORE'", "--format", "csv") == 0
    assert "MORE" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE ZONE z;\nCREATE ZONE z", "tables/bad.sql:2:13: ZONE_ALREADY_EXISTS"),
        ("CREATE ZONE z (REPLICA 3)", "tables/bad.sql:1:16: OPTION_UNKNOWN"),
        ("ALTER ZONE nowhere SET (REPLICAS 2)", "tables/bad.sql:1:12: ZONE_NOT_FOUND"),
        ("SELECT 1", "tables/bad.sql:1:1: "),
    ],
)
def test_errors_point_into_the_file(
    server: ApiServer, folder: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str
) -> None:
    (folder / "tables" / "bad.sql").write_text(text)
    assert zonectl(server, "plan", folder) == 1
    assert expected in capsys.readouterr().err
    assert zonectl(server, "apply", folder) == 1


def test_a_statement_for_another_version_changes_nothing(server: ApiServer) -> None:
    """Refuse a statement for another version, on which ``apply`` relies when the catalog is changed
    meanwhile."""
    url, before = f"{server.url}/api/v1/statements", version_of(server)
    first = httpx.post(
        url, json={"sql": "CREATE ZONE a; CREATE ZONE b"}, headers={"If-Match": f'"{before}"'}, timeout=60
    )
    assert [each["catalog_version"] for each in first.json()["results"]] == [before + 1, before + 2]
    late = httpx.post(url, json={"sql": "CREATE ZONE c"}, headers={"If-Match": f'"{before + 1}"'}, timeout=60)
    assert (late.status_code, late.json()["name"]) == (409, "CATALOG_VERSION_CONFLICT")
    assert f"version {before + 2}, not {before + 1}" in late.json()["detail"]
    keyed = httpx.post(
        url, json={"sql": "CREATE ZONE c"}, headers={"If-Match": "2", "Idempotency-Key": "k"}, timeout=60
    )
    assert (keyed.status_code, keyed.json()["name"]) == (400, "INVALID_REQUEST")
    assert version_of(server) == before + 2


@pytest.mark.row("VOL-087", "VOL-088")
def test_a_plan_is_applied_by_its_id_and_only_once(
    server: ApiServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """VOL-087, VOL-088: exactly what was shown, or 40001 with what changed and nothing done."""
    assert zonectl(server, "plan", folder, "--format", "json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert zonectl(server, "plan", folder) == 0
    assert f"Plan id: {plan['plan_id']}\n" in capsys.readouterr().out
    assert zonectl(server, "sql", "-e", "CREATE ZONE meanwhile (PARTITIONS 1)") == 0
    capsys.readouterr()
    assert zonectl(server, "apply", folder, "--plan-id", plan["plan_id"]) == 1
    told = capsys.readouterr()
    assert "PLAN_CHANGED (6005, 40001)" in told.err
    assert "by CREATE ZONE meanwhile (PARTITIONS 1); nothing was changed" in told.err
    assert "CREATE" not in told.out
    assert zonectl(server, "plan", folder, "--format", "json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert zonectl(server, "apply", folder, "--plan-id", plan["plan_id"], "--format", "json") == 0
    done = json.loads(capsys.readouterr().out)
    assert [each["sql"] for each in done["changes"]] == [each["sql"] for each in plan["changes"]]
    assert version_of(server) == plan["catalog_version"] + 3
    assert zonectl(server, "apply", folder, "--plan-id", plan["plan_id"]) == 0
    assert "Already applied: Nothing to change" in capsys.readouterr().out
    assert version_of(server) == plan["catalog_version"] + 3


def test_what_is_in_anothers_files_is_not_pruned(
    server: ApiServer, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two folders over one catalog: each drops what it names, and all of it stays named."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "zones.sql").write_text("CREATE ZONE b_one; CREATE ZONE b_two")
    assert zonectl(server, "apply", folder) == zonectl(server, "apply", other) == 0
    (other / "zones.sql").write_text("CREATE ZONE b_one")
    capsys.readouterr()
    assert zonectl(server, "apply", other, "--prune", "b_*") == 0
    told = capsys.readouterr().out
    assert "- DROP ZONE B_TWO" in told
    assert "kept (--prune with a zone's name drops it): zone ORDERS, zone USERS, table SALES" in told
    assert zonectl(server, "apply", other, "--prune") == 64
    body = {"files": [{"name": "a.sql", "text": "CREATE ZONE b_one"}], "prune": True}
    refused = httpx.post(f"{server.url}/api/v1/plan", json=body, trust_env=False, timeout=60)
    assert (refused.status_code, refused.json()["name"]) == (400, "INVALID_REQUEST")


def test_an_empty_folder_is_said(server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert zonectl(server, "plan", tmp_path) == 64
    assert "no .sql file" in capsys.readouterr().err
