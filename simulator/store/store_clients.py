"""Clients of a simulated store: each does one operation after the other, and repeats it until it knows."""

from __future__ import annotations

import random
from dataclasses import dataclass

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.write_terms import ABANDONED_MAX
from rebalance.store.core.log_records import KeyChange, PartitionKey, WriteId
from rebalance.store.core.store_messages import AnswerCode, ReadRequest, StoreAnswer, WriteRequest
from simulator.store.store_history import StoreHistory, StoreOperation
from simulator.store.store_world import StoreWorld

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
        world.listener = self
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
