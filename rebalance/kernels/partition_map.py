"""Partition maps as arrays: the merge of single maps into a full map.

A full map lists the copies partition by partition, and by node within a partition. Merging a million partitions
of three copies on a thousand nodes sorts three million numbers once; beside its input and result it needs about
24 bytes a copy. Source: PME-017, PME-098.

As bytes maps are versioned, checked, and small (``rebalance/tech-notes/partition-map.md`` has each byte).
States take one, two or three bits a copy by a dictionary of those that occur, none when there is one only, and
whatever is regular in them goes in the compression. Source: PME-107.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MOVING, OWNING, RENTING, EVICTED, LOST = range(5)
"""State codes, as they are stored."""
STATE_NAMES = ("MOVING", "OWNING", "RENTING", "EVICTED", "LOST")

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
States = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SingleArrays:
    """The copies of one node: arrays of one length. ``partitions`` int32, each once, in any order; ``states``
    uint8 codes; ``counters``, ``sizes`` and ``terms`` int64; ``leads`` bool."""

    partitions: Int32
    states: States
    counters: Int64
    sizes: Int64
    terms: Int64
    leads: Flags

    def __len__(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class FullArrays:
    """All copies of P partitions on ``names``: C copies.

    ``starts`` int64 [P + 1]: the copies of partition p are ``starts[p]`` to ``starts[p + 1]``, by node.
    ``nodes`` int32 [C] are indexes into ``names``; ``states`` uint8, ``counters`` and ``sizes`` int64 [C].
    ``leaders`` int32 [P]: the node that leads, -1 when nobody says so; ``terms`` int64 [P]: in which term.
    """

    names: tuple[str, ...]
    starts: Int64
    nodes: Int32
    states: States
    counters: Int64
    sizes: Int64
    leaders: Int32
    terms: Int64

    @property
    def partitions(self) -> int:
        return len(self.starts) - 1

    @property
    def copies(self) -> int:
        return len(self.nodes)

    @property
    def owners_of_copies(self) -> Int64:
        """int64 [C]: the partition of each copy."""
        return np.repeat(np.arange(self.partitions, dtype=np.int64), np.diff(self.starts))


def merge(names: Sequence[str], singles: Sequence[SingleArrays], partitions: int) -> FullArrays:
    """The full map of ``partitions`` partitions; ``singles`` in the order of ``names``.

    Two nodes that both say that they lead: the one in the higher term is believed. Raises ValueError for a
    partition outside of the zone or named twice by one node, saying which and by whom.
    """
    lengths = np.fromiter(map(len, singles), dtype=np.int64, count=len(singles))
    numbers = _joined([single.partitions for single in singles], np.int32)
    nodes = np.repeat(np.arange(len(singles), dtype=np.int32), lengths)
    outside = (numbers < 0) | (numbers >= partitions)
    if outside.any():
        first = int(np.argmax(outside))
        raise ValueError(
            f"node {names[nodes[first]]} reports partition {numbers[first]}; the zone has 0 to {partitions - 1}"
        )
    order = np.argsort(numbers, kind="stable")
    numbers, nodes = numbers[order], nodes[order]
    twice = (numbers[1:] == numbers[:-1]) & (nodes[1:] == nodes[:-1])
    if twice.any():
        first = int(np.argmax(twice))
        raise ValueError(f"node {names[nodes[first]]} reports partition {numbers[first]} twice")
    starts = np.zeros(partitions + 1, dtype=np.int64)
    np.cumsum(np.bincount(numbers, minlength=partitions), out=starts[1:])
    terms = _joined([single.terms for single in singles], np.int64)[order]
    leads = _joined([single.leads for single in singles], np.bool_)[order]
    leaders, leading_terms = _leaders(partitions, numbers, nodes, terms, leads)
    return FullArrays(
        tuple(names),
        starts,
        nodes,
        _joined([single.states for single in singles], np.uint8)[order],
        _joined([single.counters for single in singles], np.int64)[order],
        _joined([single.sizes for single in singles], np.int64)[order],
        leaders,
        leading_terms,
    )


def _leaders(partitions: int, numbers: Int32, nodes: Int32, terms: Int64, leads: Flags) -> tuple[Int32, Int64]:
    leaders = np.full(partitions, -1, dtype=np.int32)
    leading_terms = np.zeros(partitions, dtype=np.int64)
    which = np.flatnonzero(leads)
    # Written in order of terms, so that the highest one stays.
    which = which[np.argsort(terms[which], kind="stable")]
    leaders[numbers[which]] = nodes[which]
    leading_terms[numbers[which]] = terms[which]
    return leaders, leading_terms


def _joined(arrays: Sequence[npt.NDArray[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype=dtype)


MAGIC = b"ZKPM"
FORMAT = 1
HEADER = struct.Struct("<4sBBHIQIQQIII")
SECTION = struct.Struct("<BII")
INTEGERS = struct.Struct("<BqI")
CHECKSUM = struct.Struct("<I")
LENGTH = struct.Struct("<I")
LEVEL = 1
"""Level of compression: what is regular is found at once, and what is not would only take longer."""
ALL_LISTED = 0
"""All node lists are in the map: no build leaves any out."""

NAMES, COUNTS, LISTED, NODES, STATES, COUNTERS, LAGS, SIZES, LACKS, LEADERS, TERMS = range(1, 12)
_SECTION_NAMES = {
    NAMES: "names",
    COUNTS: "counts",
    LISTED: "listed",
    NODES: "nodes",
    STATES: "states",
    COUNTERS: "counters",
    LAGS: "counters behind",
    SIZES: "sizes",
    LACKS: "sizes below",
    LEADERS: "leaders",
    TERMS: "terms",
}


class DamagedMapError(ValueError):
    """Error for bytes that are not a partition map, or not a whole one; the message says what was found
    where."""


@dataclass(frozen=True, slots=True)
class MapHeader:
    """``order`` and ``sequence`` stamp the map within its topology version ``major.minor``."""

    zone: int
    major: int
    minor: int
    order: int
    sequence: int


def encode_map(header: MapHeader, full: FullArrays) -> bytes:
    numbers = full.owners_of_copies
    counters, sizes = _highest(full, full.counters), _highest(full, full.sizes)
    listed = np.packbits(np.ones(full.partitions, dtype=np.bool_))
    sections = [
        (NAMES, zlib.compress("\n".join(full.names).encode(), 9)),
        (COUNTS, encode_integers(np.diff(full.starts))),
        (LISTED, zlib.compress(listed.tobytes(), LEVEL)),
        (NODES, encode_integers(full.nodes)),
        (STATES, encode_states(full.states)),
        (COUNTERS, encode_integers(counters)),
        (LAGS, encode_integers(counters[numbers] - full.counters)),
        (SIZES, encode_integers(sizes)),
        (LACKS, encode_integers(sizes[numbers] - full.sizes)),
        (LEADERS, encode_integers(full.leaders)),
        (TERMS, encode_integers(full.terms)),
    ]
    head = HEADER.pack(
        MAGIC,
        FORMAT,
        ALL_LISTED,
        len(sections),
        header.zone,
        header.major,
        header.minor,
        header.order,
        header.sequence,
        full.partitions,
        len(full.names),
        full.copies,
    )
    body = b"".join(SECTION.pack(tag, len(data), zlib.crc32(data)) + data for tag, data in sections)
    return head + body + CHECKSUM.pack(zlib.crc32(head + body))


def decode_map(data: bytes) -> tuple[MapHeader, FullArrays]:
    """Raises DamagedMapError for anything but the bytes of ``encode_map``."""
    header, partitions, nodes, copies, sections = _opened(data)
    text = _inflated(sections[NAMES], NAMES, limit=nodes * 300 + 1)
    names = tuple(text.decode().split("\n")) if nodes else ()
    if len(names) != nodes:
        raise DamagedMapError(f"the map names {len(names)} nodes, its header says {nodes}")
    flags = np.frombuffer(_inflated(sections[LISTED], LISTED, limit=partitions // 8 + 1), dtype=np.uint8)
    if len(flags) != -(-partitions // 8):
        raise DamagedMapError(f"section listed has {len(flags)} bytes for {partitions} partitions")
    if not np.unpackbits(flags, count=partitions).all():
        raise DamagedMapError("section listed leaves lists out")
    starts, members = _lists(sections, partitions, copies)
    if copies and (members.min() < 0 or members.max() >= nodes):
        raise DamagedMapError(f"section nodes names node {int(members.max())} of {nodes}")
    numbers = np.repeat(np.arange(partitions, dtype=np.int64), np.diff(starts))
    leaders = _integers(sections, LEADERS, partitions).astype(np.int32)
    if partitions and (leaders.min() < -1 or leaders.max() >= nodes):
        raise DamagedMapError(f"section leaders names node {int(leaders.max())} of {nodes}")
    return header, FullArrays(
        names,
        starts,
        members.astype(np.int32),
        decode_states(sections[STATES], copies),
        _integers(sections, COUNTERS, partitions)[numbers] - _integers(sections, LAGS, copies),
        _integers(sections, SIZES, partitions)[numbers] - _integers(sections, LACKS, copies),
        leaders,
        _integers(sections, TERMS, partitions),
    )


def join_maps(maps: list[bytes]) -> bytes:
    """Several maps in one value: each after its length."""
    return b"".join(LENGTH.pack(len(encoded)) + encoded for encoded in maps)


def split_maps(data: bytes) -> list[bytes]:
    """Raises DamagedMapError."""
    maps, at = [], 0
    while at < len(data):
        end = at + LENGTH.size
        length = LENGTH.unpack_from(data, at)[0] if end <= len(data) else 0
        if end + length > len(data) or not length:
            raise DamagedMapError(f"the list of maps ends inside the one at byte {at}")
        maps.append(data[end : end + length])
        at = end + length
    return maps


def encode_states(states: npt.NDArray[np.uint8]) -> bytes:
    """A dictionary of the states that occur, and for each copy its index in it, packed into as few bits as that
    takes, then compressed."""
    known, indexes = np.unique(states, return_inverse=True)
    bits = max(len(known) - 1, 0).bit_length()
    planes = (np.packbits((indexes >> bit) & 1) for bit in range(bits))
    packed = b"".join(plane.tobytes() for plane in planes)
    return bytes((len(known), *known.tolist())) + zlib.compress(packed, LEVEL)


def decode_states(data: bytes, copies: int) -> npt.NDArray[np.uint8]:
    """uint8 [copies]. Raises DamagedMapError."""
    size = data[0] if data else 0
    known = np.frombuffer(data[1 : 1 + size], dtype=np.uint8)
    if len(known) != size or (size and known.max() >= len(STATE_NAMES)) or (copies and not size):
        raise DamagedMapError(f"section states has the dictionary {known.tolist()}; codes are 0 to 4")
    bits, plane = max(size - 1, 0).bit_length(), -(-copies // 8)
    packed = _inflated(data[1 + size :], STATES, limit=bits * plane)
    if len(packed) != bits * plane:
        raise DamagedMapError(f"section states has {len(packed)} bytes for {copies} copies of {bits} bits")
    indexes = np.zeros(copies, dtype=np.uint8)
    for bit in range(bits):
        ones = np.frombuffer(packed[bit * plane : (bit + 1) * plane], dtype=np.uint8)
        indexes |= np.unpackbits(ones, count=copies) << bit
    if copies and indexes.max() >= size:
        raise DamagedMapError(f"section states names entry {int(indexes.max())} of a dictionary of {size}")
    return known[indexes] if copies else np.zeros(0, dtype=np.uint8)


def encode_integers(values: npt.NDArray[Any]) -> bytes:
    """Offsets from the lowest value in as few bytes as they take, byte planes one after the other,
    compressed."""
    wide = values.astype(np.int64)
    low = int(wide.min()) if len(wide) else 0
    offsets = (wide - low).astype(np.uint64)
    width = (int(offsets.max()).bit_length() + 7) // 8 if len(offsets) else 0
    planes = offsets.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()
    return INTEGERS.pack(width, low, len(wide)) + zlib.compress(planes, LEVEL)


def decode_integers(data: bytes, name: str = "integers") -> npt.NDArray[np.int64]:
    """int64. Raises DamagedMapError."""
    if len(data) < INTEGERS.size:
        raise DamagedMapError(f"section {name} ends after {len(data)} bytes")
    width, low, count = INTEGERS.unpack_from(data)
    if width > 8:
        raise DamagedMapError(f"section {name} has integers of {width} bytes")
    planes = _inflate(data[INTEGERS.size :], name, width * count)
    if len(planes) != width * count:
        raise DamagedMapError(f"section {name} has {len(planes)} bytes for {count} integers of {width}")
    columns: npt.NDArray[np.uint8] = np.zeros((count, 8), dtype=np.uint8)
    columns[:, :width] = np.frombuffer(planes, dtype=np.uint8).reshape(width, count).T
    values: npt.NDArray[np.int64] = columns.view("<u8").reshape(count).astype(np.int64) + low
    return values


def _highest(full: FullArrays, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the highest value by partition: copies of one partition mostly agree, and what they agree on is
    written once."""
    highest = np.zeros(full.partitions, dtype=np.int64)
    some = np.diff(full.starts) > 0
    if some.any():
        highest[some] = np.maximum.reduceat(values, full.starts[:-1][some])
    return highest


