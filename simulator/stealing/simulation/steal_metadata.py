"""Memory of a simulated server that survives a crash, apart from its stores."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from simulator.stealing.core.steal_checks import ServerState
from simulator.stealing.core.steal_cluster import ClusterMetadata
from simulator.stealing.core.steal_plan import StealUnit
from simulator.stealing.core.steal_state_change import BatchId, StealStateChange

CLUSTER_KEY = "cluster.xml"
STATE_KEY = "server.state"
STEAL_INFO_KEY = "rebalancing.steal.info.key"


@dataclass(frozen=True, slots=True)
class ChangeOrder:
    """A state change for one node: ``parts`` in order, ``units``: what it steals by it. ``before`` must be what
    the node has: an order of a controller that knows less is refused."""

    batch: BatchId
    before: ClusterMetadata
    after: ClusterMetadata
    parts: tuple[StealStateChange, ...]
    units: tuple[StealUnit, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """Changes of a node for a batch that is not committed yet, so that they can be taken back.

    ``done``: parts that hold now. ``whole``: False while a state change is being made; a crash leaves it so.
    """

    order: ChangeOrder
    done: tuple[StealStateChange, ...] = ()
    whole: bool = False

    @property
    def owns_more(self) -> bool:
        """True if the node owns partitions by this record for which it may have to ask a donor."""
        return StealStateChange.CLUSTER in self.done and bool(self.order.units)

    def having(self, part: StealStateChange) -> BatchRecord:
        return replace(self, done=tuple(step for step in StealStateChange if step is part or step in self.done))

    def lacking(self, part: StealStateChange) -> BatchRecord:
        return replace(self, done=tuple(step for step in self.done if step is not part))


@dataclass(slots=True)
class ServerMetadata:
    """``steal_info``: what is stolen still. ``committed``: the last batch from which there is no way back."""

    cluster: ClusterMetadata
    steal_info: tuple[StealUnit, ...] = ()
    record: BatchRecord | None = None
    committed: BatchId | None = None

    @property
    def state(self) -> ServerState:
        return ServerState.REBALANCING_MASTER if self.steal_info else ServerState.NORMAL_SERVER

    @property
    def unfinished(self) -> BatchId | None:
        return None if self.record is None else self.record.order.batch

    def get(self, key: str) -> str:
        """A value as an administrator sees it (VOL-080, VOL-081, VOL-107). Raises KeyError, naming the keys
        there are."""
        if key == CLUSTER_KEY:
            return self.cluster.encode()
        if key == STATE_KEY:
            return self.state.value
        if key == STEAL_INFO_KEY:
            return json.dumps(
                [{"stealer": u.stealer, "donor": u.donor, "stores": dict(u.stores)} for u in self.steal_info]
            )
        keys = ", ".join((CLUSTER_KEY, STATE_KEY, STEAL_INFO_KEY))
        raise KeyError(f"metadata key {key} is not known; there are {keys}")

    def donor_of(self, store: str, partition: int) -> int | None:
        """The donor to which a request is redirected: the partition is moving to this node, and its store is
        not done."""
        for unit in self.steal_info if self.record is not None and self.record.owns_more else ():
            if partition in unit.partitions_of(store):
                return unit.donor
        return None

    def returns_to(self, store: str, partition: int) -> int | None:
        """The donor to which a put goes too, so that there is a way back: until the batch is committed, also
        when the store is done."""
        for unit in self.record.order.units if self.record is not None and self.record.owns_more else ():
            if partition in unit.partitions_of(store):
                return unit.donor
        return None

    def store_done(self, donor: int, store: str) -> None:
        """VOL-037, VOL-064: its entry goes; the last one takes the unit along."""
        changed = (unit.without(store) if unit.donor == donor else unit for unit in self.steal_info)
        self.steal_info = tuple(unit for unit in changed if unit.stores)

    def redirect_again(self) -> None:
        """Redirect requests as if nothing of the batch were copied: before anything is taken back, and after a
        crash. Another node may own the partitions already, and the copies get old then."""
        if self.record is not None and self.record.owns_more:
            self.steal_info = self.record.order.units
            self.record = self.record.having(StealStateChange.REBALANCE)
