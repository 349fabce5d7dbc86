"""One exchange while it runs on a node: its phase, and on the coordinator what was collected so far.

Beside it what a worker keeps for others: messages that came before their exchange did, clients that wait, and
full messages that somebody may still ask for.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.topology_version import Cluster, DiscoveryEvent, TopologyVersion, Trigger
from rebalance.exchange.core.exchange_effects import Effect, Send
from rebalance.exchange.core.exchange_messages import FullMessage, GoneServer, ResultRecord, SingleMessage
from rebalance.exchange.core.exchange_result import Collected, Conclusion
from rebalance.exchange.core.exchange_states import (
    ExchangePlan,
    ExchangeType,
    Phase,
    is_mergeable,
    needs_single_map,
)
from rebalance.exchange.core.held_maps import HeldMaps
from rebalance.exchange.core.late_affinity import AffinityFunction, ideal_lists

EarlySingles = dict[tuple[str, TopologyVersion], SingleMessage]
"""Single maps that came before their exchange did, by sender and exchange (PME-071)."""


@dataclass(slots=True)
class RunningExchange:
    """``events``: its own and those merged into it, in order. ``singles``: by sender, on the coordinator.
    ``counted``: who has counted the latch down. ``own``: this node's single map once it is ready.
    ``conclusion``: on the coordinator, while it is committed. ``committed``: what an earlier coordinator
    committed of this exchange."""

    event: DiscoveryEvent
    before: Cluster
    plan: ExchangePlan
    phase: Phase = Phase.INIT
    events: list[DiscoveryEvent] = field(default_factory=list)
    singles: dict[str, SingleMessage] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    latch_open: bool = False
    scanned: bool = False
    own: SingleMessage | None = None
    conclusion: Conclusion | None = None
    committed: ResultRecord | None = None

    @property
    def version(self) -> TopologyVersion:
        return self.event.version

    @property
    def last_version(self) -> TopologyVersion:
        """Return the version of the last merged event, which the exchange ends with (PME-073)."""
        return self.events[-1].version

    def is_join_of(self, node: str) -> bool:
        """A joining node has no update of an earlier version, and no part in the latch."""
        return self.event.trigger is Trigger.NODE_JOINED and self.event.node == node

    def counters_of_latch(self, cluster: Cluster) -> frozenset[str]:
        """Return the servers that must count down: those before the event that still live. One that went and
        came back under its name has another order, and is another server."""
        return same_servers(self.before, cluster)

    def takes(self, message: SingleMessage) -> bool:
        """Check that it is a single map of this exchange or of a merged join."""
        return any(message.exchange == event.version for event in self.events)

    def ends_with(self, message: FullMessage) -> bool:
        """Check that a full message may end it here; a client takes whatever is new enough."""
        if self.own is None:
            return False
        is_client = self.plan.type is ExchangeType.CLIENT
        return message.version >= self.version if is_client else message.covers(self.version)

    def take_early(self, early: EarlySingles) -> None:
        for key in [key for key in early if key[1] == self.version]:
            self.singles[key[0]] = early.pop(key)

    def merge(self, queue: Iterable[tuple[DiscoveryEvent, Cluster]], early: EarlySingles) -> None:
        """Scan the queue, once and in order, up to the first event that must not be merged (PME-068,
        PME-070)."""
        self.scanned = True
        for event, before in queue:
            if event.version <= self.last_version:
                continue
            covered = self.committed is not None and event.version <= self.committed.version
            if not (covered if self.committed is not None else is_mergeable(event, before)):
                return
            self.events.append(event)
            self.singles.pop(event.node, None)
            single = early.pop((event.node, event.version), None)
            if needs_single_map(event) and single is not None:
                self.singles[event.node] = single

    def follow(self, record: ResultRecord) -> None:
        """End with what was committed: exactly those events, in or out."""
        self.committed, self.conclusion, self.scanned = record, None, False
        self.events = [each for each in self.events if each.version <= record.version]
        self.phase = Phase.COLLECT

    @property
    def is_complete(self) -> bool:
        """Check that all events are here that a committed result covers."""
        return self.committed is None or self.last_version >= self.committed.version

    def collected(
        self, coordinator: str, cluster: Cluster, held: HeldMaps, gone: tuple[GoneServer, ...] = ()
    ) -> Collected:
        """``cluster``: after the last merged event. A server that died before it reported, and whose end is not
        merged, is taken as one that has nothing any more."""
        silent = {
            node: SingleMessage(node, order, self.version, held.basis)
            for node, order in cluster.servers.items()
            if node not in self.singles
        }
        singles = {**self.singles, **silent}
        events = tuple(self.events)
        return Collected(
            coordinator,
            events,
            cluster,
            singles,
            held.affinities,
            held.lost,
            results=held.results,
            gone=gone,
            silent=frozenset(silent),
        )


def same_servers(before: Cluster, after: Cluster) -> frozenset[str]:
    """Names of the servers of ``before`` that are still there in ``after``."""
    return frozenset(name for name, _ in before.servers.items() & after.servers.items())


def wanted_copies(node: str, cluster: Cluster, function: AffinityFunction) -> Mapping[ZoneId, frozenset[int]]:
    """Partitions of which ``node`` shall have a copy, by the ideal assignment (PME-059)."""
    return {
        zone_id: frozenset(
            number for number, nodes in enumerate(ideal_lists(function, zone, cluster)) if node in nodes
        )
        for zone_id, zone in cluster.open_zones.items()
    }


FINISHED_KEPT = 4
"""Number of finished exchanges kept: no server is further behind than one exchange, as the next one needs the
single map of every server."""


@dataclass(slots=True)
class ExchangeInbox:
    """``clients``: by name, the version that each asked for."""

    singles: EarlySingles = field(default_factory=dict)
    counts: defaultdict[TopologyVersion, set[str]] = field(default_factory=lambda: defaultdict(set))
    clients: dict[str, TopologyVersion] = field(default_factory=dict)
    finished: deque[FullMessage] = field(default_factory=lambda: deque(maxlen=FINISHED_KEPT))

    def keep_single(self, message: SingleMessage, exchange: TopologyVersion) -> None:
        """Keep a single map; its sender has passed the latch, which another coordinator may have opened."""
        self.singles[message.sender, exchange] = message
        self.counts[exchange].add(message.sender)

    def finish(self, message: FullMessage) -> None:
        """The exchange ended with ``message``: what was kept for it is of no use any more."""
        self.finished.append(message)
        self.singles = {key: each for key, each in self.singles.items() if key[1] > message.version}
        for version in [version for version in self.counts if version <= message.version]:
            del self.counts[version]

    def finished_as(self, version: TopologyVersion, order: int) -> FullMessage | None:
        """Return how the exchange of ``version`` ended, as said by the coordinator of ``order``."""
        for each in self.finished:
            if each.covers(version):
                return replace(each, order=order)
        return None

    def answers_to_clients(self, held: HeldMaps, order: int) -> list[Effect]:
        """Clients get the full map once the exchange is finished here; nobody waits for them (PME-026)."""
        ready = sorted(name for name, version in self.clients.items() if version <= held.version)
        if not self.finished:
            return []
        for name in ready:
            del self.clients[name]
        message = replace(
            self.finished[-1], version=held.version, basis=held.basis, order=order, maps=held.maps
        )
        return [Send(name, message) for name in ready]
