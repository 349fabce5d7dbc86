"""Where tests run, which of their cases are in every run, and what the workers of a run share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fixtures.shared_server import shared_by_workers
from tests.fixtures.slices import in_every_run

ROOT = Path(__file__).parents[2]
WORKER = """
import sys, time
from contextlib import contextmanager
from pathlib import Path
from tests.fixtures.shared_server import shared_by_workers
@contextmanager
def started():
    yield "the other's"
with shared_by_workers(Path(sys.argv[1]), "thing", started) as address:
    print(address, flush=True)
    sys.stdin.readline()
"""


def collected(*options: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_what_needs_no_server_is_checked_and_the_rest_is_hosted() -> None:
    paths = ("tests/contract/test_metastore.py", "tests/linearizability", "tests/e2e/test_kill.py")
    checked = collected("-m", "not hosted", *paths)
    hosted = collected("-m", "hosted", *paths)
    assert any("[memory]" in name for name in checked)
    assert not any("[etcd]" in name or "test_kill" in name or "rebalances" in name for name in checked)
    assert any("test_histories" in name or "test_checker" in name for name in checked)
    assert any("[etcd]" in name for name in hosted)
    assert any("test_kill.py" in name for name in hosted)
    assert not set(checked) & set(hosted)


def test_cases_that_are_not_chosen_are_for_the_long_run() -> None:
    cases = in_every_run([("a", 1), ("b", 2)], [("b", 2)], ["first", "second"])
    assert [(case.values, case.id, [mark.name for mark in case.marks]) for case in cases] == [
        (("a", 1), "first", ["soak"]),
        (("b", 2), "second", []),
    ]
    with pytest.raises(AssertionError, match="one of the cases"):
        in_every_run(["a"], ["b"])


@contextmanager
def own() -> Iterator[str]:
    yield "its own"


def test_workers_share_what_one_of_them_started(tmp_path: Path) -> None:
    """Who comes later is told the address; when the owner was killed, who comes next starts another one."""
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "the other's\n"
        with shared_by_workers(tmp_path, "thing", own) as address:
            assert address == "the other's"
        other.kill()
        other.wait()
    with shared_by_workers(tmp_path, "thing", own) as address:
        assert address == "its own"
        assert (tmp_path / "thing-address").read_text() == f"{os.getpid()} its own"
    assert not (tmp_path / "thing-address").exists()
    assert str(os.getpid()) not in [user.name for user in (tmp_path / "thing-users").iterdir()]


def test_the_owner_waits_for_who_still_uses_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdin is not None
        assert owner.stdout.readline() == "the other's\n"
        with shared_by_workers(tmp_path, "thing", own) as address:
            owner.stdin.write("\n")
            owner.stdin.flush()
            with pytest.raises(subprocess.TimeoutExpired):
                owner.wait(1.0)
            assert address == "the other's"
        assert owner.wait(60.0) == 0
