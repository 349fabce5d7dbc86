"""The children of ``zonectl up``: their command lines, logs and the order in which they stop."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from app.configuration.local_server import TARGETS_FILE
from app.configuration.node_settings import NODE_NAME, profiles_of
from app.configuration.settings import METASTORE_QUOTA_MB, Settings
from app.supervision.installation_state import PORTS_PER_MEMBER, STORE_PORTS, LocalLogin, Ports, UpError
from rebalance.hosting.child import ETCD, PYTHON, SPARK, SYSTEM
from rebalance.hosting.tls import TlsFiles, tls_flags

REGIONS = ("EU", "US")
DEFAULT_PROFILES = ("default", "ssd", "bulk=store")
COMPACT_AFTER = "10m"
ANY_HOST = ("0.0.0.0", "::")


SETTINGS = frozenset(f"ZONEKEEPER_{name.upper()}" for name in Settings.model_fields)
# The server starts Spark. libpq has variables of its own, also for the catalog's password.
SERVER_INHERITS = (*SPARK, *sorted(SETTINGS), "PG*")
CATALOG_SETTINGS = {"ZONEKEEPER_CATALOG_URL", "ZONEKEEPER_CATALOG_PASSWORD_FILE"}
# Every setting but the catalog's, which lead to a password and are none of a node's business.
NODE_INHERITS = (*PYTHON, *ETCD, *sorted(SETTINGS - CATALOG_SETTINGS))
SERVER_MEMORY = {"MALLOC_ARENA_MAX": "2", "MALLOC_TRIM_THRESHOLD_": str(128 << 10)}
"""Settings of glibc that return memory to the system after a peak. By glibc's own rules it would stay: the
heaps of threads, and buffers of connections, which are no longer mapped one by one after some were freed."""
DEMO_INHERITS = (*PYTHON, "TERM", "COLUMNS", "NO_COLOR")


class StopRank(IntEnum):
    """Lower stops first: nodes say goodbye to the server's stores, the server to etcd."""

    CLIENT = 0
    NODE = 1
    SERVER = 2
    METASTORE = 3


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One child. ``log`` None: it writes to the supervisor's own terminal, once, and is not restarted."""

    name: str
    argv: tuple[str, ...]
    rank: StopRank
    log: Path | None
    inherited: tuple[str, ...] = SYSTEM
    env: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 5.0
    silence_s: float = 0.0
    """Restarted when its event loop has not run for so long (``hang_watch``); 0: however long."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node of the topology: ``attributes`` is what NODES FILTER sees."""

    name: str
    attributes: Mapping[str, str | int | float | bool]
    profiles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UpOptions:
    """``settings.port`` and ``https_port`` 0: the earlier one, or a free one; ``settings.tls`` None: this
    installation makes certificates for etcd and members. ``insecure``: ``app.security.protections``. ``demo``:
    run it once the API answers; ``leave_after_demo``: and end with its exit code."""

    settings: Settings
    nodes: Sequence[NodeSpec]
    insecure: bool = False
    ports: range | None = None
    """Range that new ports are chosen from; None: the usual one."""
    auth: bool | None = None
    """True if users have to log in; None: as in the data directory, and in a new one they have to."""
    demo: bool = False
    leave_after_demo: bool = False

    @property
    def probe_host(self) -> str:
        return "127.0.0.1" if self.settings.host in ANY_HOST else self.settings.host


def default_topology(count: int) -> tuple[NodeSpec, ...]:
    """n1, n2, ...: regions alternate, every node has every default profile."""
    return tuple(
        NodeSpec(f"n{index + 1}", {"region": REGIONS[index % len(REGIONS)]}, DEFAULT_PROFILES)
        for index in range(count)
    )


def read_topology(path: Path) -> tuple[NodeSpec, ...]:
    """A JSON list of {"name", "attributes", "profiles"}. Raises UpError that names the entry."""
    try:
        body = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UpError(f"topology {path}: {error}") from error
    if not isinstance(body, list) or not body:
        raise UpError(f'topology {path}: wanted a list of {{"name", "attributes", "profiles"}}')
    nodes = tuple(_node(path, index, entry) for index, entry in enumerate(body))
    names = [node.name for node in nodes]
    if len(set(names)) != len(names):
        raise UpError(f"topology {path}: a name occurs twice")
    return nodes


def _node(path: Path, index: int, entry: Any) -> NodeSpec:
    where = f"topology {path}, entry {index}"
    if not isinstance(entry, dict) or not entry.keys() <= {"name", "attributes", "profiles"}:
        raise UpError(f'{where}: wanted {{"name", "attributes", "profiles"}}')
    name, attributes = entry.get("name"), entry.get("attributes", {})
    profiles = entry.get("profiles", ["default"])
    if not isinstance(name, str) or not NODE_NAME.fullmatch(name):
        raise UpError(f"{where}: a name is 1 to 63 letters, digits, _ . or -")
    if not isinstance(attributes, dict) or not all(
        isinstance(v, str | int | float) for v in attributes.values()
    ):
        raise UpError(f"{where}: attributes is an object of strings, numbers and booleans")
    if not isinstance(profiles, list) or not all(isinstance(p, str) and p and "," not in p for p in profiles):
        raise UpError(f"{where}: profiles is a list of names without commas")
    try:
        profiles_of(profiles)
    except ValueError as error:
        raise UpError(f"{where}: {error}") from error
    return NodeSpec(name, attributes, tuple(profiles) or ("default",))


