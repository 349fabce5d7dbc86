"""Logs: one line an event, whatever people have written into it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

FORGED = "a\n2026-01-01 [info] all is well\x1b[2K\u202egnirts"
PROGRAM = f"""
import structlog
from app.logs import configure
configure("test")
structlog.get_logger().info("drained", reason={FORGED!a}, zone="東京")
"""


def test_a_line_of_json() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True, timeout=60)
    (line,) = done.stderr.decode().splitlines()
    assert not set(line) & {"\x1b", "\u202e"}
    event = json.loads(line)
    assert (event["reason"], event["zone"]) == (FORGED, "東京")
    assert "東京" in line


def test_a_line_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", PROGRAM], stderr=theirs, check=True, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert len(shown.strip().splitlines()) == 1
    assert "a\\n2026-01-01 [info] all is well\\x1b[2K\\u202egnirts" in shown
    assert "\u202e" not in shown
