"""Places where tests run, cases that are in every run, and what the workers of a run share."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fixtures.places import GROUPS, TESTS, GroupScheduling, group_of
from tests.fixtures.shared_server import shared_by_workers
from tests.fixtures.slices import in_every_run

SHARED_INSTALLATIONS = {"installation", "five_nodes", "cuttable"}
"""Fixtures of tests/e2e/conftest.py."""
ROOT = Path(__file__).parents[2]
WORKER = """
import sys, time
from contextlib import contextmanager
from pathlib import Path
from tests.fixtures.places import GROUPS, TESTS, GroupScheduling, group_of
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
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_what_needs_no_server_is_checked_and_the_rest_is_hosted() -> None:
    exposition = "tests/unit/test_metrics/test_exposition.py"
    paths = ("tests/contract/test_metastore.py", "tests/linearizability", "tests/e2e/test_kill.py", exposition)
    checked = collected("-m", "not hosted", *paths)
    hosted = collected("-m", "hosted", *paths)
    assert any("[memory]" in name for name in checked)
    assert not any("[etcd]" in name or "test_kill" in name or "rebalances" in name for name in checked)
    assert any("test_histories" in name or "test_checker" in name for name in checked)
    assert any("[etcd]" in name for name in hosted)
    assert any("test_kill.py" in name for name in hosted)
    assert any("test_exposition" in name for name in checked)
    assert all("test_exposition" not in name or "promtool" in name for name in hosted)
    assert not set(checked) & set(hosted)


def requested(path: Path) -> set[str]:
    """Fixtures that the tests and the fixtures of a file ask for."""
    functions = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.name.startswith("test_") or any("fixture" in ast.dump(each) for each in node.decorator_list))
    ]
    return {argument.arg for function in functions for argument in function.args.args}


def test_files_that_share_an_installation_are_in_a_group_of_their_own() -> None:
    """The installation that is started for one of them serves all: no other file is in the group, and in it
    there is one kind."""
    installations = {
        path.relative_to(TESTS).as_posix(): SHARED_INSTALLATIONS & requested(path)
        for path in TESTS.glob("e2e/test_*.py")
    }
    alone = [file for file, names in installations.items() if names and group_of(file) == file]
    assert not alone, "they start an installation for themselves"
    for group, files in GROUPS.items():
        names = [installations[file] for file in files if file.startswith("e2e/")]
        assert all(each == names[0] and len(each) == 1 for each in names), group
    assert len({file for files in GROUPS.values() for file in files}) == sum(map(len, GROUPS.values()))
    assert all((TESTS / file).exists() for files in GROUPS.values() for file in files)


class Worker:
    """Worker as the scheduler knows one. ``given``: what it was given to run, by numbers of the collection."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_one_worker_runs_the_files_of_a_group() -> None:
    (first, second, *_), *_ = GROUPS.values()
    options = SimpleNamespace(tx=["2*popen"], loadscopereorder=False)
    config = SimpleNamespace(option=options, getvalue=options.__dict__.__getitem__)
    tests = [f"tests/{first}::{name}" for name in "abc"] + [f"tests/{second}::d"]
    tests += [f"tests/unit/test_epoch.py::{name}" for name in "efg"]
    scheduler, workers = GroupScheduling(config), [Worker("one"), Worker("two")]
    for worker in workers:
        scheduler.add_node(worker)
    for worker in workers:
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    assert [worker.given for worker in workers] == [[0, 1, 2, 3], [4, 5, 6]]


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
    """A worker that comes later gets the address; when the owner was killed, the next one starts another."""
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
