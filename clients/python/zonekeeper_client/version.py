"""The release that this client is of: the number of the servers that were released with it."""

from __future__ import annotations

import re

from zonekeeper_client.errors import IncompatibleServerError

VERSION = "0.3.0"
VERSION_FIELD = "Zonekeeper-Version"
"""Header: the version of the server that answers; those before 0.4 do not say it."""
MINORS_APART = 1


def check_version(theirs: str, url: str) -> None:
    """Raises IncompatibleServerError for a server that is more than one minor version away. One that names no
    version is taken for a neighbour."""
    server, own = _numbers(theirs), _numbers(VERSION)
    if server is None or own is None:
        return
    if server[0] != own[0] or abs(server[1] - own[1]) > MINORS_APART:
        raise IncompatibleServerError(
            f"{url} is a Zonekeeper {theirs}, and this client is of version {VERSION}: they may be one minor "
            f"version apart; install zonekeeper-client {server[0]}.{server[1]}"
        )


def _numbers(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d{1,6})\.(\d{1,6})(?!\d)", version)
    return None if found is None else (int(found[1]), int(found[2]))
