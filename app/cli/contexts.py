"""The contexts file: which servers the user has logged in to, and the token of each.

It belongs to the user alone (0600). A token is kept with the origin that gave it and with the authority that
was checked then, and is sent to no other.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from app.cli.exits import CliError, ExitCode, UsageError

FILE_VARIABLE = "ZONEKEEPER_CONTEXTS"
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Context:
    """``url`` is an origin. ``authority``: certificates of the authority that the server's is checked against,
    PEM; empty: those of the system."""

    url: str
    user: str
    token: str = field(repr=False)
    token_id: str
    expires_at: str
    authority: str = ""


@dataclass(frozen=True, slots=True)
class Contexts:
    """``current``: the origin that commands ask when they name none and no `zonectl up` is near."""

    current: str = ""
    by_url: Mapping[str, Context] = field(default_factory=dict)

    def of(self, url: str) -> Context | None:
        return self.by_url.get(origin_of(url))

    def with_one(self, context: Context) -> Contexts:
        return Contexts(context.url, {**self.by_url, context.url: context})

    def without(self, url: str) -> Contexts:
        left = {known: context for known, context in self.by_url.items() if known != url}
        return replace(self, current="" if self.current == url else self.current, by_url=left)


def origin_of(url: str) -> str:
    """Scheme, host and port, as a token is bound to them. Raises UsageError."""
    parts = urlsplit(url if "://" in url else f"https://{url}")
    try:
        port = parts.port or PORTS[parts.scheme.lower()]
    except (ValueError, KeyError):
        raise UsageError(f"{url} is not a URL such as https://zones.example:7443") from None
    if not parts.hostname or "@" in parts.netloc:
        raise UsageError(f"{url} is not a URL such as https://zones.example:7443")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname.lower().removesuffix(".")
    return f"{parts.scheme.lower()}://{host}:{port}"


def contexts_file() -> Path:
    if named := os.environ.get(FILE_VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "zonekeeper" / "contexts.json"


def load_contexts() -> Contexts:
    """Raises CliError for a file that others may read, or that is none."""
    path = contexts_file()
    try:
        status = path.stat()
        text = path.read_text()
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise CliError(ExitCode.FAILED, f"{path}: {error.strerror}") from error
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        message = f"{path} holds tokens and is open to other users: chmod 600 {path}, and revoke the tokens"
        raise CliError(ExitCode.FAILED, message)
    try:
        body = json.loads(text)
        contexts = {url: Context(**entry) for url, entry in body["contexts"].items()}
        return Contexts(str(body["current"]), contexts)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CliError(ExitCode.FAILED, f"{path} is not a file of contexts ({error}): remove it") from error


def save_contexts(contexts: Contexts) -> None:
    from rebalance.hosting.private_files import replace_privately

    path = contexts_file()
    body = {
        "current": contexts.current,
        "contexts": {url: asdict(context) for url, context in contexts.by_url.items()},
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_privately(path, json.dumps(body, indent=2).encode())
    except OSError as error:
        raise CliError(ExitCode.FAILED, f"{path}: {error.strerror}") from error
