"""The disk of a store server: one LMDB environment, one thread that writes.

Crash safety is LMDB's: a transaction is written beside what it replaces and synced, then the page that names it
is written and synced. So none of the flags that leave a sync out is used, and a process that is killed at any
moment leaves the last transaction that was reported, or the one after it.

A store whose file cannot be read is moved aside and filled again from others, or left in its place. What a
running server comes upon is noted beside the file; the next start decides. A server begins anew only where
others are in sync, and live.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from time import monotonic

import lmdb
import structlog

from rebalance.core.causes.cause import Cause
from rebalance.exchange.core.exchange_messages import PartitionOutcome
from rebalance.store.core.disk_changes import DiskChange, KeepRecords
from rebalance.store.core.log_records import PartitionKey
from rebalance.store.core.ring_records import StoreStart
from rebalance.store.core.store_effects import WriteDisk
from rebalance.store.core.store_inputs import DiskDone, DiskRefused, RoomChanged
from rebalance.store.shell.disk_format import DISK_FORMAT
from rebalance.store.shell.lmdb_transactions import (
    DAMAGED_PAGES,
    DATABASES,
    Databases,
    LmdbReader,
    NoStoreError,
    StoreDiskError,
    StoreFormatError,
    StoreInUseError,
    carry_out,
    damaged,
)

log = structlog.get_logger(__name__)

GIB = 1 << 30
MAP_BYTES = 256 * GIB
"""Address space, not memory: how large the file may become."""
LOW_WATER_BYTES = 256 << 20
ROOM_AGAIN = 1.25
"""Multiple of the low-water mark that must be free before new writes are taken again."""
FULL_BYTES = 256 << 10
"""A file system with less than this free is full."""
DATA_FILE = "data.mdb"
STOPPED = None
HERE_CHANGES_MAX = 4
HERE_BYTES_MAX = 64 << 10
"""Maximum size of a transaction that the event loop's thread carries out itself."""
HERE_S = 0.003
"""Time, in seconds, that the event loop may stand still for one, on average."""

Report = Callable[[DiskDone | DiskRefused | RoomChanged], None]


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """``map_bytes``: how large the store may become. ``low_water_bytes``: with less than this free, in the map
    or on the file system, there is no room for new writes; what moves and deletes data goes on."""

    map_bytes: int = MAP_BYTES
    low_water_bytes: int = LOW_WATER_BYTES


