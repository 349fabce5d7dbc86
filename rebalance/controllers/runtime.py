"""The controllers of one process, with their rules: it leads or waits, watches what can change a zone, works
the queue.

``ControllerRules`` are those of one of several controllers, ``OptionalDuties`` its work besides zones.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from catalog.core.level import NO_LEVEL
from catalog.core.zone import ZoneId
from rebalance.controllers.admission import MoveAdmission
from rebalance.controllers.automatic_reset import AutomaticReset
from rebalance.controllers.clock import Clock, Clocks, DueTimes
from rebalance.controllers.controller_leadership import Contact, ControllerLeadership
from rebalance.controllers.joiners import JoinersAgain
from rebalance.controllers.operation_keeper import OperationKeeper
from rebalance.controllers.partition_map import PartitionMapKeeper
from rebalance.controllers.partitions import StaleTargetError
from rebalance.controllers.store_control import ClusterMirrors, StoreControl
from rebalance.controllers.topology import DataNodesKeeper, NotYetError, TopologyKeeper
from rebalance.controllers.zone import ZoneController
from rebalance.core.admission.limit_options import JOINER_S
from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.assignment import Strategy
from rebalance.core.assignments.target import TargetIncompleteError
from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.epoch import EpochRecord, level_in
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read
from rebalance.core.keyspace.records import EngineRecord, WaitingZone
from rebalance.core.keyspace.txn import Compare, as_read
from rebalance.core.moves.move_status import StoreOwners
from rebalance.core.topology.node_presence import HoldRule, member_limits
from rebalance.hosting.background import Background, Work
from rebalance.hosting.keyed_queue import KeyedQueue
from rebalance.metastore.mirror import KeyspaceMirror, names_below
from rebalance.metastore.registered_process import LeasedReport, TroubleReport
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.groups import ServingProbe
from rebalance.ports.metastore import Metastore, MetastoreError, MetastoreHistory
from rebalance.ports.metric_rows import NO_MEASURES, Measures, Metric
from rebalance.ports.placement import PlacementEngine, PlacementError

HOLD = HoldRule(lease_ms=5_000, grace_ms=10_000)


@dataclass(frozen=True, slots=True)
class ControllerRules:
    """``name`` tells it from others in the leader key."""

    name: str
    lease_s: int
    hold: HoldRule = HOLD
    strategy: Strategy = Strategy.QUEUE


@dataclass(frozen=True, slots=True)
class OptionalDuties:
    """Each is left out where its field is None. ``map_period_s``: how often partition maps may be published;
    ``probe``: of ``AutomaticReset``; ``history``: of ``StoreControl``."""

    map_period_s: float | None = None
    probe: ServingProbe | None = None
    history: MetastoreHistory | None = None


NO_DUTIES = OptionalDuties()


log = structlog.get_logger(__name__)

RESYNC_S = 30.0
ENGINE_POLL_S = 0.5
WENT_BACK_S = 3.0
LATE_S = 5.0
QUEUE = "zones"
"""Name of the queue, in metrics."""
RETRY = Backoff(0.2, 10.0)
EXPECTED = (
    NotYetError,
    MetastoreError,
    PlacementError,
    StaleTargetError,
    TargetIncompleteError,
)
"""Errors that a zone's step may end with; anything else is a defect."""


