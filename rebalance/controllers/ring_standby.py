"""The ring of the store servers while no controller leads: every server keeps it, so that a member that died is
failed and others take over, and one that is back joins.

As of a controller, each write is guarded by all that it was decided on, and nobody is failed before this
process has seen no heartbeat for a TTL of its own clock: of two that write the same, one is refused. Zones and
moves wait for a controller.
"""

from __future__ import annotations

import asyncio

import structlog

from rebalance.controllers.clock import Clock
from rebalance.controllers.ring_events import RingEvents
from rebalance.controllers.ring_mirror import RingReader
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError, readable
from rebalance.core.keyspace.txn import as_read
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import HistoryGoneError, MetastoreError, MetastoreHistory
from rebalance.store.core.ring_keeper import JoinServer, RingKeeper
from rebalance.store.core.store_limits import StoreLimits

log = structlog.get_logger(__name__)

LOOK_S = 0.25
RETRY_S = 1.0
SEEN_S = 5.0
"""Limit of the wait for one's own write in the mirror."""


class RingStandby:
    """``mirror``: of the whole keyspace, kept by the caller, over which ``ring`` reads. ``steady`` is a clock
    that nobody sets."""

    def __init__(
        self,
        metastore: MetastoreHistory,
        keyspace: Keyspace,
        mirror: KeyspaceMirror,
        ring: RingReader,
        steady: Clock,
        ttl_ms: int = StoreLimits().ttl_ms,
    ) -> None:
        self._metastore = metastore
        self._keyspace = keyspace
        self._mirror = mirror
        self._ring = ring
        self._steady = steady
        self._ttl_ms = ttl_ms
        self._events = RingEvents(metastore, keyspace, ring)

    async def run(self) -> None:
        """Run until cancelled. Clocks begin anew each time that nobody leads any more."""
        await self._mirror.loaded()
        while True:
            keeper = RingKeeper(self._ttl_ms)
            while self._mirror.get(self._keyspace.controller_leader) is None:
                await asyncio.sleep(await self._look(keeper))
            await asyncio.sleep(LOOK_S)

    async def _look(self, keeper: RingKeeper) -> float:
        """Does what is due; the time until the next look."""
        try:
            action = keeper.look(self._steady.now_ms(), self._ring.view) if self._ring.is_used else None
            epoch = self._mirror.get(self._keyspace.epoch)
            if action is None or (readable(epoch, EpochRecord.decode) or EpochRecord()).halted:
                return LOOK_S
            if isinstance(action, JoinServer) and await self._are_targets_gone():
                return RETRY_S
            revision = await self._events.act(action, as_read(self._keyspace.epoch, epoch))
            if revision:
                log.warning("the ring is kept without a controller", action=repr(action))
                await self._mirror.wait_until(lambda: self._mirror.revision >= revision, SEEN_S)
        except (MetastoreError, RecordNotReadableError) as error:
            log.info("the ring is not kept", error=str(error))
            return RETRY_S
        return LOOK_S

    async def _are_targets_gone(self) -> bool:
        """Check that lists that a server reads when it joins are compacted by now: a controller sets them
        anew."""
        for zone_id, spec in self._ring.state.cluster.zones.items():
            try:
                await self._metastore.range_at(self._keyspace.intent(zone_id), spec.targets)
            except HistoryGoneError:
                return True
        return False
