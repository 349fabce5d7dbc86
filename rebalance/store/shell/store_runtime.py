"""The loop of a store server: inputs to its core one at a time, effects carried out in order.

A round ticks, hands in what has come, sends, and then asks the disk: what goes to one place in a round goes as
one frame, and a transaction takes all writes that came while the one before was under way. Nothing waits for a
timer.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import structlog

from catalog.core.codec import RecordNotReadableError
from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.partition_maps.topology_version import NO_VERSION, TopologyVersion
from rebalance.exchange.core.exchange_effects import Entered, Warn
from rebalance.hosting.tls import TlsFiles
from rebalance.ports.metastore import MetastoreError, MetastoreHistory
from rebalance.store.core.exchange_record import ExchangeRecord
from rebalance.store.core.store_effects import (
    AskAffinityChange,
    CloseConnections,
    CommitResult,
    LeaveRing,
    MapsHeld,
    PublishExchange,
    ReadTargets,
    Reply,
    SendHeartbeat,
    SendServer,
    SetSuspect,
    StopServer,
    StoreEffect,
    TellCopies,
    WriteDisk,
)
from rebalance.store.core.store_inputs import (
    DiskDone,
    DiskRefused,
    HeartbeatDone,
    HeartbeatRefused,
    LeaveAsked,
    RatesChanged,
    ResultCommitted,
    ResultExists,
    RingHeard,
    RoomChanged,
    ServerMessage,
    StoreInput,
    TargetsRead,
    Ticked,
)
from rebalance.store.core.store_limits import StoreLimits
from rebalance.store.core.store_messages import CopyReadAnswer, CopyReadRequest, StoreHello
from rebalance.store.core.store_server import StoreServer
from rebalance.store.shell.lmdb_disk import DiskLimits, LmdbDisk
from rebalance.store.shell.lmdb_transactions import StoreDamagedError
from rebalance.store.shell.store_network import StoreNetwork
from rebalance.store.shell.store_ring import EvictedError, StoreRing, unreached

log = structlog.get_logger(__name__)

TICK_S = 0.1
FRESH_MS = 10
"""Maximum age of the core's time when an input is handed in, in milliseconds; replies read the clock again."""
ROUND_INPUTS_MAX = 512
"""Then what they caused is sent, before more is taken."""
COPY_KEYS_BYTES_MAX = 256 << 10
"""Maximum size of rows whose keys are listed in one answer: the loop stands still for it."""
ROOM_S = 1.0
LEAVE_S = 2.0
"""Time for NODE_LEFT to be written, in seconds."""
METASTORE_AGAIN = Backoff(0.1, 2.0)
SUSPICION_ATTEMPTS_MAX = 5

T = TypeVar("T")


def boottime_ms() -> int:
    """Milliseconds since boot; never goes back, and goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Place of a node's server: its directory and the address that it listens on. ``port`` 0: a free one."""

    name: str
    directory: Path
    host: str = "127.0.0.1"
    port: int = 0


