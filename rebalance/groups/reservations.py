"""What a node holds on disk for its members: a directory each, with the ports that are in its membership.

``members/<zone>-<partition>/reservation.json`` is written before a member is announced and survives restarts: a
member that came back on other ports would never find its group again. ``data`` beside it is etcd's.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import filelock

from catalog.core.zone import ZoneId
from rebalance.core.keys import PartitionId
from rebalance.hosting.free_ports import is_free
from rebalance.ports.groups import DataDirectoryInUseError, MemberEndpoints, NoPlaceError

RESERVATION_FORMAT = 1
_FILE = "reservation.json"


@dataclass(frozen=True, slots=True)
class Reservation:
    """``launched``: a process was started on it; its data may count in the group from then on. ``wrote_log``:
    etcd's write-ahead log has been seen; when it is gone later, the data is lost. ``generation``: of the group
    that the data belongs to; a recovery raises it once, when the member is its group's only one."""

    host: str
    peer_port: int
    client_port: int
    token: str = ""
    initial: dict[str, str] = field(default_factory=dict)
    state: str = "new"
    launched: bool = False
    wrote_log: bool = False
    generation: int = 0

    @property
    def endpoints(self) -> MemberEndpoints:
        return MemberEndpoints(f"http://{self.host}:{self.peer_port}", f"http://{self.host}:{self.client_port}")


class Reservations:
    """All reservations of one node below ``<data dir>/members``. Ports come in pairs from ``ports``."""

    def __init__(
        self, data_dir: Path, ports: range, host: str, probe: Callable[[int, str], bool] = is_free
    ) -> None:
        if len(ports) < 2:
            raise ValueError(f"a port range of at least two ports is needed, not {ports}")
        self._root = data_dir / "members"
        self._ports = ports
        self._host = host
        self._probe = probe
        self._held: dict[PartitionId, Reservation] = {}
        self._next = 0
        self._lock = filelock.FileLock(data_dir / "node.lock")

    def open(self) -> None:
        """Raises DataDirectoryInUseError when another process holds the directory."""
        self._root.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout as error:
            raise DataDirectoryInUseError(
                f"{self._root.parent} is in use by another node process; give each node a directory of its own"
            ) from error
        for directory in self._root.iterdir():
            if directory.name.startswith("."):
                shutil.rmtree(directory, ignore_errors=True)
            elif (directory / _FILE).exists():
                self._held[_partition_of(directory.name)] = _read(directory / _FILE)
        used = [held.peer_port for held in self._held.values()]
        self._next = (max(used) - self._ports.start) // 2 + 1 if used else 0

    def close(self) -> None:
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

    def reserve(self, partition: PartitionId) -> Reservation:
        """Raises NoPlaceError when every port pair is taken."""
        held = self._held.get(partition)
        if held is None:
            peer_port = self._free_pair()
            held = Reservation(self._host, peer_port, peer_port + 1)
            self._store(partition, held)
        return held

    def prepare(
        self, partition: PartitionId, token: str, initial: dict[str, str], state: str, generation: int = 0
    ) -> Reservation:
        """Remember how the member is started the first time, before it is."""
        prepared = replace(
            self._held[partition],
            token=token,
            initial=initial,
            state=state,
            launched=True,
            generation=generation,
        )
        self._store(partition, prepared)
        return prepared

    def note_generation(self, partition: PartitionId, generation: int) -> None:
        """The member is the only one of a group that begins anew."""
        self._store(partition, replace(self._held[partition], generation=generation))

    def note_log(self, partition: PartitionId) -> None:
        held = self._held[partition]
        if not held.wrote_log and self.has_log(partition):
            self._store(partition, replace(held, wrote_log=True))

    def forget(self, partition: PartitionId) -> Path | None:
        """Free the ports; the directory is renamed first, so that a crash cannot leave half of it in use.
        Returns what is left to be deleted."""
        self._held.pop(partition, None)
        directory = self.directory(partition)
        if not directory.exists():
            return None
        doomed = self._root / f".{directory.name}.{os.urandom(4).hex()}"
        directory.rename(doomed)
        return doomed

    def _store(self, partition: PartitionId, held: Reservation) -> None:
        directory = self.directory(partition)
        directory.mkdir(parents=True, exist_ok=True)
        draft = directory / f"{_FILE}.draft"
        with draft.open("w") as stream:
            json.dump({"v": RESERVATION_FORMAT, **asdict(held)}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(directory / _FILE)
        self._held[partition] = held

    def _free_pair(self) -> int:
        """Each search goes on where the last one ended: a freed pair rests as long as others are left, because
        clients may follow its old address for a moment."""
        taken = {held.peer_port for held in self._held.values()}
        pairs = len(self._ports) // 2
        for offset in range(pairs):
            index = (self._next + offset) % pairs
            port = self._ports.start + 2 * index
            if port not in taken and all(self._probe(each, self._host) for each in (port, port + 1)):
                self._next = index + 1
                return port
        raise NoPlaceError(
            f"NO_FREE_PORTS: none of {pairs} pairs in {self._ports.start}-{self._ports.stop - 1}"
        )


def _partition_of(name: str) -> PartitionId:
    zone, _, partition = name.partition("-")
    return PartitionId(ZoneId(int(zone)), int(partition))


def _read(path: Path) -> Reservation:
    document = json.loads(path.read_text())
    if document.pop("v") != RESERVATION_FORMAT:
        raise ValueError(f"{path} has a format that this build does not know")
    return Reservation(**document)
