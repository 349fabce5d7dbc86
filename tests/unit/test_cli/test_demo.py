"""``zonectl demo`` against a stub: it passes only when everything is as it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from app.cli import demo as demo_command
from app.cli.demo import parse_demo_script, read_demo_script
from app.cli.main import main
from tests.fixtures.api_stub import ApiStub, Request, progress, result

ZONE = "QUICKSTART"
BULK_ZONE = "quickstart_bulk"
LIVE_PUTS = 5


class FakeStore:
    """Enough of an installation for the demo: one zone, whose ALTER takes three polls and ``LIVE_PUTS`` of the
    writer's puts, answered or refused."""

    def __init__(self, api: ApiStub) -> None:
        self.values: dict[str, str] = {}
        self.replicas = 1
        self.polls = 0
        self.live_puts = 0
        self.bulk = False
        self.statements: list[str] = []
        self.tamper: Callable[[dict[str, Any]], None] = lambda partition: None
        self.tamper_bulk: Callable[[list[dict[str, Any]]], object] = lambda partitions: None
        self.refuse_put: Callable[[str], bool] = lambda key: False
        self.lose: Callable[[str], bool] = lambda key: False
        api.answer = self.answer

    def answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        path = request.path.partition("?")[0]
        if path == "/readyz":
            return 200, {"ready": True, "catalog": "ok", "metastore": "ok", "spark": "ready"}
        if path == "/api/v1/nodes":
            profiles = ["default", "bulk"] if self.bulk else ["default"]
            return 200, {"nodes": [{"name": f"n{i}", "alive": True, "profiles": profiles} for i in (1, 2, 3)]}
        if path == "/api/v1/statements":
            return 200, {"results": [self.execute(request.body["sql"])]}
        if path.startswith("/api/v1/progress/"):
            self.polls += 1
            is_written = self.replicas == 1 or self.live_puts >= LIVE_PUTS
            return 200, progress(8 if self.polls >= 3 and is_written else 2)
        if path.endswith(f"{BULK_ZONE}/partitions"):
            copies = [{"node": f"n{i}"} for i in (1, 2, 3)]
            bulk = [{"partition": index, "leader": "n1", "copies": copies} for index in range(256)]
            self.tamper_bulk(bulk)
            return 200, {"partitions": bulk}
        if path.endswith("/partitions"):
            return 200, {"partitions": [self.partition(index) for index in range(8)]}
        return self.kv(request, unquote(path.rpartition("/")[2]))

    def execute(self, sql: str) -> dict[str, Any]:
        self.statements.append(sql)
        op = sql.split()[0].lower()
        if op == "drop":
            return {**result(1, op, ZONE), "applied": False, "zone_id": None, "catalog_version": None}
        self.polls = 0
        self.replicas = 1 if op == "create" and BULK_ZONE not in sql else 3
        return result(1, op, ZONE)

    def partition(self, index: int) -> dict[str, Any]:
        peers = [f"n{i + 1}" for i in range(self.replicas)]
        partition = {
            "partition": index,
            "stable": {"peers": peers, "learners": []},
            "pending": None,
            "planned": None,
            "leader": "n1",
            "members": [{"node": name, "state": "RUNNING"} for name in peers],
            "status": {"state": "DONE", "cause": ""},
        }
        if self.replicas == 3 and index == 5:
            self.tamper(partition)
        return partition

    def kv(self, request: Request, key: str) -> tuple[int, dict[str, Any]]:
        if request.method == "PUT":
            self.live_puts += key.startswith("live-")
            if self.refuse_put(key):
                return 503, {"status": 503, "name": "GROUP_UNAVAILABLE", "detail": "no leader"}
            self.values[key] = request.body["value"]
            return 200, {"zone": ZONE, "key": key, "partition": 1, "revision": 1, "operation_id": "x"}
        if self.lose(key) or key not in self.values:
            return 404, {"status": 404, "name": "KEY_NOT_FOUND", "detail": f"no key {key}"}
        return 200, {"zone": ZONE, "key": key, "partition": 1, "revision": 1, "value": self.values[key]}