class LmdbDisk:
    """``reader`` belongs to the thread that opened it; ``report`` is called from the thread that writes."""

    def __init__(self, directory: Path, report: Report, limits: DiskLimits | None = None) -> None:
        """Makes the store where there is none. Raises StoreDiskError."""
        self._limits = limits or DiskLimits()
        self._report = report
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _exclusive(directory / "server.lock")
        try:
            self._environment = _opened(directory, self._limits.map_bytes)
            self._databases = _written_databases(self._environment, directory)
        except DAMAGED_PAGES as error:
            os.close(self._lock)
            raise damaged(f"{directory}: {DATA_FILE}", error) from error
        except BaseException:
            os.close(self._lock)
            raise
        self.reader = LmdbReader(self._environment, self._databases)
        self.has_room = self._has_room_now(had_room=True)
        self.damage = ""
        """Damage for which the file is not written to any more: it cannot be read."""
        self._usual_s = 0.0
        self._orders: SimpleQueue[WriteDisk | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="store disk", daemon=True)
        self._thread.start()

    def write(self, order: WriteDisk) -> None:
        """Answered by ``report``, in order: DiskDone once it is synced, or DiskRefused."""
        self._orders.put(order)

    def write_here(self, order: WriteDisk) -> DiskDone | DiskRefused | None:
        """A small transaction in the caller's thread: handing it to the other one and back takes as long as the
        commit itself. None: it is large, or commits were slow lately, so ``write`` has to be asked."""
        if self._usual_s > HERE_S or not _is_small(order.changes):
            return None
        return self._outcome(order)

    def look_for_room(self) -> None:
        """Check the free space, as others fill file systems, too: reports RoomChanged where that is so, after
        what is being written."""
        self._orders.put(WriteDisk(0, ()))

    def close(self) -> None:
        """Close after everything that was asked for."""
        self._orders.put(STOPPED)
        self._thread.join()
        self.reader.close()
        self._environment.close()
        os.close(self._lock)

    def _write_all(self) -> None:
        while (order := self._orders.get()) is not STOPPED:
            if order.changes:
                self._report(self._outcome(order))
            has_room = self._has_room_now(self.has_room)
            if has_room != self.has_room:
                self.has_room = has_room
                self._report(RoomChanged(has_room))

    def _outcome(self, order: WriteDisk) -> DiskDone | DiskRefused:
        began_s = monotonic()
        try:
            with self._environment.begin(write=True) as txn:
                carry_out(txn, self._databases, order.changes)
        except lmdb.Error as error:
            no_room = self._is_lack_of_room(error)
            if isinstance(error, DAMAGED_PAGES):
                self.damage = str(damaged(f"{self._directory}: {DATA_FILE}", error))
            log.error("a disk transaction was refused", error=str(error), no_room=no_room)
            return DiskRefused(order.ticket, no_room)
        except Exception as error:
            log.error("a disk transaction failed", error=str(error), exc_info=error)
            return DiskRefused(order.ticket, no_room=False)
        if _is_small(order.changes):
            self._usual_s += (monotonic() - began_s - self._usual_s) / 8
        return DiskDone(order.ticket)

    def _is_lack_of_room(self, error: lmdb.Error) -> bool:
        """LMDB calls it an input/output error when the file system takes only a part of what it writes. Nothing
        of such a transaction can be seen: the page that would name it is written last."""
        if isinstance(error, lmdb.MapFullError) or error.code in (errno.ENOSPC, errno.EDQUOT):
            return True
        system = os.statvfs(self._directory)
        return error.code == errno.EIO and system.f_bfree * system.f_frsize < FULL_BYTES

    def _has_room_now(self, had_room: bool) -> bool:
        needed = self._limits.low_water_bytes * (1.0 if had_room else ROOM_AGAIN)
        return self.free_bytes() >= needed

    def free_bytes(self) -> int:
        """Return the bytes that can still be stored: free pages of the file, and what it may grow by."""
        with self._environment.begin() as txn:
            parts = [txn.stat(database) for database in self._databases.values()]
        pages = sum(part["branch_pages"] + part["leaf_pages"] + part["overflow_pages"] for part in parts)
        used = pages * parts[0]["psize"]
        system = os.statvfs(self._directory)
        file_bytes = (self._directory / DATA_FILE).stat().st_size
        return min(self._limits.map_bytes, file_bytes + system.f_bavail * system.f_frsize) - used


def _is_small(changes: Sequence[DiskChange]) -> bool:
    """Recognise a write or two, as opposed to many."""
    if len(changes) > HERE_CHANGES_MAX:
        return False
    size = 0
    for change in changes:
        if not isinstance(change, KeepRecords):
            return False
        size += sum(record.size for record in change.records)
    return size <= HERE_BYTES_MAX


@contextmanager
def stored(directory: Path) -> Iterator[LmdbReader]:
    """Read a store without a server, or beside one. Raises StoreDiskError."""
    if not (directory / DATA_FILE).is_file():
        raise NoStoreError(f"{directory}: there is no store here, which would have a file data.mdb")
    environment = _opened(directory, MAP_BYTES, readonly=True)
    try:
        reader = LmdbReader(environment, _read_databases(environment, directory))
        try:
            yield reader
        finally:
            reader.close()
    except DAMAGED_PAGES as error:
        raise damaged(f"{directory}: {DATA_FILE}", error) from error
    finally:
        environment.close()


def _opened(directory: Path, map_bytes: int, *, readonly: bool = False) -> lmdb.Environment:
    try:
        environment = lmdb.Environment(
            str(directory),
            map_size=map_bytes,
            max_dbs=len(DATABASES),
            mode=0o600,
            readonly=readonly,
            create=not readonly,
        )
    except DAMAGED_PAGES as error:
        raise damaged(f"{directory}: {DATA_FILE}", error) from error
    except lmdb.Error as error:
        raise StoreDiskError(f"{directory}: the store cannot be opened: {error}") from error
    if not readonly:
        environment.reader_check()  # of processes that were killed
    return environment


def _read_databases(environment: lmdb.Environment, directory: Path) -> Databases:
    try:
        databases = {name: environment.open_db(name.encode(), create=False) for name in DATABASES}
    except lmdb.NotFoundError as error:
        raise NoStoreError(f"{directory}: data.mdb is not a store's: {error}") from error
    _check_format(environment, databases, directory)
    return databases


