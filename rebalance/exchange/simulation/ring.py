"""The ring: one order of events for all nodes, which each node hears of in its own time."""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalance.core.topology_version import Cluster, DiscoveryEvent, TopologyVersion, Trigger, ZoneSpec


@dataclass(frozen=True, slots=True)
class Joining:
    """A node that the others are told of. Its join becomes an event when all of them know it (PME-002)."""

    name: str
    is_client: bool
    zones: tuple[ZoneSpec, ...]
    seen: set[str] = field(default_factory=set)


class Ring:
    """``events`` in order; ``cluster`` is what they make. Reliable: an event may be heard late, never lost."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.events: list[DiscoveryEvent] = []
        self.joining: list[Joining] = []
        self._orders = 0

    def announce(self, name: str, is_client: bool, zones: tuple[ZoneSpec, ...]) -> None:
        self.joining.append(Joining(name, is_client, zones))

    def see(self, node: str) -> bool:
        """``node`` hears of the next joining node that it does not know; False when it knows all."""
        for each in self.joining:
            if node not in each.seen:
                each.seen.add(node)
                return True
        return False

    def forget(self, name: str) -> None:
        self.joining = [each for each in self.joining if each.name != name]

    def visible(self, alive: frozenset[str]) -> Joining | None:
        """The first joining node if every living node knows it: it is removed, its event is due."""
        if self.joining and alive <= self.joining[0].seen:
            return self.joining.pop(0)
        return None

    def join(self, joining: Joining) -> DiscoveryEvent:
        self._orders += 1
        return self.append(
            Trigger.NODE_JOINED,
            node=joining.name,
            order=self._orders,
            is_client=joining.is_client,
            zones=joining.zones,
        )

    def append(
        self,
        trigger: Trigger,
        *,
        node: str = "",
        order: int = 0,
        is_client: bool = False,
        zones: tuple[ZoneSpec, ...] = (),
        baseline: frozenset[str] | None = None,
        basis: TopologyVersion | None = None,
    ) -> DiscoveryEvent:
        version = self.cluster.version_after(trigger)
        event = DiscoveryEvent(version, trigger, node, order, is_client, zones, baseline, basis)
        self.cluster = self.cluster.after(event)
        self.events.append(event)
        return event