@pytest.fixture
def store(api: ApiStub, monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    monkeypatch.setattr(demo_command, "AFTERMATH_S", 0.0)
    monkeypatch.setattr(demo_command, "REPORT_WAIT_S", 0.0)
    return FakeStore(api)


def test_it_passes_and_shows_what_it_did(store: FakeStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    shown = capsys.readouterr().out
    assert [sql.split()[0] for sql in store.statements] == ["DROP", "CREATE", "ALTER"]
    assert store.statements[0] == "DROP ZONE IF EXISTS QUICKSTART"
    live = [key for key in store.values if key.startswith("live-")]
    assert live, "how many depends on the machine"
    assert len(store.values) == 100 + len(live)
    assert f"read back 100 + {len(live)} keys" in shown
    assert f"puts during the change: {len(live)}, errors: 0, longest stall:" in shown
    assert "placement engine: spark" in shown
    assert shown.count("partition  leader") == 2
    assert "n1:RUNNING n2:RUNNING n3:RUNNING" in shown
    assert "fewer than 3 nodes have the profile bulk" in shown
    assert shown.endswith("demo passed\n")


def test_it_ends_with_a_zone_of_store_servers(store: FakeStore, capsys: pytest.CaptureFixture[str]) -> None:
    store.bulk = True
    assert main(["demo"]) == 0
    shown = capsys.readouterr().out
    assert store.statements[3:] == [
        "DROP ZONE IF EXISTS quickstart_bulk",
        "CREATE ZONE quickstart_bulk (PARTITIONS 256, REPLICAS 3) STORAGE PROFILES ['bulk']",
    ]
    assert "wrote and read back 100 keys" in shown


@pytest.mark.parametrize(
    ("break_it", "expected"),
    [
        (lambda bulk: bulk.pop(), "quickstart_bulk: 255 partitions instead of 256"),
        (lambda bulk: bulk[7].update(leader=None), "quickstart_bulk, partition 7: 3 copies, led by nobody"),
        (lambda bulk: bulk[9].update(copies=[]), "quickstart_bulk, partition 9: 0 copies, led by n1"),
    ],
)
def test_it_fails_when_the_zone_of_store_servers_is_not_as_said(
    break_it: Callable[[list[dict[str, Any]]], object],
    expected: str,
    store: FakeStore,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store.bulk, store.tamper_bulk = True, break_it
    assert main(["demo"]) == 1
    assert expected in capsys.readouterr().err


def tampered(**change: Any) -> Callable[[FakeStore], None]:
    def apply(store: FakeStore) -> None:
        store.tamper = lambda partition: partition.update(change)

    return apply


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (
            tampered(stable={"peers": ["n1", "n2"], "learners": []}),
            "partition 5: 2 replicas in stable instead of 3",
        ),
        (tampered(stable=None), "partition 5: 0 replicas in stable instead of 3"),
        (tampered(pending={"peers": ["n1"], "learners": []}), "partition 5: pending is left"),
        (tampered(planned={"peers": ["n1"], "learners": []}), "partition 5: planned is left"),
        (tampered(members=[{"node": "n1", "state": "RUNNING"}]), "partition 5: no running member on n2"),
        (lambda store: setattr(store, "lose", lambda key: key == "key-042"), "key-042 cannot be read"),
        (lambda store: setattr(store, "lose", lambda key: key == "live-000003"), "live-000003 cannot be read"),
        (
            lambda store: setattr(store, "refuse_put", lambda key: key == "live-000002"),
            "a put failed: live-000002",
        ),
        (lambda store: setattr(store, "refuse_put", lambda key: key[0] == "l"), "the writer got no put"),
    ],
)
def test_it_fails_when_something_is_not_as_said(
    break_it: Callable[[FakeStore], None], said: str, store: FakeStore, capsys: pytest.CaptureFixture[str]
) -> None:
    break_it(store)
    assert main(["demo"]) == 1
    shown = capsys.readouterr()
    assert f"not as said: {said}" in shown.err
    assert shown.out.endswith("demo failed\n")


def test_a_change_that_does_not_converge_is_a_time_out(store: FakeStore) -> None:
    store.polls = -1_000_000
    store.execute = lambda sql: result(1, sql.split()[0].lower(), ZONE)
    assert main(["demo", "--timeout", "1"]) == 4


def test_the_quickstart_is_what_the_issue_asks_for() -> None:
    script = read_demo_script(None)
    assert script.replicas == 3
    assert "PARTITIONS 8" in script.create
    assert "REPLICAS 1" in script.create


def test_a_script_is_split_at_top_level_semicolons() -> None:
    text = """-- a; comment
    CREATE ZONE IF NOT EXISTS "a;b" (PARTITIONS 2) /* ; */ STORAGE PROFILES ['x;y'];
    ;ALTER ZONE "a;b" SET (REPLICAS 2);"""
    script = parse_demo_script(text)
    assert script.zone == '"a;b"'
    assert script.create.endswith("['x;y']")
    assert script.alter == 'ALTER ZONE "a;b" SET (REPLICAS 2)'
    assert parse_demo_script("CREATE ZONE z; ALTER ZONE z SET REPLICAS = 4").replicas == 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "CREATE ZONE a",
        "ALTER ZONE a SET (REPLICAS 3); CREATE ZONE a",
        "CREATE ZONE; ALTER ZONE a SET (REPLICAS 3)",
        "CREATE ZONE a; ALTER ZONE a RENAME TO b",
        "CREATE ZONE a 'x",
    ],
)
def test_another_script_is_wrong_usage(text: str, tmp_path: Path, api: ApiStub) -> None:
    file = tmp_path / "s.sql"
    file.write_text(text)
    assert main(["demo", "--script", str(file)]) == 64
    assert json.dumps(api.requests) == "[]"
