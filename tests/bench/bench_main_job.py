"""The main job's own figures: start-up, statements, puts and gets, moves."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from parser.to_command import parse_ddl
from tests.bench.figures import ratio, report, timed
from tests.e2e.installation import Installation, wait_for

STATEMENT = "CREATE ZONE orders (PARTITIONS 64, REPLICAS 5, QUORUM SIZE 3) STORAGE PROFILES ['default', 'ssd']"


def test_parse() -> None:
    report("parse one CREATE ZONE", timed(lambda: parse_ddl(STATEMENT), 2_000))


def test_installation(tmp_path: Path) -> None:
    whole = Installation(tmp_path / "data")
    served = whole.start()
    print(f"{'zonectl up to a served API':<62} {served:.2f} s")
    try:
        begun = time.perf_counter()
        wait_for("Spark", lambda: whole.get("/readyz")["spark"] == "ready", 90)
        print(f"{'... and to Spark being ready':<62} {served + time.perf_counter() - begun:.2f} s")
        _move(whole, "CREATE ZONE bench (PARTITIONS 8, REPLICAS 1)")
        with whole.access.client(20) as client:
            put_one = _puts(client, "one replica")
            _move(whole, "ALTER ZONE bench SET (REPLICAS 3)")
            put_three = _puts(client, "three replicas")
            ratio("put with three replicas, against one", put_three, put_one)
            get = report("get over HTTP", timed(lambda: client.get("/api/v1/zones/bench/kv/k"), 500))
            bare = report("the bare HTTP round trip (/healthz)", timed(lambda: client.get("/healthz"), 500))
            ratio("get", get, bare)
            body = {"sql": "CREATE ZONE IF NOT EXISTS bench"}
            statement = timed(lambda: client.post("/api/v1/statements", json=body), 300)
            report("statement over HTTP that changes nothing", statement)
        _move(whole, "DROP ZONE bench")
    finally:
        whole.stop()


def _move(whole: Installation, sql: str) -> None:
    begun = time.perf_counter()
    whole.execute(sql)
    print(f"{sql + ' to convergence':<62} {time.perf_counter() - begun:.2f} s")


def _puts(client: httpx.Client, note: str) -> float:
    body = {"value": "x" * 100}
    return report(
        f"put over HTTP, {note}", timed(lambda: client.put("/api/v1/zones/bench/kv/k", json=body), 500)
    )
