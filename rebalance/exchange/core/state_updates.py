"""State changes between exchanges: the messages of a node, and the late switch once it is due.

Source: PME-117..122, PME-134, PME-138.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import FullMap, Reception, SingleMap
from rebalance.core.partition_maps.topology_version import NO_VERSION, Cluster, DiscoveryEvent, TopologyVersion
from rebalance.exchange.core.exchange_effects import AskSwitch, Effect, Send
from rebalance.exchange.core.exchange_messages import FullMessage, GoneServer, ResultState, SingleMessage
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.core.held_maps import HeldMaps
from rebalance.exchange.core.running_exchange import RunningExchange

PATIENCE_TICKS = 20
"""Resend periods since the last exchange: after that a switch is asked for although some copies of the zone are
not ready, again and again."""


class StateUpdates:
    """``self.queue`` and ``self.running`` may be looked at, not changed. ``results``: None where the outcome of
    an exchange is not committed; ``gone``: servers that went after the last result, in order."""

    def __init__(
        self,
        name: str,
        order: int,
        cluster: Cluster,
        results: ResultState | None,
        gone: Sequence[GoneServer],
    ) -> None:
        self.name = name
        self.order = order
        self.cluster = cluster
        self.held = HeldMaps(cluster.version, results=results)
        self.queue: deque[tuple[DiscoveryEvent, Cluster]] = deque()
        self.running: RunningExchange | None = None
        self._clusters: dict[TopologyVersion, Cluster] = {}
        self._gone = list(gone)
        self._local: Mapping[ZoneId, SingleMap] = {}
        self._asked: TopologyVersion | None = None
        self._judged: Mapping[ZoneId, FullMap] = {}
        self._idle, self._idle_ticks = NO_VERSION, 0
        self._is_confirmed = True

    @property
    def is_coordinator(self) -> bool:
        return self.cluster.coordinator == self.name

    @property
    def is_idle(self) -> bool:
        return self.running is None and not self.queue

    def cluster_at(self, version: TopologyVersion) -> Cluster:
        return self._clusters[version]

    def state_changed(self, maps: Mapping[ZoneId, SingleMap]) -> list[Effect]:
        """Copies of this node changed since the last exchange, and the notification's delay is over. While an
        exchange waits or runs nothing is sent: it will carry the news."""
        self._local = maps
        return self._notify() if self.is_idle else []

    def _in(self, version: TopologyVersion, *phases: Phase) -> RunningExchange | None:
        """The running exchange if it is this one and in one of these phases: answers may come too late."""
        running = self.running
        if running is None or running.version != version or running.phase not in phases:
            return None
        return running

    def _gone_since_result(self, until: TopologyVersion) -> tuple[GoneServer, ...]:
        """Servers whose end the last result does not know, up to an event."""
        results = self.held.results
        if results is None:
            return ()
        return tuple(each for each in self._gone if results.version < each.version <= until)

    def _on_state(self, message: SingleMessage) -> list[Effect]:
        if not self.is_coordinator:
            return []
        before = self.held
        self.held, reception = before.with_state(message, self.order)
        if reception is Reception.TAKEN:
            return self._publish(self.held.changes_after(before, self.order))
        asks = message.basis == before.basis and not message.maps
        if asks or reception in (Reception.REPEATED, Reception.GAP):
            return [Send(message.sender, self.held.update_message(self.order))]
        return []

    def _on_update(self, message: FullMessage) -> list[Effect]:
        """Take the coordinator's message between exchanges. Whoever has missed something asks for all, and is
        told again by the next tick that it has."""
        before = self.held
        self.held, is_missing = before.with_update(message)
        coordinator = self.cluster.coordinator
        if not is_missing or coordinator is None or self.is_coordinator:
            return []
        return [Send(coordinator, SingleMessage(self.name, self.order, None, before.basis))]

    def _tick_at_rest(self) -> list[Effect]:
        self._idle_ticks += 1
        stamps: list[Effect] = []
        if self.is_coordinator and self.held.has_updates:
            stamps = self._publish(self.held.stamps_message(self.order))
        return stamps + self._notify() + self._confirm() + self._ask_switch()

    def _confirm(self) -> list[Effect]:
        """A client may have been told of an exchange that no living server knows: it asks the new
        coordinator."""
        coordinator = self.cluster.coordinator
        if self._is_confirmed or coordinator is None or self.running is not None:
            return []
        version, basis = self.held.version, self.held.basis
        return [Send(coordinator, SingleMessage(self.name, self.order, version, basis, is_client=True))]

    def _notify(self) -> list[Effect]:
        """Tells of copies whose state the full map does not have yet."""
        news = {zone: item for zone, single in self._local.items() if (item := self.held.news_of(single))}
        coordinator = self.cluster.coordinator
        if not news or coordinator is None:
            return []
        maps = {zone: single for zone, (single, _) in news.items()}
        since = {zone: sequence for zone, (_, sequence) in news.items() if sequence is not None}
        message = SingleMessage(self.name, self.order, None, self.held.basis, maps, since=since)
        if not self.is_coordinator:
            return [Send(coordinator, message)]
        return [*self._on_state(message), *self._ask_switch()]

    def _publish(self, message: FullMessage) -> list[Effect]:
        """Send to everybody else, clients too."""
        others = sorted({*self.cluster.servers, *self.cluster.clients} - {self.name})
        return [Send(node, message) for node in others]

    def _ask_switch(self) -> list[Effect]:
        """One zone that is ready is enough: what is filled slowly, or not at all, is in the way of nobody else.
        Within a zone the others wait for it, for some time."""
        if not (self.is_coordinator and self.is_idle and self._asked != self.held.basis):
            return []
        if self._idle != self.held.basis:
            self._idle, self._idle_ticks = self.held.basis, 0
        waits = self._idle_ticks < PATIENCE_TICKS
        # Maps are values: the same ones give the same answer.
        judged: Mapping[ZoneId, FullMap] = self._judged if waits else {}
        self._judged = dict(self.held.maps)
        for zone, full in self.held.maps.items():
            if judged.get(zone) is not full and self.held.is_ready(zone, waits=waits):
                self._asked = self.held.basis
                return [AskSwitch(self.held.basis)]
        self._idle_ticks = self._idle_ticks if waits else 0
        return []
