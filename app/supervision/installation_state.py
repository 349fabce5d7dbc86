"""The files that ``zonectl up`` keeps in its data directory.

| File | What |
|---|---|
| ``up.lock`` | held while an ``up`` runs; the kernel releases it however that process ends |
| ``up.pid`` | whose lock it is, for the line that refuses a second ``up`` |
| ``state.json`` | the ports, chosen once, and whether users have to log in |
| ``etcd.json`` | which etcd has written the directory |
| ``run.json`` | addresses and pids, while it runs: clients find the API by it |
| ``admin.token`` | a token of the administrator ``admin``, which the server keeps valid; with login only |
| ``metrics.token`` | what scrapers show to every process, made once; with login only |
| ``scrape-targets.json`` | what Prometheus scrapes, for its file_sd |
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Self

from filelock import FileLock, Timeout

from app.configuration.local_server import DATA_DIR, SCRAPE_TOKEN_FILE
from app.security.protections import is_loopback
from app.supervision.privacy import of_others
from rebalance.hosting.etcd_binary import BUNDLED, MEMORY_FILE, EtcdBinary, EtcdVersionError, choose, remember
from rebalance.hosting.free_ports import free_block, is_free
from rebalance.hosting.private_files import replace_privately
from rebalance.hosting.tls import TlsFiles

STATE_FORMAT = 1
CATALOG_FILE = "catalog.sqlite"
PORTS_PER_MEMBER = 2
STORE_PORTS = 1
# A killed predecessor's etcd and server are gone within milliseconds; their ports are worth that wait.
PORT_PATIENCE_S = 3.0


class UpError(RuntimeError):
    """``up`` cannot start; the message is one line for people."""


@dataclass(frozen=True, slots=True)
class LoginRule:
    """Rule whether users have to log in. ``is_new``: there is data already, and until now they did not have
    to."""

    is_required: bool
    is_new: bool = False


class DataDirectory:
    """The directory of one ``up``, locked for as long as this object is open."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock = FileLock(self.path / "up.lock", timeout=0)

    def __enter__(self) -> Self:
        """Raises UpError when another ``up`` runs here, or the directory cannot be used, or it or what ``up``
        keeps in it is another user's, who may know the keys or be an administrator of the catalog."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if os.geteuid() and self.path.stat().st_uid not in (os.geteuid(), 0):
                raise UpError(f"{self.path} belongs to another user: choose another --data-dir")
            if os.geteuid() and (foreign := of_others(self.path)):
                raise UpError(f"{foreign[0]} belongs to another user: choose another --data-dir")
            self._lock.acquire()
        except Timeout:
            owner = _read_text(self.path / "up.pid") or "unknown"
            raise UpError(
                f"another `zonectl up` (pid {owner}) runs in {self.path}: stop it, or choose another --data-dir"
            ) from None
        except OSError as error:
            raise UpError(f"cannot use {self.path}: {error.strerror or error}") from error
        write_file(self.path / "up.pid", str(os.getpid()))
        return self

    def __exit__(self, *_: object) -> None:
        (self.path / "run.json").unlink(missing_ok=True)
        self._lock.release()

    def write_run(self, addresses: Addresses, pids: Mapping[str, int]) -> None:
        login = addresses.login
        body = {
            "url": addresses.api,
            **({} if login is None else {name: str(path) for name, path in asdict(login).items()}),
            "addresses": addresses.as_json(),
            "pid": os.getpid(),
            "children": dict(pids),
        }
        write_file(self.path / "run.json", json.dumps(body, indent=2))


@dataclass(frozen=True, slots=True)
class LocalLogin:
    """Files with what commands on this machine log in with. ``authority``: PEM file, of the API's certificate.
    ``token_file`` and ``scrape_token_file`` belong to the owner of the data directory alone."""

    authority: Path
    token_file: Path
    scrape_token_file: Path

    @classmethod
    def of(cls, directory: Path, authority: Path) -> Self:
        return cls(authority, directory / "admin.token", directory / SCRAPE_TOKEN_FILE)


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of all that can be reached while ``up`` runs. ``console`` empty: none is served. ``nodes``:
    host and ports of each node's members. ``spark`` is the master that the driver connects to. ``login`` None:
    no login is required. ``health``: address that needs neither login nor TLS; empty: the API itself needs
    neither."""

    api: str
    console: str
    etcd: str
    nodes: Mapping[str, str]
    spark: str
    tls: TlsFiles
    """Files with the certificate that etcd and members ask their clients for."""
    login: LocalLogin | None = None
    health: str = ""

    def as_json(self) -> dict[str, Any]:
        tls = {name: str(path) for name, path in asdict(self.tls).items()}
        plain = {name: value for name, value in asdict(self).items() if name != "login"}
        return {**plain, "nodes": dict(self.nodes), "tls": tls}

    def lines(self, data_dir: Path) -> list[str]:
        """Lines that ``up`` prints for people once the API is served. ``data_dir`` as it was given."""
        members = ", ".join(f"{name} {where}" for name, where in self.nodes.items())
        option = "" if data_dir == DATA_DIR else f" --data-dir {quote(str(data_dir))}"
        how = "" if self.login is None else f"; `zonectl console-link{option}` opens it logged in"
        console = [f"console at {self.console}{how}"] if self.console else []
        certificate = f"certificate for etcd and members: {self.tls.certificate}"
        return [
            *console,
            *([f"health checks without login at {self.health}"] if self.health else []),
            f"etcd at {self.etcd}",
            f"members at {members}",
            certificate,
            f"Spark at {self.spark}",
        ]


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything that listens. ``nodes`` holds each node's block, also of nodes that are not started now.
    ``https`` 0: none was chosen yet."""

    api: int
    etcd_client: int
    etcd_peer: int
    nodes: Mapping[str, range]
    https: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "v": STATE_FORMAT,
            "api": self.api,
            **({"https": self.https} if self.https else {}),
            "etcd_client": self.etcd_client,
            "etcd_peer": self.etcd_peer,
            "nodes": {name: [block.start, block.stop - 1] for name, block in self.nodes.items()},
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        if body["v"] != STATE_FORMAT:
            raise UpError(f"state.json has format {body['v']}; this build reads {STATE_FORMAT}")
        nodes = {name: range(first, last + 1) for name, (first, last) in body["nodes"].items()}
        return cls(body["api"], body["etcd_client"], body["etcd_peer"], nodes, body.get("https", 0))


def load_ports(directory: Path) -> Ports | None:
    """The ports of an earlier run. Raises UpError when the file is damaged: guessing would lose the members."""
    text = _read_text(directory / "state.json")
    if text is None:
        return None
    try:
        return Ports.from_json(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise UpError(f"{directory / 'state.json'} is damaged ({error!r})") from error


def choose_ports(
    earlier: Ports | None,
    nodes: Sequence[str],
    *,
    host: str = "127.0.0.1",
    api_port: int = 0,
    https_port: int | None = None,
    member_limit: int,
    patience_s: float = PORT_PATIENCE_S,
    within: range | None = None,
) -> Ports:
    """Ports for this run: those of the earlier one where they are free, new ones where not.

    A node's block is never given up, free or not: its ports are part of the groups' memberships, and members
    on other ports never form a quorum. ``https_port`` None: no HTTPS is served. ``within``: what new
    ones are chosen from; None: the usual ones. Raises UpError when ``api_port`` or ``https_port`` (not 0) is
    taken or in a node's block, and when no room is left.
    """
    known = earlier or Ports(0, 0, 0, {})
    blocks, size = dict(known.nodes), PORTS_PER_MEMBER * member_limit + STORE_PORTS
    choice = _PortChoice(list(blocks.values()), (api_port, https_port or 0), patience_s, within)
    for name in nodes:
        if name not in blocks:
            blocks[name] = choice.free(size, "127.0.0.1")
    api = choice.requested("--port", api_port, known.api, host)
    https = known.https
    if https_port is not None:
        https = choice.requested("--https-port", https_port, https, host)
    client, peer = choice.kept(known.etcd_client, "127.0.0.1"), choice.kept(known.etcd_peer, "127.0.0.1")
    return Ports(api, client, peer, blocks, https)


@dataclass(frozen=True, slots=True)
class _PortChoice:
    """``taken``: what no port is chosen from, to which each that is chosen is added; ``given``: ports that are
    chosen by request alone."""

    taken: list[range]
    given: tuple[int, ...]
    patience_s: float
    within: range | None

    def free(self, size: int, host: str) -> range:
        try:
            avoid = [*self.taken, *(range(port, port + 1) for port in self.given)]
            self.taken.append(free_block(size, host, avoid=avoid, within=self.within))
        except RuntimeError as error:
            raise UpError(f"{error}: widen ZONEKEEPER_UP_PORT_RANGE, or take fewer nodes") from error
        return self.taken[-1]

    def requested(self, option: str, requested: int, earlier: int, host: str) -> int:
        """``requested`` 0: any, the earlier one before all others."""
        if not requested:
            return self.kept(earlier, host)
        block = next((block for block in self.taken if requested in block), range(0))
        if len(block) > 1:
            blocks = ", ".join(f"{each.start}-{each.stop - 1}" for each in self.taken if len(each) > 1)
            raise UpError(
                f"port {requested} is kept for a node of this data directory: choose another {option}, outside "
                f"of {blocks}"
            )
        if block or not _becomes_free(requested, host, self.patience_s):
            raise UpError(
                f"port {requested} is taken on {host}: stop what listens there, or choose another {option}"
            )
        return self._take(requested)

    def kept(self, earlier: int, host: str) -> int:
        """``earlier`` 0: there is none."""
        is_apart = earlier and not any(earlier in block for block in self.taken)
        if is_apart and _becomes_free(earlier, host, self.patience_s):
            return self._take(earlier)
        return self.free(1, host).start

    def _take(self, port: int) -> int:
        self.taken.append(range(port, port + 1))
        return port


def save_state(directory: Path, ports: Ports, *, has_login: bool) -> None:
    write_file(directory / "state.json", json.dumps(ports.as_json() | {"login": has_login}, indent=2))


def choose_login(directory: Path, requested: bool | None, host: str) -> LoginRule:
    """Decide whether users have to log in: as ``requested`` (None: no request), or else as in the run before.
    For a new directory, and for data of a release that had no login, a login is required. Once required, it
    stays so. Raises UpError for a request to undo that, and for an API without login that other machines
    reach."""
    text = _read_text(directory / "state.json")
    earlier = json.loads(text).get("login") if text else None
    has_data = text is not None or (directory / CATALOG_FILE).exists()
    if requested is False and has_data and earlier is not False:
        raise UpError(
            f"--no-auth is for data directories that are new or were made with it, and {directory} is neither: "
            "leave it out, or choose another --data-dir"
        )
    if requested is False or (requested is None and earlier is False):
        try:
            is_near = is_loopback(host)
        except OSError as error:
            raise UpError(f"the address {host} is not known: {error}") from error
        if not is_near:
            raise UpError(f"--no-auth is for the loopback address, and others reach {host}: use --auth")
        return LoginRule(False)
    return LoginRule(True, is_new=has_data and earlier is not True)


def choose_etcd(directory: Path, path: Path | None) -> EtcdBinary:
    """Choose an etcd that can open the data in the directory. Raises UpError when none can."""
    if not (directory / MEMORY_FILE).exists() and (wrote := _etcd_of_earlier_release(directory)) is not None:
        remember(directory, wrote)
    try:
        return choose(directory, path)
    except EtcdVersionError as error:
        raise UpError(str(error)) from error


def _etcd_of_earlier_release(directory: Path) -> EtcdBinary | None:
    """Return the etcd of an earlier release, which wrote its version beside the ports, and not its path; None:
    none is noted. The bundled one has a version that no distribution ships."""
    text = _read_text(directory / "state.json")
    version = tuple((json.loads(text) if text else {}).get("etcd_version", ()))
    return EtcdBinary("", version, version == BUNDLED) if version else None


def write_file(path: Path, text: str) -> None:
    """All or nothing, also when the machine stops in the middle."""
    replace_privately(path, f"{text}\n".encode())


def _becomes_free(port: int, host: str, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while not is_free(port, host):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return None
