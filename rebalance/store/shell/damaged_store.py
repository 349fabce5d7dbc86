"""A store whose file cannot be read is moved aside and filled again from others, or left in its place.

What a running server comes upon is noted beside the file; the next start decides. A server begins anew only
where others are in sync, and live.
"""

from __future__ import annotations

from pathlib import Path

from rebalance.core.causes.cause import Cause
from rebalance.exchange.core.result_record import PartitionOutcome
from rebalance.store.core.log_records import PartitionKey
from rebalance.store.core.ring_records import StoreStart
from rebalance.store.shell.lmdb_disk import DATA_FILE, stored
from rebalance.store.shell.store_errors import NoStoreError, StoreDiskError

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
