"""A store server's core: inputs in, effects out. It wires the exchange worker to copies, disk and clients.

Rules that hold it together:

- It serves only until its last committed heartbeat's send time + TTL - margin, and ends when that is over.
- What the ring removes is removed at once; the exchange hears of an event only when its ideal lists are here.
- A full message is applied only after its result was committed, which the coordinator's worker sees to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from rebalance.core.partition_maps.topology_version import NO_VERSION, Cluster, TopologyVersion, Trigger
from rebalance.exchange.core.exchange_effects import (
    Apply,
    AskSwitch,
    AwaitUpdates,
    Effect,
    Entered,
    Finished,
    KeepResult,
    Prepare,
    Send,
    TakeTopology,
    Warn,
)
from rebalance.exchange.core.exchange_messages import (
    FullMessage,
    LatchCount,
    LatchOpen,
    SingleMessage,
    SingleRequest,
)
from rebalance.exchange.core.exchange_worker import ExchangeWorker
from rebalance.store.core.copy_moves import CopyMoves
from rebalance.store.core.disk_changes import StoreReader
from rebalance.store.core.disk_marks import FinishedMark, ZoneLives
from rebalance.store.core.disk_queue import DiskQueue, LogStored
from rebalance.store.core.exchange_log import ExchangeLog
from rebalance.store.core.fill_work import FillWork
from rebalance.store.core.peer_watch import PeerWatch
from rebalance.store.core.replication import Replication
from rebalance.store.core.request_handler import RequestHandler
from rebalance.store.core.ring_queue import RingQueue
from rebalance.store.core.ring_records import RingRecord, StoreStart
from rebalance.store.core.shared_state import ServerLife, SharedState
from rebalance.store.core.store_copy import ServedCopy, list_copies
from rebalance.store.core.store_effects import (
    AskAffinityChange,
    CloseConnections,
    CommitResult,
    LeaveRing,
    MapsHeld,
    SendHeartbeat,
    StopServer,
    StoreEffect,
    TellCopies,
)
from rebalance.store.core.store_inputs import (
    ClientGone,
    ClientRequest,
    CopiesAsked,
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
    ServerConnected,
    ServerMessage,
    StoreInput,
    TargetsRead,
    Ticked,
)
from rebalance.store.core.store_limits import StoreLimits
from rebalance.store.core.store_messages import (
    AppendRecords,
    CopyLevelled,
    LevelSeen,
    PeerPing,
    RecordsStored,
    RefillAnswer,
    ServerRoom,
    StoreMessage,
    SupplyBatch,
    SupplyRequest,
)

NEVER_LEAVES_MS = 1 << 62


class StoreServer:
    """Core of a server. ``incarnation``: new with every start. ``step`` gives nothing after ``StopServer``."""

    def __init__(
        self,
        name: str,
        incarnation: str,
        reader: StoreReader,
        start: StoreStart,
        limits: StoreLimits | None = None,
    ) -> None:
        limits = limits or StoreLimits()
        self.name = name
        self.incarnation = incarnation
        self.is_over = False
        self.shared = SharedState(
            name,
            limits,
            reader,
            life=ServerLife(limits),
            disk=DiskQueue(limits.bulk_bytes),
            copies={key: ServedCopy.from_head(key, head) for key, head in reader.heads().items()},
        )
        self._start = start
        self._ring = RingQueue(start.ring)
        self._replication = Replication(self.shared)
        self._requests = RequestHandler(self.shared, self._replication)
        self._lives = ZoneLives(reader, start.resting, self.shared.copies)
        self._moves = CopyMoves(self.shared)
        self._fills = FillWork(self.shared, self._moves)
        self._watch = PeerWatch(self.shared)
        self._log = ExchangeLog(self.shared)
        self._preparing: Prepare | None = None
        self._awaiting: AwaitUpdates | None = None
        self._commit: CommitResult | None = None
        self._asked: AskAffinityChange | None = None
        self._asked_ms = 0
        self._asks_refill = False
        self._notify_ms = self._rent_ms = 0
        self._switched_ms = -limits.switch_ms
        self._leave_ms = NEVER_LEAVES_MS
        self._disk_ms = 0
        self._mark = FinishedMark(reader, start)
        if refusal := self._lives.refusal(start.ring.cluster.zones.values()) or self._mark.refusal:
            self._stop(refusal)

    @property
    def worker(self) -> ExchangeWorker | None:
        return self.shared.worker

    def step(self, event: StoreInput) -> list[StoreEffect]:
        shared = self.shared
        if self.is_over:
            # Nothing, or that it may not even begin.
            out, shared.out = shared.out, []
            return out
        self._take(event)
        if shared.worker is not None:
            self._go_on(shared.worker)
        if shared.leaving and self._is_drained:
            shared.out.append(LeaveRing())
            self.is_over = True
        if shared.wakes or self._replication.released:
            shared.wakes = False
            self._requests.go_on()
        transaction = shared.disk.take()
        if transaction is not None:
            shared.out.append(transaction)
            self._disk_ms = shared.now_ms
        out, shared.out = shared.out, []
        return out

    @property
    def _is_drained(self) -> bool:
        """Check that no exchange and no client waits for this server, as is so before it has joined."""
        worker = self.shared.worker
        return worker is None or (worker.is_idle and not self.shared.pending)

    def _take(self, event: StoreInput) -> None:
        shared = self.shared
        match event:
            case Ticked(clock_ms):
                shared.now_ms = max(shared.now_ms, clock_ms)
                self._tick()
            case ClientRequest(client, request):
                self._requests.take(client, request)
            case CopiesAsked(client, asked):
                refills = tuple(map(self._moves.ask_refill, asked.refills))
                answer = list_copies(shared.copies.values(), asked.request, refills)
                shared.out.append(TellCopies(client, answer))
                self._asks_refill = self._asks_refill or RefillAnswer.ASKED in refills
            case ServerMessage(sender, order, message):
                if not self._ring.is_gone(sender, order):
                    self._watch.heard(sender)
                    self._message(sender, message)
            case DiskDone(ticket):
                for stored in shared.disk.done(ticket):
                    if isinstance(stored, LogStored):
                        self._replication.stored(stored)
                    else:
                        self._fills.stored(stored)
            case DiskRefused(ticket, no_room):
                # Writes of the log are never answered "failed": the process ends. Bulk waits for room.
                if not (no_room and shared.disk.without_bulk(ticket)):
                    self._stop("its disk refused a transaction")
            case RingHeard(records):
                self._hear(records)
            case TargetsRead(ticket, lists):
                self._ring.targets_read(ticket, lists)
                self._discover()
            case ServerConnected(name, _):
                self._replication.resend(name)
                shared.send(name, ServerRoom(self.name not in shared.no_room))
            case HeartbeatDone(ticket):
                shared.life.committed(ticket)
            case HeartbeatRefused():
                # An eviction that is about an earlier server of this name ends before this one joins.
                if shared.worker is not None:
                    self._stop("its heartbeat was refused: it is evicted, or its key is gone")
            case ResultCommitted(version):
                self._commit = None
                self._carry_out(shared.worker.result_kept(version) if shared.worker is not None else [])
            case ResultExists(records):
                self._commit = None
                self._carry_out(shared.worker.result_exists(records) if shared.worker is not None else [])
            case RoomChanged(has_room):
                self._room(self.name, has_room)
                shared.disk.has_room = has_room
                for peer in sorted(shared.peers.keys() - {self.name}):
                    shared.send_peer(peer, ServerRoom(has_room))
            case RatesChanged(rates):
                shared.pace.rates = rates
            case ClientGone(client):
                self._requests.gone(client)
            case LeaveAsked():
                shared.leaving = shared.wakes = True
                self._leave_ms = min(self._leave_ms, shared.now_ms + shared.limits.leave_ms)

    def _tick(self) -> None:
        shared = self.shared
        if shared.life.is_over(shared.now_ms):
            self._stop("it missed the time of its heartbeat")
            return
        if shared.now_ms >= self._leave_ms:
            self._stop("it could not leave in order: an exchange goes on, or writes are not acknowledged")
            return
        if not shared.disk.is_under_way:
            self._disk_ms = shared.now_ms
        elif shared.now_ms - self._disk_ms >= shared.limits.disk_wait_ms:
            self._stop("its disk does not answer")
            return
        ticket = shared.life.due(shared.now_ms)
        if ticket is not None:
            finished = shared.basis if shared.has_finished else NO_VERSION
            shared.out.append(SendHeartbeat(ticket, finished))
        self._replication.resend()
        self._watch.tick()
        if shared.now_ms - self._asked_ms < shared.limits.resend_ms:
            return
        self._asked_ms = shared.now_ms
        shared.disk.has_room = self.name not in shared.no_room
        shared.disk.try_clearing()
        if shared.worker is not None:
            self._log.tick(shared.worker)
            self._carry_out(shared.worker.tick())
        if self._asks_refill and shared.worker is not None and shared.worker.is_idle:
            self._asked = AskAffinityChange(shared.basis)
        self._ask_switch()
        waiting = (self._commit, self._ring.reading)
        shared.out.extend(item for item in waiting if item is not None and item not in shared.out)

    def _ask_switch(self) -> None:
        """Ask at most once a second, however many zones are to switch: each time all of them stand still."""
        shared = self.shared
        if self._asked is not None and shared.now_ms - self._switched_ms >= shared.limits.switch_ms:
            self._switched_ms = shared.now_ms
            shared.out.append(self._asked)

    def _go_on(self, worker: ExchangeWorker) -> None:
        """Do what an input may have made possible. What looks at all copies is not done with every input."""
        shared = self.shared
        if self._awaiting is not None and not shared.pending:
            wait, self._awaiting = self._awaiting, None
            self._carry_out(worker.updates_ended(wait.version))
        if self._preparing is not None and shared.disk.is_settled:
            self._prepared(worker, self._preparing)
        self._fills.go_on()
        self._moves.clear_rented()
        if shared.now_ms >= self._rent_ms:
            self._rent_ms = shared.now_ms + shared.limits.notify_ms
            shared.changed = self._moves.rent() or shared.changed
        if shared.changed and shared.now_ms >= self._notify_ms and shared.takes_records:
            shared.changed = False
            self._notify_ms = shared.now_ms + shared.limits.notify_ms
            maps, _ = self._moves.single_maps(worker.held.basis, worker.held.maps)
            self._carry_out(worker.state_changed(maps))

    # The ring

    def _hear(self, records: Iterable[RingRecord]) -> None:
        shared = self.shared
        for record in records:
            event = record.event
            order = self._ring.heard(record)
            if order is None:
                continue
            if event.node == self.name and shared.worker is not None and order == shared.worker.order:
                self._stop(f"the ring has {event.trigger.value} for it")
                return
            if refusal := self._lives.refusal(event.zones):
                self._stop(refusal)
                return
            shared.out.append(CloseConnections(event.node, order))
            self._watch.forget(event.node)
            shared.no_room.discard(event.node)
            if shared.peers.get(event.node) == order:
                del shared.peers[event.node]
                self._replication.removed()
        self._discover()

    def _discover(self) -> None:
        """Hands events to the exchange as far as their ideal lists are here."""
        for record, before in self._ring.ready():
            event = record.event
            own = event.trigger is Trigger.NODE_JOINED and record.incarnation == self.incarnation
            if own:
                self._join(before, event.order)
            self._log.heard(event)
            if self.shared.worker is not None:
                self._carry_out(self.shared.worker.discovered(event))
            self._asked = None
        if self._ring.reading is not None and self._ring.reading not in self.shared.out:
            self.shared.out.append(self._ring.reading)

    def _join(self, before: Cluster, order: int) -> None:
        self._moves.own_unheard(self._start.results.outcomes, self._mark.has_missed)
        self.shared.worker = ExchangeWorker(
            self.name, order, before, self._ring.lists_of, results=self._start.results, gone=self._ring.gone
        )

    # The exchange

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        queue = deque(effects)
        while queue and not self.is_over:
            queue.extendleft(reversed(self._do(queue.popleft())))

    def _do(self, effect: Effect) -> list[Effect]:
        shared, worker = self.shared, self.shared.worker
        if worker is None:
            return []
        match effect:
            case Send(to, message):
                shared.send(to, message)
            case TakeTopology(version):
                # Requests hold nothing between two inputs, so there is no reader of the lock now.
                return worker.topology_taken(version)
            case AwaitUpdates():
                self._awaiting = effect
            case Prepare():
                self._preparing = effect
                shared.disk.holds_bulk = True
            case KeepResult(record):
                self._commit = CommitResult(record)
                shared.out.append(self._commit)
            case Apply(message, _):
                self._apply(worker, message)
            case Finished(version):
                self._log.finished(effect, worker)
                self._finished(version)
            case AskSwitch(basis):
                self._asked = AskAffinityChange(basis)
                self._ask_switch()
            case Entered():
                self._log.entered(effect)
                shared.out.append(effect)
            case Warn():
                shared.out.append(effect)
            case _:
                pass
        return []

    def _prepared(self, worker: ExchangeWorker, prepare: Prepare) -> None:
        self._preparing = None
        cluster = worker.cluster_at(prepare.version)
        for mark in self._lives.opened(cluster.zones.values()):
            self.shared.disk.add(mark)
        self._moves.prepare(prepare.wanted, cluster.zones, self._lives.is_resting)
        maps, history = self._moves.single_maps(prepare.version, cluster.open_zones)
        self.shared.out.append(MapsHeld(tuple(single.describe() for single in maps.values()), is_single=True))
        self._carry_out(worker.prepared(prepare.version, maps, history))

    def _apply(self, worker: ExchangeWorker, message: FullMessage) -> None:
        shared, cluster = self.shared, worker.cluster_at(message.version)
        servers = cluster.servers
        shared.peers = {node: order for node, order in servers.items() if not self._ring.is_gone(node, order)}
        self._moves.apply(message, cluster.zones)
        shared.out.append(MapsHeld(tuple(full.describe() for full in message.maps.values())))

    def _finished(self, version: TopologyVersion) -> None:
        shared = self.shared
        shared.disk.holds_bulk = False
        self._preparing = self._awaiting = self._commit = None
        shared.wakes = shared.changed = True
        self._asks_refill = self._moves.finished()
        shared.disk.add(self._mark.finished(version))
        self._replication.go_on()
        if shared.worker is not None:
            self._ring.finished(shared.worker.cluster_at(version))

    # Messages and the disk

    def _message(self, sender: str, message: StoreMessage) -> None:
        worker = self.shared.worker
        match message:
            case AppendRecords():
                self._replication.append(sender, message)
            case RecordsStored():
                self._replication.acknowledged(sender, message)
            case CopyLevelled():
                self._moves.peer_levelled(sender, message)
            case LevelSeen():
                self._moves.level_seen(message)
            case SupplyRequest():
                self._fills.supply(sender, message)
            case SupplyBatch():
                self._fills.supplied(sender, message)
            case ServerRoom(has_room):
                self._room(sender, has_room)
            case PeerPing(is_answer):
                if not is_answer:
                    self.shared.send(sender, PeerPing(is_answer=True))
            case SingleMessage() | FullMessage() | SingleRequest() | LatchCount() | LatchOpen():
                if worker is not None:
                    self._carry_out(worker.received(message))
            case _:
                pass

    def _room(self, server: str, has_room: bool) -> None:
        (self.shared.no_room.discard if has_room else self.shared.no_room.add)(server)

    def _stop(self, reason: str) -> None:
        self.shared.out.append(StopServer(reason))
        self.is_over = True
