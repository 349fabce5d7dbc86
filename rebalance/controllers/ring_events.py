"""Events of the ring of store servers: one guarded sequence, its snapshot, and who appends while no
controller leads.

The leading controller appends them (``RingEvents``). While none leads every server keeps the ring
(``RingStandby``), so that a server that died is failed and others take over, and one that is back joins;
zones and moves wait for a controller. Each write is guarded by all that it was decided on, and no server is
failed before this process has seen no heartbeat for a TTL of its own clock: of two that write the same, one
is refused.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import structlog

from catalog.core.zone import ZoneId
from rebalance.controllers.clock import Clock
from rebalance.controllers.ring_mirror import RingReader
from rebalance.core.keyspace.epoch import EpochRecord, first_major
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError, readable
from rebalance.core.keyspace.txn import (
    Compare,
    Delete,
    DeleteRange,
    Operation,
    Put,
    Txn,
    absent,
    as_read,
    present,
    unchanged,
)
from rebalance.core.partition_maps.topology_version import DiscoveryEvent, TopologyVersion, Trigger
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import HistoryGoneError, Metastore, MetastoreError, MetastoreHistory
from rebalance.store.core.ring_keeper import (
    AppendZones,
    EvictServer,
    FailServer,
    JoinServer,
    RetireHeartbeat,
    RingAction,
    RingKeeper,
)
from rebalance.store.core.ring_records import (
    FoldHead,
    RingRecord,
    encode_chunk,
    encode_event,
    encode_fold,
    encode_ring,
    outcome_chunks,
)
from rebalance.store.core.store_limits import StoreLimits

log = structlog.get_logger(__name__)

SUSPICIONS_MAX = 100
"""Keys of suspicions that one transaction deletes."""


@dataclass(frozen=True, slots=True)
class RingRules:
    """``ttl_ms``: after so long without a heartbeat a server is failed."""

    ttl_ms: int = StoreLimits().ttl_ms
    events_kept: int = 256
    """Events behind the snapshot that stay: a server that lags by more has to begin anew."""
    results_kept: int = 64
    """Results that stay when older ones are folded, at twice as many: a coordinator that lags by more begins
    anew."""


DEFAULT_RULES = RingRules()


@dataclass(eq=False)
class RingEvents:
    """Every write is one transaction, which compares the ring's end as ``mirror`` has seen it."""

    metastore: Metastore
    keyspace: Keyspace
    mirror: RingReader
    rules: RingRules = DEFAULT_RULES

    async def act(self, action: RingAction | AppendZones, fence: Compare) -> int:
        """The revision of the write; 0: a guard did not hold. ``fence``: of all that controllers write. Raises
        MetastoreError."""
        keys = self.keyspace
        epoch = await self._epoch() if isinstance(action, JoinServer) else 0
        # After the last wait: an event of another controller may arrive in each.
        if not isinstance(action, RetireHeartbeat) and action.after != self.mirror.state.number:
            # Another controller's event came after the decision, which is taken anew.
            return 0
        match action:
            case JoinServer(_, name, incarnation):
                key = keys.store_server(name, incarnation)
                beats = present(key)
                order = self.mirror.state.number + 1
                # After an adoption: no version comes again that the lost life of the metastore had.
                lowest = TopologyVersion(first_major(epoch) + 1)
                event = self._event(Trigger.NODE_JOINED, name, order)
                event = replace(event, version=max(event.version, lowest))
                # Those of an earlier incarnation may have come late.
                besides = self._without_suspicions(name)
                return await self._append(event, incarnation, (beats, fence), besides)
            case FailServer(_, name, incarnation, revision):
                key = keys.store_server(name, incarnation)
                event = self._event(Trigger.NODE_FAILED, name)
                besides = (Delete(key), Delete(keys.eviction(name)), *self._without_suspicions(name))
                return await self._append(event, incarnation, (unchanged(key, revision), fence), besides)
            case EvictServer(_, name):
                key = keys.eviction(name)
                guards = (absent(key), fence, *self.mirror.next_event_guards())
                evicted = await self._commit(Txn(guards, (Put(key, b""),)))
                if evicted:
                    log.warning("store server evicted", server=name)
                return evicted
            case RetireHeartbeat(name, incarnation, revision):
                key = keys.store_server(name, incarnation)
                return await self._commit(Txn((unchanged(key, revision), fence), (Delete(key),)))
            case AppendZones(_, trigger, zones, dead):
                version = self.mirror.state.cluster.version_after(trigger)
                event = DiscoveryEvent(version, trigger, zones=zones, dead=dead)
                return await self._append(event, "", (fence,))

    async def compact(self, fence: Compare) -> int:
        """Events or results that are old, where there are enough of them. Returns the revision, 0 where nothing
        was due or a guard did not hold."""
        return await self._trim(fence) or await self._fold(fence)

    async def _trim(self, fence: Compare) -> int:
        """Write the ring's state in place of events that are old. Returns the revision, 0 where nothing was
        due or a guard did not hold."""
        keys, state = self.keyspace, self.mirror.state
        if state.number - self.mirror.snapshot_number < self.rules.events_kept:
            return 0
        last = state.number - self.rules.events_kept
        events = DeleteRange(keys.exchange_event(0), keys.exchange_event(last + 1))
        guards = (fence, *self.mirror.next_event_guards())
        # Of who went, a reader needs those that no result knows of; it has all results of now.
        kept = state.since(self.mirror.results.version)
        return await self._commit(Txn(guards, (Put(keys.exchange_ring, encode_ring(kept)), events)))

    async def _fold(self, fence: Compare) -> int:
        """Write what all results say, of zones that the ring has, in place of results that are old. Returns the
        revision, 0 where nothing was due or a guard did not hold. Chunks that it leaves without a head go with
        the next folding."""
        keys, names = self.keyspace, self.mirror.result_names
        if len(names) < 2 * self.rules.results_kept:
            return 0
        results, zones = self.mirror.results, self.mirror.state.cluster.zones
        guards = (fence, self.mirror.guard(keys.folded_results))
        # Whoever else folds at this revision writes the same.
        name = f"{self.mirror.revision:020d}"
        parts = keys.folded_result_parts(name)
        kept = {zone: dict(enumerate(each)) for zone, each in results.outcomes.items() if zone in zones}
        chunks = 0
        for chunks, rows in enumerate(outcome_chunks(kept), 1):
            if not await self._commit(Txn(guards, (Put(f"{parts}{chunks - 1:05d}", encode_chunk(rows)),))):
                return 0
        operations = (
            Put(keys.folded_results, encode_fold(FoldHead(results.version, name, chunks))),
            DeleteRange(keys.folded_result_parts(""), parts),
            DeleteRange(keys.exchange_results, names[-self.rules.results_kept]),
        )
        revision = await self._commit(Txn(guards, operations))
        if revision:
            log.info("results folded", version=str(results.version), chunks=chunks, results=len(names))
        return revision

    def _event(self, trigger: Trigger, name: str, order: int = 0) -> DiscoveryEvent:
        return DiscoveryEvent(self.mirror.state.cluster.version_after(trigger), trigger, name, order)

    async def _epoch(self) -> int:
        """Read the epoch as the fence of every write compares it. Raises RecordNotReadableError."""
        record = readable(await self.metastore.get(self.keyspace.epoch), EpochRecord.decode)
        return (record or EpochRecord()).epoch

    def _without_suspicions(self, name: str) -> tuple[Delete, ...]:
        return tuple(Delete(key) for key in self.mirror.suspicions(name)[:SUSPICIONS_MAX])

    async def _append(
        self,
        event: DiscoveryEvent,
        incarnation: str,
        guards: tuple[Compare, ...],
        besides: tuple[Operation, ...] = (),
    ) -> int:
        number = self.mirror.state.number + 1
        put = Put(self.keyspace.exchange_event(number), encode_event(RingRecord(number, event, incarnation)))
        guards = (*guards, *self.mirror.next_event_guards())
        revision = await self._commit(Txn(guards, (put, *besides)))
        if revision:
            zones = [spec.zone_id for spec in event.zones]
            named = {"version": str(event.version), "server": event.node, "zones": zones}
            log.info("event of the ring", number=number, trigger=event.trigger.value, **named)
        return revision

    async def _commit(self, txn: Txn) -> int:
        result = await self.metastore.commit(txn)
        return result.revision if result.succeeded else 0


