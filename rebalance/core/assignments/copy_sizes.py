"""What an operation began from, kept beside its target: sizes, and where partitions stood.

Partitions grow while they are copied, and their stores with them: a plan that is looked at later shall show the
bytes that it was estimated with, whatever has become of them. An operation that takes the place of one that had
not come to its end moves what that one has left, too, which the two targets do not tell.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any

from catalog.core.codec import Codec, Form, Record, text
from catalog.core.zone_options import PARTITIONS_MAX
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.txn import KeyValue

SIZE_BYTES = 8
BYTES_MAX = SIZE_BYTES * PARTITIONS_MAX
STANDING_BYTES_MAX = 1_000 * PARTITIONS_MAX

Standing = tuple[tuple[int, Assignments], ...]


@dataclass(frozen=True, slots=True)
class CopySizes(Record):
    """``sizes``: bytes of a copy of each partition when the target of ``event_revision`` was named; 0:
    not known. ``standing``: by their numbers, partitions that were not where the target before wanted them, and
    where they were."""

    event_revision: int
    sizes: tuple[int, ...]
    standing: Standing = ()


def _pack(sizes: tuple[int, ...]) -> str:
    return _packed(struct.pack(f"<{len(sizes)}q", *sizes))


def _unpack(stored: Any) -> tuple[int, ...]:
    """Raises ValueError. It costs no more than the sizes of the largest zone do, whatever was stored."""
    raw = _unpacked(stored, BYTES_MAX)
    try:
        sizes = struct.unpack(f"<{len(raw) // SIZE_BYTES}q", raw)
    except struct.error as error:
        raise ValueError(str(error)) from error
    if min(sizes, default=0) < 0:
        raise ValueError("not the sizes of a zone's copies")
    return sizes


def _pack_standing(standing: Standing) -> str:
    rows = [[number, held.peers, held.learners] for number, held in standing]
    return _packed(json.dumps(rows, separators=(",", ":")).encode())


def _unpack_standing(stored: Any) -> Standing:
    """Raises ValueError, TypeError."""
    rows = json.loads(_unpacked(stored, STANDING_BYTES_MAX))
    return tuple((int(number), Assignments(tuple(peers), tuple(learners))) for number, peers, learners in rows)


def _packed(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw)).decode()


def _unpacked(stored: Any, bytes_max: int) -> bytes:
    """Raises ValueError, also for what is longer."""
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(base64.b64decode(text(stored), validate=True), bytes_max)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof:
        raise ValueError("not what an operation began from")
    return raw


CopySizes.codec = Codec(
    CopySizes,
    omit=("standing",),
    forms={"sizes": Form(_unpack, _pack), "standing": Form(_unpack_standing, _pack_standing)},
)


def known_start(item: KeyValue | None, event_revision: int) -> CopySizes | None:
    """Of the operation of ``event_revision``; None: it is not kept (any more), or cannot be read."""
    record = read(item, CopySizes.decode)
    if record is None or isinstance(record, Unreadable) or record.event_revision != event_revision:
        return None
    return record
