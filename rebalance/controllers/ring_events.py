"""Events of the ring as the leading controller appends them: one guarded sequence, and its snapshot."""

from __future__ import annotations

import structlog

from rebalance.controllers.ring_mirror import RingMirror
from rebalance.core.keys import Keyspace
from rebalance.core.topology_version import DiscoveryEvent, Trigger
from rebalance.core.txn import (
    Compare,
    CompareOp,
    CompareTarget,
    Delete,
    DeleteRange,
    Operation,
    Put,
    Txn,
    absent,
    unchanged,
)
from rebalance.ports.metastore import Metastore
from rebalance.store.core.ring_codec import encode_event, encode_ring
from rebalance.store.core.ring_keeper import (
    EvictServer,
    FailServer,
    JoinServer,
    RetireHeartbeat,
    RingAction,
)
from rebalance.store.core.ring_records import RingRecord
from rebalance.store.core.ring_zones import AppendZones

log = structlog.get_logger(__name__)

EVENTS_KEPT = 256
"""Events behind the snapshot that stay: a server that lags by more has to begin anew."""
SUSPICIONS_MAX = 100
"""Keys of suspicions that one transaction deletes."""


class RingEvents:
    """Every write is one transaction, which compares the ring's end as ``mirror`` has seen it."""

    def __init__(
        self, metastore: Metastore, keyspace: Keyspace, mirror: RingMirror, events_kept: int = EVENTS_KEPT
    ) -> None:
        self._metastore = metastore
        self._keyspace = keyspace
        self._mirror = mirror
        self._events_kept = events_kept

    async def act(self, action: RingAction | AppendZones, fence: Compare) -> int:
        """The revision of the write; 0: a guard did not hold. ``fence``: of all that controllers write. Raises
        MetastoreError."""
        keys = self._keyspace
        if not isinstance(action, RetireHeartbeat) and action.after != self._mirror.state.number:
            # Another controller's event came after the decision, which is taken anew.
            return 0
        match action:
            case JoinServer(_, name, incarnation):
                key = keys.store_server(name, incarnation)
                beats = Compare(key, CompareTarget.CREATE_REVISION, CompareOp.GREATER, 0)
                order = self._mirror.state.number + 1
                event = self._event(Trigger.NODE_JOINED, name, order)
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
                guards = (absent(key), fence, *self._mirror.next_event_guards())
                evicted = await self._commit(Txn(guards, (Put(key, b""),)))
                if evicted:
                    log.warning("store server evicted", server=name)
                return evicted
            case RetireHeartbeat(name, incarnation, revision):
                key = keys.store_server(name, incarnation)
                return await self._commit(Txn((unchanged(key, revision), fence), (Delete(key),)))
            case AppendZones(_, trigger, zones):
                version = self._mirror.state.cluster.version_after(trigger)
                return await self._append(DiscoveryEvent(version, trigger, zones=zones), "", (fence,))

    async def trim(self, fence: Compare) -> int:
        """Write the ring's state in place of events that are old. Returns the revision, 0 where nothing was
        due or a guard did not hold."""
        keys, state = self._keyspace, self._mirror.state
        if state.number - self._mirror.snapshot_number < self._events_kept:
            return 0
        last = state.number - self._events_kept
        events = DeleteRange(keys.exchange_event(0), keys.exchange_event(last + 1))
        guards = (fence, *self._mirror.next_event_guards())
        return await self._commit(Txn(guards, (Put(keys.exchange_ring, encode_ring(state)), events)))

    def _event(self, trigger: Trigger, name: str, order: int = 0) -> DiscoveryEvent:
        return DiscoveryEvent(self._mirror.state.cluster.version_after(trigger), trigger, name, order)

    def _without_suspicions(self, name: str) -> tuple[Delete, ...]:
        return tuple(Delete(key) for key in self._mirror.suspicions(name)[:SUSPICIONS_MAX])

    async def _append(
        self,
        event: DiscoveryEvent,
        incarnation: str,
        guards: tuple[Compare, ...],
        besides: tuple[Operation, ...] = (),
    ) -> int:
        number = self._mirror.state.number + 1
        put = Put(self._keyspace.exchange_event(number), encode_event(RingRecord(number, event, incarnation)))
        guards = (*guards, *self._mirror.next_event_guards())
        revision = await self._commit(Txn(guards, (put, *besides)))
        if revision:
            zones = [spec.zone_id for spec in event.zones]
            named = {"version": str(event.version), "server": event.node, "zones": zones}
            log.info("event of the ring", number=number, trigger=event.trigger.value, **named)
        return revision

    async def _commit(self, txn: Txn) -> int:
        result = await self._metastore.commit(txn)
        return result.revision if result.succeeded else 0
