"""The network between a process and the metastore: delays, lost requests and replies, late requests,
partitions.

Each client draws from a random stream of its own, so that the faults of one process do not depend on how often
another one asked.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TypeVar

from rebalance.core.keyspace.txn import KeyValue, Txn, TxnResult
from rebalance.ports.metastore import (
    KeyEvent,
    MetastoreError,
    MetastoreUnavailableError,
    Newest,
    Snapshot,
    WatchBatch,
    WatchReset,
)
from simulator.control.memory_metastore import MemoryMetastore

T = TypeVar("T")

TIMEOUT_S = 2.0
"""Seconds after which a client gives a request up. It may still arrive, up to ``LATE_S`` later."""
LATE_S = 6.0
HELD_S = 1.8


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Probabilities per request (the last one: per delivery of a watch), and the mean one-way delay."""

    delay_s: float = 0.002
    slow: float = 0.01
    """The delay is a hundred times as long: requests overtake each other."""
    held_write: float = 0.1
    """A guarded write arrives up to ``HELD_S`` after what was read for it: others write in between."""
    lost_request: float = 0.002
    lost_reply: float = 0.004
    late_request: float = 0.002
    """The client gives up, the request is carried out afterwards."""
    watch_reset: float = 0.005
    """The watch loses its place and begins with a snapshot again: events come twice."""


NO_FAULTS = FaultRates(
    slow=0.0, held_write=0.0, lost_request=0.0, lost_reply=0.0, late_request=0.0, watch_reset=0.0
)


class SimulatedClient:
    """A ``Metastore``: one process's connection to the store. ``rates`` may be changed while it is in use."""

    def __init__(self, store: MemoryMetastore, rng: random.Random, rates: FaultRates) -> None:
        self._store = store
        self._rng = rng
        self.rates = rates
        self._dead = False
        self._cut_out = False
        self._cut_in = False
        self._running = asyncio.Event()
        self._running.set()

    def kill(self) -> None:
        """The process is gone: nothing it still does reaches anybody."""
        self._dead = True

    def cut(self, *, requests: bool = True, answers: bool = True) -> None:
        """Let nothing through, or nothing in one direction."""
        self._cut_out, self._cut_in = self._cut_out or requests, self._cut_in or answers

    def heal(self) -> None:
        self._cut_out = self._cut_in = False

    def freeze(self) -> None:
        """The process stands still between two instructions: it goes on with what it knew."""
        self._running.clear()

    def thaw(self) -> None:
        self._running.set()

    async def get(self, key: str) -> KeyValue | None:
        return await self._call(lambda: self._store.get_now(key))

    async def range(self, prefix: str) -> Snapshot:
        return await self._call(lambda: self._store.range_now(prefix))

    async def newest(self, prefix: str) -> Newest:
        return await self._call(lambda: self._store.newest_now(prefix))

    async def commit(self, txn: Txn) -> TxnResult:
        guarded = bool(txn.compares) or any(isinstance(operation, Txn) for operation in txn.success)
        if guarded and self._rng.random() < self.rates.held_write:
            await asyncio.sleep(self._rng.uniform(0.1, HELD_S))
        return await self._call(lambda: self._store.commit_now(txn))

    async def grant_lease(self, ttl_s: int) -> int:
        return await self._call(lambda: self._store.grant_lease_now(ttl_s))

    async def keep_lease(self, lease: int, within_s: float) -> None:
        await self._call(lambda: self._store.keep_lease_now(lease))

    async def revoke_lease(self, lease: int) -> None:
        await self._call(lambda: self._store.revoke_lease_now(lease))

    async def close(self) -> None:
        self._dead = True

    async def watch(self, prefix: str) -> AsyncIterator[WatchReset | WatchBatch]:
        """Yield changes in order and without a gap, as the port promises; late, several revisions at once, or
        begun anew."""
        waiting: list[tuple[int, tuple[KeyEvent, ...]]] = []
        arrived = asyncio.Event()

        def on_revision(revision: int, events: tuple[KeyEvent, ...]) -> None:
            waiting.append((revision, events))
            arrived.set()

        forget = self._store.observe(on_revision, prefix)
        reset = True
        try:
            while True:
                if not reset:
                    await arrived.wait()
                await self._pass()
                while self._cut_in or (reset and self._cut_out) or self._store.is_paused:
                    await asyncio.sleep(0.5)
                if self._dead:
                    raise asyncio.CancelledError
                batches, waiting[:] = tuple(waiting), ()
                arrived.clear()
                if reset or self._rng.random() < self.rates.watch_reset:
                    reset = False
                    yield WatchReset(self._store.range_now(prefix))
                elif len(batches) == 1:
                    yield WatchBatch(*batches[0])
                elif batches:
                    yield WatchBatch(batches[-1][0], tuple(event for _, events in batches for event in events))
        finally:
            forget()

    async def _call(self, operation: Callable[[], T]) -> T:
        if self._dead:
            raise MetastoreUnavailableError("the process is gone")
        await self._pass()
        if self._cut_out or self._store.is_paused:
            await self._give_up()
        fate, rates = self._rng.random(), self.rates
        if fate < rates.lost_request:
            await self._give_up()
        fate -= rates.lost_request
        if 0 <= fate < rates.late_request:
            late_s = TIMEOUT_S + self._rng.uniform(0.0, LATE_S)
            asyncio.get_running_loop().call_later(late_s, self._carry_out_late, operation)
            await self._give_up()
        fate -= rates.late_request
        result = operation()
        if 0 <= fate < rates.lost_reply:
            await self._give_up()
        await self._pass()
        if self._cut_in:
            await self._give_up()
        return result

    async def _pass(self) -> None:
        delay_s = self._rng.expovariate(1.0 / self.rates.delay_s)
        if self._rng.random() < self.rates.slow:
            delay_s *= 100.0
        await asyncio.sleep(delay_s)
        if not self._running.is_set():
            await self._running.wait()
        if self._dead:
            raise MetastoreUnavailableError("the process is gone")

    async def _give_up(self) -> None:
        await asyncio.sleep(TIMEOUT_S)
        raise MetastoreUnavailableError("no answer in time", outcome_unknown=True)

    def _carry_out_late(self, operation: Callable[[], object]) -> None:
        """Sent before the process died or was cut off, so neither matters any more."""
        try:
            operation()
        except MetastoreError:
            return  # a lease that ended meanwhile, a store that is paused
