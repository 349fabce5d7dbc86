"""State that the parts of a store server's core share: its copies, disk queue and clock, and the effects to
hand to the shell.

A server may serve for a time that its own heartbeats give, by its own clock. A heartbeat counts from when it
was *sent*: the controller sees it later than that, and fails the server a TTL after it saw it. So a server that
looks at the clock last, right before an answer goes out, has stopped before anybody else leads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.topology_version import NO_VERSION, TopologyVersion
from rebalance.exchange.core.exchange_messages import PartitionOutcome, ResultState
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.core.exchange_worker import ExchangeWorker
from rebalance.store.core.disk_changes import KeepHead, StoreReader
from rebalance.store.core.disk_queue import DiskQueue, Stored
from rebalance.store.core.filling import FillPace
from rebalance.store.core.log_records import PartitionKey, position_at
from rebalance.store.core.store_copy import ServedCopy
from rebalance.store.core.store_effects import SendServer, StoreEffect
from rebalance.store.core.store_limits import StoreLimits
from rebalance.store.core.store_messages import StoreMessage

NEVER_MS = -1


class ServerLife:
    """``until_ms``: serve before this, not at it. It only grows."""

    def __init__(self, limits: StoreLimits) -> None:
        self.until_ms = NEVER_MS
        self._limits = limits
        self._sent: dict[int, int] = {}
        self._ticket = 0
        self._due_ms = NEVER_MS

    def due(self, now_ms: int) -> int | None:
        """The ticket of a heartbeat to be sent now; None while the last one is young enough."""
        if now_ms < self._due_ms:
            return None
        self._due_ms = now_ms + self._limits.ttl_ms // 3
        self._ticket += 1
        self._sent[self._ticket] = now_ms
        return self._ticket

    def committed(self, ticket: int) -> None:
        """Note a heartbeat that was committed; those that were sent earlier do not matter any more."""
        sent_ms = self._sent.get(ticket)
        if sent_ms is None:
            return
        self._sent = {number: at for number, at in self._sent.items() if number > ticket}
        self.until_ms = max(self.until_ms, sent_ms + self._limits.ttl_ms - self._limits.margin_ms)

    def serves(self, now_ms: int) -> bool:
        return now_ms < self.until_ms

    def is_over(self, now_ms: int) -> bool:
        """Check that the server has served and missed its time: it must end, as others may lead."""
        return self.until_ms != NEVER_MS and now_ms >= self.until_ms


TAKES_WRITES = (Phase.INIT, Phase.TOPOLOGY)
TAKES_RECORDS = (Phase.INIT, Phase.TOPOLOGY, Phase.RELEASE, Phase.LATCH, Phase.COMMITS)
"""Phases in which copies take replicated writes: none from PREPARE to the full message."""


@dataclass(slots=True)
class SharedState:
    """State of a server. ``worker``: None until the ring has this server's join. ``peers``: servers of the last
    finished exchange that the ring has not removed since, with their orders. ``pending``: copies led here with
    pending writes; ``stand_ins``: servers of what is left of lost partitions; ``levelling``: copies led here
    and not served yet; ``filling``: copies that are filled, levelled or cleared; ``changed``: states have
    changed and were not reported yet; ``wakes``: waiting requests may go on; ``leaving``: no new requests are
    taken."""

    name: str
    limits: StoreLimits
    reader: StoreReader
    life: ServerLife
    disk: DiskQueue
    copies: dict[PartitionKey, ServedCopy] = field(default_factory=dict)
    out: list[StoreEffect] = field(default_factory=list)
    worker: ExchangeWorker | None = None
    now_ms: int = 0
    peers: dict[str, int] = field(default_factory=dict)
    pending: set[PartitionKey] = field(default_factory=set)
    filling: set[PartitionKey] = field(default_factory=set)
    levelling: set[PartitionKey] = field(default_factory=set)
    no_room: set[str] = field(default_factory=set)
    stand_ins: Mapping[PartitionKey, str] = field(default_factory=dict)
    pace: FillPace = field(default_factory=FillPace)
    changed: bool = False
    wakes: bool = False
    leaving: bool = False
    _receivers: tuple[ResultState | None, int] = (None, 1)

    @property
    def basis(self) -> TopologyVersion:
        return self.worker.held.basis if self.worker is not None else NO_VERSION

    @property
    def has_finished(self) -> bool:
        """Check that an exchange ended here: until then copies are what was found on the disk."""
        return self.worker is not None and bool(self.worker.held.basis > self.worker.begins_after)

    @property
    def phase(self) -> Phase | None:
        running = self.worker.running if self.worker is not None else None
        return running.phase if running is not None else None

    @property
    def takes_writes(self) -> bool:
        """The topology future is done, or not asked for yet."""
        return self.phase is None or self.phase in TAKES_WRITES

    @property
    def takes_records(self) -> bool:
        return self.phase is None or self.phase in TAKES_RECORDS

    @property
    def receivers(self) -> int:
        """Count the servers that copies are filled on, as of the last result; this one counts in any case."""
        results = self.worker.held.results if self.worker is not None else None
        if results is not None and self._receivers[0] is not results:
            outcomes = (outcome for zone in results.outcomes.values() for outcome in zone)
            names = {self.name}.union(*(outcome.filling for outcome in outcomes if outcome.filling))
            self._receivers = results, len(names)
        return self._receivers[1]

    def outcome(self, partition: PartitionKey) -> PartitionOutcome | None:
        return self.worker.held.outcome(*partition) if self.worker is not None else None

    def primary(self, partition: PartitionKey) -> str | None:
        outcome = self.outcome(partition)
        if outcome is not None and outcome.effective:
            return outcome.effective[0]
        return self.stand_ins.get(partition)

    def send(self, to: str, message: StoreMessage) -> None:
        if self.worker is not None and to in self.worker.cluster.servers:
            self.out.append(SendServer(to, self.worker.cluster.servers[to], message))

    def send_peer(self, to: str, message: StoreMessage) -> None:
        """Send a message to a server of the last finished exchange."""
        if to in self.peers:
            self.out.append(SendServer(to, self.peers[to], message))

    def keep_head(self, copy: ServedCopy, stored: Stored | None = None) -> None:
        self.disk.add(KeepHead(copy.partition, copy.head), stored=stored)

    def last_ms(self, copy: ServedCopy) -> int:
        """The time of the newest record that this server knows. Nothing of the copy's log is pending."""
        before = position_at(copy.epochs, copy.tail.counter - 1)
        last = self.reader.records(copy.partition, before, 1)
        return max(copy.last_ms, last[0].time_ms) if last else copy.last_ms

    def copies_of(self, zone: ZoneId) -> Iterator[ServedCopy]:
        return (copy for (of, _), copy in self.copies.items() if of == zone)
