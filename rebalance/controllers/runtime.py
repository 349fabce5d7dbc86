"""The controllers of one process: leads or waits, watches what can change a zone, works the queue."""

from __future__ import annotations

import asyncio
import json

import structlog

from catalog.core.zone import Node, ZoneId
from rebalance.controllers.admission import MoveAdmission
from rebalance.controllers.automatic_reset import AutomaticReset
from rebalance.controllers.clock import Clock, WallClock
from rebalance.controllers.contact import Contact
from rebalance.controllers.data_nodes import DataNodesKeeper, NotYetError
from rebalance.controllers.due_times import DueTimes
from rebalance.controllers.leadership import Leadership
from rebalance.controllers.operation_keeper import OperationKeeper
from rebalance.controllers.partition_map import PartitionMapKeeper
from rebalance.controllers.topology import TopologyKeeper
from rebalance.controllers.work_queue import WorkQueue
from rebalance.controllers.zone import ZoneController
from rebalance.core.assignments import Strategy
from rebalance.core.epoch import EpochRecord
from rebalance.core.keys import Keyspace
from rebalance.core.readable import RecordNotReadableError, Unreadable, read
from rebalance.core.records import NodeRecord
from rebalance.core.topology import HoldRule
from rebalance.core.txn import Put, Txn
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.metastore import Metastore, MetastoreError
from rebalance.ports.placement import PlacementEngine

log = structlog.get_logger(__name__)

RESYNC_S = 30.0
ENGINE_POLL_S = 0.5
WENT_BACK_S = 3.0
RESET_DELAY_MS = 10_000
HOLD = HoldRule(lease_ms=5_000, grace_ms=10_000)


def live_nodes(mirror: KeyspaceMirror, keyspace: Keyspace) -> tuple[Node, ...]:
    """Nodes whose lease lives, as the mirror last saw it, in name order; without those whose record cannot be
    read."""
    found = (read(item, NodeRecord.decode) for item in mirror.below(keyspace.nodes))
    return tuple(each.node for each in found if not isinstance(each, Unreadable))


def usable_nodes(mirror: KeyspaceMirror, keyspace: Keyspace) -> tuple[Node, ...]:
    """Living nodes that are not leaving, of a mirror of the whole keyspace: what zones may be placed on."""
    live = live_nodes(mirror, keyspace)
    return tuple(node for node in live if mirror.get(keyspace.drain(node.name)) is None)