def plan_children(
    directory: Path,
    ports: Ports,
    options: UpOptions,
    *,
    etcd: str,
    tls: TlsFiles,
    https: TlsFiles | None = None,
    login: LocalLogin | None = None,
) -> tuple[ChildSpec, ...]:
    """Every child that is restarted when it dies, in the order in which they start. ``tls``: what they show
    each other; ``https``: what the API shows, where users have to log in."""
    logs, settings = directory / "logs", options.settings
    endpoint = f"127.0.0.1:{ports.etcd_client}"
    server = ChildSpec(
        name="server",
        argv=(
            *zonectl("serve", "--controllers", "--migrate", "--host", settings.host, "--port", str(ports.api)),
            *("--metastore", endpoint, "--data-dir", str(directory)),
            *(("--insecure",) if options.insecure else ()),
            *(("--require-reason",) if settings.require_reason else ()),
            *(("--no-auth",) if login is None else ("--https-port", str(ports.https))),
        ),
        rank=StopRank.SERVER,
        log=logs / "server.log",
        silence_s=settings.up_server_silence_s,
        inherited=SERVER_INHERITS,
        env={
            **SERVER_MEMORY,
            **_tls_settings(tls),
            **({} if https is None or login is None else _login_settings(https, login)),
            **_scrape_settings(login),
            "ZONEKEEPER_METASTORE_QUOTA_MB": str(METASTORE_QUOTA_MB),
            "ZONEKEEPER_METRICS_TARGETS": str(directory / TARGETS_FILE),
        },
    )
    metastore = ChildSpec(
        "etcd", etcd_command(etcd, directory / "etcd", ports, tls), StopRank.METASTORE, logs / "etcd.log", ETCD
    )
    # One etcd for all: members of one group must not differ in their minor version.
    env = {"ZONEKEEPER_ETCD": etcd, **_tls_settings(tls), **_scrape_settings(login)}
    agents = (_node_child(node, directory, ports, options, env) for node in options.nodes)
    return metastore, server, *agents


def _tls_settings(tls: TlsFiles) -> dict[str, str]:
    return {
        "ZONEKEEPER_TLS_CA": str(tls.ca),
        "ZONEKEEPER_TLS_CERTIFICATE": str(tls.certificate),
        "ZONEKEEPER_TLS_KEY": str(tls.key),
        "ZONEKEEPER_METASTORE_TLS": "true",
    }


def _login_settings(https: TlsFiles, login: LocalLogin) -> dict[str, str]:
    return {
        "ZONEKEEPER_HTTPS_CERTIFICATE": str(https.certificate),
        "ZONEKEEPER_HTTPS_KEY": str(https.key),
        "ZONEKEEPER_ADMIN_TOKEN_FILE": str(login.token_file),
    }


def _scrape_settings(login: LocalLogin | None) -> dict[str, str]:
    if login is None:
        return {"ZONEKEEPER_AUTH": "false"}
    return {"ZONEKEEPER_METRICS_TOKEN_FILE": str(login.scrape_token_file)}


def zonectl(*arguments: str) -> tuple[str, ...]:
    """This installation's own command; ``-P``: never a folder named ``app`` of the current directory."""
    return (sys.executable, "-P", "-m", "app.cli", *arguments)


def etcd_command(binary: str, data: Path, ports: Ports, tls: TlsFiles | None = None) -> tuple[str, ...]:
    """A metastore of one member that only this machine can reach, with ``tls`` only by a certificate.
    The peer URL in its membership may be an earlier one: no other process connects to it."""
    scheme = "http" if tls is None else "https"
    client, peer = f"{scheme}://127.0.0.1:{ports.etcd_client}", f"{scheme}://127.0.0.1:{ports.etcd_peer}"
    return (
        *(binary, "--name", "zonekeeper", "--data-dir", str(data)),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"zonekeeper={peer}", "--initial-cluster-token", "zonekeeper-metastore"),
        *("--quota-backend-bytes", str(METASTORE_QUOTA_MB << 20)),
        *("--auto-compaction-mode", "periodic", "--auto-compaction-retention", COMPACT_AFTER),
        *("--logger", "zap", "--log-level", "warn", "--log-outputs", "stderr"),
        *(f"--{flag}={value}" for flag, value in (tls_flags(tls) if tls else {}).items()),
    )


def _node_child(
    node: NodeSpec, directory: Path, ports: Ports, options: UpOptions, env: Mapping[str, str]
) -> ChildSpec:
    block = ports.nodes[node.name]
    # A block chosen under a smaller limit stays as it is (its ports are in memberships): it sets the limit.
    limit = min(options.settings.node_member_limit, max(1, (len(block) - STORE_PORTS) // PORTS_PER_MEMBER))
    return ChildSpec(
        name=node.name,
        argv=(
            *zonectl("node", "--name", node.name, "--profiles", ",".join(node.profiles)),
            *("--attributes", json.dumps(dict(node.attributes), sort_keys=True)),
            *("--host", "127.0.0.1", "--ports", f"{block.start}-{block.stop - 1}"),
            *("--member-limit", str(limit), "--metastore", f"127.0.0.1:{ports.etcd_client}"),
            *("--data-dir", str(directory / "nodes" / node.name)),
        ),
        rank=StopRank.NODE,
        log=directory / "logs" / f"{node.name}.log",
        inherited=NODE_INHERITS,
        env=env,
        silence_s=options.settings.up_node_silence_s,
        # Its members stop one after another where there are many.
        grace_s=8.0,
    )
