"""``zonectl up`` with its real children: etcd, the server, nodes. Spark is in ``test_up_surroundings``."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.installation import without_spark
from tests.fixtures.ports import free_port
from tests.fixtures.up_process import ENDED_WITHIN_S, SERVED_WITHIN_S, Up, start, starting, until, until_gone

__all__ = ["start"]
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Two nodes, with a tenth of the limits of silence or so. The last test of the file ends it."""
    limits = {"ZONEKEEPER_UP_SERVER_SILENCE_S": "8", "ZONEKEEPER_UP_NODE_SILENCE_S": "10"}
    with starting() as run:
        yield run(
            "--nodes", "2", environment={**limits, **without_spark(tmp_path_factory.mktemp("up"))}
        ).served()


@pytest.mark.thorough("unit/test_supervisor_loop restarts children, e2e/test_main_job starts them all")
def test_children_that_die_are_restarted(up: Up) -> None:
    seconds = re.search(r"API at https://127\.0\.0\.1:\d+ after ([\d.]+) s", up.printed())
    assert seconds is not None
    assert float(seconds[1]) < SERVED_WITHIN_S

    refused = up.ctl("up")
    assert refused.returncode == 1
    assert f"another `zonectl up` (pid {up.process.pid}) runs in" in refused.stderr
    assert "Traceback" not in refused.stderr

    for child in ("server", "etcd", "n1"):
        until(lambda child=child: up.pid_of(child) != 0, SERVED_WITHIN_S)
        before = up.pid_of(child)
        psutil.Process(before).kill()
        until(
            lambda child=child, before=before: up.pid_of(child) not in (0, before), SERVED_WITHIN_S, up.printed
        )
    until(lambda: up.living() == 2, SERVED_WITHIN_S, up.printed)
    assert up.ctl("status").stdout.count(" yes ") == 2


def test_every_child_follows_a_log_level_and_writes_one_form(up: Up) -> None:
    """Agents and store servers, which write into the log of their node, both."""
    until(lambda: up.living() == 2, SERVED_WITHIN_S, up.printed)
    stored = "CREATE ZONE stored (PARTITIONS 2, REPLICAS 2) STORAGE PROFILES ['bulk']"
    created = up.ctl("sql", "-e", stored, "--wait", "--timeout", "90")
    assert created.returncode == 0, created.stderr
    level = ("log", "level", "rebalance.nodes", "debug", "--for", "10m", "--reason", "a test")
    assert up.ctl(*level).returncode == 0
    followed = {"server", "n1", "n1 store", "n2", "n2 store"}
    debug = {"rebalance.nodes": "debug"}
    until(lambda: processes_with(up, debug) == followed, SERVED_WITHIN_S, up.printed)
    shown = json.loads(up.ctl("log", "levels", "--format", "json").stdout)
    assert (shown[0]["module"], shown[0]["level"], shown[0]["by"], shown[0]["reason"]) == (
        *("rebalance.nodes", "debug"),
        *("admin", "a test"),
    )
    assert up.ctl("log", "reset", "rebalance.nodes").stdout == "rebalance.nodes: default level\n"
    until(lambda: processes_with(up, {}) == followed, SERVED_WITHIN_S, up.printed)
    assert {line["process"] for line in _lines(up)} >= followed | {"etcd"}


def processes_with(up: Up, changed: dict[str, str]) -> set[str]:
    """Processes whose newest line about levels reports exactly these changes."""
    levels = {line["process"]: line["changed"] for line in _lines(up) if line["event"] == "log levels"}
    return {process for process, now in levels.items() if now == changed}


