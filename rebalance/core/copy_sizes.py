"""Sizes that an operation's estimate was made of, kept beside its target.

Partitions grow while they are copied, and their stores with them: a plan that is looked at later shall show the
bytes that it was estimated with, whatever has become of them.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

COPY_SIZES_FORMAT = 1


@dataclass(frozen=True, slots=True)
class CopySizes:
    """``sizes``: bytes of a copy of each partition when the target of ``event_revision`` was named; 0:
    not known."""

    event_revision: int
    sizes: tuple[int, ...]

    def encode(self) -> bytes:
        packed = zlib.compress(struct.pack(f"<{len(self.sizes)}q", *self.sizes))
        sizes = base64.b64encode(packed).decode()
        document = {"v": COPY_SIZES_FORMAT, "event_revision": self.event_revision, "sizes": sizes}
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> CopySizes:
        """Raises ValueError for a format that this build does not know."""
        found = json.loads(value)
        if found["v"] != COPY_SIZES_FORMAT:
            raise ValueError(f"format {found['v']} of sizes is not known; this build reads {COPY_SIZES_FORMAT}")
        raw = zlib.decompress(base64.b64decode(found["sizes"]))
        return cls(found["event_revision"], struct.unpack(f"<{len(raw) // 8}q", raw))


def known_sizes(value: bytes | None, event_revision: int) -> Sequence[int] | None:
    """Those of the operation of ``event_revision``; None: they are not kept (any more)."""
    if value is None:
        return None
    found = CopySizes.decode(value)
    return found.sizes if found.event_revision == event_revision else None
