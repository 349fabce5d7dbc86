"""What a node tells and hears between exchanges: changes of states, and whether the late switch is due.

Source: PME-117..122, PME-134, PME-138.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from catalog.core.zone import ZoneId
from rebalance.core.partition_map import FullMap, Reception, SingleMap
from rebalance.core.topology_version import NO_VERSION, Cluster, DiscoveryEvent, TopologyVersion
from rebalance.exchange.core.exchange_effects import AskSwitch, Effect, MapsChanged, Send
from rebalance.exchange.core.exchange_messages import SingleMessage
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.core.held_maps import HeldMaps
from rebalance.exchange.core.result_record import GoneServer, ResultState
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
        self.held, reception = self.held.with_state(message, self.order)
        if reception is Reception.TAKEN:
            return [MapsChanged(), *self._publish()]
        if reception is Reception.REPEATED:
            return [Send(message.sender, self.held.update_message(self.order))]
        return []

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
        late = {zone: single for zone, single in self._local.items() if self.held.lags_behind(single)}
        coordinator = self.cluster.coordinator
        if not late or coordinator is None:
            return []
        message = SingleMessage(self.name, self.order, None, self.held.basis, late)
        if not self.is_coordinator:
            return [Send(coordinator, message)]
        return [*self._on_state(message), *self._ask_switch()]

    def _publish(self) -> list[Effect]:
        """To everybody else, clients too."""
        message = self.held.update_message(self.order)
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
