"""Controllers with a clock that stands still: zones' timers over a metastore, and controllers that die."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from rebalance.controllers.data_nodes import DataNodesKeeper
from rebalance.controllers.due_times import DueTimes
from rebalance.controllers.topology import TopologyKeeper
from rebalance.controllers.zone import ZoneController
from rebalance.core.data_nodes import DataNodes
from rebalance.core.keys import Keyspace
from rebalance.core.node_history import DataNodesHistory
from rebalance.core.records import NodeRecord
from rebalance.core.topology import NO_HOLD, HoldRule, Topology
from rebalance.core.txn import Delete, KeyValue, Put, Txn
from rebalance.ports.metastore import Metastore
from spark.placement_engine import LocalPlacementEngine

ZONE = Zone(ZoneId(1), "Z", 8, 2, None, ("default",))


class StillClock:
    """Moves only when it is told to."""

    def __init__(self) -> None:
        self.ms = 0
        self._moved = asyncio.Event()

    def now_ms(self) -> int:
        return self.ms

    def set(self, ms: int) -> None:
        self.ms = ms
        self._moved.set()
        self._moved = asyncio.Event()

    async def sleep_until(self, at_ms: int) -> None:
        while self.ms < at_ms:
            await self._moved.wait()


class Controller:
    """What one process keeps in memory."""

    def __init__(self, store: Metastore, keyspace: Keyspace, clock: StillClock, hold: HoldRule) -> None:
        self.due = DueTimes(clock)
        self.topology = TopologyKeeper(store, keyspace, clock, hold)
        self.data_nodes = DataNodesKeeper(store, keyspace, lambda: self.topology.known, clock, self.due)
        self.zones = ZoneController(store, keyspace, LocalPlacementEngine(), self.data_nodes)


class TimerWorld:
    """Seconds outside, milliseconds inside. ``kill`` and ``start`` the one controller at will."""

    def __init__(self, store: Metastore, keyspace: Keyspace, hold: HoldRule = NO_HOLD) -> None:
        self.store = store
        self.keyspace = keyspace
        self.clock = StillClock()
        self.hold = hold
        self.intents: dict[ZoneId, ZoneIntent] = {}
        self.controller: Controller | None = None
        self._starts = 0

    async def start(self) -> None:
        """As on taking the lead: topology first, then every zone."""
        self.controller = Controller(self.store, self.keyspace, self.clock, self.hold)
        await self.controller.topology.record()
        await self.reconcile()

    def kill(self) -> None:
        self.controller = None

    async def reconcile(self) -> None:
        if self.controller is not None:
            assert await self.controller.zones.reconcile(list(self.intents)) == {}

    async def join(self, name: str, **attributes: str) -> None:
        """A new incarnation each time; ``profiles`` among the attributes are profiles."""
        self._starts += 1
        profiles = tuple(attributes.pop("profiles", "default").split("+"))
        node = Node(name, tuple(sorted(attributes.items())), profiles)
        record = NodeRecord(node, f"start-{self._starts}")
        await self.store.commit(Txn((), (Put(self.keyspace.node(name), record.encode()),)))
        await self._seen(name)

    async def leave(self, *names: str) -> None:
        for name in names:
            await self.store.commit(Txn((), (Delete(self.keyspace.node(name)),)))
        await self._seen(*names)

    async def _seen(self, *names: str) -> None:
        controller = self.controller
        if controller is None:
            return
        controller.topology.notice(frozenset(self.keyspace.node(name) for name in names))
        await self.record()

    async def record(self) -> None:
        assert self.controller is not None
        if await self.controller.topology.record(self._settle):
            await self.reconcile()

    async def _settle(self, at_ms: int) -> None:
        assert self.controller is not None
        for zone_id in self.controller.due.due(at_ms):
            await self.controller.data_nodes.settle(zone_id)

    async def publish(self, zone: Zone, dropped: bool = False) -> None:
        before = self.intents.get(zone.zone_id)
        intent = ZoneIntent(before.version + 1 if before else 1, zone, dropped)
        self.intents[zone.zone_id] = intent
        await self.store.commit(Txn((), (Put(self.keyspace.intent(zone.zone_id), intent.encode()),)))
        await self.reconcile()

    async def alter(self, zone_id: ZoneId = ZONE.zone_id, **changed: object) -> None:
        await self.publish(replace(self.intents[zone_id].zone, **changed))

    async def advance(self, to_s: float) -> None:
        """Time goes on; what is due on the way happens at its time, if somebody is there to do it."""
        to_ms = round(to_s * 1_000)
        while self.controller is not None:
            steps = [each for each in (self.next_due_ms(), self.hold_until_ms()) if each is not None]
            if not steps or min(steps) > to_ms:
                break
            self.clock.set(max(min(steps), self.clock.ms))
            await self.record()
            await self._settle(self.clock.ms)
            await self.reconcile()
        self.clock.set(max(to_ms, self.clock.ms))

    def next_due_ms(self) -> int | None:
        """The next timer of any zone, as the controller sleeps for it."""
        assert self.controller is not None
        due = self.controller.due
        low, high = 0, 10**15
        if not due.due(high):
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if due.due(middle) else (middle + 1, high)
        return low

    def hold_until_ms(self) -> int | None:
        assert self.controller is not None
        return self.controller.topology.known.topology.hold_until_ms

    async def nodes(self, zone_id: ZoneId = ZONE.zone_id) -> str:
        found = await self.store.get(self.keyspace.data_nodes(zone_id))
        assert found is not None
        return ",".join(DataNodes.decode(found.value).nodes) or "-"

    async def history_key(self) -> tuple[DataNodesHistory, KeyValue]:
        found = await self.store.get(self.keyspace.data_nodes_history(ZONE.zone_id))
        assert found is not None
        return DataNodesHistory.decode(found.value), found

    async def topology(self) -> Topology:
        found = await self.store.get(self.keyspace.topology)
        assert found is not None
        return Topology.decode(found.value)
