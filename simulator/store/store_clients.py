"""Clients of a simulated store, what they were told, and whether one order of all writes explains it.

Each client does one operation after the other, and repeats it until it knows. Every answer names a position,
and positions of a partition are one order. So a history is linearizable if for each key positions never go back
in real time, and each read has the value that was written at its position.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.write_terms import ABANDONED_MAX
from rebalance.core.partition_maps.partition_map import NO_RECORD, StorePosition
from rebalance.store.core.log_records import KeyChange, PartitionKey, WriteId
from rebalance.store.core.store_messages import AnswerCode, ReadRequest, StoreAnswer, WriteRequest
from simulator.store.store_world import StoreRuleBrokenError, StoreWorld


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


PATIENCE_MS = 1_500
LATE_MS = 8_000
AGAIN = (
    AnswerCode.NOT_PRIMARY,
    AnswerCode.NOT_SERVING,
    AnswerCode.UNKNOWN,
    AnswerCode.WAITING_FOR_OWNERS,
    AnswerCode.RESTING,
)


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """``clients`` use ``keys`` keys each, in ``partitions`` partitions of each of ``zones``. ``patience_ms``:
    after that long a write is given up. ``abandon``: the client's next write of the key abandons it then, and a
    request of it arrives late."""

    clients: int
    partitions: int
    keys: int
    deletes: bool
    zones: int
    patience_ms: int
    abandon: bool


class SimulatedClients:
    """``goes_on``: whether new operations begin."""

    def __init__(self, world: StoreWorld, names: list[str], load: ClientLoad) -> None:
        self.history = StoreHistory()
        self.goes_on = True
        self._world = world
        self._names = names
        self._load = load
        self._given_up: dict[tuple[int, PartitionKey, bytes], tuple[WriteId, ...]] = {}
        self._rng = random.Random(f"clients/{world.seed}")
        self._current: dict[int, tuple[StoreOperation, int]] = {}
        self._requests = 0
        self._begun = 0
        self._leaders: dict[PartitionKey, str] = {}
        world.listener = self.answered
        for client in range(load.clients):
            world.time.after(self._rng.randint(0, 200), lambda client=client: self._begin(client))  # type: ignore[misc]  # as above

    @property
    def is_idle(self) -> bool:
        return not self._current

    def _begin(self, client: int) -> None:
        if not self.goes_on:
            return
        rng = self._rng
        self._begun += 1
        number = rng.randrange(self._load.partitions)
        writes = rng.random() < 0.6
        write = WriteId(f"w{self._begun}") if writes else None
        deletes = self._load.deletes and writes and rng.random() < 0.3
        key = f"k{rng.randrange(self._load.keys)}".encode()
        zone = ZoneId(rng.randint(1, self._load.zones) if self._load.zones > 1 else 1)
        self.begin(client, (zone, number), key, write, deletes)

    def begin(
        self, client: int, partition: PartitionKey, key: bytes, write: WriteId | None, deletes: bool = False
    ) -> StoreOperation:
        value = write.encode() if write is not None and not deletes else None
        operation = StoreOperation(client, partition, key, write, value, self._world.time.now)
        if write is not None:
            operation.abandons = self._given_up.get((client, partition, key), ())
        self.history.operations.append(operation)
        self._ask(operation)
        return operation

    def _ask(self, operation: StoreOperation) -> None:
        """Send an operation to the last known leader, else to any server; again when no answer comes."""
        self._requests += 1
        number, (zone, partition) = self._requests, operation.partition
        self._current[operation.client] = operation, number
        name = self._leaders.pop(operation.partition, None) or self._rng.choice(self._names)
        if operation.write is None:
            request: ReadRequest | WriteRequest = ReadRequest(number, zone, partition, operation.key)
        else:
            request = _request_of(operation, operation.write, number)
        self._world.ask(operation.client, name, request)
        # Sometimes it repeats although the answer is on its way.
        patience = PATIENCE_MS if self._rng.random() < 0.95 else 15
        self._world.time.after(patience, lambda: self._again(operation, number))

    def _again(self, operation: StoreOperation, number: int, refused: bool = False) -> None:
        if self._current.get(operation.client) != (operation, number):
            return
        operation.is_unsure = operation.is_unsure or not refused
        if (
            operation.write is not None
            and self._world.time.now - operation.invoked_ms >= self._load.patience_ms
        ):
            del self._current[operation.client]
            if self._load.abandon:
                self._give_up(operation, operation.write)
            self._begin(operation.client)
        else:
            self._ask(operation)

    def _give_up(self, operation: StoreOperation, write: WriteId) -> None:
        place = operation.client, operation.partition, operation.key
        self._given_up[place] = (*self._given_up.get(place, ()), write)[-ABANDONED_MAX:]
        self._requests += 1
        late, name = _request_of(operation, write, self._requests), self._rng.choice(self._names)
        delay = self._rng.randint(0, LATE_MS)
        self._world.time.after(delay, lambda: self._world.ask(operation.client, name, late))

    def answered(self, client: int, answer: StoreAnswer) -> None:
        current = self._current.get(client)
        if current is None or current[1] != answer.request:
            return
        operation, number = current
        if answer.code in AGAIN:
            if answer.primary:
                self._leaders[operation.partition] = answer.primary
            refused = answer.code is not AnswerCode.UNKNOWN
            delay = self._rng.randint(5, 200)
            self._world.time.after(delay, lambda: self._again(operation, number, refused))
            return
        del self._current[client]
        if answer.code is AnswerCode.DONE:
            operation.returned_ms, operation.position = self._world.time.now, answer.position
            self._leaders[operation.partition] = self._leaders.get(operation.partition, "")
            if operation.write is None:
                operation.value = answer.value
            elif operation.abandons:
                place = operation.client, operation.partition, operation.key
                left = set(self._given_up.pop(place, ())) - set(operation.abandons)
                if left:
                    self._given_up[place] = tuple(sorted(left))
        elif not operation.is_unsure:
            # No request of it did anything: it never was.
            self.history.operations = [item for item in self.history.operations if item is not operation]
        self._world.time.after(self._rng.randint(0, 60), lambda: self._begin(client))


def _request_of(operation: StoreOperation, write: WriteId, number: int) -> WriteRequest:
    zone, partition = operation.partition
    change = KeyChange(operation.key, operation.value)
    return WriteRequest(number, write, zone, partition, (change,), abandons=operation.abandons)
