"""Logs of children: one form whatever writes them, and files of a bounded size while the children run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.supervision.child_log import LINE_BYTES_MAX, ChildLog, LineForm
from rebalance.hosting.child import spawn, stop

NOW = "2026-11-23T20:00:00Z"
PATIENCE_S = 120.0


def formed(*data: bytes) -> list[dict[str, Any]]:
    form = LineForm("n1")
    lines = [line for part in data for line in form.take(part, NOW)] + list(form.end(NOW))
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    return [json.loads(line) for line in lines]


def test_lines_of_ours_stay_as_they_are() -> None:
    line = b'{"zone": 3, "event": "moved", "process": "n9", "level": "info", "timestamp": "t", "module": "m"}\n'
    assert list(LineForm("n1").take(line, NOW)) == [line]


def test_lines_of_etcd_get_our_names() -> None:
    line = b'{"level":"warn","ts":"2026-11-23T19:00:00.1Z","caller":"a.go:7","msg":"slow","took":"1s"}\n'
    assert formed(line) == [
        {
            "event": "slow",
            "process": "n1",
            "level": "warning",
            "timestamp": "2026-11-23T19:00:00.1Z",
            "module": "etcd",
            "caller": "a.go:7",
            "took": "1s",
        }
    ]


def test_other_text_becomes_events() -> None:
    forged = "a\x1b[2K\u202eb".encode()
    lines = formed(b"Traceback:\n\n  File", b' "x.py"\n', forged, b"\xff\n", b'{"half": ', b'"\n', b"[1]\nlast")
    assert [line["event"] for line in lines] == [
        *("Traceback:", '  File "x.py"'),
        *("a\x1b[2K\u202eb\ufffd", '{"half": "'),
        *("[1]", "last"),
    ]
    fields = {"process": "n1", "level": "info", "timestamp": NOW, "module": "output"}
    assert all(line == {"event": line["event"], **fields} for line in lines)


def test_a_text_without_an_end_is_written_in_parts() -> None:
    lines = formed(b"x" * (2 * LINE_BYTES_MAX + 5), b"y\n")
    assert [len(line["event"]) for line in lines] == [LINE_BYTES_MAX, LINE_BYTES_MAX, 6]


@contextmanager
def writing(log: ChildLog, program: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.stream() as stream:
        process = spawn([sys.executable, "-c", program], log=stream)
    try:
        yield process
    finally:
        stop(process)


def until_ended(process: subprocess.Popen[bytes], log: ChildLog | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None:
        assert time.monotonic() < deadline, "the child still runs"
        if log is not None:
            log.pump()
        time.sleep(0.01)


def numbers(path: Path) -> list[int]:
    return [int(json.loads(line)["event"]) for line in path.read_text().splitlines()]


def test_a_log_rotates_while_its_child_runs(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "n1.log"
    log = ChildLog("n1", path, bytes_max=20_000, kept=2)
    with writing(log, "for number in range(2000): print(number, flush=True)") as process:
        until_ended(process, log)
    log.close()
    files = [path.with_name("n1.log.2"), path.with_name("n1.log.1"), path]
    assert sorted(path.parent.iterdir()) == sorted(files)
    assert all(0 < file.stat().st_size <= 20_000 for file in files)
    kept = [number for file in files for number in numbers(file)]
    assert kept == list(range(kept[0], 2000))


def test_a_child_is_not_held_up_while_nobody_reads(tmp_path: Path) -> None:
    """A child of a suspended `zonectl up` runs to its end, and its first lines are in the log."""
    log = ChildLog("n1", tmp_path / "n1.log")
    program = """
import logging
logging.basicConfig(format="%(message)s")
logging.raiseExceptions = False
for number in range(60_000):
    logging.warning("%060d", number)
"""
    with writing(log, program) as process:
        until_ended(process)
        assert process.returncode in (0, 120), "120: its last lines were not written"
    log.close()
    assert numbers(tmp_path / "n1.log")[:10_000] == list(range(10_000))


def test_lines_that_the_disk_has_no_room_for_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "n1.log"
    path.symlink_to("/dev/full")
    log = ChildLog("n1", path)
    with log.stream() as stream:
        stream.write(b"1\n2\n")
        stream.flush()
        log.pump()
        path.unlink()
        stream.write(b"3\n")
        stream.flush()
        log.pump()
    log.close()
    events = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert events == ["2 lines of this log were lost: the disk had no room for them", "3"]


@pytest.mark.parametrize("moved", [True, False])
def test_a_log_that_is_moved_away_is_begun_anew(tmp_path: Path, moved: bool) -> None:
    path = tmp_path / "n1.log"
    log = ChildLog("n1", path)
    with log.stream() as stream:
        stream.write(b"1\n")
        stream.flush()
        log.pump()
        if moved:
            path.rename(tmp_path / "old")
        else:
            path.unlink()
        stream.write(b"2\n")
        stream.flush()
    log.close()
    assert numbers(path) == [2]
    assert not moved or numbers(tmp_path / "old") == [1]
