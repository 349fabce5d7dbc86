"""HIGH_AVAILABILITY zones reset partitions by themselves, some time after these lost their majority (IEP-051).

When that is follows from the topology's record, so a controller that takes over, or is started with another
delay, goes on with the same time. Other zones are never looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ConsistencyMode, Origin, ZoneId, ZoneIntent
from rebalance.controllers.clock import Clock
from rebalance.controllers.due_times import DueTimes
from rebalance.controllers.recovery import PartitionRecovery, ZoneReading
from rebalance.controllers.topology import KnownTopology
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.readable import RecordNotReadableError, readable
from rebalance.core.recovery import majority_lost_ms, plan_reset, voters_of
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.metastore import Metastore

log = structlog.get_logger(__name__)

PARTITIONS_PER_SLICE = 500
AGAIN_MS = 1_000
"""Until a zone is looked at again whose survivors did not tell yet how far they go."""


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
    ) -> None:
        self._metastore = metastore
        self._keyspace = keyspace
        self._recovery = PartitionRecovery(metastore, keyspace, clock)
        self._topology = topology
        self._clock = clock
        self._delay_ms = delay_ms
        self.due = DueTimes(clock)
        self._unreadable = UnreadableLog()

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
        if intent is None or reading.why_not_idle(range(intent.zone.partitions)):
            # It is looked at again when its controller has brought it so far.
            self.due.set(zone_id, None)
            return 0
        reset: list[int] = []
        next_ms: int | None = None
        for number in range(intent.zone.partitions):
            if number % PARTITIONS_PER_SLICE == 0:
                # Lets others have the loop: a zone may have many.
                await asyncio.sleep(0)
            was_reset, again_ms = await self._look_at(reading, PartitionId(zone_id, number))
            if was_reset:
                reset.append(number)
            next_ms = again_ms if next_ms is None else min(next_ms, again_ms or next_ms)
        self.due.set(zone_id, next_ms)
        why = f"no majority for {self._delay_ms / 1_000:g} s"
        await self._recovery.note(reading, reset, Origin(reason=why))
        return len(reset)

    async def _helps_itself(self, zone_id: ZoneId) -> bool:
        found = await self._metastore.get(self._keyspace.intent(zone_id))
        intent = readable(found, ZoneIntent.decode)
        mode = intent.zone.consistency_mode if intent is not None and not intent.dropped else None
        return mode is ConsistencyMode.HIGH_AVAILABILITY

    async def _look_at(self, reading: ZoneReading, partition: PartitionId) -> tuple[bool, int | None]:
        """Whether it was reset, and when to look again."""
        now_ms = self._clock.now_ms()
        try:
            view = reading.view(partition)
        except RecordNotReadableError as error:
            self._unreadable.waits(partition, error)
            return False, now_ms + AGAIN_MS
        self._unreadable.goes_on(partition)
        lost_ms = majority_lost_ms(voters_of(view), self._topology().topology)
        if lost_ms is None:
            return False, None
        if now_ms < lost_ms + self._delay_ms:
            return False, lost_ms + self._delay_ms
        if view.pending is not None and view.pending.forced and view.pending.nodes <= reading.alive:
            return False, None
        try:
            plan = plan_reset(view, reading.alive, (), automatic=True)
        except RefusedError as refused:
            log.info("partition not reset", partition=str(partition), reason=refused.message)
            # Only who did not tell yet is waited for; anything else changes with the topology.
            waits = refused.kind is ErrorKind.RECOVERY_STATE_ILLEGAL
            return False, now_ms + AGAIN_MS if waits else None
        if await self._recovery.force(reading, partition, plan):
            return True, None
        return False, now_ms + AGAIN_MS
