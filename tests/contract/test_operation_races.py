"""Operations when two do something at once, and one that is taken back half-way, over each metastore."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import combinations
from typing import TypeVar

import pytest

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import Origin
from rebalance.controllers.clock import WallClock
from rebalance.controllers.operation_control import OperationControl
from rebalance.controllers.operation_keeper import OperationKeeper
from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import KeyValue, Txn, TxnResult
from rebalance.core.operations.operation import Operation, OperationKind, OperationState
from rebalance.ports.metastore import Metastore, Snapshot
from tests.fixtures.admission_world import DEADLINE_S
from tests.fixtures.operation_groups import ZONE_ID, OperationsWorld, operations_world

T = TypeVar("T")

KEEPER, CANCELLER = "keeper", "canceller"
TURNS = 12
"""More than the keeper's look takes: so a cancel reads, and writes, at every place among its requests."""


@pytest.fixture
async def world(store: Metastore, keyspace: Keyspace) -> OperationsWorld:
    made = await operations_world(store, keyspace)
    await made.found()
    return made


class Turns:
    """Requests of two, one after the other, in a chosen order; who is finished gives its turns up."""

    def __init__(self, order: Sequence[str]) -> None:
        self._order = deque(order)
        self._finished: set[str] = set()
        self._changed = asyncio.Condition()

    async def request(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        async with self._changed:
            await self._changed.wait_for(lambda: self._next() in (None, name))
            try:
                return await work()
            finally:
                if self._order:
                    self._order.popleft()
                self._changed.notify_all()

    async def finish(self, name: str) -> None:
        async with self._changed:
            self._finished.add(name)
            self._changed.notify_all()

    def _next(self) -> str | None:
        while self._order and self._order[0] in self._finished:
            self._order.popleft()
        return self._order[0] if self._order else None


class InTurns:
    """A metastore whose reads and writes wait for the turn of ``name``."""

    def __init__(self, store: Metastore, turns: Turns, name: str) -> None:
        self._store, self._turns, self._name = store, turns, name

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def get(self, key: str) -> KeyValue | None:
        return await self._turns.request(self._name, lambda: self._store.get(key))

    async def range(self, prefix: str) -> Snapshot:
        return await self._turns.request(self._name, lambda: self._store.range(prefix))

    async def commit(self, txn: Txn) -> TxnResult:
        return await self._turns.request(self._name, lambda: self._store.commit(txn))


async def race(
    world: OperationsWorld, operation: Operation, order: Sequence[str]
) -> tuple[Operation, Operation | BaseException]:
    """The keeper's look and a cancel, their requests in this order: what each came to."""
    turns = Turns(order)
    item = await world.store.get(world.keyspace.operation(operation.operation_id))
    assert item is not None
    keeper = OperationKeeper(InTurns(world.store, turns, KEEPER), world.keyspace, WallClock(), Limits)
    control = OperationControl(InTurns(world.store, turns, CANCELLER), world.keyspace, WallClock())

    async def until_end(name: str, work: Awaitable[Operation]) -> Operation:
        try:
            return await work
        finally:
            await turns.finish(name)

    looked, cancelled = await asyncio.gather(
        until_end(KEEPER, keeper.look(item)),
        until_end(CANCELLER, control.cancel(operation.operation_id, "carol", "")),
        return_exceptions=True,
    )
    assert isinstance(looked, Operation)
    return looked, cancelled


@pytest.mark.row("VOL-095")
async def test_a_cancel_and_the_end_have_one_winner_in_every_order(world: OperationsWorld) -> None:
    """VOL-095: every order of the requests of the keeper that ends the operation and of who cancels it: what
    the record says is what exactly one of the two was told, and it stays."""
    winners = []
    async with world.controllers() as controllers:
        for number, places in enumerate(combinations(range(TURNS), 2)):
            order = [CANCELLER if turn in places else KEEPER for turn in range(TURNS)]
            operation = await world.begin(controllers, 3 if number % 2 == 0 else 1)
            await world.end_moves()
            looked, cancelled = await race(world, operation, order)
            now = await world.newest()
            assert now.operation_id == operation.operation_id
            winners.append(now.state)
            if isinstance(cancelled, RefusedError):
                assert cancelled.kind is ErrorKind.OPERATION_STATE_ILLEGAL
                assert now.state is looked.state is OperationState.DONE
            else:
                assert isinstance(cancelled, Operation), cancelled
                assert now.state is cancelled.state is OperationState.CANCELLED
                assert looked.state is not OperationState.DONE
            for _ in range(2):
                assert (await world.look(controllers)).state is now.state
            assert (await world.newest()).is_over
    assert set(winners) == {OperationState.DONE, OperationState.CANCELLED}, "both can win"


async def stable_of(world: OperationsWorld) -> dict[PartitionId, Assignments]:
    found = (await world.observed()).items()
    return {
        each: Assignments.decode(seen.stable.value)
        for each, seen in found
        if each.zone_id == ZONE_ID and seen.stable
    }


@pytest.mark.row("VOL-093")
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "cancelled"])
async def test_half_an_operation_is_taken_back(world: OperationsWorld, stopped: bool) -> None:
    """VOL-093: some partitions have moved, some move, some wait: afterwards each is exactly where it was, its
    preferred primary and the order of its voters as well."""
    before = await stable_of(world)
    await world.limit(Limits(cluster_moves=2))
    async with world.controllers() as controllers:
        operation = await world.begin(controllers)
        for partition in await world.until(lambda found: len(found) == 2):
            await world.end_move(partition)
        await world.until(lambda found: len(found) == 2)
        assert len([each for each, now in (await stable_of(world)).items() if now != before[each]]) == 2
        if stopped:
            await world.control.cancel(operation.operation_id, "dave", "")
        found = await world.control.reversible(operation.operation_id)
        revision = found.before.pointer.event_revision
        origin = Origin("dave", False, "too slow", "", revision, operation.operation_id)
        reverse = await world.begin(controllers, 1, origin)
        assert (reverse.kind, reverse.reverses) == (OperationKind.REVERSE, operation.operation_id)
        await world.limit(Limits())
        async with asyncio.timeout(DEADLINE_S):
            while (await stable_of(world)) != before or await world.moving():
                await asyncio.sleep(0.01)
                await controllers.zones.reconcile([ZONE_ID])
                for partition in await world.moving():
                    await world.end_move(partition)
        await world.found()
        over = await world.look(controllers)
        assert (over.operation_id, over.state) == (reverse.operation_id, OperationState.DONE)
        (earlier,) = [each for each in await world.operations() if each.operation_id == operation.operation_id]
        assert earlier.state is OperationState.REVERSED
        assert await stable_of(world) == before
