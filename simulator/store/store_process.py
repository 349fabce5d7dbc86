"""One simulated server process: it carries out what its core asks for, late, and not always."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

from rebalance.store.core.store_effects import (
    AskAffinityChange,
    CommitResult,
    LeaveRing,
    ReadTargets,
    Reply,
    SendHeartbeat,
    SendServer,
    SetSuspect,
    StopServer,
    StoreEffect,
    WriteDisk,
)
from rebalance.store.core.store_inputs import (
    DiskDone,
    DiskRefused,
    HeartbeatDone,
    HeartbeatRefused,
    ResultCommitted,
    ResultExists,
    RingHeard,
    RoomChanged,
    StoreInput,
    TargetsRead,
    Ticked,
)
from rebalance.store.core.store_limits import StoreLimits
from rebalance.store.core.store_messages import StoreAnswer
from rebalance.store.core.store_server import StoreServer
from simulator.store.store_clock import NodeClock, StoreTime
from simulator.store.store_disk import SimulatedDisk
from simulator.store.store_metastore import StoreMetastore

TICK_MS = 100


class StoreSurroundings(Protocol):
    """Surroundings that a process reaches."""

    time: StoreTime
    metastore: StoreMetastore
    limits: StoreLimits

    def sent(self, sender: StoreProcess, effect: SendServer) -> None: ...

    def answered(self, sender: StoreProcess, client: int, answer: StoreAnswer) -> None: ...

    def cut_from(self, name: str) -> frozenset[str]: ...

    def stopped(self, process: StoreProcess, reason: str) -> None: ...

    def stepped(self, process: StoreProcess, effects: list[StoreEffect]) -> None: ...

    def call(self, process: StoreProcess, request: Callable[[], StoreInput | None]) -> None:
        """A transaction of the metastore, whose answer may not come."""

    def watched(self, process: StoreProcess, events: Callable[[], StoreInput | None]) -> None:
        """The ring may have new events for the process, which ``events`` gives."""


class StoreProcess:
    """``is_alive`` until it ends or is killed. While it is paused nothing is handed in and nothing leaves."""

    def __init__(
        self,
        name: str,
        incarnation: str,
        disk: SimulatedDisk,
        clock: NodeClock,
        around: StoreSurroundings,
        seed: str,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.disk = disk
        self.clock = clock
        self.is_alive = True
        self.is_paused = False
        self.disk_ms = (1, 20)
        self.reply_ms = (0, 2)
        self.full_chance = 0.0
        self._around = around
        self._rng = random.Random(seed)
        self._inputs: deque[StoreInput] = deque()
        self._replies: deque[Reply] = deque()
        self._under_way: WriteDisk | None = None
        start = around.metastore.start(name)
        self.server = StoreServer(name, incarnation, disk, start, around.limits)
        self._heard = start.ring.number
        around.time.after(0, self._tick)

    def give(self, event: StoreInput) -> None:
        if not self.is_alive:
            return
        if self.is_paused:
            self._inputs.append(event)
            return
        effects = self.server.step(event)
        for effect in effects:
            self._carry_out(effect)
        self._around.stepped(self, effects)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Let the process go on: first what was on its way out, then the clock, then what came meanwhile."""
        self.is_paused = False
        while self._replies and self.is_alive:
            self._to_socket(self._replies.popleft())
        self.give(Ticked(self.clock.boot_ms))
        while self._inputs and not self.is_paused and self.is_alive:
            self.give(self._inputs.popleft())

    def fill(self, full_chance: float) -> None:
        """Let this part of transactions find no room, until ``empty``."""
        self.full_chance = full_chance

    def empty(self) -> None:
        if self.full_chance:
            self.full_chance = 0.0
            self.give(RoomChanged(has_room=True))

    def kill(self) -> None:
        """Kill the process; a transaction that was under way on the disk may be there or not."""
        self.is_alive = False
        if self._under_way is not None and self._rng.random() < 0.5:
            self.disk.commit(self._under_way.changes)
        self._under_way = None

    def _tick(self) -> None:
        if not self.is_alive:
            return
        if not self.is_paused:
            self.give(Ticked(self.clock.boot_ms))
            self._hear()
        self._around.time.after(TICK_MS + self._rng.randint(-10, 10), self._tick)

    def _hear(self) -> None:
        """The ring's watch: late, and several events at once."""
        self._around.watched(self, self._events)

    def _events(self) -> StoreInput | None:
        records = tuple(self._around.metastore.events[self._heard :])
        if not records:
            return None
        return RingHeard(records)

    def _carry_out(self, effect: StoreEffect) -> None:
        around, metastore = self._around, self._around.metastore
        match effect:
            case WriteDisk():
                self._under_way = effect
                around.time.after(self._rng.randint(*self.disk_ms), lambda: self._written(effect))
            case SendServer():
                around.sent(self, effect)
            case Reply():
                around.time.after(self._rng.randint(*self.reply_ms), lambda: self._to_socket(effect))
            case SendHeartbeat(ticket, finished):
                around.call(
                    self,
                    lambda: (
                        HeartbeatDone(ticket)
                        if metastore.beat(self.name, self.incarnation, finished, around.cut_from(self.name))
                        else HeartbeatRefused(ticket)
                    ),
                )
            case ReadTargets(ticket, zones):
                around.call(self, lambda: TargetsRead(ticket, metastore.lists(zones)))
            case CommitResult(record):

                def commit() -> StoreInput | None:
                    if not metastore.takes_results:
                        return None
                    existing = metastore.commit_result(record)
                    if existing is None:
                        self._end("results are folded")
                        return None
                    return ResultExists(existing) if existing else ResultCommitted(record.version)

                around.call(self, commit)
            case AskAffinityChange(basis):
                around.call(self, lambda: metastore.affinity_change(basis))
            case SetSuspect(whom, order, suspected):
                around.call(self, lambda: metastore.suspect(self.name, whom, order, suspected))
            case LeaveRing():
                around.call(self, lambda: metastore.leave(self.name, self.incarnation))
                self._end("it left")
            case StopServer(reason):
                self._end(reason)
            case _:
                pass

    def heard(self, event: StoreInput) -> None:
        """An answer of the metastore."""
        if isinstance(event, RingHeard):
            records = tuple(item for item in event.records if item.number > self._heard)
            if not records or records[0].number != self._heard + 1:
                return
            self._heard = records[-1].number
            event = RingHeard(records)
        self.give(event)

    def _end(self, reason: str) -> None:
        self.kill()
        self._around.stopped(self, reason)

    def _written(self, transaction: WriteDisk) -> None:
        if not self.is_alive or self._under_way is not transaction:
            return
        self._under_way = None
        if self._rng.random() < self.full_chance:
            self.give(DiskRefused(transaction.ticket, no_room=True))
            return
        self.disk.commit(transaction.changes)
        self.give(DiskDone(transaction.ticket))

    def _to_socket(self, reply: Reply) -> None:
        if not self.is_alive:
            return
        if self.is_paused:
            self._replies.append(reply)
            return
        answer = reply.answer
        if self.clock.boot_ms >= reply.until_ms:
            answer = StoreAnswer(answer.request, reply.late, answer.version)
        self._around.answered(self, reply.client, answer)
