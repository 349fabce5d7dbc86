"""All checks of an installation, within a limit of time, whatever hangs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from app.diagnosis import machine_probes, metastore_probes, server_probes
from app.diagnosis.checks import Check, not_seen
from app.diagnosis.metastore_probes import MetastoreMember
from app.diagnosis.rounds import Probe, run_probes
from app.diagnosis.server_probes import Ask, Query
from app.diagnosis.whereabouts import Place
from rebalance.hosting.age import age_of_this_process_s

LIMIT_S = 12.0
"""From the start of the process, so that a busy machine on which Python starts slowly has less for probes."""
LEAST_S = 5.0
"""For probes."""
DISK = "See the kernel's log (`dmesg`): the file system does not answer or takes no writes."
SERVER = "Start it (`zonectl up`, `zonectl serve`), or see its log: a server that hangs is restarted by `up`."
ETCD = "See the log of etcd. A process that stands still is ended and started again."
CATALOG = "Start the database, or correct ZONEKEEPER_CATALOG_URL."
MACHINE = "Look at the reason: this machine did not say."


@dataclass(frozen=True, slots=True)
class Target:
    """``ask`` None: no server is known, for ``why_no_server``. ``etcd``: the program to start."""

    place: Place
    url: str = ""
    ask: Ask | None = None
    query: Query | None = None
    why_no_server: str = ""
    etcd: Path | None = None


def examine(target: Target) -> list[Check]:
    """Changes nothing. Returns at most ``LIMIT_S`` after the start of the process, or ``LEAST_S`` after the
    call."""
    limit_s = max(LEAST_S, LIMIT_S - age_of_this_process_s())
    found = run_probes([*_of_server(target), *_of_metastore(target.place), *_of_machine(target)], limit_s)
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


def _of_metastore(place: Place) -> Iterator[Probe]:
    members = [MetastoreMember(endpoint, place.tls) for endpoint in place.endpoints]
    for one in members:
        yield Probe(f"etcd {one.endpoint}", partial(metastore_probes.member, one), ETCD)
    if members:
        yield Probe("alarms of etcd, leases of nodes", partial(metastore_probes.cluster, members, place), ETCD)


def _of_machine(target: Target) -> Iterator[Probe]:
    place = target.place
    if place.catalog is not None:
        yield Probe("schema of the catalog", partial(_schema, place), CATALOG)
    if place.data_dir is not None and place.listening:
        yield Probe("processes of `zonectl up`", partial(machine_probes.processes, place), MACHINE)
        looked = partial(machine_probes.ports, place.listening, is_running=place.is_running)
        yield Probe("ports", looked, MACHINE)
    yield Probe("certificates", partial(machine_probes.certificates, place.certificates), MACHINE)
    for directory in _directories(place):
        yield Probe(f"free space of {directory}", partial(machine_probes.disk, directory), DISK)
        yield Probe(f"fsync time of {directory}", partial(machine_probes.fsync, directory), DISK)
    yield Probe("limits", partial(machine_probes.limits, place.pids), MACHINE)
    yield Probe("versions", machine_probes.versions, MACHINE)
    if place.data_dir is not None:
        yield Probe("etcd to start", partial(machine_probes.etcd_program, place.data_dir, target.etcd), MACHINE)


def _schema(place: Place) -> Iterator[Check]:
    # A second of a processor, which no other check waits for.
    from app.diagnosis import catalog_probes

    assert place.catalog is not None, "probed only where it is known"
    yield from catalog_probes.schema(place.catalog())


def _directories(place: Place) -> list[Path]:
    """The data directory, and those of nodes that are on other disks."""
    if place.data_dir is None:
        return []
    return machine_probes.distinct_disks([place.data_dir, *sorted((place.data_dir / "nodes").glob("*"))])