def _written_databases(environment: lmdb.Environment, directory: Path) -> Databases:
    """All of them and the format in one transaction: a process that is killed here leaves none."""
    about = environment.open_db(b"about")
    _check_format(environment, {"about": about}, directory)
    with environment.begin(write=True) as txn:
        databases = {name: environment.open_db(name.encode(), txn=txn) for name in DATABASES}
        txn.put(b"format", str(DISK_FORMAT).encode(), db=databases["about"])
    return databases


def _check_format(environment: lmdb.Environment, databases: Databases, directory: Path) -> None:
    """Raises StoreFormatError for a store of a later build."""
    with environment.begin() as txn:
        number = txn.get(b"format", db=databases["about"])
    if number is not None and (not number.isdigit() or int(number) > DISK_FORMAT):
        raise StoreFormatError(
            f"{directory}: the store has format {number.decode(errors='replace')}; this build reads up to "
            f"{DISK_FORMAT}: start the build that has written it, or a later one"
        )


def _exclusive(path: Path) -> int:
    """A file descriptor with the lock, which ends with the process. Raises StoreInUseError."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StoreInUseError(f"{path.parent}: another store server has this store open") from error
    return lock


NOTE = "damaged.txt"
ASIDE = ".damaged"
"""Suffix of the directory that a damaged store is moved to. One is kept: whoever has looked at it removes
it."""


def note_damage(directory: Path, damage: str) -> None:
    """Note the damage of the file that is there now, to which nothing is written any more. Raises OSError."""
    (directory / NOTE).write_text(f"{_mark(directory)}\n{damage}\n")


def damage_of(directory: Path) -> str:
    """Return what is wrong with the store there; empty: nothing is known of it, or there is none. Raises
    OSError."""
    if not (directory / DATA_FILE).is_file():
        return ""
    note = directory / NOTE
    mark, _, damage = note.read_text(errors="replace").partition("\n") if note.is_file() else ("", "", "")
    if mark == _mark(directory):
        return damage.strip()
    note.unlink(missing_ok=True)
    try:
        with stored(directory) as reader:
            reader.heads()
    except NoStoreError:
        return ""
    except StoreDiskError as error:
        return str(error)
    return ""


def _mark(directory: Path) -> str:
    """Identify the file; another file has another mark."""
    file = (directory / DATA_FILE).stat()
    return f"{file.st_ino} {file.st_size} {file.st_mtime_ns}"


def needed_copies(start: StoreStart, name: str) -> list[PartitionKey]:
    """Partitions of which no living server but ``name`` is in sync."""
    gone = tuple(each.name for each in start.ring.since(start.results.version).gone)
    others = start.ring.cluster.servers.keys() - {name}

    def is_needed(outcome: PartitionOutcome) -> bool:
        left = outcome.without(gone).in_sync
        return name in left and others.isdisjoint(left)

    return [
        (zone, number)
        for zone in sorted(start.ring.cluster.zones)
        for number, outcome in enumerate(start.results.outcomes.get(zone, ()))
        if is_needed(outcome)
    ]


def why_kept(directory: Path, damage: str, start: StoreStart, name: str) -> str:
    """The cause for which a damaged store stays in its place; empty: it may be moved aside."""
    aside = directory.with_name(directory.name + ASIDE)
    if aside.exists():
        reason = f"an earlier one is kept in {aside}: look at that disk, and remove it to go on"
        return Cause.STORE_DAMAGED.text(f"{damage}; {reason}")
    if not start.ring.number:
        return Cause.STORE_DAMAGED.text(f"{damage}; nobody knows who else has its copies")
    needed = needed_copies(start, name)
    if not needed:
        return ""
    zone, number = needed[0]
    more = f" and {len(needed) - 1} more" if len(needed) > 1 else ""
    way = (
        f"start the servers that are in sync, or put a good file there; with the file moved away, {name} has "
        "lost these partitions, and `zonectl recovery reset-lost` goes on with what is left"
    )
    return Cause.STORE_DAMAGED.text(f"{damage}; nobody else is in sync in {zone}/{number}{more}: {way}")


def move_aside(directory: Path) -> Path:
    """Move the store aside and return its new place. Raises OSError."""
    aside = directory.with_name(directory.name + ASIDE)
    directory.rename(aside)
    return aside
