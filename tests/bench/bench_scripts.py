"""Scripts at the bounds, to a real ``zonectl serve``: seconds, memory, and health checks meanwhile.

``.venv/bin/pytest tests/bench/bench_scripts.py -s``
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from parser.text import STATEMENTS_MAX, TEXT_BYTES_MAX, TOKENS_MAX
from rebalance.core.keyspace.keys import Keyspace
from tests.bench.figures import percentile
from tests.fixtures.api_server import ApiServer, serving
from tests.fixtures.etcd_server import Etcd

POLL_S = 0.01
COLUMNS = ", ".join(f"c{n} INT" for n in range(59_000))
WIDE = f"CREATE TABLE wide ({COLUMNS}, PRIMARY KEY (c1)) ZONE nowhere"
SHAPES = {
    "1,000 questions": "SHOW ZONES;" * STATEMENTS_MAX,
    "1 MiB of questions: too many": "SHOW ZONES;" * (TEXT_BYTES_MAX // 11),
    "1,000 changes": ";".join(
        f"CREATE ZONE IF NOT EXISTS z{n % 20} (PARTITIONS 1)" for n in range(STATEMENTS_MAX)
    ),
    "1,000 tables of 59 columns": ";".join(
        f"CREATE TABLE t{n} ({', '.join(f'c{m} INT' for m in range(59))}, PRIMARY KEY (c1)) ZONE nowhere"
        for n in range(STATEMENTS_MAX)
    ),
    "one table of 59,000 columns": WIDE,
    "its plan": f"EXPLAIN {WIDE}",
    "200,000 words": "x " * TOKENS_MAX,
    "200,001 words: too many": "x " * (TOKENS_MAX + 1),
    "200,000 commas": "SELECT " + "," * (TOKENS_MAX - 1),
    "1 MiB, a string never closed": "SELECT '" + "a b " * 262_142,
    "1 MiB, a comment never closed": "/*" + "a;" * 524_287,
    "1 MiB of comments never closed": "/*+" * (TEXT_BYTES_MAX // 3),
    "1 MiB, one word": "a" * TEXT_BYTES_MAX,
    "1 MiB of parentheses: too deep": "(" * TEXT_BYTES_MAX,
    "9.9 MB: too long": "SHOW ZONES;" * 900_000,
}


@pytest.fixture(scope="module")
def server(etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    directory = tmp_path_factory.mktemp("scripts")
    url = f"sqlite:///{directory / 'catalog.sqlite'}"
    with serving(directory, etcd_server, Keyspace("bench-scripts/"), url) as servers:
        yield servers[0]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("protocol", ["REST", "SQL"])
def test_a_script_at_the_bounds(server: ApiServer, name: str, protocol: str) -> None:
    text = SHAPES[name]
    before = resident_mb(server.pid)
    with (
        health_checks(server) as checks,
        httpx.Client(base_url=server.url, trust_env=False, timeout=600) as client,
    ):
        begun = time.perf_counter()
        if protocol == "REST":
            answer = client.post("/api/v1/statements", json={"sql": text})
            said = answer.json().get("name", "done")
        else:
            answer = client.post("/v1/statement", content=text.encode(), headers={"X-Trino-User": "bench"})
            page = answer.json()
            while "nextUri" in page:
                page = client.get(page["nextUri"]).json()
            said = page.get("error", {}).get("errorName", "done") if "name" not in page else page["name"]
        seconds = time.perf_counter() - begun
    grown = peak_mb(server.pid) - before
    print(
        f"{protocol:4} {name:34} {answer.status_code} {said:22} {seconds:6.2f} s  +{grown:4.0f} MB peak  "
        f"health p50 {percentile(checks, 0.5) * 1e3:5.1f} p99 {percentile(checks, 0.99) * 1e3:6.1f} ms"
    )


@contextmanager
def health_checks(server: ApiServer) -> Iterator[list[float]]:
    """Seconds of each health check while it is open."""
    seconds: list[float] = []
    over = threading.Event()

    def poll() -> None:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
            while not over.wait(POLL_S):
                begun = time.perf_counter()
                client.get("/healthz")
                seconds.append(time.perf_counter() - begun)

    polling = threading.Thread(target=poll)
    polling.start()
    time.sleep(0.2)
    try:
        yield seconds
    finally:
        over.set()
        polling.join()


def resident_mb(pid: int) -> float:
    # The peak counts from here.
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _status_mb(pid, "VmRSS")


def peak_mb(pid: int) -> float:
    return _status_mb(pid, "VmHWM")


def _status_mb(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))
