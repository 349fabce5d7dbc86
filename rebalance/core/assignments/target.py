"""A stored target: the placement of a whole zone for one event, kept as bytes and named by a pointer.

Handlers, plans and reverses read the stored target, so that a controller which dies half-way through its
writes is continued, not recomputed. The matrix is int32 little-endian, row-major, partitions x replicas,
indexes into the pointer's nodes; it is cut at row boundaries into chunks below ``CHUNK_BYTES``.

What an operation began from is kept beside its target: sizes, and where partitions stood. Partitions grow while
they are copied, and their stores with them: a plan that is looked at later shall show the bytes that it was
estimated with, whatever has become of them. An operation that takes the place of one that had not come to its
end moves what that one has left, too, which the two targets do not tell.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.core.codec import Codec, Form, Record, RecordNotReadableError, text
from catalog.core.zone import ZoneIntent
from catalog.core.zone_options import PARTITIONS_MAX
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.txn import KeyValue
from rebalance.core.topology.data_nodes import DataNodes, check_traits, replica_counts

SURPLUS_ROWS = 3
CHUNK_BYTES = 1_000_000
INDEX_BYTES = 4


@dataclass(frozen=True, slots=True)
class TargetPointer(Record):
    """Names the newest target of a zone. It moves only to a higher ``event_revision``."""

    event_revision: int
    catalog_version: int
    chunks: int
    partitions: int
    replicas: int
    consensus: int
    nodes: tuple[str, ...]
    engine: str
    algorithm: str
    surplus: tuple[tuple[float, ...], ...] = ()
    """Balanced zones: how far replicas, voters and primaries of each node are above its exact share (three
    rows), which is what other zones even out. Empty for others."""
    weights: tuple[float, ...] = ()
    domains: tuple[str, ...] = ()
    """Weights and failure domains that the target was computed with (``DataNodes``)."""
    gone: tuple[str, ...] = ()
    """Nodes of the target that are placed around while they are away (``DataNodes``); ``available_target``."""
    asked: int = 0
    """Value of ``DataNodes.asked`` that it was computed for; asking for copies again gets a new target."""

    def __post_init__(self) -> None:
        check_traits(self.nodes, self.weights, self.domains)
        if not 0 <= self.consensus <= self.replicas <= len(self.nodes):
            raise ValueError(f"{self.consensus} of {self.replicas} replicas on {len(self.nodes)} nodes")
        if self.surplus and [len(row) for row in self.surplus] != [len(self.nodes)] * SURPLUS_ROWS:
            raise ValueError("the surplus is not one of each node")


TargetPointer.codec = Codec(TargetPointer, omit=("gone", "asked"))


def surplus_of_others(pointers: Iterable[TargetPointer], nodes: Sequence[str]) -> list[list[float]]:
    """The sum of other zones' surplus on each of ``nodes``: three rows, of replicas, voters and primaries."""
    sums: dict[str, list[float]] = {name: [0.0, 0.0, 0.0] for name in nodes}
    for pointer in pointers:
        for level, row in enumerate(pointer.surplus):
            for name, above in zip(pointer.nodes, row, strict=True):
                if name in sums:
                    sums[name][level] += above
    return [[sums[name][level] for name in nodes] for level in range(3)]


def is_target_of(pointer: TargetPointer, intent: ZoneIntent, data_nodes: DataNodes) -> bool:
    """True if the target was computed from exactly these placement parameters and data nodes.

    Placement is a pure function: then another event changes nothing (decision 12).
    """
    if not data_nodes.are_chosen_for(intent.zone):
        return False
    expected = (data_nodes.nodes, intent.zone.partitions, *replica_counts(intent, data_nodes))
    placed = (pointer.nodes, pointer.partitions, pointer.replicas, pointer.consensus)
    traits = (pointer.weights, pointer.domains, pointer.gone, pointer.asked) == (
        data_nodes.weights,
        data_nodes.domains,
        data_nodes.gone,
        data_nodes.asked,
    )
    return placed == expected and traits and pointer.algorithm == intent.zone.algorithm.value


def available_target(target: Assignments, stable: Assignments | None, gone: Collection[str]) -> Assignments:
    """Return ``target`` without those of its nodes that are ``gone`` and not in ``stable`` already. Where no
    node is gone, or none would be left, it is the target itself.

    So a dead node is waited for where it holds a replica, and nowhere else.
    """
    if not gone:
        return target
    held = stable.nodes if stable is not None else frozenset()

    def allowed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in gone or name in held)

    peers, learners = allowed(target.peers), allowed(target.learners)
    if not peers:
        # A group needs a voter: the first of the rest, or what was computed when nobody is there at all.
        peers, learners = learners[:1], learners[1:]
    return Assignments(peers, learners) if peers else target


def cut_into_chunks(matrix: bytes, replicas: int) -> tuple[bytes, ...]:
    """``matrix`` as stored values; always at least one chunk."""
    row_bytes = replicas * INDEX_BYTES
    step = max(CHUNK_BYTES // row_bytes, 1) * row_bytes
    return tuple(matrix[start : start + step] for start in range(0, len(matrix), step)) or (b"",)


class TargetIncompleteError(ValueError):
    """Parts of a stored target are not there: it was replaced while it was read."""


@dataclass(frozen=True, slots=True)
class StoredTarget:
    """A target as read back: ``chunks`` in order belong to ``pointer``, and none is missing."""

    pointer: TargetPointer
    chunks: Sequence[bytes]

    def __post_init__(self) -> None:
        """Raises TargetIncompleteError."""
        pointer = self.pointer
        if sum(map(len, self.chunks)) != INDEX_BYTES * pointer.replicas * pointer.partitions:
            message = f"target {pointer.event_revision} is incomplete: {len(self.chunks)} chunks"
            raise TargetIncompleteError(message)

    def rows(self) -> list[bytes]:
        """The matrix, a partition each, for ``assignments_of``."""
        size = self.pointer.replicas * INDEX_BYTES
        return [chunk[start : start + size] for chunk in self.chunks for start in range(0, len(chunk), size)]

    def row(self, number: int) -> bytes:
        """Row of one partition, without cutting all others. All chunks but the last have the same length."""
        size = self.pointer.replicas * INDEX_BYTES
        chunk, place = divmod(number * size, len(self.chunks[0]))
        return self.chunks[chunk][place : place + size]

    def assignments_of(self, row: bytes) -> Assignments:
        pointer = self.pointer
        indexes = struct.unpack(f"<{pointer.replicas}i", row)
        try:
            # A negative index would name a node from the end of the list.
            names = tuple(pointer.nodes[index if index >= 0 else len(pointer.nodes)] for index in indexes)
            return Assignments(names[: pointer.consensus], names[pointer.consensus :])
        except (IndexError, ValueError) as error:
            detail = f"the stored target of event {pointer.event_revision} has a row {indexes}: {error}"
            raise RecordNotReadableError(detail) from error

    def assignments(self) -> Iterator[Assignments]:
        """One per partition, in partition order."""
        return map(self.assignments_of, self.rows())


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
    """Return what the operation of ``event_revision`` began from; None: it is not kept (any more), or cannot be
    read."""
    record = read(item, CopySizes.decode)
    if record is None or isinstance(record, Unreadable) or record.event_revision != event_revision:
        return None
    return record
