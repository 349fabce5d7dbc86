"""All checks of an installation, side by side and within a limit of time, whatever hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import httpx

from app.diagnosis import machine_probes, metastore_probes, server_probes
from app.diagnosis.checks import Check, not_seen
from app.diagnosis.examined_installation import ExaminedInstallation
from app.diagnosis.metastore_probes import MetastoreMember
from app.diagnosis.server_probes import Ask, Query
from rebalance.hosting.heartbeat import age_of_this_process_s

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Gathered(Generic[T]):
    """``failure``: why this is not all of it; empty where it is."""

    items: Sequence[T]
    failure: str


@dataclass(frozen=True, slots=True)
class Probe:
    """``run`` yields checks as it gets them, and may raise or hang. ``action``: what to do when it does."""

    name: str
    run: Callable[[], Iterable[Check]]
    action: str


class _Running(Generic[T]):
    def __init__(self, source: Callable[[], Iterable[T]]) -> None:
        self._source = source
        self._items: list[T] = []
        self._failure = ""
        # A daemon: a disk that hangs must not keep the process from its end.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for item in self._source():
                self._items.append(item)
        except Exception as error:
            self._failure = _reason(error)

    def gathered(self, deadline: float, limit_s: float) -> Gathered[T]:
        self._thread.join(max(0.0, deadline - time.monotonic()))
        is_late = self._thread.is_alive()
        return Gathered(tuple(self._items), f"no answer within {limit_s:.0f} s" if is_late else self._failure)


def gather(sources: Sequence[Callable[[], Iterable[T]]], limit_s: float) -> list[Gathered[T]]:
    """Run ``sources`` side by side. Return what each yields within ``limit_s`` seconds, in their order."""
    deadline = time.monotonic() + limit_s
    running = [_Running(source) for source in sources]
    return [each.gathered(deadline, limit_s) for each in running]


def run_probes(probes: Sequence[Probe], limit_s: float) -> list[Check]:
    """The checks of all probes in their order, after at most ``limit_s`` seconds. A probe that has not ended
    by then, or has raised, is a failed check after those that it gave."""
    found: list[Check] = []
    for probe, gathered in zip(probes, gather([probe.run for probe in probes], limit_s), strict=True):
        found.extend(gathered.items)
        if gathered.failure:
            found.append(not_seen(probe.name, "fail without an answer", gathered.failure, probe.action))
    return found


def _reason(error: Exception) -> str:
    """One line."""
    if isinstance(error, (TimeoutError, httpx.TimeoutException)):
        return "no answer in time"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


LIMIT_S = 12.0
"""Seconds from the start of the process until all checks have ended. A busy machine on which Python starts
slowly leaves less of them for probes."""
LEAST_S = 5.0
"""Seconds that probes have in any case, however long the start took."""
DISK = "See the kernel's log (`dmesg`): the file system does not answer or takes no writes."
SERVER = "Start it (`zonectl up`, `zonectl serve`), or see its log: a server that hangs is restarted by `up`."
ETCD = "See the log of etcd. A process that stands still is ended and started again."
CATALOG = "Start the database, or correct ZONEKEEPER_CATALOG_URL."
MACHINE = "Look at the reason: this machine did not say."


@dataclass(frozen=True, slots=True)
class Target:
    """``ask`` None: no server is known, for ``why_no_server``. ``etcd``: the program to start."""

    installation: ExaminedInstallation
    url: str = ""
    ask: Ask | None = None
    query: Query | None = None
    why_no_server: str = ""
    etcd: Path | None = None


def examine(target: Target) -> list[Check]:
    """Changes nothing. Returns at most ``LIMIT_S`` after the start of the process, or ``LEAST_S`` after the
    call."""
    limit_s = max(LEAST_S, LIMIT_S - age_of_this_process_s())
    found = run_probes(
        [*_of_server(target), *_of_metastore(target.installation), *_of_machine(target)], limit_s
    )
    if target.ask is None:
        reason = target.why_no_server or "no server is known"
        found.insert(0, not_seen("server", "fail without an answer", reason, SERVER))
    return found


def _of_server(target: Target) -> Iterator[Probe]:
    ask = target.ask
    if ask is None:
        return
    yield Probe("server", partial(server_probes.readiness, ask), SERVER)
    yield Probe("version of the server", partial(server_probes.document, ask), SERVER)
    yield Probe("versions of processes", partial(server_probes.builds, ask), SERVER)
    yield Probe("certificate that the server shows", partial(server_probes.certificate, target.url), SERVER)


def _of_metastore(installation: ExaminedInstallation) -> Iterator[Probe]:
    members = [MetastoreMember(endpoint, installation.tls) for endpoint in installation.endpoints]
    for one in members:
        yield Probe(f"etcd {one.endpoint}", partial(metastore_probes.member, one), ETCD)
    if members:
        yield Probe(
            "alarms of etcd, leases of nodes", partial(metastore_probes.cluster, members, installation), ETCD
        )


def _of_machine(target: Target) -> Iterator[Probe]:
    installation = target.installation
    if installation.catalog is not None:
        yield Probe("schema of the catalog", partial(_schema, installation), CATALOG)
    if installation.data_dir is not None and installation.listening:
        yield Probe("processes of `zonectl up`", partial(machine_probes.processes, installation), MACHINE)
        looked = partial(machine_probes.ports, installation.listening, is_running=installation.is_running)
        yield Probe("ports", looked, MACHINE)
    yield Probe("certificates", partial(machine_probes.certificates, installation.certificates), MACHINE)
    for directory in _directories(installation):
        yield Probe(f"free space of {directory}", partial(machine_probes.disk, directory), DISK)
        yield Probe(f"fsync time of {directory}", partial(machine_probes.fsync, directory), DISK)
    yield Probe("limits", partial(machine_probes.limits, installation.pids), MACHINE)
    yield Probe("versions", machine_probes.versions, MACHINE)
    if installation.data_dir is not None:
        yield Probe(
            "etcd to start", partial(machine_probes.etcd_program, installation.data_dir, target.etcd), MACHINE
        )


def _schema(installation: ExaminedInstallation) -> Iterator[Check]:
    # A second of a processor, which no other check waits for.
    from app.diagnosis import catalog_probes

    assert installation.catalog is not None, "probed only where it is known"
    yield from catalog_probes.schema(installation.catalog())


def _directories(installation: ExaminedInstallation) -> list[Path]:
    """The data directory, and those of nodes that are on other disks."""
    if installation.data_dir is None:
        return []
    return machine_probes.distinct_disks(
        [installation.data_dir, *sorted((installation.data_dir / "nodes").glob("*"))]
    )
