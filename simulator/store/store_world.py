"""Store servers, their network, their metastore and a controller's part of the ring, in virtual time.

Everything follows from the seed. A server carries out what its core asks for, late, and not always. Connections
deliver in order while they stand; what a server sent before it died may still arrive; links are cut and heal;
requests to the metastore and their answers get lost. Time is one queue of what happens when, and a clock a node
that drifts.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from rebalance.store.core.log_records import PartitionKey
from rebalance.store.core.ring_keeper import RingKeeper
from rebalance.store.core.store_check import check_copy
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
    ClientRequest,
    DiskDone,
    DiskRefused,
    HeartbeatDone,
    HeartbeatRefused,
    ResultCommitted,
    ResultExists,
    RingHeard,
    RoomChanged,
    ServerConnected,
    ServerMessage,
    StoreInput,
    TargetsRead,
    Ticked,
)
from rebalance.store.core.store_limits import StoreLimits
from rebalance.store.core.store_messages import AnswerCode, ReadRequest, StoreAnswer, WriteRequest
from rebalance.store.core.store_server import StoreServer
from simulator.store.store_disk import SimulatedDisk
from simulator.store.store_metastore import StoreMetastore


class StoreRuleBrokenError(AssertionError):
    """Names the rule, and what was found."""


class StoreTime:
    """``now`` is in milliseconds. Calls of one instant happen in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now + max(0, delay_ms), self._count, call))

    def run_until(self, end_ms: int) -> None:
        while self._queue and self._queue[0][0] <= end_ms:
            self.now, _, call = heapq.heappop(self._queue)
            call()
        self.now = end_ms


@dataclass(slots=True)
class NodeClock:
    """``rate``: of its time to true time; ``ahead_ms``: what it shows at zero. It may jump ahead."""

    time: StoreTime
    rate: float = 1.0
    ahead_ms: int = 0

    @property
    def boot_ms(self) -> int:
        return self.ahead_ms + int(self.time.now * self.rate)


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
            self._around.watched(self, self._events)
        self._around.time.after(TICK_MS + self._rng.randint(-10, 10), self._tick)

    def _events(self) -> StoreInput | None:
        records = tuple(self._around.metastore.events[self._heard :])
        return RingHeard(records) if records else None

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


@dataclass(frozen=True, slots=True)
class WorldRates:
    """Chances of faults, each per call. Times in milliseconds."""

    lost_request: float = 0.02
    lost_answer: float = 0.02
    network_ms: tuple[int, int] = (1, 8)
    late_ms: tuple[int, int] = (50, 400)
    late_chance: float = 0.02