def _lists(sections: dict[int, bytes], partitions: int, copies: int) -> tuple[Int64, Int64]:
    """Return where each partition's copies begin, and the node of each copy."""
    counts = _integers(sections, COUNTS, partitions)
    if (counts < 0).any() or counts.sum() != copies:
        raise DamagedMapError(f"section counts gives {int(counts.sum())} copies, the header says {copies}")
    starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
    return starts, _integers(sections, NODES, copies)


def _opened(data: bytes) -> tuple[MapHeader, int, int, int, dict[int, bytes]]:
    if len(data) < HEADER.size + CHECKSUM.size:
        raise DamagedMapError(f"{len(data)} bytes are too few for a partition map")
    magic, form, kind, count, zone, major, minor, order, sequence, *sizes = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise DamagedMapError(f"a partition map begins with {MAGIC!r}, not {magic!r}")
    if form != FORMAT:
        raise DamagedMapError(f"partition map format {form} is not known; this build reads {FORMAT}")
    (checksum,) = CHECKSUM.unpack(data[-CHECKSUM.size :])
    if zlib.crc32(data[: -CHECKSUM.size]) != checksum:
        raise DamagedMapError("the checksum of the partition map is wrong: bytes are missing or changed")
    if kind != ALL_LISTED:
        raise DamagedMapError(f"a partition map of kind {kind} is not known; this build reads {ALL_LISTED}")
    sections: dict[int, bytes] = {}
    at, end = HEADER.size, len(data) - CHECKSUM.size
    for _ in range(count):
        if at + SECTION.size > end:
            raise DamagedMapError(f"the map ends inside a section's head, at byte {at}")
        tag, length, crc = SECTION.unpack_from(data, at)
        at += SECTION.size
        section = data[at : min(at + length, end)]
        if len(section) != length or zlib.crc32(section) != crc:
            raise DamagedMapError(f"section {_SECTION_NAMES.get(tag, tag)} at byte {at} is damaged")
        sections[tag] = section
        at += length
    missing = [name for tag, name in _SECTION_NAMES.items() if tag not in sections]
    if missing or at != end:
        raise DamagedMapError(f"sections are missing ({', '.join(missing)}) or there is more after byte {at}")
    return MapHeader(zone, major, minor, order, sequence), sizes[0], sizes[1], sizes[2], sections


def _integers(sections: dict[int, bytes], tag: int, count: int) -> npt.NDArray[np.int64]:
    values = decode_integers(sections[tag], _SECTION_NAMES[tag])
    if len(values) != count:
        raise DamagedMapError(f"section {_SECTION_NAMES[tag]} has {len(values)} values, {count} are due")
    return values


def _inflated(data: bytes, tag: int, limit: int) -> bytes:
    return _inflate(data, _SECTION_NAMES[tag], limit)


def _inflate(data: bytes, name: str, limit: int) -> bytes:
    """Decompress at most ``limit`` bytes: a few damaged ones must not ask for all of the memory."""
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise DamagedMapError(f"section {name} cannot be decompressed: {error}") from error
    if len(content) > limit or not stream.eof:
        raise DamagedMapError(f"section {name} has more than the {limit} bytes that are due")
    return content
