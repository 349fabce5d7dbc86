"""Places of a node's members and mirrors: a directory on disk each, with the ports that are in its
membership.

``members/<zone>-<partition>/reservation.json`` is written before a member is announced and survives restarts:
a member that came back on other ports would never find its group again. ``data`` beside it is etcd's. Mirrors
have the same below ``mirrors``, and take their pairs of ports from the same range (``PortPairs``).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import filelock

from catalog.core.zone import ZoneId
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.hosting.directory_owner import name_as
from rebalance.hosting.free_ports import is_free
from rebalance.hosting.private_files import replace_privately
from rebalance.ports.groups import DataDirectoryInUseError, MemberEndpoints, NoPlaceError


class PortPairs:
    """Pairs of neighbours in ``ports``, from its first port on. Nothing is bound by taking one."""

    def __init__(self, ports: range, host: str, probe: Callable[[int, str], bool] = is_free) -> None:
        if len(ports) < 2:
            raise ValueError(f"a port range of at least two ports is needed, not {ports}")
        self.host = host
        self._ports = ports
        self._probe = probe
        self._taken: set[int] = set()
        self._next = 0

    def claim(self, first: int) -> None:
        """A pair that was taken in an earlier run."""
        self._taken.add(first)
        self._next = max(self._next, (first - self._ports.start) // 2 + 1)

    def take(self, besides: Collection[int] = ()) -> int:
        """The first port of a free pair, none of ``besides``. Each search goes on where the last one ended: a
        freed pair rests as long as others are left, because clients may follow its old address for a moment.
        Raises NoPlaceError."""
        pairs = len(self._ports) // 2
        for offset in range(pairs):
            index = (self._next + offset) % pairs
            first = self._ports.start + 2 * index
            is_taken = first in self._taken or first in besides
            if not is_taken and all(self._probe(port, self.host) for port in (first, first + 1)):
                self._next = index + 1
                self._taken.add(first)
                return first
        raise NoPlaceError(
            Cause.NO_FREE_PORTS.text(f"none of {pairs} pairs in {self._ports.start}-{self._ports.stop - 1}")
        )

    def single(self, port: int) -> int:
        """``port``, which is for something else than members; where a pair of an earlier run has it, the first
        of a free pair. Raises NoPlaceError."""
        return self.take() if self._taken & {port - 1, port} else port

    def free(self, first: int) -> None:
        self._taken.discard(first)


RESERVATION_FORMAT = 1
_FILE = "reservation.json"
_FOUNDED = "data.founded-"
FOLDERS = ("members", "mirrors")


@dataclass(frozen=True, slots=True)
class Reservation:
    """``launched``: a process was started on it; its data may count in the group from then on. ``wrote_log``:
    etcd's write-ahead log has been seen; when it is gone later, the data is lost. ``copy``: of a mirror, the
    name of its present copy. ``generation``: of the group that the data belongs to; a recovery raises it once,
    when the member is its group's only one. ``founding_revision``: of the data that this member founded the
    group of its generation with, 0 where it did not. ``copied_revision``: of a mirror, the group's revision
    that its first copy has, 0 where an earlier build made it."""

    host: str
    peer_port: int
    client_port: int
    token: str = ""
    initial: dict[str, str] = field(default_factory=dict)
    state: str = "new"
    launched: bool = False
    wrote_log: bool = False
    copy: str = ""
    scheme: str = "http"
    """https for a member that speaks TLS, for all its life: its peer URL is in the membership."""
    generation: int = 0
    founding_revision: int = 0
    copied_revision: int = 0

    @property
    def endpoints(self) -> MemberEndpoints:
        base = f"{self.scheme}://{self.host}"
        return MemberEndpoints(f"{base}:{self.peer_port}", f"{base}:{self.client_port}")


class Reservations:
    """All reservations of one node below ``<data dir>/members``. Ports come in pairs from ``ports``."""

    def __init__(
        self,
        data_dir: Path,
        ports: range | PortPairs,
        host: str = "127.0.0.1",
        probe: Callable[[int, str], bool] = is_free,
        folder: str = "members",
        *,
        scheme: str = "http",
    ) -> None:
        self._data_dir = data_dir
        self._scheme = scheme
        self._root = data_dir / folder
        self._held: dict[PartitionId, Reservation] = {}
        self._kept_aside: dict[PartitionId, frozenset[int]] = {}
        self._lock: filelock.BaseFileLock | None = None
        if isinstance(ports, PortPairs):
            self._pairs = ports
        else:
            self._pairs = PortPairs(ports, host, probe)
            self._lock = filelock.FileLock(data_dir / "node.lock")

    def beside(self, folder: str) -> Reservations:
        """Other reservations of the same node below ``<data dir>/<folder>``, with ports from the same range.
        Open both before anything is reserved in either; the data directory is locked by this one alone."""
        return Reservations(self._data_dir, self._pairs, folder=folder, scheme=self._scheme)

    def single_port(self, port: int) -> int:
        """Take a port for something other than members: see ``PortPairs.single``. Call it once both
        reservations are open."""
        return self._pairs.single(port)

    def open(self) -> None:
        """Raises DataDirectoryInUseError when another process holds the directory."""
        self._root.mkdir(parents=True, exist_ok=True)
        try:
            if self._lock is not None:
                self._lock.acquire(timeout=0)
        except filelock.Timeout as error:
            raise DataDirectoryInUseError(
                f"{self._root.parent} is in use by another node process; give each node a directory of its own"
            ) from error
        for directory in self._root.iterdir():
            if directory.name.startswith("."):
                shutil.rmtree(directory, ignore_errors=True)
            elif (directory / _FILE).exists():
                partition = _partition_of(directory.name)
                held = self._held[partition] = _read(directory / _FILE)
                self._pairs.claim(held.peer_port)
                doomed = self.settle_founding(partition)
                if doomed is not None:
                    shutil.rmtree(doomed, ignore_errors=True)
        for directory in self._aside_root.iterdir() if self._aside_root.is_dir() else ():
            name, mark, generation = directory.name.partition("@")
            if mark and generation.isdigit():
                self._note_aside(_partition_of(name), int(generation))

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def partitions(self) -> frozenset[PartitionId]:
        return frozenset(self._held)

    def get(self, partition: PartitionId) -> Reservation | None:
        return self._held.get(partition)

    def directory(self, partition: PartitionId) -> Path:
        return self._root / f"{partition.zone_id}-{partition.partition}"

    def data(self, partition: PartitionId) -> Path:
        return self.directory(partition) / "data"

    def has_log(self, partition: PartitionId) -> bool:
        return (self.data(partition) / "member" / "wal").is_dir()

    def reserve(self, partition: PartitionId, listed: Collection[str] = ()) -> Reservation:
        """``listed``: peer URLs that another member has, or had. Raises NoPlaceError when every port pair is
        taken."""
        held = self._held.get(partition)
        if held is None:
            peer_port = self._pairs.take({port for url in listed if (port := urlsplit(url).port)})
            held = Reservation(self._pairs.host, peer_port, peer_port + 1, scheme=self._scheme)
            self._store(partition, held)
        return held

    def prepare(
        self,
        partition: PartitionId,
        token: str,
        initial: dict[str, str],
        state: str,
        *,
        copy: str = "",
        generation: int = 0,
        founding_revision: int = 0,
        copied_revision: int = 0,
    ) -> Reservation:
        """Remember how the member is started the first time, before it is."""
        prepared = replace(
            self._held[partition],
            token=token,
            initial=initial,
            state=state,
            launched=True,
            copy=copy,
            generation=generation,
            founding_revision=founding_revision,
            copied_revision=copied_revision,
        )
        self._store(partition, prepared)
        return prepared

    def note_founding(self, partition: PartitionId, generation: int, revision: int) -> None:
        """The member is the only one of a group of ``generation`` that begins with data of ``revision``."""
        held = replace(self._held[partition], generation=generation, founding_revision=revision)
        self._store(partition, held)

    def founded_data(self, partition: PartitionId, generation: int) -> Path:
        """Directory for data that replaces the member's own, before its generation is noted."""
        return self.directory(partition) / f"{_FOUNDED}{generation}"

    def settle_founding(self, partition: PartitionId) -> Path | None:
        """Put founded data in the place of the member's own once its generation is noted; founded data whose
        generation was never noted is of no use. Returns what is left to be deleted."""
        held = self._held[partition]
        for directory in self.directory(partition).glob(f"{_FOUNDED}*"):
            if directory.name != f"{_FOUNDED}{held.generation}":
                return self._doom(directory, f".{directory.name}")
            doomed = self._doom(self.data(partition), f".{self.directory(partition).name}")
            directory.rename(self.data(partition))
            return doomed
        return None

    def note_group(self, partition: PartitionId, token: str, generation: int) -> None:
        """The mirror goes on with a later generation of its group."""
        self._store(partition, replace(self._held[partition], token=token, generation=generation))

    def note_log(self, partition: PartitionId) -> None:
        held = self._held[partition]
        if not held.wrote_log and self.has_log(partition):
            self._store(partition, replace(held, wrote_log=True))

    def set_aside(self, partition: PartitionId) -> None:
        """End the member's reservation; what is on disk stays, named by its generation."""
        held = self._held[partition]
        self._aside_root.mkdir(exist_ok=True)
        self.directory(partition).rename(self._aside(partition, held.generation))
        del self._held[partition]
        self._note_aside(partition, held.generation)
        self._pairs.free(held.peer_port)

    def aside(self) -> dict[PartitionId, frozenset[int]]:
        """Generations of what was set aside."""
        return dict(self._kept_aside)

    def _note_aside(self, partition: PartitionId, generation: int) -> None:
        self._kept_aside[partition] = self._kept_aside.get(partition, frozenset()) | {generation}

    def forget_aside(self, partition: PartitionId, generation: int) -> Path | None:
        """Returns what is left to be deleted."""
        directory = self._aside(partition, generation)
        generations = self._kept_aside.pop(partition, frozenset()) - {generation}
        if generations:
            self._kept_aside[partition] = generations
        return self._doom(directory, f".{directory.name}")

    @property
    def _aside_root(self) -> Path:
        return self._data_dir / "given_up"

    def _aside(self, partition: PartitionId, generation: int) -> Path:
        return self._aside_root / f"{self.directory(partition).name}@{generation}"

    def discard_data(self, partition: PartitionId) -> Path | None:
        """The data of a mirror is of no use any more. Returns what is left to be deleted."""
        return self._doom(self.data(partition), f".{self.directory(partition).name}")

    def forget(self, partition: PartitionId) -> Path | None:
        """Free the ports. Returns what is left to be deleted."""
        held = self._held.pop(partition, None)
        if held is not None:
            self._pairs.free(held.peer_port)
        directory = self.directory(partition)
        return self._doom(directory, f".{directory.name}")

    def _doom(self, directory: Path, name: str) -> Path | None:
        """Renamed first, so that a crash cannot leave half of it in use; ``open`` deletes what was left."""
        if not directory.exists():
            return None
        doomed = self._root / f"{name}.{os.urandom(4).hex()}"
        directory.rename(doomed)
        return doomed

    def _store(self, partition: PartitionId, held: Reservation) -> None:
        directory = self.directory(partition)
        directory.mkdir(parents=True, exist_ok=True)
        name_as(directory, self._data_dir)
        content = json.dumps({"v": RESERVATION_FORMAT, **asdict(held)}).encode()
        replace_privately(directory / _FILE, content)
        self._held[partition] = held


def without_tls(data_dir: Path) -> int:
    """Members and mirrors of a node that does not run: those that were reserved without TLS, and stay so."""
    places = (place for folder in FOLDERS for place in (data_dir / folder).glob(f"*/{_FILE}"))
    return sum(_read(place).scheme == "http" for place in places)


def _partition_of(name: str) -> PartitionId:
    zone, _, partition = name.partition("-")
    return PartitionId(ZoneId(int(zone)), int(partition))


def _read(path: Path) -> Reservation:
    document = json.loads(path.read_text())
    if document.pop("v") != RESERVATION_FORMAT:
        raise ValueError(f"{path} has a format that this build does not know")
    return Reservation(**document)
