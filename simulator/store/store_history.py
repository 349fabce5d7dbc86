"""History of clients' answers, and the check that one order of all writes explains it.

Every answer names a position, and positions of a partition are one order. So a history is linearizable if for
each key positions never go back in real time, and each read has the value that was written at its position.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from rebalance.core.partition_maps.partition_map import NO_RECORD, StorePosition
from rebalance.store.core.log_records import PartitionKey, WriteId


class StoreRuleBrokenError(AssertionError):
    """Names the rule, and what was found."""


@dataclass(slots=True)
class StoreOperation:
    """``write`` None: a read. ``returned_ms`` None: nobody was told how it ended. ``is_unsure``: a request of
    it was not answered, so that it may be done although a later one was refused. ``abandons``: earlier writes
    of the client to the key, which it has given up."""

    client: int
    partition: PartitionKey
    key: bytes
    write: WriteId | None
    value: bytes | None
    invoked_ms: int
    returned_ms: int | None = None
    position: StorePosition | None = None
    is_unsure: bool = False
    abandons: tuple[WriteId, ...] = ()


class StoreHistory:
    def __init__(self) -> None:
        self.operations: list[StoreOperation] = []

    @property
    def acknowledged(self) -> list[StoreOperation]:
        return [item for item in self.operations if item.write is not None and item.position is not None]

    def check(self) -> None:
        """Raises StoreRuleBrokenError."""
        by_key: defaultdict[tuple[PartitionKey, bytes], list[StoreOperation]] = defaultdict(list)
        for item in self.operations:
            by_key[item.partition, item.key].append(item)
        for (partition, key), operations in sorted(by_key.items()):
            _values_fit(partition, key, operations)
            _none_takes_the_place_of_a_later_one(partition, key, operations)
            answered = [item for item in operations if item.position is not None]
            if any(item.write is not None and item.value is None for item in operations):
                # A read of nothing says little once somebody deletes the key.
                answered = [item for item in answered if item.value is not None]
            _never_back(partition, key, answered)


def _values_fit(partition: PartitionKey, key: bytes, operations: list[StoreOperation]) -> None:
    written: dict[StorePosition, StoreOperation] = {}
    for item in operations:
        if item.write is None or item.position is None:
            continue
        other = written.setdefault(item.position, item)
        if other.write != item.write:
            raise StoreRuleBrokenError(f"{partition} {key!r}: {item} and {other} have one position")
    possible = {item.value: item for item in operations if item.write is not None}
    for item in operations:
        if item.write is not None or item.position is None or item.value is None:
            continue
        # Values are written once, so whoever was told one was told of that write, at its position.
        write = possible.get(item.value)
        if write is None or write.position not in (None, item.position):
            raise StoreRuleBrokenError(f"{partition} {key!r}: {item} does not fit {write}")


def _none_takes_the_place_of_a_later_one(
    partition: PartitionKey, key: bytes, operations: list[StoreOperation]
) -> None:
    """Check that no read after an acknowledged write sees a value that the write has abandoned. Values are
    written once."""
    ends = {
        other.encode(): item
        for item in operations
        if item.position is not None
        for other in reversed(item.abandons)
    }
    for item in operations:
        later = ends.get(item.value) if item.write is None and item.value is not None else None
        if later is not None and item.position is not None and item.position > (later.position or NO_RECORD):
            raise StoreRuleBrokenError(f"{partition} {key!r}: {item} has what {later} has abandoned")


def _never_back(partition: PartitionKey, key: bytes, answered: list[StoreOperation]) -> None:
    """Check that an operation which began after another one returned is not before it."""
    events = sorted(
        # In one instant, begins come first: such operations overlap.
        [(item.invoked_ms, 0, index) for index, item in enumerate(answered)]
        + [(item.returned_ms or 0, 1, index) for index, item in enumerate(answered)]
    )
    highest: StorePosition = NO_RECORD
    highest_by: StoreOperation | None = None
    floors: dict[int, tuple[StorePosition, StoreOperation | None]] = {}
    for _, returns, index in events:
        item = answered[index]
        if not returns:
            floors[index] = highest, highest_by
            continue
        floor, earlier = floors[index]
        position = item.position or NO_RECORD
        if position < floor:
            raise StoreRuleBrokenError(f"{partition} {key!r}: {item} came after {earlier}")
        if position > highest:
            highest, highest_by = position, item
