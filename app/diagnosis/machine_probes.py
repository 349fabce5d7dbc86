"""Probes of this machine. Nothing is written but a file without a name, which is gone with its descriptor."""

from __future__ import annotations

import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from app.diagnosis import checks
from app.diagnosis.checks import Check, CheckVerdict
from app.diagnosis.examined_installation import ExaminedInstallation, alive
from rebalance.hosting.etcd_binary import INSTALL, EtcdVersionError, choose
from rebalance.hosting.free_ports import is_free
from spark.errors import JavaMissingError
from spark.java import find_java

CONNECT_S = 2.0
FSYNCS = 9
FSYNC_BYTES = 4_096
RENEWAL = "Renew it; `zonectl up` renews its own when it starts, and that of the API while it runs."


def limits(pids: Mapping[str, int]) -> Iterator[Check]:
    """Check the limits of open files of the running processes, or, if none of them can be read, of this one;
    and the limit of processes of this one. Processes started from here inherit both."""
    found = {name: (limit, used) for name, pid in pids.items() for limit, used in _files_of(pid)}
    yield checks.open_files(found or {"this shell": (_capped(resource.RLIMIT_NOFILE), None)})
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    yield checks.process_limit(None if most == resource.RLIM_INFINITY else most)


def versions() -> Iterator[Check]:
    yield checks.python((sys.version_info.major, sys.version_info.minor, sys.version_info.micro))
    yield java()


def java() -> Check:
    try:
        return checks.java(find_java().version)
    except JavaMissingError as error:
        return checks.java("", str(error))


def etcd_program(data_dir: Path | None, path: Path | None) -> Iterator[Check]:
    """The one that `up` and `node` would start."""
    try:
        yield checks.etcd_version("etcd to start", ".".join(map(str, choose(data_dir, path).version)))
    except (FileNotFoundError, EtcdVersionError) as error:
        yield checks.not_seen(
            "etcd to start",
            "fail without one",
            str(error),
            f"Without any: {INSTALL}.",
        )


def disk(directory: Path) -> Iterator[Check]:
    space = os.statvfs(directory)
    yield checks.disk_space(str(directory), space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize)
    yield checks.inodes(str(directory), space.f_favail, space.f_files)


def fsync(directory: Path) -> Iterator[Check]:
    """Raises OSError, as of a disk that is full."""
    seconds = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(FSYNCS):
            file.write(bytes(FSYNC_BYTES))
            begun = time.perf_counter()
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - begun)
    yield checks.fsync_time(str(directory), seconds)


def certificates(files: Mapping[str, Path]) -> Iterator[Check]:
    now = datetime.now(UTC)
    for what, path in files.items():
        try:
            found = x509.load_pem_x509_certificate(path.read_bytes())
        except (OSError, ValueError) as error:
            yield checks.not_seen(what, "fail when it cannot be read", f"{path}: {error}", "Replace the file.")
            continue
        yield checks.certificate(what, found.not_valid_before_utc, found.not_valid_after_utc, now, RENEWAL)


def processes(installation: ExaminedInstallation) -> Iterator[Check]:
    """Check that the processes of the `up` of the data directory run."""
    dead = [name for name, pid in installation.pids.items() if not alive(pid)]
    count = len(installation.pids)
    yield checks.check_of(
        "processes of `zonectl up`",
        f"{count - len(dead)} of {count}" if count else "none runs",
        "fail when one is missing",
        CheckVerdict.FAIL if dead or not count else CheckVerdict.OK,
        f"See the logs of {', '.join(dead)} in {installation.data_dir}/logs."
        if dead
        else f"Start it with `zonectl up --data-dir {installation.data_dir}`.",
    )


def ports(listening: Mapping[str, str], *, is_running: bool) -> Iterator[Check]:
    """Check each port: while ``is_running`` it must accept connections; otherwise it must be free."""
    for purpose, address in listening.items():
        host, _, port = address.rpartition(":")
        if is_running:
            seen, is_good = ("open", True) if _connects(host, int(port)) else ("closed", False)
            action = f"See the log of its process: nobody accepts connections at {address}."
        else:
            seen, is_good = ("free", True) if is_free(int(port), host) else ("taken", False)
            action = f"Find who listens there (`ss -ltnp sport = :{port}`), and stop it."
        yield checks.check_of(
            f"port of {purpose}",
            f"{address} {seen}",
            f"fail when {'closed' if is_running else 'taken while nothing runs'}",
            CheckVerdict.OK if is_good else CheckVerdict.FAIL,
            action,
        )


def distinct_disks(directories: Iterable[Path]) -> list[Path]:
    """The first directory of each file system; those that are not there are left out."""
    found: dict[int, Path] = {}
    for directory in directories:
        try:
            found.setdefault(directory.stat().st_dev, directory)
        except OSError:
            continue
    return list(found.values())


def _connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except OSError:
        return False
    return True


def _files_of(pid: int) -> Iterator[tuple[int, int | None]]:
    """Limit and number of open files; nothing of a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    except OSError:
        return
    limit = next((line.split()[3] for line in lines if line.startswith("Max open files")), "")
    try:
        used: int | None = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        used = None
    if limit.isdigit():
        yield int(limit), used


def _capped(which: int) -> int:
    most = resource.getrlimit(which)[0]
    return sys.maxsize if most == resource.RLIM_INFINITY else most