async def compacted_targets(
    metastore: MetastoreHistory, keyspace: Keyspace, ring: RingReader
) -> list[tuple[ZoneId, int]]:
    """Zones whose lists, which a server reads when it joins, are compacted by now, with the revision of the
    lists. Raises MetastoreError."""
    gone = []
    for zone_id, spec in ring.state.cluster.zones.items():
        try:
            await metastore.range_at(keyspace.intent(zone_id), spec.targets)
        except HistoryGoneError:
            gone.append((zone_id, spec.targets))
    return gone


LOOK_S = 0.25
RETRY_S = 1.0
SEEN_S = 5.0
"""Limit of the wait for one's own write in the mirror."""


@dataclass(eq=False)
class RingStandby:
    """``mirror``: of the whole keyspace, kept by the caller, over which ``ring`` reads. ``steady`` is a clock
    that nobody sets."""

    metastore: MetastoreHistory
    keyspace: Keyspace
    mirror: KeyspaceMirror
    ring: RingReader
    steady: Clock
    ttl_ms: int = StoreLimits().ttl_ms

    def __post_init__(self) -> None:
        self._events = RingEvents(self.metastore, self.keyspace, self.ring)

    async def run(self) -> None:
        """Run until cancelled. Clocks begin anew each time that nobody leads any more."""
        await self.mirror.loaded()
        while True:
            keeper = RingKeeper(self.ttl_ms)
            while self.mirror.get(self.keyspace.controller_leader) is None:
                await asyncio.sleep(await self._look(keeper))
            await asyncio.sleep(LOOK_S)

    async def _look(self, keeper: RingKeeper) -> float:
        """Does what is due; the time until the next look."""
        try:
            action = keeper.look(self.steady.now_ms(), self.ring.view) if self.ring.is_used else None
            epoch = self.mirror.get(self.keyspace.epoch)
            if action is None or (readable(epoch, EpochRecord.decode) or EpochRecord()).halted:
                return LOOK_S
            joins = isinstance(action, JoinServer)
            if joins and await compacted_targets(self.metastore, self.keyspace, self.ring):
                # A controller sets the lists anew that a server reads when it joins.
                return RETRY_S
            revision = await self._events.act(action, as_read(self.keyspace.epoch, epoch))
            if revision:
                log.warning("the ring is kept without a controller", action=repr(action))
                await self.mirror.wait_until(lambda: self.mirror.revision >= revision, SEEN_S)
        except (MetastoreError, RecordNotReadableError) as error:
            log.info("the ring is not kept", error=str(error))
            return RETRY_S
        return LOOK_S
