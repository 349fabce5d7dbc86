"""Sizes that an operation's estimate was made of, kept beside its target.

Partitions grow while they are copied, and their stores with them: a plan that is looked at later shall show the
bytes that it was estimated with, whatever has become of them.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from catalog.core.codec import Codec, Form, Record, text
from catalog.core.zone_options import PARTITIONS_MAX
from rebalance.core.readable import Unreadable, read
from rebalance.core.txn import KeyValue

SIZE_BYTES = 8
BYTES_MAX = SIZE_BYTES * PARTITIONS_MAX


@dataclass(frozen=True, slots=True)
class CopySizes(Record):
    """``sizes``: bytes of a copy of each partition when the target of ``event_revision`` was named; 0:
    not known."""

    event_revision: int
    sizes: tuple[int, ...]


def _pack(sizes: tuple[int, ...]) -> str:
    return base64.b64encode(zlib.compress(struct.pack(f"<{len(sizes)}q", *sizes))).decode()


def _unpack(stored: Any) -> tuple[int, ...]:
    """Raises ValueError. It costs no more than the sizes of the largest zone do, whatever was stored."""
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(base64.b64decode(text(stored), validate=True), BYTES_MAX)
        sizes = struct.unpack(f"<{len(raw) // SIZE_BYTES}q", raw)
    except (zlib.error, struct.error) as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof or min(sizes, default=0) < 0:
        raise ValueError("not the sizes of a zone's copies")
    return sizes


CopySizes.codec = Codec(CopySizes, forms={"sizes": Form(_unpack, _pack)})


def known_sizes(item: KeyValue | None, event_revision: int) -> Sequence[int] | None:
    """Those of the operation of ``event_revision``; None: they are not kept (any more), or cannot be read."""
    record = read(item, CopySizes.decode)
    if record is None or isinstance(record, Unreadable) or record.event_revision != event_revision:
        return None
    return record.sizes
