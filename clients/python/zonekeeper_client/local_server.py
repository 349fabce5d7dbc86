"""The server of a running ``zonectl up``, as its owner finds it: by ``run.json`` of the data directory.

Who may write the file leads its readers to a server of his own, and who may read the token is logged in by it:
so both are trusted only where no one but the user who reads them can have written them.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RUN_FILE = "run.json"
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


def local_login(urls: Sequence[str], data_dir: Path) -> LocalServer | None:
    """The server of ``data_dir`` where ``urls`` names none or just this one; None for all others. Without
    ``urls`` it raises as ``local_server`` does."""
    if not urls:
        try:
            return local_server(data_dir)
        except FileNotFoundError:
            reason = "no `zonectl up` runs there: start one, or name servers or another data directory"
            raise FileNotFoundError(errno.ENOENT, reason, str(data_dir / RUN_FILE)) from None
    with suppress(OSError, ValueError):
        server = local_server(data_dir)
        if [url.rstrip("/") for url in urls] == [server.url]:
            return server
    return None


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
    """Read the text of the very file whose owner and mode were checked."""
    with open(path, encoding="utf-8") as stream:
        _check(path, os.fstat(stream.fileno()), forbidden)
        return stream.read()


def _check(path: Path, status: os.stat_result, forbidden: int) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & forbidden:
        use = "read" if forbidden == OTHERS_USE else "write"
        raise NotOwnFileError(f"{path} is not yours alone to {use}, so it is not believed")