class ControllerRuntime:
    """Run several: one leads."""

    def __init__(
        self,
        metastore: Metastore,
        keyspace: Keyspace,
        engine: PlacementEngine,
        rules: ControllerRules,
        duties: OptionalDuties = NO_DUTIES,
        clocks: Clocks | None = None,
        background: Background | None = None,
        measures: Measures = NO_MEASURES,
    ) -> None:
        """``background`` None: a task that ends ends all."""
        name, hold = rules.name, rules.hold
        clocks = clocks or Clocks()
        self._background = background or Background(restarts=False)
        self._measures = measures
        # From 0 on, so that the first one is seen as growth.
        measures.count(Metric.QUEUE_RETRIES, QUEUE, by=0)
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
        self._level = NO_LEVEL
        self._queue = KeyedQueue[ZoneId](RETRY, random.Random(name))
        self._leadership = ControllerLeadership(
            metastore, keyspace, name, rules.lease_s, in_force=self._in_force
        )
        self._report = TroubleReport(
            metastore, keyspace.process(name), "controller", lambda: self._leadership.lease, self._background
        )
        self._late: tuple[tuple[ZoneId, float], int] | None = None
        self._clock = clock = clocks.wall
        self._due = DueTimes(clock)
        self._contact = Contact(metastore, keyspace, clocks, hold)
        self._topology = TopologyKeeper(
            metastore, keyspace, clock, hold, self._contact.silent_ms, self._in_force
        )
        self._data_nodes = DataNodesKeeper(metastore, keyspace, lambda: self._topology.known, clock, self._due)
        self._maps = self._map_keeper(name, duties.map_period_s)
        self._operations = OperationKeeper(
            metastore, keyspace, clock, self._limits, self._background, self._owners, measures, self._drained
        )
        self._operations.mirror.listen(self._look_at_turn)
        self._admission = MoveAdmission(
            metastore, keyspace, clock, self._member_limits, self._rewrite, self._operations.first, self._stored
        )
        self._joiners = JoinersAgain(metastore, keyspace, self._nodes, clock, self._queue.add)
        overtaken = self._joiners.note_left_out
        self._zones = ZoneController(
            metastore, keyspace, engine, self._data_nodes, rules.strategy, self._admission, measures, overtaken
        )
        self._store = self._store_control(duties.history, clocks.steady)
        self._resets = self._automatic_reset(duties.probe, clocks, hold)

    def _map_keeper(self, name: str, period_s: float | None) -> PartitionMapKeeper | None:
        if not period_s:
            return None
        return PartitionMapKeeper(
            self._metastore,
            self._keyspace,
            name,
            self._intents,
            self._nodes,
            lambda: self._topology.known.topology,
            period_s,
        )

    def _store_control(self, history: MetastoreHistory | None, steady: Clock) -> StoreControl | None:
        if history is None:
            return None
        control = StoreControl(
            history,
            self._keyspace,
            ClusterMirrors(self._intents, self._nodes),
            self._fence,
            steady,
            self._background,
            joiner_s=lambda: self._limits().joiner_s or JOINER_S,
        )
        control.listen(self._admission.on_stored)
        return control

    def _automatic_reset(
        self, probe: ServingProbe | None, clocks: Clocks, hold: HoldRule
    ) -> AutomaticReset | None:
        if probe is None:
            return None
        heard = self._contact.heard_since_ms
        return AutomaticReset(
            self._metastore, self._keyspace, lambda: self._topology.known, clocks, hold, heard, probe
        )

    @property
    def is_leader(self) -> bool:
        return self._leadership.is_leader

    def measure(self) -> None:
        """Sets the gauges of what is known at once."""
        longest, now_s = self._queue.longest_wait(), asyncio.get_running_loop().time()
        self._measures.set(Metric.CONTROLLER_LEADS, self.is_leader)
        self._measures.set(Metric.QUEUE_ITEMS, len(self._queue), QUEUE)
        self._measures.set(Metric.QUEUE_OLDEST_SECONDS, now_s - longest[1] if longest else 0, QUEUE)

    async def run(self) -> None:
        """Run until cancelled."""
        self._epochs.listen(self._on_epoch)
        self._intents.listen(self._on_intents)
        self._nodes.listen(self._topology.notice)
        self._nodes.listen(lambda _changed: self._admission.look_again())
        self._nodes.listen(self._joiners.notice)
        if self._resets is not None:
            self._nodes.listen(self._resets.notice)
            self._admission.limits_key.listen(self._look_at_lost)
        self._drains.listen(lambda _changed: self._topology.notice())
        await self._keep_all(
            {
                "controllers: epoch": self._epochs.run,
                "controllers: intents": self._intents.run,
                "controllers: nodes": self._nodes.run,
                "controllers: drains": self._drains.run,
                "controllers: contact": self._contact.run,
                "controllers: limits": self._admission.limits_key.run,
                "controllers: operations": self._operations.mirror.run,
                "controllers: joiners": self._joiners.mirror.run,
                "controllers: leadership": lambda: self._leadership.run(self._lead),
            }
        )

    async def _keep_all(self, works: Mapping[str, Work]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name, work in works.items():
                tasks.create_task(self._background.keep(name, work), name=name)

    def _on_epoch(self, _changed: frozenset[str]) -> None:
        """Handle a change of the epoch: while the stores do not agree nothing is written. Afterwards all zones
        come up."""
        record = read(self._epochs.get(self._keyspace.epoch), EpochRecord.decode) or EpochRecord()
        if self._in_force() != self._level:
            self._level = self._in_force()
            self._topology.notice()
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

    def _in_force(self) -> int:
        """The release level."""
        return level_in(self._epochs.value(self._keyspace.epoch))

    def _on_intents(self, changed: frozenset[str]) -> None:
        if self._intents.revision < self._seen_revision:
            self._wait_for_servers()
        self._seen_revision = self._intents.revision
        for key in sorted(changed):
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

    def _limits(self) -> Limits:
        return self._admission.limits

    def _drained(self) -> frozenset[str]:
        return names_below(self._drains, self._keyspace.drains)

    def _stored(self) -> frozenset[ZoneId]:
        return self._store.stored if self._store is not None else frozenset()

    def _member_limits(self) -> dict[str, int]:
        return member_limits(self._nodes.below(self._keyspace.nodes), self._keyspace.nodes)

    def _look_at_turn(self, _changed: frozenset[str]) -> None:
        """Look at the next operation, which may be the first now."""
        if self._admission.limits.one_operation:
            self._admission.look_again()

    async def _once_open(self, work: Work) -> None:
        """Do the work, once catalog and metastore agree."""
        await self._open.wait()
        await work()

    def _owners(self, zone_id: ZoneId, partition: int) -> StoreOwners | None:
        return self._store.owners(zone_id, partition) if self._store is not None else None

    async def _fence(self) -> Compare:
        await self._open.wait()
        return as_read(self._keyspace.epoch, self._epochs.get(self._keyspace.epoch))

    def _rewrite(self, zone_id: ZoneId) -> None:
        self._zones.rewrite(zone_id)
        self._queue.add(zone_id)

    async def _lead(self) -> None:
        self._measures.count(Metric.CONTROLLER_TERMS)
        await self._engine.start()
        await self._open.wait()
        await self._intents.loaded()
        await self._nodes.loaded()
        await self._admission.limits_key.loaded()
        await self._operations.mirror.loaded()
        self._zones.forget()
        self._due.clear()
        if self._resets is not None:
            self._resets.begin()
        self._joiners.begin()
        await self._topology.record()
        self._enqueue_all()
        works: dict[str, Work] = {
            "leader: zones": self._work,
            "leader: admission": self._admission.run,
            "leader: operations": lambda: self._once_open(self._operations.run),
            "leader: topology": lambda: self._topology.run(self._enqueue_all, self._settle_due),
            "leader: due zones": lambda: self._due.run(self._on_due),
            "leader: due joiners": lambda: self._joiners.due.run(self._ask_due),
            "leader: resync": self._resync,
            "leader: state": self._publish_state,
            "leader: report": self._report.run,
        }
        if self._resets is not None:
            due = self._resets.due
            works["leader: due resets"] = lambda: due.run(self._reset_due)
        if self._store is not None:
            works["leader: store servers"] = self._store.run
        if self._maps is not None:
            maps = self._maps
            works["leader: partition maps"] = lambda: self._once_open(maps.run)
        await self._keep_all(works)

    async def _work(self) -> None:
        """All that is due is one batch, in the order of zones."""
        try:
            while True:
                await self._open.wait()
                batch = sorted(await self._queue.take())
                failures = await self._zones.reconcile(batch)
                for zone_id in batch:
                    error = failures.get(zone_id) or await self._reset_lost(zone_id)
                    self._measures.count(Metric.ZONE_ROUNDS, "ok" if error is None else "failed")
                    if error is None:
                        self._unreadable.goes_on(zone_id)
                        self._queue.done(zone_id)
                    else:
                        self._measures.count(Metric.QUEUE_RETRIES, QUEUE)
                        self._note_failure(zone_id, error, self._queue.failed(zone_id))
        finally:
            self._queue.give_back()

    def _note_failure(self, zone_id: ZoneId, error: Exception, delay_s: float) -> None:
        if isinstance(error, RecordNotReadableError):
            self._unreadable.waits(zone_id, error)
        elif isinstance(error, EXPECTED):
            log.info("zone not reconciled", zone=zone_id, error=repr(error), again_in_s=round(delay_s, 1))
        else:
            self._background.defect("a zone's round", error, zone=zone_id, again_in_s=round(delay_s, 1))

    async def _reset_lost(self, zone_id: ZoneId) -> Exception | None:
        """Reset a zone's lost partitions, and return what went wrong with it."""
        if self._resets is None or not self._open.is_set():
            return None
        try:
            await self._resets.look(zone_id)
        except Exception as error:
            return error
        return None

    def _look_at_lost(self, _changed: frozenset[str]) -> None:
        """The limits say how long a loss must last."""
        for zone_id in self._resets.waiting if self._resets is not None else ():
            self._queue.add(zone_id)

    async def _reset_due(self, zone_id: ZoneId) -> None:
        if await self._reset_lost(zone_id) is not None:
            # Its round looks again, and reports what goes wrong then.
            self._queue.add(zone_id)

    async def _ask_due(self, zone_id: ZoneId) -> None:
        await self._once_open(lambda: self._joiners.look(zone_id))

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
            self._background.defect("a zone's data nodes", error, zone=zone_id)
        self._queue.add(zone_id)

    async def _publish_state(self) -> None:
        key, lease = self._keyspace.engine_status, lambda: self._leadership.lease
        await LeasedReport(self._metastore, key, lease, self._state).run(ENGINE_POLL_S)

    def _state(self) -> bytes:
        """Spark's state, and what has waited for long, for every server's /readyz. Differs only when something
        has happened: it is written then."""
        status = self._engine.status()
        waiting = self._longest_wait()
        return EngineRecord(status.state.value, status.message, status.driver_pid, waiting).encode()

    def _longest_wait(self) -> WaitingZone | None:
        """The zone that has wanted a round for longest, and since when; None: none has for ``LATE_S``."""
        longest, elapsed_s = self._queue.longest_wait(), asyncio.get_running_loop().time()
        if longest is None or elapsed_s - longest[1] < LATE_S:
            self._late = None
            return None
        if self._late is None or self._late[0] != longest:
            # Its wall-clock time is taken once: the two clocks do not run alike.
            self._late = longest, self._clock.now_ms() - round(1_000 * (elapsed_s - longest[1]))
        return WaitingZone(longest[0], self._late[1])
