"""The server of a running ``zonectl up``, as its owner finds it: by ``run.json`` of the data directory.

Anyone who can write the file can lead its readers to a server of their own, and anyone who can read the token
can log in with it: so both are trusted only where no one but the user who reads them can have written them.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RUN_FILE = "run.json"
SCRAPE_TOKEN_FILE = "metrics.token"
TARGETS_FILE = "scrape-targets.json"
"""File with the targets that Prometheus scrapes, for its file_sd."""
DATA_DIR = Path("zonekeeper-data")
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_USE = stat.S_IRWXG | stat.S_IRWXO


class NotOwnFileError(ValueError):
    """The file belongs to another user, or others may do with it what only its owner may."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    """``token`` and ``authority`` (PEM; of the server's certificate) are empty where no login is required."""

    url: str
    token: str = field(default="", repr=False)
    authority: str = field(default="", repr=False)


def local_server(data_dir: Path = DATA_DIR) -> LocalServer:
    """Raises FileNotFoundError where no ``up`` runs, NotOwnFileError, ValueError for what is no such file, and
    OSError."""
    path = data_dir / RUN_FILE
    _require_own(data_dir)
    body = json.loads(_own_text(path, OTHERS_WRITE))
    if not isinstance(body, dict) or not isinstance(body.get("url"), str):
        raise ValueError(f"{path} names no server")
    url: str = body["url"]
    if not url.startswith("https://") or "token_file" not in body:
        return LocalServer(url)
    authority = _own_text(_path(body, "authority"), OTHERS_WRITE)
    try:
        token = _own_text(_path(body, "token_file"), OTHERS_USE).strip()
    except FileNotFoundError:
        # The administrator whose token it was is gone: who asks logs in as somebody else.
        token = ""
    return LocalServer(url, token, authority)


def _path(body: dict[str, Any], name: str) -> Path:
    """Raises ValueError."""
    if not isinstance(body.get(name), str):
        raise ValueError(f"{RUN_FILE} has no {name}")
    return Path(body[name])


def _require_own(directory: Path) -> None:
    status = directory.stat()
    others = 0 if status.st_mode & stat.S_ISVTX else OTHERS_WRITE
    _check(directory, status, others)


def _own_text(path: Path, forbidden: int) -> str:
    """Read the text of the very file whose owner and mode were checked. Raises NotOwnFileError and OSError."""
    with open(path, encoding="utf-8") as stream:
        _check(path, os.fstat(stream.fileno()), forbidden)
        return stream.read()


def _check(path: Path, status: os.stat_result, forbidden: int) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & forbidden:
        use = "read" if forbidden == OTHERS_USE else "write"
        raise NotOwnFileError(f"{path} is not yours alone to {use}, so it is not trusted")