class StoreRuntime:
    """One server of one incarnation. ``run`` ends with the reason for which the process is to end."""

    def __init__(
        self,
        place: StorePlace,
        metastore: MetastoreHistory,
        keyspace: Keyspace,
        *,
        limits: StoreLimits | None = None,
        disk_limits: DiskLimits | None = None,
        tls: TlsFiles | None = None,
        incarnation: str = "",
    ) -> None:
        """``incarnation``: never used before; empty: a random one."""
        self.incarnation = incarnation or uuid4().hex
        self.port = place.port
        self._name = place.name
        self._place, self._disk_limits = place, disk_limits
        self._metastore = metastore
        self._keyspace = keyspace
        self._limits = limits or StoreLimits()
        self._inbox: deque[StoreInput] = deque()
        self._is_round_due = True  # until everything that a round needs is there
        self._order: WriteDisk | None = None
        self._finished = NO_VERSION
        self._ticked_ms = -FRESH_MS
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: set[object] = set()
        self._over: asyncio.Future[str]
        self._network = StoreNetwork(
            self._hello, self._give, self._address_of, boottime_ms, tls, self._read_copy
        )
        self._disk: LmdbDisk
        self._ring: StoreRing
        self._server: StoreServer

    async def run(self, listening: Callable[[int], None] = lambda port: None) -> str:
        """``listening`` is called with the port. Raises StoreDiskError, OSError for a port that is taken,
        RingError, and MetastoreError when the metastore does not answer at the beginning."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()

        def report(given: DiskDone | DiskRefused | RoomChanged) -> None:
            loop.call_soon_threadsafe(self._give, given)

        self._disk = LmdbDisk(self._place.directory, report, self._disk_limits)
        try:
            self.port = await self._network.listen(self._place.host, self.port)
            listening(self.port)
            self._ring = StoreRing(
                self._metastore,
                self._keyspace,
                self._name,
                self.incarnation,
                address=(self._place.host, self.port),
                ttl_ms=self._limits.ttl_ms,
            )
            start = await self._ring.start({zone for zone, _ in self._disk.reader.heads()})
            self._server = StoreServer(self._name, self.incarnation, self._disk.reader, start, self._limits)
            if not self._disk.has_room:
                self._give(RoomChanged(has_room=False))
            await self._appear()
            self._begin(self._follow_rates())
            self._begin(self._hear())
            self._is_round_due = False
            self._begin(self._come_back())
            reason = await self._over
            if self._disk.damage:
                raise StoreDamagedError(self._disk.damage)
            return reason
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._network.close()
            self._disk.close()

    def leave(self) -> None:
        """Leave in order: after everything is closed, drained and answered ``run`` ends; within some seconds in
        any case, once the server has begun."""
        self._give(LeaveAsked())

    async def _come_back(self) -> None:
        """Rounds when nothing happens, too: for the core's clock, and for the room on the disk."""
        loop = asyncio.get_running_loop()
        room_at = loop.time() + ROOM_S
        while True:
            self._plan_round()
            await asyncio.sleep(TICK_S)
            if loop.time() >= room_at:
                room_at = loop.time() + ROOM_S
                self._disk.look_for_room()

    def _plan_round(self) -> None:
        """Plan a round after what else has come by then, which is taken together."""
        if not self._is_round_due:
            self._is_round_due = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._is_round_due = False
        if self._over.done():
            return
        try:
            self._take_all()
        except Exception as error:
            self._over.set_exception(error)

    def _take_all(self) -> None:
        """Peers are sent to before the disk is asked: their commits take longer to be heard of."""
        self._tick()
        for _ in range(min(len(self._inbox), ROUND_INPUTS_MAX)):
            # What the ring removes takes its messages out of the inbox.
            if self._inbox and not self._over.done():
                self._take(self._inbox.popleft())
        self._network.flush()
        if self._order is not None:
            self._write(self._order)
            self._order = None
        if self._inbox:
            self._plan_round()

    def _write(self, order: WriteDisk) -> None:
        done = None if self._inbox else self._disk.write_here(order)
        if done is None:
            self._disk.write(order)
        else:
            self._inbox.append(done)

    def _tick(self) -> None:
        now_ms = boottime_ms()
        if now_ms - self._ticked_ms >= FRESH_MS:
            self._ticked_ms = now_ms
            self._step(Ticked(now_ms))

    def _give(self, given: StoreInput) -> None:
        self._inbox.append(given)
        self._plan_round()

    def _take(self, given: StoreInput) -> None:
        if isinstance(given, DiskDone | DiskRefused):
            self._disk.reader.renew()
        elif isinstance(given, RingHeard):
            self._network.ring_changed(self._ring.state)
        self._step(given)

    def _step(self, given: StoreInput) -> None:
        for effect in self._server.step(given):
            self._carry_out(effect)

    def _carry_out(self, effect: StoreEffect) -> None:
        match effect:
            case WriteDisk():
                self._order = effect
            case SendServer(to, order, message):
                self._network.send(to, order, message)
            case Reply():
                self._network.reply(effect)
            case TellCopies(client, answer):
                self._network.tell(client, answer)
            case SendHeartbeat(ticket, finished):
                self._finished = finished
                self._begin(self._beat(ticket, finished))
            case CloseConnections(name, order):
                self._inbox = deque(given for given in self._inbox if not _is_of(given, name, order))
                self._network.disconnect(name, order)
            case ReadTargets() | CommitResult() | AskAffinityChange():
                self._begin_once(effect)
            case SetSuspect():
                self._begin(self._suspect(effect))
            case StopServer(reason):
                self._end(reason)
            case LeaveRing():
                self._begin(self._leave())
            case Entered(version, kind, phase, awaited):
                names = {"version": str(version), "type": kind.value, "phase": phase.value}
                log.info("exchange", **names, awaited=sorted(awaited))
            case MapsHeld(lines, is_single):
                log.info("single map" if is_single else "full map", maps=lines)
            case PublishExchange(record):
                offset_ms = time.time_ns() // 1_000_000 - boottime_ms()
                self._begin(self._publish(record.shifted(offset_ms)))
            case Warn(difference):
                log.warning("copies differ", difference=str(difference))

    def _read_copy(self, request: CopyReadRequest) -> CopyReadAnswer:
        reader, partition = self._disk.reader, (request.zone, request.partition)
        if request.keys_bytes:
            rows = reader.rows(partition, request.key, min(request.keys_bytes, COPY_KEYS_BYTES_MAX))
            return CopyReadAnswer(request.request, keys=tuple(row.key for row in rows))
        row = reader.row(partition, request.key)
        return CopyReadAnswer(request.request, row.value if row is not None else None)

    # The metastore

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Handle the end of a task: only expected failures are caught in tasks, and the process ends for any
        other."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the store server ended", error=str(error), exc_info=error)
            self._end(f"{type(error).__name__}: {error}")

    def _end(self, reason: str) -> None:
        if not self._over.done():
            self._over.set_result(reason)

    def _begin_once(self, effect: ReadTargets | CommitResult | AskAffinityChange) -> None:
        """The core asks again and again; one of a kind is under way at a time."""
        if type(effect) in self._under_way:
            return
        self._under_way.add(type(effect))

        async def work() -> None:
            try:
                given = await _answered(self._answer(effect))
            finally:
                self._under_way.discard(type(effect))
            if given is not None:
                self._give(given)

        self._begin(work())

    async def _answer(self, effect: ReadTargets | CommitResult | AskAffinityChange) -> StoreInput | None:
        match effect:
            case ReadTargets(ticket, zones):
                return TargetsRead(ticket, await self._ring.targets(zones))
            case CommitResult(record):
                existing = await self._ring.commit_result(record)
                return ResultExists(existing) if existing else ResultCommitted(record.version)
            case AskAffinityChange(basis):
                await self._ring.ask_affinity_change(basis)
        return None

    async def _beat(self, ticket: int, finished: TopologyVersion) -> None:
        cut_from = () if self._ring.order else await self._cut_from()
        is_done = await _answered(self._ring.heartbeat(finished, cut_from))
        if is_done is not None:
            self._give(HeartbeatDone(ticket) if is_done else HeartbeatRefused(ticket))

    async def _publish(self, record: ExchangeRecord) -> None:
        """Publish an exchange; what is lost of it is missing in a view, and nowhere else."""
        try:
            await self._ring.publish_exchange(record)
        except MetastoreError as error:
            log.info("the exchange is not published", error=str(error))

    async def _suspect(self, effect: SetSuspect) -> None:
        for _ in range(SUSPICION_ATTEMPTS_MAX):
            try:
                await self._ring.suspect(effect.whom, effect.order, effect.suspected)
                return
            except MetastoreError as error:
                log.info("the metastore did not answer", error=str(error))

    async def _hear(self) -> None:
        async for records in self._ring.events():
            self._give(RingHeard(records))

    async def _follow_rates(self) -> None:
        async for rates in self._ring.rates():
            self._give(RatesChanged(rates))

    async def _appear(self) -> None:
        """An incarnation that is being evicted goes first."""
        again = METASTORE_AGAIN
        while True:
            try:
                return await self._ring.appear(await self._cut_from())
            except (EvictedError, MetastoreError) as error:
                log.info("waiting to join", error=str(error))
                again = again.failed()
                await asyncio.sleep(again.delay_s(0.0))

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._ring.leave()
            self._end("it left the ring")
        except (MetastoreError, TimeoutError) as error:
            self._end(f"the metastore did not take its leave: {error}")

    # The network

    async def _cut_from(self) -> tuple[str, ...]:
        cut_from = await unreached(self._ring.state, self._name, self._address_of)
        if cut_from:
            log.warning("members are not reached", members=cut_from)
        return cut_from

    def _hello(self) -> StoreHello:
        order = self._ring.order if hasattr(self, "_ring") else 0
        return StoreHello(self._name, order, self.incarnation, self._finished)

    async def _address_of(self, name: str, incarnation: str) -> tuple[str, int] | None:
        return await _answered(self._ring.address_of(name, incarnation))


async def _answered(work: Awaitable[T]) -> T | None:
    """Return the answer; None when the metastore does not answer, or answers what cannot be read: it is asked
    again."""
    try:
        return await work
    except (MetastoreError, RecordNotReadableError) as error:
        log.warning("the metastore's answer is missing", error=str(error))
        return None


def _is_of(given: StoreInput, name: str, order: int) -> bool:
    return isinstance(given, ServerMessage) and (given.sender, given.order) == (name, order)
