"""List of a server's copies, for people: packed columns, and the rows that they stand for."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.affinity import CopyState
from rebalance.core.partition_maps.store_positions import NO_RECORD, StorePosition
from rebalance.store.core.store_copy import ServedCopy
from rebalance.store.core.store_messages import CopiesAnswer, RefillAnswer

STATES = tuple(CopyState)


@dataclass(frozen=True, slots=True)
class ListedCopy:
    """``position``: of the newest record that the copy has; ``filled``: up to where it has all of them."""

    zone: ZoneId
    partition: int
    state: str
    is_primary: bool
    position: StorePosition
    filled: StorePosition


def list_copies(
    copies: Iterable[ServedCopy], request: int, refills: tuple[RefillAnswer, ...] = ()
) -> CopiesAnswer:
    rows = list(copies)
    filled = [copy.tail if copy.is_clean else NO_RECORD for copy in rows]
    return CopiesAnswer(
        request,
        tuple(state.value for state in STATES),
        _packed("i", (copy.partition[0] for copy in rows)),
        _packed("i", (copy.partition[1] for copy in rows)),
        bytes(STATES.index(copy.state) for copy in rows),
        bytes(copy.leading is not None for copy in rows),
        _packed("q", (number for copy in rows for number in max(copy.stream, copy.tail))),
        _packed("q", (number for position in filled for number in position)),
        refills,
    )


def listed_copies(answer: CopiesAnswer) -> Iterator[ListedCopy]:
    """Yield the rows, ordered by zone and partition. Raises ValueError for columns of different lengths."""
    columns = zip(
        _unpacked("i", answer.zones),
        _unpacked("i", answer.partitions),
        answer.codes,
        answer.primaries,
        _positions(answer.positions),
        _positions(answer.filled),
        strict=True,
    )
    for zone, partition, code, is_primary, position, filled in sorted(columns):
        state = answer.states[code]
        yield ListedCopy(ZoneId(zone), partition, state, bool(is_primary), position, filled)


def _packed(kind: str, numbers: Iterable[int]) -> bytes:
    """Little-endian."""
    values = tuple(numbers)
    return struct.pack(f"<{len(values)}{kind}", *values)


def _unpacked(kind: str, column: bytes) -> tuple[int, ...]:
    try:
        return struct.unpack(f"<{len(column) // struct.calcsize(f'<{kind}')}{kind}", column)
    except struct.error as error:
        raise ValueError(f"not a column: {error}") from error


def _positions(column: bytes) -> list[StorePosition]:
    numbers = _unpacked("q", column)
    return [StorePosition(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
