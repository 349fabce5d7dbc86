"""Events of the ring as they are kept in etcd, and what a server reads when it starts.

``exchange/events/<number>`` is one guarded sequence; ``exchange/ring`` is a snapshot of its state now and then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.topology_version import (
    NO_VERSION,
    Cluster,
    DiscoveryEvent,
    TopologyVersion,
    Trigger,
)
from rebalance.exchange.core.result_record import GoneServer, ResultState


@dataclass(frozen=True, slots=True)
class RingRecord:
    """``number`` counts from 1 without a gap. ``incarnation``: of the server that joined, left or failed; a
    name is another server with each of them."""

    number: int
    event: DiscoveryEvent
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class RingState:
    """State of the ring after event ``number``. ``incarnations``: by name of each server that is there.
    ``gone``: who went when, in order: results that are older do not know of it. Only the order matters, as the
    last member of an in-sync set stays in it, so a name that went twice with no other between is there once,
    and failed if it did so once."""

    number: int = 0
    cluster: Cluster = field(default_factory=Cluster)
    incarnations: Mapping[str, str] = field(default_factory=dict)
    gone: tuple[GoneServer, ...] = ()

    def after(self, record: RingRecord) -> RingState:
        """Raises ValueError for a record that is not the next."""
        if record.number != self.number + 1:
            raise ValueError(f"event {record.number} of the ring came after event {self.number}")
        event, incarnations, gone = record.event, dict(self.incarnations), self.gone
        if event.trigger is Trigger.NODE_JOINED:
            incarnations[event.node] = record.incarnation
        elif event.trigger in (Trigger.NODE_LEFT, Trigger.NODE_FAILED):
            incarnations.pop(event.node, None)
            again = bool(gone) and gone[-1].name == event.node
            in_order = event.trigger is Trigger.NODE_LEFT and (not again or gone[-1].in_order)
            gone = (*(gone[:-1] if again else gone), GoneServer(event.version, event.node, in_order))
        cluster = self.cluster.after(event)
        return replace(self, number=record.number, cluster=cluster, incarnations=incarnations, gone=gone)

    def since(self, result: TopologyVersion) -> RingState:
        """Return the state without servers whose end the result of that version knows."""
        return replace(self, gone=tuple(each for each in self.gone if each.version > result))


@dataclass(frozen=True, slots=True)
class StoreStart:
    """State that a server reads at one revision of etcd before it joins: the ring, and all results.
    ``format_version`` of its own disk was checked by the shell. ``metastore_epoch``: higher after each time
    that etcd was adopted from a backup. ``finished``: the last exchange that a server of its name has told to
    have finished. ``resting``: see ``ZoneLives``."""

    ring: RingState
    results: ResultState
    metastore_epoch: int = 0
    finished: TopologyVersion = NO_VERSION
    resting: frozenset[ZoneId] = frozenset()


IdealLists = Mapping[ZoneId, tuple[tuple[str, ...], ...]]
"""Nodes that shall hold each partition of each zone, the primary first: ``pending`` if present, else
``stable``."""
