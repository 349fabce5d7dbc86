"""Entries of a debug zip that are read from files of this machine."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from app.configuration.local_server import SCRAPE_TOKEN_FILE
from app.configuration.settings import Settings
from app.diagnosis.machine_probes import java
from app.diagnosis.scrubbing import HIDDEN, is_secret, secrets_in
from app.diagnosis.whereabouts import Place
from app.process.build import own_commit, own_version

LOG_BYTES_MAX = 2 << 20
LOGS_BYTES_MAX = 24 << 20
SECRET_BYTES_MAX = 64 << 10
PREFIX = "ZONEKEEPER_"
STATE_FILES = ("state.json", "run.json", "etcd.json")
SHOWN = frozenset(Settings.model_fields) - {"catalog_url"}
"""Settings whose values may be shown. What has another name may be anything."""


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """One file of the zip, as text. ``is_cut``: it holds only a part."""

    name: str
    text: str
    is_cut: bool = False


def versions() -> Iterator[BundleEntry]:
    packages = {each.name: each.version for each in distributions()}
    body = {
        "zonekeeper": own_version(),
        "commit": own_commit(),
        "python": sys.version,
        "java": java().value,
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "packages": dict(sorted(packages.items())),
    }
    yield BundleEntry("versions.json", json.dumps(body, indent=2))


def settings(place: Place, environment: Mapping[str, str]) -> Iterator[BundleEntry]:
    """Those of this process and of each that runs, as their environments have them, and what the data
    directory keeps."""
    found = {"this process": _shown(environment)}
    for name, pid in place.pids.items():
        try:
            raw = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        found[name] = _shown(_variables(raw))
    yield BundleEntry("settings.json", json.dumps(found, indent=2))
    if place.data_dir is None:
        return
    for name in STATE_FILES:
        path = place.data_dir / name
        if path.is_file():
            yield BundleEntry(f"data-directory/{name}", path.read_text(errors="replace"))


def logs(place: Place) -> Iterator[BundleEntry]:
    """The ends of all, the newest first."""
    if place.data_dir is None:
        return
    left = LOGS_BYTES_MAX
    folder = place.data_dir / "logs"
    paths = [path for path in folder.glob("*.log*") if path.is_file() and not path.is_symlink()]
    for path in sorted(paths, key=lambda path: (-path.stat().st_mtime_ns, path.name)):
        if left <= 0:
            return
        most = min(left, LOG_BYTES_MAX)
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - most))
            raw = stream.read(most)
        left -= len(raw)
        # A line that begins before is left out: half a secret is not recognised.
        kept = raw if size <= most else raw.partition(b"\n")[2]
        yield BundleEntry(f"logs/{path.name}", kept.decode(errors="replace"), is_cut=size > most)


def known_secrets(place: Place, environment: Mapping[str, str]) -> set[str]:
    """By value: of the environments of this process and of those that run, and of files that hold nothing
    else. What cannot be read is not known."""
    found = secrets_in(environment)
    for pid in place.pids.values():
        try:
            found |= secrets_in(_variables(Path(f"/proc/{pid}/environ").read_bytes()))
        except OSError:
            continue
    files = [Path(value) for name, value in environment.items() if _names_secret_file(name) and value]
    if place.data_dir is not None:
        files += [place.data_dir / name for name in ("admin.token", SCRAPE_TOKEN_FILE)]
    for path in files:
        try:
            text = path.read_bytes()[:SECRET_BYTES_MAX].decode(errors="replace").strip()
        except OSError:
            continue
        found |= {line.strip() for line in text.splitlines()} - {""}
    return found


def _names_secret_file(name: str) -> bool:
    return name.endswith("_FILE") and is_secret(name.removesuffix("_FILE"))


def _variables(raw: bytes) -> dict[str, str]:
    pairs = (entry.decode(errors="replace").partition("=") for entry in raw.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in pairs}


def _shown(environment: Mapping[str, str]) -> dict[str, str]:
    """Ours, without the values of those that are no plain setting."""
    return {
        name: value if name.removeprefix(PREFIX).lower() in SHOWN else HIDDEN
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX)
    }