@dataclass(slots=True)
class StoreWorld:
    """``processes``: by name, the one that runs or ran last. ``cuts``: pairs of names without a link."""

    seed: int
    limits: StoreLimits = field(default_factory=StoreLimits)
    rates: WorldRates = field(default_factory=WorldRates)
    time: StoreTime = field(default_factory=StoreTime)
    metastore: StoreMetastore = field(default_factory=StoreMetastore)
    processes: dict[str, StoreProcess] = field(default_factory=dict)
    disks: dict[str, SimulatedDisk] = field(default_factory=dict)
    clocks: dict[str, NodeClock] = field(default_factory=dict)
    cuts: set[frozenset[str]] = field(default_factory=set)
    cut_from_metastore: set[str] = field(default_factory=set)
    trace: list[str] = field(default_factory=list)
    steps: int = 0
    metastore_pauses: bool = False
    keeper_lives: bool = True
    listener: Callable[[int, StoreAnswer], None] = lambda client, answer: None
    restarts: bool = True
    _rng: random.Random = field(default_factory=random.Random)
    _last_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    """The last delivery from one process to another one, so that none overtakes another."""
    _starts: int = 0
    _keeper: RingKeeper | None = None

    def __post_init__(self) -> None:
        self._rng = random.Random(f"world/{self.seed}")
        self._keeper = RingKeeper(self.limits.ttl_ms)
        self.time.after(50, self._keep)

    # Processes

    def start(self, name: str) -> StoreProcess:
        """A new incarnation. The one before must have ended."""
        before = self.processes.get(name)
        if before is not None and before.is_alive:
            raise ValueError(f"{name} runs already")
        self._starts += 1
        rng = random.Random(f"node/{self.seed}/{name}")
        clock = self.clocks.setdefault(
            name, NodeClock(self.time, 1 + rng.uniform(-0.02, 0.02), rng.randint(0, 10**6))
        )
        disk = self.disks.setdefault(name, SimulatedDisk())
        check_disk(name, disk)
        incarnation = self.incarnation_of(name)
        process = StoreProcess(name, incarnation, disk, clock, self, f"{self.seed}/{name}/{self._starts}")
        self.processes[name] = process
        self.note(f"{name} starts as {incarnation}")
        for other in self.alive:
            if other is not process:
                self._connect(process, other)
        return process

    def incarnation_of(self, name: str) -> str:
        return f"{name}-{self._starts}"

    @property
    def alive(self) -> list[StoreProcess]:
        return [item for _, item in sorted(self.processes.items()) if item.is_alive]

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.note(f"{name} is killed")

    def stopped(self, process: StoreProcess, reason: str) -> None:
        self.note(f"{process.name} stops: {reason}")
        if self.restarts:
            self.time.after(self._rng.randint(200, 3_000), lambda: self._restart(process))

    def _restart(self, process: StoreProcess) -> None:
        if self.processes[process.name] is process:
            self.start(process.name)

    def note(self, line: str) -> None:
        self.trace.append(f"{self.time.now:8} {line}")

    # Network

    def cut(self, one: str, other: str) -> None:
        self.cuts.add(frozenset((one, other)))
        self.note(f"{one} and {other} are cut from each other")

    def cut_from(self, name: str) -> frozenset[str]:
        """Servers to which there is no link now."""
        return frozenset(other for pair in self.cuts if name in pair for other in pair - {name})

    def heal(self) -> None:
        pairs, self.cuts = self.cuts, set()
        self.cut_from_metastore.clear()
        self.metastore_pauses = False
        for pair in sorted(map(sorted, pairs)):
            ends = [self.processes[name] for name in pair if name in self.processes]
            if len(ends) == 2 and all(item.is_alive for item in ends):
                self._connect(*ends)

    def _connect(self, one: StoreProcess, other: StoreProcess) -> None:
        for to, peer in ((one, other), (other, one)):
            self.time.after(self._delay(), lambda to=to, peer=peer: self._connected(to, peer))  # type: ignore[misc]  # mypy has no type for defaults of a lambda

    def _connected(self, to: StoreProcess, peer: StoreProcess) -> None:
        worker = peer.server.worker
        if peer.is_alive and frozenset((to.name, peer.name)) not in self.cuts:
            to.give(ServerConnected(peer.name, worker.order if worker is not None else 0))

    def sent(self, sender: StoreProcess, effect: SendServer) -> None:
        to = self.processes.get(effect.to)
        worker = sender.server.worker
        if to is None or worker is None or frozenset((sender.name, effect.to)) in self.cuts:
            return
        link = sender.incarnation, to.incarnation
        self._last_ms[link] = max(self._last_ms.get(link, 0), self.time.now + self._delay())
        message = ServerMessage(sender.name, worker.order, effect.message)
        self.time.after(self._last_ms[link] - self.time.now, lambda: self._deliver(sender, to, effect, message))

    def _deliver(
        self, sender: StoreProcess, to: StoreProcess, effect: SendServer, message: ServerMessage
    ) -> None:
        """Deliver a message. One that is on its way when its link is cut is lost; one whose sender has died is
        not."""
        if not to.is_alive or frozenset((sender.name, to.name)) in self.cuts:
            return
        worker = to.server.worker
        if worker is not None and worker.order == effect.order:
            to.give(message)

    def _delay(self) -> int:
        late = self._rng.random() < self.rates.late_chance
        return self._rng.randint(*(self.rates.late_ms if late else self.rates.network_ms))

    # Metastore and controller

    def call(self, process: StoreProcess, request: Callable[[], StoreInput | None]) -> None:
        def carry_out() -> None:
            if self.metastore_pauses:
                self.time.after(100, carry_out)
                return
            answer = request()
            if answer is not None and self._rng.random() >= self.rates.lost_answer:
                self.time.after(self._delay(), lambda: self._hear(process, answer))

        if process.name in self.cut_from_metastore or self._rng.random() < self.rates.lost_request:
            return
        self.time.after(self._delay(), carry_out)

    def watched(self, process: StoreProcess, events: Callable[[], StoreInput | None]) -> None:
        self.call(process, events)

    def _hear(self, process: StoreProcess, answer: StoreInput) -> None:
        if process.is_alive and process.name not in self.cut_from_metastore:
            process.heard(answer)

    def _keep(self) -> None:
        """The leading controller looks; sometimes another one leads from now on."""
        self.time.after(self._rng.randint(100, 300), self._keep)
        if not self.keeper_lives or self.metastore_pauses:
            return
        if self._keeper is None or self._rng.random() < 0.002:
            self._keeper = RingKeeper(self.limits.ttl_ms)
        action = self._keeper.look(self.time.now, self.metastore.view)
        if action is not None:
            delay = self._delay() * self._rng.choice((1, 1, 1, 40, 300))
            self.time.after(delay, lambda: self._act(action))

    def _act(self, action: object) -> None:
        done = self.metastore.act(action)  # type: ignore[arg-type]  # one of RingAction, from the keeper
        self.note(f"controller: {action} {'done' if done else 'refused'}")

    # Clients

    def ask(self, client: int, name: str, request: ReadRequest | WriteRequest) -> None:
        process = self.processes.get(name)
        if process is not None:
            self.time.after(self._delay(), lambda: process.give(ClientRequest(client, request)))

    def answered(self, sender: StoreProcess, client: int, answer: StoreAnswer) -> None:
        if answer.code is AnswerCode.DONE:
            self._one_primary(sender)
        self.time.after(self._delay(), lambda: self.listener(client, answer))

    # Rules

    def stepped(self, process: StoreProcess, effects: list[StoreEffect]) -> None:
        self.steps += 1
        if any(not isinstance(item, Reply) for item in effects):
            self._one_primary(process)

    def _one_primary(self, process: StoreProcess) -> None:
        """Never two servers that would answer for one partition (PME-128)."""
        own = serving(process)
        if not own:
            return
        for other in self.alive:
            both = own & serving(other) if other is not process else frozenset()
            if both:
                raise StoreRuleBrokenError(
                    f"{self.time.now}: {process.name} and {other.name} both serve {sorted(both)}"
                )


def check_disk(name: str, disk: SimulatedDisk) -> None:
    """Check a disk as ``zonectl store fsck`` does. Raises StoreRuleBrokenError."""
    try:
        heads = disk.heads()
    except ValueError as error:
        raise StoreRuleBrokenError(f"{name} has a log that does not follow its head: {error}") from error
    for partition, head in heads.items():
        check = check_copy(disk, partition, head)
        if check.defects:
            raise StoreRuleBrokenError(f"{name} has {partition} as {head}: {check.defects[0]}")


def serving(process: StoreProcess) -> frozenset[PartitionKey]:
    """Partitions for which the process would answer now."""
    shared = process.server.shared
    if not process.is_alive or process.server.is_over or not shared.life.serves(process.clock.boot_ms):
        return frozenset()
    if not shared.takes_writes or not shared.has_finished:
        return frozenset()
    return frozenset(
        key for key, copy in shared.copies.items() if copy.leading is not None and not copy.leading.unlevelled
    )
