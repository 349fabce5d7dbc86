"""HIGH_AVAILABILITY zones reset partitions by themselves, some time after these lost their majority (IEP-051).

When that is the ``loss_clock`` says: so long after this controller has begun to see a majority absent that
every node among it must have stopped serving, by the fence that it published. Neither a wall clock nor what
another controller has seen counts. Other zones are never looked at.

Copies that are silent then are waited for, a short time and once: the best of those that answered goes on, and
the silent nodes are named (R6). Members are asked before anything is reset: one may serve, cut off from the
metastore alone (R1). After their fences none can: if one does all the same, the time begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import structlog

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ConsistencyMode, Origin, ZoneId, ZoneIntent
from rebalance.controllers.clock import Clocks, DueTimes
from rebalance.controllers.planned_resets import not_needed
from rebalance.controllers.recovery import PartitionRecovery
from rebalance.controllers.topology import KnownTopology
from rebalance.controllers.zone_reading import ZoneReading, in_slices, why_not_idle
from rebalance.core.admission.limit_options import RESET_S
from rebalance.core.admission.move_admission import Limits
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, read, readable
from rebalance.core.keyspace.txn import Compare, as_read, unchanged
from rebalance.core.recovery.loss_clock import AbsentNode, Loss, LossClock, ResetRule, judge
from rebalance.core.recovery.recovery_plan import ResetPlan, candidates_of, plan_reset, silent_of
from rebalance.core.topology.fencing import FenceRecord
from rebalance.core.topology.node_presence import HoldRule
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.groups import ServingProbe
from rebalance.ports.metastore import Metastore

log = structlog.get_logger(__name__)

AGAIN_MS = 1_000
"""Milliseconds until a zone is looked at again whose survivors did not tell yet how far they go."""
EVER_MS = 1 << 62
SILENT_MS = 5_000
"""Milliseconds for which silent copies are waited for."""


@dataclass(frozen=True, slots=True)
class _Basis:
    """Basis of one look. ``heard_since_ms``: the metastore has answered without a break since then."""

    absent: Mapping[str, AbsentNode]
    rule: ResetRule
    limits_guard: Compare
    heard_since_ms: int


@dataclass(frozen=True, slots=True)
class _Due:
    plan: ResetPlan
    loss: Loss


@dataclass(eq=False)
class AutomaticReset:
    """``look`` at a zone whenever it may have changed; it says itself when it wants to be looked at again.

    ``steady`` is a clock that nobody sets; ``due`` are its times. ``heard_since_ms`` answers since when the
    metastore has answered (``Contact``), ``hold`` is what topology waits by. One loss resets once: the trigger
    of the partition advances, and a pending set that is forced to a living node is left to do its work.
    """

    metastore: Metastore
    keyspace: Keyspace
    topology: Callable[[], KnownTopology]
    clocks: Clocks
    hold: HoldRule
    heard_since_ms: Callable[[], int | None]
    probe: ServingProbe

    def __post_init__(self) -> None:
        self._recovery = PartitionRecovery(self.metastore, self.keyspace, self.probe, self.clocks.wall)
        self.due = DueTimes(self.clocks.steady)
        self._unreadable = UnreadableLog()
        self._losses = LossClock()
        self._silent_since: dict[PartitionId, int] = {}
        self._causes: dict[PartitionId, str] = {}

    def begin(self) -> None:
        """Called on taking the lead: what was seen before does not count."""
        self._losses = LossClock()
        self._silent_since.clear()
        self._causes.clear()
        self.due.clear()

    @property
    def waiting(self) -> tuple[ZoneId, ...]:
        """Zones that are looked at again at some time."""
        return self.due.due(EVER_MS)

    def notice(self, changed: Collection[str]) -> None:
        """Keys of nodes have come, changed or gone."""
        names = (key.removeprefix(self.keyspace.nodes) for key in changed)
        self._losses = self._losses.noticed(self.clocks.steady.now_ms(), names)

    async def look(self, zone_id: ZoneId) -> int:
        """Resets what is due; returns how many partitions. Raises MetastoreError. Nothing is reset on a record
        that cannot be read, of the zone, the topology or the limits: it is looked at again until it can be. A
        node whose fence cannot be read is never taken for silent."""
        try:
            if (unreadable := self.topology().unreadable) is not None:
                raise unreadable.error
            count = await self._look(zone_id)
        except RecordNotReadableError as error:
            self._unreadable.waits(zone_id, error)
            self._again(zone_id)
            return 0
        self._unreadable.goes_on(zone_id)
        return count

    def _again(self, zone_id: ZoneId) -> None:
        self.due.set(zone_id, self.clocks.steady.now_ms() + AGAIN_MS)

    async def _look(self, zone_id: ZoneId) -> int:
        # Most looks end here: nothing can have been lost, or it is not the zone's way to help itself.
        nodes = self.topology().topology.nodes
        if all(node.is_seen for node in nodes) or not await self._helps_itself(zone_id):
            self.due.set(zone_id, None)
            return 0
        try:
            reading = await self._recovery.read(zone_id)
        except RecordNotReadableError:
            raise
        except RefusedError as refused:
            log.info("zone not looked at", zone=zone_id, reason=refused.message)
            self._again(zone_id)
            return 0
        intent = reading.intent
        if intent is None or await why_not_idle(reading, range(intent.zone.partitions)):
            # It is looked at again when its controller has brought it so far.
            self.due.set(zone_id, None)
            return 0
        basis = await self._basis(reading)
        if basis is None:
            # Whatever is seen while the metastore is silent, or while nodes come, does not count.
            self._again(zone_id)
            return 0
        plans: dict[PartitionId, _Due] = {}
        times: list[int] = []
        async for numbers in in_slices(range(intent.zone.partitions)):
            for number in numbers:
                partition = PartitionId(zone_id, number)
                planned = self._planned(reading, basis, partition)
                if isinstance(planned, _Due):
                    plans[partition] = planned
                elif planned is not None:
                    times.append(planned)
        reset = await self._carry_out(reading, basis, plans, times)
        self.due.set(zone_id, min(times, default=None))
        await self._recovery.note(reading, [key.partition for key in reset], Origin(reason=self._why(reset)))
        return len(reset)

    async def _basis(self, reading: ZoneReading) -> _Basis | None:
        """Take the basis of a look; None: the metastore is silent, or a node has come since ``reading``. Raises
        MetastoreError and RecordNotReadableError."""
        limits = await self.metastore.get(self.keyspace.limits)
        reset_s = (readable(limits, Limits.decode) or Limits()).ha_reset_s or RESET_S
        fences = {
            item.key.removeprefix(self.keyspace.fences): item
            for item in (await self.metastore.range(self.keyspace.fences)).items
        }
        # After the fences: an identity that is newer than the look would let the time begin before the node
        # was lost.
        nodes = await self.metastore.range(self.keyspace.nodes)
        if any(item.key.removeprefix(self.keyspace.nodes) not in reading.alive for item in nodes.items):
            return None
        absent = {}
        for presence in self.topology().topology.nodes:
            name = presence.node.name
            if not presence.is_seen and name not in reading.alive:
                item = fences.get(name)
                absent[name] = AbsentNode(
                    presence.incarnation,
                    read(item, FenceRecord.decode),
                    item.mod_revision if item is not None else 0,
                    presence.has_left,
                )
        self._losses = self._losses.looked(self.clocks.steady.now_ms(), absent, reading.alive)
        heard_since_ms = self.heard_since_ms()
        if heard_since_ms is None:
            return None
        guard = as_read(self.keyspace.limits, limits)
        return _Basis(absent, ResetRule(reset_s, self.hold.grace_ms), guard, heard_since_ms)

    async def _carry_out(
        self, reading: ZoneReading, basis: _Basis, plans: Mapping[PartitionId, _Due], times: list[int]
    ) -> dict[PartitionId, _Due]:
        """Carry plans out, and return those that are written. ``times`` grows by when the others are looked at
        again."""
        serving = await self._recovery.serving(reading, plans)
        done = {}
        for partition, due in plans.items():
            if partition in serving.nodes:
                self._serves(partition, due, not_needed(serving.nodes[partition]))
            elif partition not in serving.unasked and await self._force(reading, basis, partition, due):
                self._silent_since.pop(partition, None)
                done[partition] = due
                continue
            times.append(self.clocks.steady.now_ms() + AGAIN_MS)
        return done

    def _serves(self, partition: PartitionId, due: _Due, refusal: RefusedError) -> None:
        """Hold a reset back while these nodes may not be taken for silent, whatever they have published."""
        log.error(
            "partition not reset: it serves after the fences of its lost nodes",
            partition=str(partition),
            reason=refusal.message,
            nodes=due.loss.silent,
        )
        self._losses = self._losses.noticed(self.clocks.steady.now_ms(), due.loss.silent)

    async def _force(self, reading: ZoneReading, basis: _Basis, partition: PartitionId, due: _Due) -> bool:
        """Force pending, only while all of it still holds: the metastore has answered ever since, limits and
        fences are those that were read."""
        if self.heard_since_ms() != basis.heard_since_ms:
            return False
        fences = (
            unchanged(self.keyspace.fence(name), basis.absent[name].fence_revision) for name in due.loss.silent
        )
        return await self._recovery.force(reading, partition, due.plan, (basis.limits_guard, *fences))

    def _why(self, reset: Mapping[PartitionId, _Due]) -> str:
        """The reason of the operation: since when nobody had a majority, and who was silent."""
        now_ms = self.clocks.steady.now_ms()
        since_ms = (due.loss.since_ms for due in reset.values())
        lost_ms = min((at_ms for at_ms in since_ms if at_ms is not None), default=now_ms)
        silent = sorted({node for due in reset.values() for node in due.plan.silent})
        why = f"no majority for {(now_ms - lost_ms) // 1_000} s"
        return f"{why}; silent: {', '.join(silent)}" if silent else why

    async def _helps_itself(self, zone_id: ZoneId) -> bool:
        item = await self.metastore.get(self.keyspace.intent(zone_id))
        intent = readable(item, ZoneIntent.decode)
        mode = intent.zone.consistency_mode if intent is not None and not intent.dropped else None
        return mode is ConsistencyMode.HIGH_AVAILABILITY

    def _planned(self, reading: ZoneReading, basis: _Basis, partition: PartitionId) -> _Due | int | None:
        """The reset of what is due, else when to look again; None: when the topology changes."""
        now_ms = self.clocks.steady.now_ms()
        try:
            view = reading.view(partition)
        except RecordNotReadableError as error:
            self._unreadable.waits(partition, error)
            return now_ms + AGAIN_MS
        self._unreadable.goes_on(partition)
        loss = judge(view, reading.alive, basis.absent, self._losses, basis.heard_since_ms, basis.rule)
        self._tell(partition, loss)
        if loss is None or not loss.is_due(now_ms):
            self._silent_since.pop(partition, None)
            return loss.due_ms if loss is not None else None
        if view.pending is not None and view.pending.forced and view.pending.nodes <= reading.alive:
            return None
        has_waited = self._has_waited(partition, silent_of(candidates_of(view, reading.alive)), now_ms)
        try:
            plan = plan_reset(view, reading.alive, (), automatic=True, has_waited=has_waited)
        except RefusedError as refused:
            log.info("partition not reset", partition=str(partition), reason=refused.message)
            # Only who did not tell yet is waited for; anything else changes with the topology.
            is_silent = partition in self._silent_since
            return now_ms + AGAIN_MS if is_silent or refused.kind is ErrorKind.RECOVERY_STATE_ILLEGAL else None
        return _Due(plan, loss)

    def _tell(self, partition: PartitionId, loss: Loss | None) -> None:
        """Log why a partition is never reset automatically, once for each cause."""
        cause = loss.cause if loss is not None else ""
        if cause and self._causes.get(partition) != cause:
            log.warning("partition not reset", partition=str(partition), reason=cause)
        if cause:
            self._causes[partition] = cause
        else:
            self._causes.pop(partition, None)

    def _has_waited(self, partition: PartitionId, silent: Collection[str], now_ms: int) -> bool:
        """Check that silent copies of the partition were waited for by now."""
        if not silent:
            self._silent_since.pop(partition, None)
            return False
        return now_ms >= self._silent_since.setdefault(partition, now_ms) + SILENT_MS
