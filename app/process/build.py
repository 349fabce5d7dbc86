"""The build that runs: its version, and the commit that it was made of."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

from rebalance.hosting.child import SYSTEM, environment

GIT_S = 2.0
COMMIT_SHOWN = 12


def own_version() -> str:
    """Empty where the code runs without being installed."""
    try:
        return version("zonekeeper")
    except PackageNotFoundError:
        return ""


@cache
def own_commit() -> str:
    """Return the commit that an archive was made of, or the one that a checkout has checked out; empty: not
    known."""
    written = files("app").joinpath("commit.txt").read_text().strip()
    if not written.startswith("$"):
        return written
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=GIT_S, check=False, env=environment(SYSTEM)
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def build_line() -> str:
    """`0.3.0 (0a1b2c3d4e5f)`."""
    commit = own_commit()[:COMMIT_SHOWN] or "commit not known"
    return f"{own_version() or 'not installed'} ({commit})"
