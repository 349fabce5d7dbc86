"""What clients were told, and whether one order of all writes explains it.

Every answer names a position, and positions of a partition are one order. So a history is linearizable if for
each key positions never go back in real time, and each read has the value that was written at its position.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from rebalance.core.store_positions import NO_RECORD, StorePosition
from rebalance.store.core.log_records import PartitionKey, WriteId


class StoreRuleBrokenError(AssertionError):
    """Names the rule, and what was found."""


@dataclass(slots=True)
class StoreOperation:
    """``write`` None: a read. ``returned_ms`` None: nobody was told how it ended."""

    client: int
    partition: PartitionKey
    key: bytes
    write: WriteId | None
    value: bytes | None
    invoked_ms: int
    returned_ms: int | None = None
    position: StorePosition | None = None


class StoreHistory:
    def __init__(self) -> None:
        self.operations: list[StoreOperation] = []

    @property
    def acknowledged(self) -> list[StoreOperation]:
        return [each for each in self.operations if each.write is not None and each.position is not None]

    def check(self) -> None:
        """Raises StoreRuleBrokenError."""
        by_key: defaultdict[tuple[PartitionKey, bytes], list[StoreOperation]] = defaultdict(list)
        for each in self.operations:
            by_key[each.partition, each.key].append(each)
        for (partition, key), operations in sorted(by_key.items()):
            _values_fit(partition, key, operations)
            told = [each for each in operations if each.position is not None]
            if any(each.write is not None and each.value is None for each in operations):
                # A read of nothing says little once somebody deletes the key.
                told = [each for each in told if each.value is not None]
            _never_back(partition, key, told)


def _values_fit(partition: PartitionKey, key: bytes, operations: list[StoreOperation]) -> None:
    written: dict[StorePosition, StoreOperation] = {}
    for each in operations:
        if each.write is None or each.position is None:
            continue
        other = written.setdefault(each.position, each)
        if other.write != each.write:
            raise StoreRuleBrokenError(f"{partition} {key!r}: {each} and {other} have one position")
    possible = {each.value: each for each in operations if each.write is not None}
    for each in operations:
        if each.write is not None or each.position is None or each.value is None:
            continue
        # Values are written once, so whoever was told one was told of that write, at its position.
        write = possible.get(each.value)
        if write is None or write.position not in (None, each.position):
            raise StoreRuleBrokenError(f"{partition} {key!r}: {each} does not fit {write}")


def _never_back(partition: PartitionKey, key: bytes, told: list[StoreOperation]) -> None:
    """``told`` were answered: what began after another one returned is not before it."""
    events = sorted(
        # In one instant, begins come first: such operations overlap.
        [(each.invoked_ms, 0, index) for index, each in enumerate(told)]
        + [(each.returned_ms or 0, 1, index) for index, each in enumerate(told)]
    )
    highest: StorePosition = NO_RECORD
    highest_by: StoreOperation | None = None
    floors: dict[int, tuple[StorePosition, StoreOperation | None]] = {}
    for _, returns, index in events:
        each = told[index]
        if not returns:
            floors[index] = highest, highest_by
            continue
        floor, earlier = floors[index]
        position = each.position or NO_RECORD
        if position < floor:
            raise StoreRuleBrokenError(f"{partition} {key!r}: {each} came after {earlier}")
        if position > highest:
            highest, highest_by = position, each