@pytest.mark.thorough("unit/test_hang_watch believes a hang")
@pytest.mark.slow("a hang is believed after a silence")
def test_what_hangs_is_restarted_and_a_stopped_supervisor_restarts_nobody(up: Up) -> None:
    """The server and a node are stopped as a debugger would stop them."""
    until(lambda: up.living() == 2, SERVED_WITHIN_S, up.printed)
    children = [up.pid_of(name) for name in ("server", "n1")]
    hangs = up.printed().count("has not answered")

    for pid in (up.process.pid, *children):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(12.0)  # longer than both limits
    os.kill(up.process.pid, signal.SIGCONT)
    until(lambda: "stood still for" in up.printed(), SERVED_WITHIN_S, up.printed)
    for pid in children:
        os.kill(pid, signal.SIGCONT)
    until(up.healthy, SERVED_WITHIN_S, up.printed)
    assert [up.pid_of(name) for name in ("server", "n1")] == children
    assert up.printed().count("has not answered") == hangs

    for name, limit_s in (("server", 8), ("n1", 10)):
        before, registered = up.pid_of(name), _log(up, "n1").count("node registered")
        os.kill(before, signal.SIGSTOP)
        until(lambda name=name, before=before: up.pid_of(name) not in (0, before), SERVED_WITHIN_S, up.printed)
        silence = re.search(
            rf"{name} has not answered for (\d+) s \(limit {limit_s} s\): restarting it", up.printed()
        )
        assert silence is not None, up.printed()
        assert int(silence[1]) >= limit_s
        assert "most recent call first" in _log(up, name)
        until(up.healthy, SERVED_WITHIN_S, up.printed)
    until(lambda: _log(up, "n1").count("node registered") > registered, SERVED_WITHIN_S, up.printed)


def test_ctrl_c_ends_everything(up: Up) -> None:
    until(lambda: up.living() == 2, SERVED_WITHIN_S, up.printed)
    tree = up.tree()
    assert len(tree) >= 4
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(ENDED_WITHIN_S) == 130
    until_gone(tree)
    assert "stopped (SIGINT)" in up.printed()
    assert not (up.directory / "run.json").exists()


@pytest.mark.thorough("unit/test_supervisor_loop kills a supervisor")
@pytest.mark.slow("two installations, one after the other")
def test_a_killed_up_leaves_nothing_and_the_next_one_continues(
    start: Callable[..., Up], tmp_path: Path
) -> None:
    """Kill ``up`` and continue with one node less, which is not the one that has the zone's data."""
    quiet = without_spark(tmp_path)
    first = start("--nodes", "2", environment=quiet).served()
    until(lambda: first.living() == 2, SERVED_WITHIN_S, first.printed)
    on_n1 = "CREATE ZONE kept (PARTITIONS 2, NODES FILTER '$[?(@.region == \"EU\")]')"
    created = first.ctl("sql", "-e", on_n1, "--wait", "--timeout", "90")
    assert created.returncode == 0, created.stderr
    assert first.ctl("kv", "put", "kept", "key", "value").returncode == 0
    state, url = (first.directory / "state.json").read_text(), first.run_file()["url"]
    tree = first.tree()
    first.process.kill()
    first.process.wait()
    until_gone(tree)

    second = start("--nodes", "1", environment=quiet).served()
    assert (second.directory / "state.json").read_text() == state
    assert second.run_file()["url"] == url
    assert "not started, though an earlier run had them: n2" in second.printed()
    until(lambda: second.living() == 1, SERVED_WITHIN_S, second.printed)
    until(lambda: second.ctl("kv", "get", "kept", "key").stdout == "value\n", SERVED_WITHIN_S, second.printed)
    tree = second.tree()
    second.process.terminate()
    assert second.process.wait(ENDED_WITHIN_S) == 0
    until_gone(tree)


def test_a_port_that_is_taken_is_refused_at_once(start: Callable[..., Up]) -> None:
    port = free_port()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        up = start("--port", str(port))
        assert up.process.wait(ENDED_WITHIN_S) == 1
    assert f"port {port} is taken" in up.printed()
    assert "Traceback" not in up.printed()


def _lines(up: Up) -> list[dict[str, Any]]:
    """All of them: each is JSON of the one form."""
    texts = [path.read_text() for path in sorted((up.directory / "logs").glob("*.log"))]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    assert all(line.keys() >= {"timestamp", "level", "event", "process", "module"} for line in lines)
    return lines


def _log(up: Up, child: str) -> str:
    return (up.directory / "logs" / f"{child}.log").read_text()
