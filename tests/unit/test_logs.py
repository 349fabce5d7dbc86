"""Logs: one line an event in one form, whatever people or libraries have written into it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import Any

FORGED = "a\n2026-01-01 [info] all is well\x1b[2K\u202egnirts"
BEGIN = """
import logging, threading, warnings
import structlog
from app.process.logs import configure, set_levels
from app.core.log_levels import LineLevel
configure("n1")
"""
DRAINED = f"""
structlog.get_logger("app.test").info("drained", reason={FORGED!a}, zone="東京")
"""


def output(program: str, code: int = 0) -> bytes:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stderr.decode()
    return done.stderr


def events(program: str, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output(program, code).splitlines()]


def test_a_line_of_json() -> None:
    (line,) = output(DRAINED).decode().splitlines()
    assert not set(line) & {"\x1b", "\u202e"}
    event = json.loads(line)
    assert (event["reason"], event["zone"]) == (FORGED, "東京")
    assert "東京" in line


def test_a_line_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    program = BEGIN + DRAINED + f"logging.getLogger('uvicorn').warning('%s', {FORGED!a})"
    subprocess.run([sys.executable, "-c", program], stderr=theirs, check=True, timeout=120)
    os.close(theirs)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert len(shown.strip().splitlines()) == 2
    assert shown.count("a\\n2026-01-01 [info] all is well\\x1b[2K\\u202egnirts") == 2
    assert "\u202e" not in shown


def test_libraries_warnings_and_threads_write_the_same_form() -> None:
    program = """
logging.getLogger("alembic.runtime").info("upgrade %s -> %s", "0011", "0012")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("uvicorn.error").exception("it failed")
warnings.warn("old")
def fail():
    raise ValueError("in a thread")
thread = threading.Thread(target=fail, name="worker")
thread.start()
thread.join()
structlog.get_logger("rebalance.test").info("moved %d", 3)
raise OSError("at the end")
"""
    lines = events(program, code=1)
    told = [(line["process"], line["module"], line["level"], line["event"]) for line in lines]
    assert told[:2] == [
        ("n1", "alembic.runtime", "info", "upgrade 0011 -> 0012"),
        ("n1", "uvicorn.error", "error", "it failed"),
    ]
    assert told[2][:3] == ("n1", "py.warnings", "warning")
    assert told[3] == ("n1", "app.process.logs", "critical", "thread ended by an exception: worker")
    assert told[4] == ("n1", "rebalance.test", "info", "moved 3")
    assert told[5] == ("n1", "app.process.logs", "critical", "process ended by an exception")
    assert "ZeroDivisionError" in lines[1]["exception"]
    assert "in a thread" in lines[3]["exception"]
    assert "at the end" in lines[5]["exception"]
    assert all(line["timestamp"].endswith("Z") for line in lines)


def test_a_level_holds_for_a_module_and_those_inside_it() -> None:
    program = """
def write():
    for name in ("rebalance.nodes.agent", "rebalance.groups", "app.edge", "sqlalchemy.engine.Engine"):
        log = structlog.get_logger(name)
        log.debug("debug")
        log.info("info")
write()
set_levels({"rebalance.nodes": LineLevel.DEBUG, "app": LineLevel.ERROR})
write()
set_levels({})
write()
"""
    first = [("rebalance.nodes.agent", "info"), ("rebalance.groups", "info"), ("app.edge", "info")]
    changed = [("rebalance.nodes.agent", "debug"), *first[:2]]
    assert [(line["module"], line["event"]) for line in events(program)] == [*first, *changed, *first]
