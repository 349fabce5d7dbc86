"""The data directory is its owner's alone: what is written from now on, and what is there already."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

from rebalance.hosting.private_files import OTHERS, tighten, write_privately

OURS = (
    *(
        "up.lock",
        "up.pid*",
        "state.json*",
        "run.json*",
        "admin.token*",
        "metrics.token*",
        "scrape-targets.*",
        "logs",
        "etcd",
        "nodes",
        "spark",
        "catalog.sqlite*",
    ),
    *(
        "etcd.json*",
        "node.json*",
        "node.lock",
        "members",
        "mirrors",
        "engines",
        "store",
        "store.damaged",
        "owner.json*",
    ),
    *("given_up", "strong_zones.*", "zones.*", "tls"),
)
"""Names (patterns) of the files and folders that any of our processes keeps in its data directory."""


def of_others(directory: Path) -> list[Path]:
    """Entries of ``directory`` with names of OURS that belong neither to the caller's user nor to the
    superuser. Raises OSError."""
    entries = sorted(path for path in directory.iterdir() if any(fnmatchcase(path.name, name) for name in OURS))
    return [path for path in entries if path.lstat().st_uid not in (os.geteuid(), 0)]


def keep_private(directory: Path) -> list[str]:
    """Call it before anything is written. Returns what stays open to others, with the reason."""
    write_privately()
    if not directory.is_dir():
        return []
    failures = tighten(directory, OURS)
    if not failures and directory.stat().st_mode & OTHERS:
        failures.append(f"the names of {directory}, which holds other files too: it is left as it is")
    return failures
