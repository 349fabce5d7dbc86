"""The catalog in SQLite between real processes: one writer, and a writer that is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from catalog.store import CatalogStore
from catalog.store.migrate import migrate

OPEN = """
import sys
from catalog.core.errors import StoreError
from catalog.store import CatalogStore
try:
    CatalogStore.open(sys.argv[1]).close()
except StoreError as error:
    sys.exit(error.message)
"""

WRITE = """
import itertools, sys
from catalog.core.zone import Node
from catalog.service import CatalogService
from catalog.store import CatalogStore
from parser.to_command import parse_ddl
service = CatalogService(CatalogStore.open(sys.argv[1]).unit_of_work)
start = service.snapshot().version
for n in itertools.count(start):
    (executed,) = service.execute(parse_ddl(f"CREATE ZONE z{n}"), (Node("n1"),))
    print(executed.version, flush=True)
"""

TOGETHER = 7
WRITE_TOGETHER = f"""
import itertools, sys
from catalog.core.zone import Node
from catalog.service import CatalogService
from catalog.store import CatalogStore
from tests.fixtures.script_runner import script_of
service = CatalogService(CatalogStore.open(sys.argv[1]).unit_of_work)
start = service.snapshot().version
for batch in itertools.count(start // {TOGETHER}):
    names = [f"z{{batch}}_{{n}}" for n in range({TOGETHER})]
    ids = [f"{{name}}-{{start}}" for name in names]
    runs = service.execute_together(
        script_of(f"CREATE ZONE {{name}}", (Node("n1"),), statement_ids=[id_]) for name, id_ in zip(names, ids)
    )
    print(*(run.done[0].version for run in runs), flush=True)
"""


def open_elsewhere(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", OPEN, url], capture_output=True, text=True, timeout=120)


def test_a_second_writer_process_is_refused_with_one_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    migrate(url)
    store = CatalogStore.open(url)
    refused = open_elsewhere(url)
    assert refused.returncode == 1
    assert "PostgreSQL" in refused.stderr
    assert refused.stderr.strip().count("\n") == 0
    store.close()
    allowed = open_elsewhere(url)
    assert (allowed.returncode, allowed.stderr) == (0, "")


@pytest.mark.parametrize(("program", "together"), [(WRITE, 1), (WRITE_TOGETHER, TOGETHER)])
def test_a_killed_writer_loses_no_acknowledged_statement(tmp_path: Path, program: str, together: int) -> None:
    """SIGKILL at any moment: what was answered is there, each version is whole, and the lock is free. Of
    statements that were committed together all are there or none."""
    url = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    migrate(url)
    acknowledged = 0
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE, text=True)
        assert process.stdout
        first = process.stdout.readline()
        time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        lines = [first, *process.stdout.readlines()]
        process.stdout.close()
        process.wait()
        # The last line may have been cut short.
        answers = [int(word) for line in lines if line.endswith("\n") for word in line.split()]
        acknowledged = max([acknowledged, *answers])
        store = CatalogStore.open(url)
        newest = store.unit_of_work.snapshot()
        assert newest.version >= acknowledged > 0
        assert newest.version % together == 0
        assert [record.version for record in store.history(limit=10**6)] == list(range(1, newest.version + 1))
        assert [row.version for row in store.outbox.unsent(limit=10**6)] == list(range(1, newest.version + 1))
        assert len(newest.zones) == newest.version
        store.close()
