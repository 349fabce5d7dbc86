"""Events of the ring on one server: what they remove goes at once, what they mean waits for ideal lists."""

from __future__ import annotations

from collections import deque

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.topology_version import Cluster, Trigger, ZoneSpec
from rebalance.exchange.core.exchange_messages import GoneServer, Lists
from rebalance.store.core.ring_records import IdealLists, RingRecord, RingState
from rebalance.store.core.store_effects import ReadTargets


class RingQueue:
    """``state``: as heard. ``gone``: servers that went, with the version, in order. ``reading``: the lists that
    the next event waits for."""

    def __init__(self, state: RingState) -> None:
        self.state = state
        self.gone: list[GoneServer] = list(state.gone)
        self.reading: ReadTargets | None = None
        self._queue: deque[tuple[RingRecord, Cluster]] = deque()
        self._lists: dict[tuple[ZoneId, int], Lists] = {}
        self._lists_among: dict[tuple[ZoneId, int], tuple[tuple[str, ...], Lists]] = {}
        """Last answer of ``lists_of`` by zone and revision, which each exchange asks for several times."""
        self._ticket = 0
        self._newest = max(state.cluster.servers.values(), default=0)

    def heard(self, record: RingRecord) -> int | None:
        """The order of the server that the event removes. Raises ValueError when an event is missing."""
        before, event = self.state.cluster, record.event
        self.state = self.state.after(record)
        self._queue.append((record, before))
        self._newest = max(self._newest, event.order)
        if event.trigger not in (Trigger.NODE_LEFT, Trigger.NODE_FAILED):
            return None
        return before.servers.get(event.node)

    def is_gone(self, name: str, order: int) -> bool:
        """Check that the server was removed; one whose join is not heard of yet was not."""
        return order <= self._newest and self.state.cluster.servers.get(name) != order

    def ready(self) -> list[tuple[RingRecord, Cluster]]:
        """The next events whose ideal lists are here, with the cluster before each."""
        events = []
        while self._queue and self.reading is None:
            record, before = self._queue[0]
            zones = self._unread(before.after(record.event))
            if zones:
                self._ticket += 1
                self.reading = ReadTargets(self._ticket, zones)
                break
            events.append(self._queue.popleft())
            event = record.event
            if event.trigger in (Trigger.NODE_LEFT, Trigger.NODE_FAILED):
                self.gone.append(GoneServer(event.version, event.node, event.trigger is Trigger.NODE_LEFT))
        return events

    def _unread(self, cluster: Cluster) -> tuple[tuple[ZoneId, int], ...]:
        named = ((zone.zone_id, zone.targets) for zone in cluster.zones.values())
        return tuple(item for item in named if item[1] and item not in self._lists)

    def targets_read(self, ticket: int, lists: IdealLists) -> None:
        if self.reading is None or ticket != self.reading.ticket:
            return
        for zone, revision in self.reading.zones:
            # A zone that is gone by now has lists no more.
            self._lists[zone, revision] = lists.get(zone, ())
            self._lists_among.pop((zone, revision), None)
        self.reading = None

    def finished(self, cluster: Cluster) -> None:
        """An exchange ended with this cluster: lists of older revisions are read no more, and its result knows
        who went until then."""
        self.state = self.state.since(cluster.version)
        self.gone = [item for item in self.gone if item.version > cluster.version]
        named = {zone.zone_id: zone.targets for zone in cluster.zones.values()}
        is_newest = cluster.version == self.state.cluster.version
        self._lists = {
            (zone, revision): lists
            for (zone, revision), lists in self._lists.items()
            if (revision >= named[zone] if zone in named else not is_newest)
        }
        self._lists_among = {key: known for key, known in self._lists_among.items() if key in self._lists}

    def lists_of(self, zone: ZoneSpec, nodes: tuple[str, ...]) -> Lists:
        """One list for each partition: of its ideal list those that are among ``nodes``."""
        key = zone.zone_id, zone.targets
        known = self._lists_among.get(key)
        if known is not None and known[0] == nodes and len(known[1]) == zone.partitions:
            return known[1]
        ideal = self._lists.get(key, ())[: zone.partitions]
        there = frozenset(nodes)
        among = (each if there.issuperset(each) else tuple(filter(there.__contains__, each)) for each in ideal)
        lists = (*among, *((),) * (zone.partitions - len(ideal)))
        self._lists_among[key] = nodes, lists
        return lists
