"""The part of etcd that store servers use: guarded transactions over the keys below ``exchange/``."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.topology_version import (
    NO_VERSION,
    DiscoveryEvent,
    TopologyVersion,
    Trigger,
    ZoneSpec,
)
from rebalance.exchange.core.exchange_messages import Lists, ResultRecord, ResultState
from rebalance.store.core.ring_keeper import (
    EvictServer,
    FailServer,
    JoinServer,
    RetireHeartbeat,
    RingAction,
    RingView,
    SeenHeartbeat,
)
from rebalance.store.core.ring_records import IdealLists, RingRecord, RingState, StoreStart

RESULTS_KEPT = 3
"""Results that are kept: so few that servers come upon results that are folded."""


class StoreMetastore:
    """Every method is one transaction. ``revision`` counts what changed anything."""

    def __init__(self) -> None:
        self.revision = 0
        self.ring = RingState()
        self.events: list[RingRecord] = []
        self.results: list[ResultRecord] = []
        self.result_state = ResultState()
        self.heartbeats: dict[tuple[str, str], int] = {}
        self.finished: dict[str, TopologyVersion] = {}
        self.cut_from: dict[tuple[str, str], frozenset[str]] = {}
        self.evicting: dict[str, int] = {}
        self.suspects: set[tuple[str, str]] = set()
        self.takes_results = True
        self.targets: dict[int, dict[ZoneId, Lists]] = {0: {}}

    @property
    def view(self) -> RingView:
        beats = tuple(
            SeenHeartbeat(*key, revision, self.cut_from.get(key, ()))
            for key, revision in sorted(self.heartbeats.items())
        )
        return RingView(self.ring, beats, dict(self.evicting), frozenset(self.suspects))

    def start(self, name: str) -> StoreStart:
        ring, finished = self.ring.since(self.result_state.version), self.finished.get(name, NO_VERSION)
        return StoreStart(ring, self.result_state, finished=finished)

    # Servers

    def beat(
        self, name: str, incarnation: str, finished: TopologyVersion, cut_from: frozenset[str] = frozenset()
    ) -> bool:
        """The key is made by the first one; one that was deleted does not come back."""
        self.cut_from[name, incarnation] = cut_from
        known = (name, incarnation) in self.heartbeats
        was_there = any((item.event.node, item.incarnation) == (name, incarnation) for item in self.events)
        if name in self.evicting or (was_there and not known):
            return False
        self.heartbeats[name, incarnation] = self._next()
        self.finished[name] = max(finished, self.finished.get(name, NO_VERSION))
        return True

    def suspect(self, who: str, whom: str, order: int, suspected: bool) -> None:
        if self.ring.cluster.servers.get(whom) != order:
            return
        self._next()
        (self.suspects.add if suspected else self.suspects.discard)((who, whom))

    def commit_result(self, record: ResultRecord) -> tuple[ResultRecord, ...] | None:
        """Empty when it was committed; else the results after ``record.previous``, None where those are
        folded."""
        if record.previous == self.result_state.version:
            self._next()
            self.results.append(record)
            self.result_state = self.result_state.after(record)
            del self.results[:-RESULTS_KEPT]
            return ()
        following = tuple(item for item in self.results if item.previous >= record.previous)
        return following if following and following[0].previous == record.previous else None

    def take_results(self) -> None:
        self.takes_results = True

    def lists(self, zones: tuple[tuple[ZoneId, int], ...]) -> IdealLists:
        return {zone: self.targets[revision].get(zone, ()) for zone, revision in zones}

    # The ring

    def append(self, event: DiscoveryEvent, incarnation: str = "") -> RingRecord:
        self._next()
        record = RingRecord(len(self.events) + 1, event, incarnation)
        self.ring = self.ring.after(record)
        self.events.append(record)
        return record

    def affinity_change(self, basis: TopologyVersion) -> None:
        """Change the affinity, if nothing else has happened since ``basis``."""
        if self.ring.cluster.version == basis:
            self.custom(Trigger.AFFINITY_CHANGE, basis=basis)

    def custom(
        self,
        trigger: Trigger,
        zones: tuple[ZoneSpec, ...] = (),
        basis: TopologyVersion | None = None,
        dead: frozenset[str] = frozenset(),
    ) -> None:
        version = self.ring.cluster.version_after(trigger)
        self.append(DiscoveryEvent(version, trigger, zones=zones, basis=basis, dead=dead))

    def set_targets(self, lists: Mapping[ZoneId, Lists]) -> int:
        """Returns the revision."""
        revision = self._next()
        self.targets[revision] = {**self.targets[max(self.targets)], **lists}
        return revision

    def leave(self, name: str, incarnation: str) -> None:
        if self.ring.incarnations.get(name) == incarnation:
            self._member(Trigger.NODE_LEFT, name, incarnation)

    def act(self, action: RingAction) -> bool:
        """False when its guard did not hold."""
        match action:
            case RetireHeartbeat(name, incarnation, revision):
                if self.heartbeats.get((name, incarnation)) != revision:
                    return False
                del self.heartbeats[name, incarnation]
            case EvictServer(after, name):
                if after != self.ring.number or name in self.evicting:
                    return False
                self.evicting[name] = self._next()
            case JoinServer(after, name, incarnation):
                if after != self.ring.number or (name, incarnation) not in self.heartbeats:
                    return False
                self._member(Trigger.NODE_JOINED, name, incarnation)
            case FailServer(after, name, incarnation, revision):
                if after != self.ring.number or self.heartbeats.get((name, incarnation), 0) != revision:
                    return False
                self._member(Trigger.NODE_FAILED, name, incarnation)
        return True

    def _member(self, trigger: Trigger, name: str, incarnation: str) -> None:
        order = len(self.events) + 1 if trigger is Trigger.NODE_JOINED else 0
        version = self.ring.cluster.version_after(trigger)
        self.append(DiscoveryEvent(version, trigger, name, order), incarnation)
        if trigger is not Trigger.NODE_JOINED:
            self.heartbeats.pop((name, incarnation), None)
            self.evicting.pop(name, None)
            self.suspects = {item for item in self.suspects if name not in item}

    def _next(self) -> int:
        self.revision += 1
        return self.revision
