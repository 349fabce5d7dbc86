"""HIGH_AVAILABILITY zones reset partitions by themselves, some time after these lost their majority (IEP-051).

When that is follows from the topology's record, so a controller that takes over, or is started with another
delay, goes on with the same time. Other zones are never looked at.

Copies that are silent then are waited for, a short time and once: the best of those that answered goes on, and
whoever was silent is named (R6). Members are asked before anything is reset: one may serve, cut off from the
metastore alone (R1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import structlog

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ConsistencyMode, Origin, ZoneId, ZoneIntent
from rebalance.controllers.clock import Clock
from rebalance.controllers.due_times import DueTimes
from rebalance.controllers.planned_resets import not_needed
from rebalance.controllers.recovery import PartitionRecovery
from rebalance.controllers.slices import in_slices
from rebalance.controllers.topology import KnownTopology
from rebalance.controllers.zone_reading import ZoneReading, why_not_idle
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.readable import RecordNotReadableError, readable
from rebalance.core.recovery import ResetPlan, majority_lost_ms, plan_reset, silent_of
from rebalance.core.recovery_candidates import candidates_of, possible_voters
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.groups import ServingProbe
from rebalance.ports.metastore import Metastore

log = structlog.get_logger(__name__)

AGAIN_MS = 1_000
"""Until a zone is looked at again whose survivors did not tell yet how far they go."""
SILENT_MS = 5_000
"""For so long silent copies are waited for."""
SERVING_MS = 5_000
"""Until members are asked again of a group that serves though its nodes seem to be gone."""


class AutomaticReset:
    """``look`` at a zone whenever it may have changed; it says itself when it wants to be looked at again.

    ``delay_ms`` after the loss of the majority a partition is reset. One loss resets once: the trigger of the
    partition advances, and a pending set that is forced to a living node is left to do its work.
    """

    def __init__(
        self,
        metastore: Metastore,
        keyspace: Keyspace,
        topology: Callable[[], KnownTopology],
        clock: Clock,
        delay_ms: int,
        probe: ServingProbe,
    ) -> None:
        self._metastore = metastore
        self._keyspace = keyspace
        self._recovery = PartitionRecovery(metastore, keyspace, probe, clock)
        self._topology = topology
        self._clock = clock
        self._delay_ms = delay_ms
        self.due = DueTimes(clock)
        self._unreadable = UnreadableLog()
        self._silent_since: dict[PartitionId, int] = {}

    async def look(self, zone_id: ZoneId) -> int:
        """Resets what is due; returns how many partitions. Raises MetastoreError. Nothing is reset on a record
        that cannot be read, of the zone or of the topology: it is looked at again until it can be."""
        try:
            if (unreadable := self._topology().unreadable) is not None:
                raise unreadable.error
            count = await self._look(zone_id)
        except RecordNotReadableError as error:
            self._unreadable.waits(zone_id, error)
            self.due.set(zone_id, self._clock.now_ms() + AGAIN_MS)
            return 0
        self._unreadable.goes_on(zone_id)
        return count

    async def _look(self, zone_id: ZoneId) -> int:
        # Most looks end here: nothing can have been lost, or it is not the zone's way to help itself.
        if not any(each.has_left for each in self._topology().topology.nodes) or not await self._helps_itself(
            zone_id
        ):
            self.due.set(zone_id, None)
            return 0
        try:
            reading = await self._recovery.read(zone_id)
        except RecordNotReadableError:
            raise
        except RefusedError as refused:
            log.info("zone not looked at", zone=zone_id, reason=refused.message)
            self.due.set(zone_id, self._clock.now_ms() + AGAIN_MS)
            return 0
        intent = reading.intent
        if intent is None or await why_not_idle(reading, range(intent.zone.partitions)):
            # It is looked at again when its controller has brought it so far.
            self.due.set(zone_id, None)
            return 0
        plans: dict[PartitionId, ResetPlan] = {}
        times: list[int] = []
        async for numbers in in_slices(range(intent.zone.partitions)):
            for number in numbers:
                partition = PartitionId(zone_id, number)
                planned = self._planned(reading, partition)
                if isinstance(planned, ResetPlan):
                    plans[partition] = planned
                elif planned is not None:
                    times.append(planned)
        reset = await self._carry_out(reading, plans, times)
        self.due.set(zone_id, min(times, default=None))
        await self._recovery.note(reading, [each.partition for each in reset], Origin(reason=self._why(reset)))
        return len(reset)

    async def _carry_out(
        self, reading: ZoneReading, plans: Mapping[PartitionId, ResetPlan], times: list[int]
    ) -> dict[PartitionId, ResetPlan]:
        """Those that are written. ``times`` grows by when the others are looked at again."""
        serving = await self._recovery.serving(reading, plans)
        done = {}
        for partition, plan in plans.items():
            if partition in serving.unasked:
                times.append(self._clock.now_ms() + AGAIN_MS)
            elif partition in serving.nodes:
                refusal = not_needed(serving.nodes[partition])
                log.info("partition not reset", partition=str(partition), reason=refusal.message)
                times.append(self._clock.now_ms() + SERVING_MS)
            elif await self._recovery.force(reading, partition, plan):
                self._silent_since.pop(partition, None)
                done[partition] = plan
            else:
                times.append(self._clock.now_ms() + AGAIN_MS)
        return done

    def _why(self, reset: Mapping[PartitionId, ResetPlan]) -> str:
        """The reason of the operation; names who was silent."""
        silent = sorted({node for plan in reset.values() for node in plan.silent})
        why = f"no majority for {self._delay_ms / 1_000:g} s"
        return f"{why}; silent: {', '.join(silent)}" if silent else why

    async def _helps_itself(self, zone_id: ZoneId) -> bool:
        found = await self._metastore.get(self._keyspace.intent(zone_id))
        intent = readable(found, ZoneIntent.decode)
        mode = intent.zone.consistency_mode if intent is not None and not intent.dropped else None
        return mode is ConsistencyMode.HIGH_AVAILABILITY

    def _planned(self, reading: ZoneReading, partition: PartitionId) -> ResetPlan | int | None:
        """The reset of what is due, else when to look again; None: when the topology changes."""
        now_ms = self._clock.now_ms()
        try:
            view = reading.view(partition)
        except RecordNotReadableError as error:
            self._unreadable.waits(partition, error)
            return now_ms + AGAIN_MS
        self._unreadable.goes_on(partition)
        lost_ms = majority_lost_ms(possible_voters(view, reading.alive), self._topology().topology)
        if lost_ms is None:
            self._silent_since.pop(partition, None)
            return None
        if now_ms < lost_ms + self._delay_ms:
            return lost_ms + self._delay_ms
        if view.pending is not None and view.pending.forced and view.pending.nodes <= reading.alive:
            return None
        has_waited = self._has_waited(partition, silent_of(candidates_of(view, reading.alive)), now_ms)
        try:
            return plan_reset(view, reading.alive, (), automatic=True, has_waited=has_waited)
        except RefusedError as refused:
            log.info("partition not reset", partition=str(partition), reason=refused.message)
            # Only who did not tell yet is waited for; anything else changes with the topology.
            is_silent = partition in self._silent_since
            return now_ms + AGAIN_MS if is_silent or refused.kind is ErrorKind.RECOVERY_STATE_ILLEGAL else None

    def _has_waited(self, partition: PartitionId, silent: Collection[str], now_ms: int) -> bool:
        """Whether silent copies of the partition were waited for by now."""
        if not silent:
            self._silent_since.pop(partition, None)
            return False
        return now_ms >= self._silent_since.setdefault(partition, now_ms) + SILENT_MS
