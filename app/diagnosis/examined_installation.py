"""The installation that is examined, as its data directory and the settings describe it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.configuration.local_server import RUN_FILE
from app.configuration.settings import Settings
from rebalance.hosting.tls import TlsFiles

STATE_FILE = "state.json"
LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ExaminedInstallation:
    """An installation, as far as it can be found. ``data_dir`` None: nothing of it is on this machine. ``pids``
    by name of the process, of ``run.json``; empty: no ``up`` runs. ``catalog`` None: it is not known here."""

    data_dir: Path | None = None
    endpoints: tuple[str, ...] = ()
    """Endpoints of etcd, as host:port."""
    tls: TlsFiles | None = None
    """Files with the certificate that etcd asks clients for; None: it is reached without TLS."""
    prefix: str = "zonekeeper/"
    catalog: Callable[[], str] | None = field(default=None, repr=False)
    """Gives the URL, which may hold a password. Raises ValueError."""
    certificates: Mapping[str, Path] = field(default_factory=dict)
    pids: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    """Names of nodes that are to run on this machine."""
    listening: Mapping[str, str] = field(default_factory=dict)
    """Addresses (host:port) by the purpose of their ports."""

    @property
    def is_running(self) -> bool:
        return bool(self.pids)


def read_installation(
    data_dir: Path, settings: Settings, *, is_elsewhere: bool = False
) -> ExaminedInstallation:
    """Read what is known of an installation. ``is_elsewhere``: the server named is not the one of ``data_dir``,
    so that only the settings are about it. Files that cannot be read count as absent."""
    given = settings.model_fields_set
    has_directory = not is_elsewhere and (data_dir / STATE_FILE).is_file()
    run = _read(data_dir / RUN_FILE) if has_directory else {}
    state = _read(data_dir / STATE_FILE) if has_directory else {}
    endpoints, tls = _metastore(run, state, settings)
    knows_catalog = has_directory or bool(given & {"catalog_url", "catalog_password_file"})
    return ExaminedInstallation(
        data_dir=data_dir.absolute() if has_directory or (not is_elsewhere and data_dir.is_dir()) else None,
        endpoints=endpoints,
        tls=tls or (_local_tls(data_dir) if has_directory else None),
        prefix=settings.metastore_prefix,
        catalog=(lambda: settings.catalog) if knows_catalog else None,
        certificates=_certificates(data_dir if has_directory else None, settings),
        pids=_pids(run),
        nodes=tuple(sorted(_part(_part(run, "addresses"), "nodes"))),
        listening=_listening(run, state, settings),
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _metastore(
    run: Mapping[str, Any], state: Mapping[str, Any], settings: Settings
) -> tuple[tuple[str, ...], TlsFiles | None]:
    addresses = _part(run, "addresses")
    if isinstance(addresses.get("etcd"), str):
        files = _part(addresses, "tls")
        with suppress(KeyError, TypeError):
            return (addresses["etcd"],), TlsFiles(*(Path(files[name]) for name in ("ca", "certificate", "key")))
        return (addresses["etcd"],), None
    if isinstance(port := state.get("etcd_client"), int):
        return (f"{LOCALHOST}:{port}",), None
    if "metastore" not in settings.model_fields_set:
        return (), None
    endpoints = tuple(url.strip() for url in settings.metastore.split(",") if url.strip())
    return endpoints, settings.tls if settings.metastore_tls else None


def _local_tls(data_dir: Path) -> TlsFiles | None:
    folder = data_dir.absolute() / "tls" / "machines"
    files = TlsFiles(*(folder / f"{name}.pem" for name in ("authority", "certificate", "key")))
    return files if files.certificate.is_file() else None


def _certificates(data_dir: Path | None, settings: Settings) -> dict[str, Path]:
    """Files of certificates by their purpose."""
    found: dict[str, Path] = {}
    if data_dir is not None:
        for folder, purpose in (("machines", "etcd and members"), ("api", "the API")):
            for name, what in (("authority", "authority"), ("certificate", "certificate")):
                path = data_dir.absolute() / "tls" / folder / f"{name}.pem"
                if path.is_file():
                    found[f"{what} of {purpose}"] = path
    named = {
        "tls_ca": settings.tls_ca,
        "tls_certificate": settings.tls_certificate,
        "https_certificate": settings.https_certificate,
    }
    found.update(
        {f"certificate in ZONEKEEPER_{name.upper()}": path for name, path in named.items() if path is not None}
    )
    return found


def _pids(run: Mapping[str, Any]) -> dict[str, int]:
    """The supervisor's as "up"."""
    children = {name: pid for name, pid in _part(run, "children").items() if isinstance(pid, int)}
    return {"up": run["pid"], **children} if isinstance(run.get("pid"), int) else children


def _listening(run: Mapping[str, Any], state: Mapping[str, Any], settings: Settings) -> dict[str, str]:
    """The API is where it runs, or would by the settings; all else is on this machine alone."""
    names = {
        "API over HTTP": "api",
        "API over HTTPS": "https",
        "etcd": "etcd_client",
        "peers of etcd": "etcd_peer",
    }
    ports = {purpose: state[key] for purpose, key in names.items() if isinstance(state.get(key), int)}
    if run and not str(run.get("url")).startswith("https:"):
        ports.pop("API over HTTPS", None)
    api = urlsplit(str(run.get("url", ""))).hostname or settings.host
    return {
        purpose: f"{api if purpose.startswith('API') else LOCALHOST}:{port}" for purpose, port in ports.items()
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def _part(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = body.get(name)
    return part if isinstance(part, dict) else {}
