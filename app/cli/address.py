"""Which API a client talks to: ``--url``, ``ZONEKEEPER_URL``, or the ``run.json`` of a running ``up``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.cli.exits import CliError, ExitCode

RUN_FILE = "run.json"


@dataclass(frozen=True, slots=True)
class Address:
    """``origin`` says where the URL comes from, for the line that reports that nobody answers there."""

    url: str
    origin: str


def find_address(url: str | None, data_dir: Path) -> Address:
    """Raises CliError (3) with a line that says how to start or name a server."""
    if url:
        return Address(_with_scheme(url), "as given by --url or ZONEKEEPER_URL")
    path = data_dir / RUN_FILE
    try:
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