class ControllerRuntime:
    """Run several: one leads. ``name`` tells them apart in the leader key. ``map_period_s``: how often
    partition maps may be published; None: they are not."""

    def __init__(
        self,
        metastore: Metastore,
        keyspace: Keyspace,
        engine: PlacementEngine,
        name: str,
        lease_s: int,
        hold: HoldRule = HOLD,
        clock: Clock | None = None,
        strategy: Strategy = Strategy.QUEUE,
        reset_delay_ms: int = RESET_DELAY_MS,
        map_period_s: float | None = None,
    ) -> None:
        """``reset_delay_ms``: ``AutomaticReset``."""
        self._metastore = metastore
        self._keyspace = keyspace
        self._engine = engine
        self._intents = KeyspaceMirror(metastore, keyspace.intents)
        self._nodes = KeyspaceMirror(metastore, keyspace.nodes)
        self._drains = KeyspaceMirror(metastore, keyspace.drains)
        self._epochs = KeyspaceMirror(metastore, keyspace.epoch)
        self._unreadable = UnreadableLog()
        self._open = asyncio.Event()
        self._waits_for_servers = False
        self._seen_revision = 0
        self._queue = WorkQueue()
        self._leadership = Leadership(metastore, keyspace, name, lease_s)
        clock = clock or WallClock()
        self._due = DueTimes(clock)
        self._contact = Contact(metastore, keyspace, clock, hold)
        self._topology = TopologyKeeper(metastore, keyspace, clock, hold, self._contact.silent_ms)
        self._data_nodes = DataNodesKeeper(metastore, keyspace, lambda: self._topology.known, clock, self._due)
        self._maps: PartitionMapKeeper | None = None
        if map_period_s:
            self._maps = PartitionMapKeeper(
                metastore,
                keyspace,
                name,
                self._intents,
                self._nodes,
                lambda: self._topology.known.topology,
                map_period_s,
            )
        self._operations = OperationKeeper(metastore, keyspace, clock, lambda: self._admission.limits)
        self._operations.listen(self._look_at_turn)
        self._admission = MoveAdmission(
            metastore, keyspace, clock, self._member_limits, self._rewrite, self._first_operation
        )
        self._zones = ZoneController(
            metastore, keyspace, engine, self._data_nodes, strategy, self._admission, clock
        )
        self._resets = AutomaticReset(metastore, keyspace, lambda: self._topology.known, clock, reset_delay_ms)

    @property
    def is_leader(self) -> bool:
        return self._leadership.is_leader

    async def run(self) -> None:
        """Until cancelled."""
        self._epochs.listen(self._on_epoch)
        self._intents.listen(self._on_intents)
        self._nodes.listen(self._topology.notice)
        self._nodes.listen(lambda _changed: self._admission.look_again())
        self._drains.listen(lambda _changed: self._topology.notice())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._epochs.run())
            tasks.create_task(self._intents.run())
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._drains.run())
            tasks.create_task(self._contact.run())
            tasks.create_task(self._admission.follow())
            tasks.create_task(self._operations.follow())
            tasks.create_task(self._leadership.run(self._lead))

    def _on_epoch(self, _changed: frozenset[str]) -> None:
        """While the stores do not agree nothing is written. Afterwards all zones come up."""
        record = read(self._epochs.get(self._keyspace.epoch), EpochRecord.decode) or EpochRecord()
        if self._waits_for_servers:
            return
        halted = record.cause if isinstance(record, Unreadable) else record.halted
        if halted:
            if self._open.is_set():
                log.error("controllers write nothing", reason=halted)
            self._open.clear()
            return
        self._zones.forget()
        self._open.set()
        self._enqueue_all()

    def _on_intents(self, changed: frozenset[str]) -> None:
        if self._intents.revision < self._seen_revision:
            self._wait_for_servers()
        self._seen_revision = self._intents.revision
        for key in changed:
            self._enqueue(key)

    def _enqueue(self, intent_key: str) -> None:
        zone_id = self._keyspace.parse_intent(intent_key)
        if zone_id is None:
            self._unreadable.waits(intent_key, Unreadable(intent_key, "the key names no zone"))
        else:
            self._queue.add(zone_id)

    def _wait_for_servers(self) -> None:
        """The metastore went back in time: the servers, which have the catalog, get the time to say so."""
        log.warning("the metastore went back in time", seen=self._seen_revision, now=self._intents.revision)
        self._open.clear()
        self._waits_for_servers = True

        def look_again() -> None:
            self._waits_for_servers = False
            self._on_epoch(frozenset())

        asyncio.get_running_loop().call_later(WENT_BACK_S, look_again)

    def _enqueue_all(self) -> None:
        for item in self._intents.below(self._keyspace.intents):
            self._enqueue(item.key)

    def _member_limits(self) -> dict[str, int]:
        """A node whose record cannot be read takes no more members."""
        found = {}
        for item in self._nodes.below(self._keyspace.nodes):
            record = read(item, NodeRecord.decode)
            limit = 0 if isinstance(record, Unreadable) else record.node.member_limit
            found[item.key.removeprefix(self._keyspace.nodes)] = limit
        return found

    def _first_operation(self) -> tuple[ZoneId, str] | None:
        found = self._operations.first()
        return (found.zone_id, found.operation_id) if found is not None else None

    def _look_at_turn(self) -> None:
        """Another operation may be the first now."""
        if self._admission.limits.one_operation:
            self._admission.look_again()

    async def _keep_operations(self) -> None:
        """Not while catalog and metastore do not agree."""
        await self._open.wait()
        await self._operations.run()

    def _rewrite(self, zone_id: ZoneId) -> None:
        self._zones.rewrite(zone_id)
        self._queue.add(zone_id)

    async def _lead(self) -> None:
        await self._engine.start()
        await self._open.wait()
        await self._intents.loaded()
        await self._nodes.loaded()
        await self._admission.loaded()
        await self._operations.loaded()
        self._zones.forget()
        self._due.clear()
        self._resets.due.clear()
        await self._topology.record()
        self._enqueue_all()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._work())
            tasks.create_task(self._admission.run())
            tasks.create_task(self._keep_operations())
            tasks.create_task(self._topology.run(self._enqueue_all, self._settle_due))
            tasks.create_task(self._due.run(self._on_due))
            tasks.create_task(self._resets.due.run(self._reset_lost))
            tasks.create_task(self._resync())
            tasks.create_task(self._publish_engine())
            if self._maps is not None:
                tasks.create_task(self._publish_maps(self._maps))

    async def _work(self) -> None:
        while True:
            await self._open.wait()
            batch = await self._queue.take()
            failures = await self._zones.reconcile(batch)
            for zone_id in batch:
                error = failures.get(zone_id)
                if error is None:
                    self._unreadable.goes_on(zone_id)
                    self._queue.succeeded(zone_id)
                    await self._reset_lost(zone_id)
                    continue
                delay_s = self._queue.failed(zone_id)
                if isinstance(error, RecordNotReadableError):
                    self._unreadable.waits(zone_id, error)
                    continue
                expected = isinstance(error, NotYetError | MetastoreError)
                report = log.info if expected else log.warning
                report("zone not reconciled", zone=zone_id, error=repr(error), again_in_s=delay_s)

    async def _reset_lost(self, zone_id: ZoneId) -> None:
        if not self._open.is_set():
            return
        try:
            await self._resets.look(zone_id)
        except MetastoreError as error:
            log.info("zone not looked at", zone=zone_id, error=str(error))
            self._queue.add(zone_id)

    async def _resync(self) -> None:
        """A safety net: watches are hints. Cheap for zones that are done (one read each)."""
        while True:
            await asyncio.sleep(RESYNC_S)
            self._topology.notice()
            self._enqueue_all()

    async def _settle_due(self, at_ms: int) -> None:
        for zone_id in self._due.due(at_ms):
            await self._on_due(zone_id)

    async def _on_due(self, zone_id: ZoneId) -> None:
        """The data nodes at once, as a placement job may be running; then the zone's turn to be placed."""
        if not self._open.is_set():
            self._queue.add(zone_id)
            return
        try:
            await self._data_nodes.settle(zone_id)
        except RecordNotReadableError as error:
            self._unreadable.waits(zone_id, error)
        except (NotYetError, MetastoreError) as error:
            log.info("data nodes not written", zone=zone_id, error=repr(error))
        except Exception as error:
            log.warning("data nodes not written", zone=zone_id, error=repr(error))
        self._queue.add(zone_id)

    async def _publish_maps(self, maps: PartitionMapKeeper) -> None:
        """Not while catalog and metastore do not agree."""
        await self._open.wait()
        await maps.run()

    async def _publish_engine(self) -> None:
        """Spark's state for every server's /readyz, under the leader's lease."""
        published = b""
        while True:
            status = self._engine.status()
            document = {
                "v": 1,
                "state": status.state.value,
                "message": status.message,
                "driver_pid": status.driver_pid,
            }
            value = json.dumps(document).encode()
            lease = self._leadership.lease
            if value != published and lease is not None:
                try:
                    await self._metastore.commit(Txn((), (Put(self._keyspace.engine_status, value, lease),)))
                    published = value
                except MetastoreError as error:
                    log.info("engine state not published", error=str(error))
            await asyncio.sleep(ENGINE_POLL_S)
