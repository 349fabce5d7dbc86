"""Which API a client talks to: ``--url``, ``ZONEKEEPER_URL``, or the ``run.json`` of a running ``up``."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.cli.contexts import load_contexts
from app.cli.exits import CliError, ExitCode, UsageError

RUN_FILE = "run.json"
TOKEN_VARIABLE = "ZONEKEEPER_TOKEN"
CA_VARIABLE = "ZONEKEEPER_CA_FILE"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Address:
    """``origin`` says where the URL comes from, for the line that reports that nobody answers there. ``token``
    or ``password`` (user and password) are sent over TLS only, and never to where a redirect leads.
    ``authority``: PEM; empty: the system's."""

    url: str
    origin: str
    token: str = field(default="", repr=False)
    authority: str = field(default="", repr=False)
    password: tuple[str, str] | None = field(default=None, repr=False)


def find_address(url: str | None, data_dir: Path) -> Address:
    """Raises CliError (3) with a line that says how to start or name a server."""
    if url:
        return _logged_in(_with_scheme(url), "as given by --url or ZONEKEEPER_URL")
    path = data_dir / RUN_FILE
    if not path.exists() and (current := load_contexts().current):
        return _logged_in(current, "as logged in to by `zonectl login`")
    try:
        _require_own(path)
        address = json.loads(path.read_text())["url"]
    except FileNotFoundError:
        raise CliError(
            ExitCode.UNREACHABLE,
            f"no server to connect to: {path} does not exist. "
            f"Start one with `zonectl up --data-dir {data_dir}`, or name one with --url or ZONEKEEPER_URL.",
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CliError(ExitCode.UNREACHABLE, f"{path} names no server ({error}); use --url.") from error
    return Address(str(address), f"as written in {path}")


def _logged_in(url: str, origin: str) -> Address:
    """With the token of this very origin, or the one that the environment gives to the URL that it names."""
    if not url.startswith("https://"):
        return Address(url, origin)
    if token := secret_of(TOKEN_VARIABLE):
        return Address(url, origin, token, _authority())
    context = load_contexts().of(url)
    if context is None:
        return Address(url, origin, authority=_authority())
    return Address(url, origin, context.token, context.authority)


def secret_of(variable: str) -> str:
    """Its value, or the text of the file that ``<variable>_FILE`` names, without a line's end; empty: neither.
    Raises UsageError."""
    path = os.environ.get(f"{variable}_FILE")
    if path is None:
        return os.environ.get(variable, "")
    try:
        return Path(path).read_text().rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise UsageError(f"{variable}_FILE: {error}") from error


def _authority() -> str:
    path = os.environ.get(CA_VARIABLE)
    try:
        return Path(path).read_text() if path else ""
    except (OSError, ValueError) as error:
        raise UsageError(f"{CA_VARIABLE}: {error}") from error


def _require_own(path: Path) -> None:
    """A file that somebody else has written, or may write, leads to whoever he wants. Raises CliError and
    FileNotFoundError."""
    for place in (path, path.parent):
        status = place.stat()
        is_shared = bool(status.st_mode & OTHERS_WRITE) and not (
            place.is_dir() and status.st_mode & stat.S_ISVTX
        )
        if status.st_uid != os.geteuid() or is_shared:
            raise CliError(
                ExitCode.UNREACHABLE, f"{place} is not yours alone to write, so it is not believed; use --url."
            )


def addresses_of(url: str, data_dir: Path) -> dict[str, Any] | None:
    """What the `up` of the data directory says of itself; None when it is not the one at ``url``."""
    try:
        body = json.loads((data_dir / RUN_FILE).read_text())
        addresses = body["addresses"] if body["url"] == url else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return addresses if isinstance(addresses, dict) else None


def _with_scheme(url: str) -> str:
    full = url if "://" in url else f"http://{url}"
    return full.rstrip("/")
