"""A zone of thousands of partitions in a whole installation, with Spark warm: seconds from CREATE ZONE to
convergence, and of changes of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.installation import Installation, wait_for

PARTITIONS = 4_096
LIMIT_S = 300
PAUSE_S = 0.25
"""Between two looks at the progress of thousands of partitions, which take the server's time."""


def seconds(whole: Installation, sql: str) -> float:
    begun = time.monotonic()
    (result,) = whole.sql(sql)
    wait_for(sql, lambda: whole.converged(result), LIMIT_S, pause_s=PAUSE_S)
    return time.monotonic() - begun


def cpu_s(whole: Installation) -> dict[str, float]:
    """Processor seconds until now, by what the processes are."""
    spent: dict[str, float] = {}
    for process in whole.processes():
        line = process.cmdline()
        commands = ("store", "node", "serve", "up")
        name = next((part for part in commands if part in line), Path(line[0]).name if line else "")
        spent[name] = spent.get(name, 0.0) + sum(process.cpu_times()[:2])
    return spent


@pytest.mark.slow("an installation with Spark, and a zone of 12,288 copies")
def test_create(tmp_path: Path) -> None:
    whole = Installation(tmp_path / "data", 3)
    whole.start()
    try:
        wait_for("Spark", lambda: whole.get("/readyz")["spark"] == "ready")
        seconds(whole, "CREATE ZONE first (PARTITIONS 8, REPLICAS 3) STORAGE PROFILES ['bulk']")
        for sql in (
            f"CREATE ZONE big (PARTITIONS {PARTITIONS}, REPLICAS 3) STORAGE PROFILES ['bulk']",
            "ALTER ZONE big SET (REPLICAS 2)",
            "ALTER ZONE big SET (REPLICAS 3)",
            "DROP ZONE big",
        ):
            before = cpu_s(whole)
            took_s = seconds(whole, sql)
            spent = {name: f"{late - before.get(name, 0.0):.1f}" for name, late in cpu_s(whole).items()}
            print(f"{sql}: {took_s:.1f} s, load {os.getloadavg()[0]:.1f} on {psutil.cpu_count()} processors")
            print(f"  processor seconds: {spent}")
    finally:
        whole.stop()
