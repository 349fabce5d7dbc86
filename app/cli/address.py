"""The API that a client talks to: ``--url``, ``ZONEKEEPER_URL``, the ``run.json`` of a running ``up``, or the
server of the last login.

The contexts file lists the servers to which the user has logged in. Only the user may read it (0600). A token
is kept with the origin that gave it and the authority that was checked then, and is sent to no other.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.cli.exits import CliError, ExitCode, UsageError
from app.configuration.local_server import RUN_FILE, LocalServer, NotOwnFileError, local_server

FILE_VARIABLE = "ZONEKEEPER_CONTEXTS"
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Context:
    """A login to a server. ``url`` is an origin. ``authority``: PEM certificates against which the server's is
    checked; empty: those of the system."""

    url: str
    user: str
    token: str = field(repr=False)
    token_id: str
    expires_at: str
    authority: str = ""


@dataclass(frozen=True, slots=True)
class Contexts:
    """Logins by origin. ``current``: the origin for commands that name none where no `zonectl up` runs."""

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
    """Scheme, host and port of a URL, to which a token is bound. Raises UsageError."""
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
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
    """Read the contexts file; no contexts where there is none. Raises CliError for a file that other users may
    read, or that holds no contexts."""
    path = contexts_file()
    try:
        status = path.stat()
        text = path.read_bytes()
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


TOKEN_VARIABLE = "ZONEKEEPER_TOKEN"
CA_VARIABLE = "ZONEKEEPER_CA_FILE"


@dataclass(frozen=True, slots=True)
class Address:
    """URL of the API, with a credential. ``origin`` says where the URL comes from, for the message that no
    server answers there. ``token`` or ``password`` (user and password) are sent over TLS only, and never after
    a redirect. ``authority``: PEM; empty: the system's."""

    url: str
    origin: str
    token: str = field(default="", repr=False)
    authority: str = field(default="", repr=False)
    password: tuple[str, str] | None = field(default=None, repr=False)


def find_address(url: str | None, data_dir: Path) -> Address:
    """Find the server to connect to. Raises CliError (3) with a line that says how to start or name one."""
    if url:
        full = url if "://" in url else f"http://{url}"
        return _logged_in(full.rstrip("/"), "as given by --url or ZONEKEEPER_URL", data_dir)
    path = data_dir / RUN_FILE
    try:
        server = local_server(data_dir)
    except FileNotFoundError as error:
        if error.filename and Path(error.filename) not in (path, data_dir):
            raise CliError(ExitCode.UNREACHABLE, f"{path} names no server ({error}); use --url.") from error
        if current := load_contexts().current:
            return _logged_in(current, "as logged in to by `zonectl login`", data_dir)
        raise CliError(
            ExitCode.UNREACHABLE,
            f"no server to connect to: {path} does not exist. "
            f"Start one with `zonectl up --data-dir {data_dir}`, log in to one with `zonectl login URL`, "
            "or name one with --url.",
        ) from None
    except PermissionError as error:
        message = (
            f"{path} belongs to another user; log in with `zonectl login URL`, or name a server with --url."
        )
        raise CliError(ExitCode.UNREACHABLE, message) from error
    except NotOwnFileError as error:
        raise CliError(ExitCode.UNREACHABLE, f"{error}; use --url.") from error
    except (OSError, ValueError) as error:
        raise CliError(ExitCode.UNREACHABLE, f"{path} names no server ({error}); use --url.") from error
    return _with_credential(Address(server.url, f"as written in {path}"), server)


def _logged_in(url: str, origin: str, data_dir: Path) -> Address:
    """The address of ``url`` with the environment's token, else with a login's or with that of a `zonectl up`
    of the data directory, where these belong to the same origin."""
    address = Address(url, origin)
    if not url.startswith("https://"):
        return address
    server = None
    with suppress(OSError, ValueError):
        near = local_server(data_dir)
        server = near if origin_of(near.url) == origin_of(url) else None
    if token := _token():
        authority = _authority() or ("" if server is None else server.authority)
        return replace(address, token=token, authority=authority)
    return _with_credential(address, server)


def _with_credential(address: Address, server: LocalServer | None) -> Address:
    """The address with the credential of a login to its origin, or of ``server``, which has the same origin."""
    if not address.url.startswith("https://"):
        return address
    if (context := load_contexts().of(address.url)) is not None:
        return replace(address, token=context.token, authority=context.authority)
    if server is None:
        return replace(address, authority=_authority())
    # The token goes to whom the authority that it was stored with has signed, and to nobody else.
    return replace(address, token=server.token, authority=server.authority)


def _token() -> str:
    """The variable's value, or the text of the file that ``<variable>_FILE`` names, without the line break at
    its end. Raises UsageError."""
    if f"{TOKEN_VARIABLE}_FILE" not in os.environ:
        return os.environ.get(TOKEN_VARIABLE, "")
    return _file_of(f"{TOKEN_VARIABLE}_FILE").rstrip("\r\n")


def _authority() -> str:
    return _file_of(CA_VARIABLE) if os.environ.get(CA_VARIABLE) else ""


def _file_of(variable: str) -> str:
    path = os.environ[variable]
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{variable}: {path}: {reason}") from error


def addresses_of(url: str, data_dir: Path) -> dict[str, Any] | None:
    """Addresses that the `zonectl up` of the data directory has written; None when it is not the one at
    ``url``."""
    try:
        body = json.loads((data_dir / RUN_FILE).read_text())
        addresses = body["addresses"] if body["url"] == url else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return addresses if isinstance(addresses, dict) else None
