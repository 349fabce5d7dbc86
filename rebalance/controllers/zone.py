"""Zone reconciliation: from what the catalog wants to pending keys, one placement job for a whole batch.

Level-triggered: whatever woke it, it reads what is there and takes the next missing step. A zone whose step
fails is tried again later and holds up no other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import structlog
from structlog.contextvars import bound_contextvars

from catalog.core.zone import Origin, ZoneId, ZoneIntent
from rebalance.controllers.admission import MoveAdmission
from rebalance.controllers.clock import WallClock
from rebalance.controllers.event import Event, restored
from rebalance.controllers.operation_log import OperationLog
from rebalance.controllers.partitions import PartitionWriter
from rebalance.controllers.targets import NamedTarget, TargetStore, matrix_of
from rebalance.controllers.topology import DataNodesKeeper, NotYetError
from rebalance.core.assignments.assignment import Strategy
from rebalance.core.assignments.target import TargetPointer, surplus_of_others
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError, readable
from rebalance.core.keyspace.txn import Delete, KeyValue, Operation, Txn, as_read, delete_below, unchanged
from rebalance.metastore.guarded_update import read_together
from rebalance.ports.metastore import Metastore, MetastoreError
from rebalance.ports.metric_rows import NO_MEASURES, Measures
from rebalance.ports.placement import PlacementEngine, PlacementRequest, PlacementResult, PreviousPlacement

log = structlog.get_logger(__name__)


Overtaken = Callable[[ZoneId, Collection[int]], Awaitable[None]]


async def _nobody(_zone_id: ZoneId, _numbers: Collection[int]) -> None:
    pass


@dataclass(eq=False)
class ZoneController:
    """``strategy`` is that of the moves that begin in zones that have none of their own. ``admission`` begins
    them while limits hold; by default there are none. ``overtaken`` is told, once under each leader and target,
    to which partitions something later than their target was written."""

    metastore: Metastore
    keyspace: Keyspace
    engine: PlacementEngine
    data_nodes: DataNodesKeeper
    strategy: Strategy = Strategy.QUEUE
    admission: MoveAdmission | None = None
    measures: Measures = NO_MEASURES
    overtaken: Overtaken = _nobody

    def __post_init__(self) -> None:
        self._targets = TargetStore(self.metastore, self.keyspace)
        self._partitions = PartitionWriter(self.metastore, self.keyspace, self.measures)
        self._admission = self.admission or MoveAdmission(self.metastore, self.keyspace, WallClock())
        self._log = OperationLog(self.metastore, self.keyspace, self._admission.clock)
        self._written: dict[ZoneId, int] = {}
        self._pointers: dict[ZoneId, TargetPointer] = {}

    def forget(self) -> None:
        """Called on taking the lead: what an earlier leader finished is not known here."""
        self._written.clear()
        self._admission.forget()

    def rewrite(self, zone_id: ZoneId) -> None:
        """The zone's partitions are written again when it is reconciled next."""
        self._written.pop(zone_id, None)

    async def reconcile(self, zone_ids: Sequence[ZoneId]) -> dict[ZoneId, Exception]:
        """Take the next steps of each zone; returns the zones that failed, with the reason."""
        failures: dict[ZoneId, Exception] = {}
        to_place: list[Event] = []
        placed: list[tuple[Event, NamedTarget]] = []
        for zone_id in zone_ids:
            try:
                with bound_contextvars(zone=zone_id):
                    event = await self._next_event(zone_id)
                if event is None:
                    continue
                if not event.is_placed:
                    to_place.append(event)
                elif event.pointer is not None and self._written.get(zone_id) != event.pointer.mod_revision:
                    target = await self._targets.read(zone_id, event.pointer)
                    named = NamedTarget(target, event.pointer.mod_revision, (event.fence,))
                    placed.append((event, named))
            except Exception as error:
                failures[zone_id] = error
        placed.extend(await self._place(to_place, failures))
        for event, named in placed:
            try:
                with bound_contextvars(zone=event.zone_id):
                    await self._write(event, named)
            except Exception as error:
                failures[event.zone_id] = error
        return failures

    async def _write(self, event: Event, named: NamedTarget) -> None:
        """Step 1 of each partition; where limits hold, moves that would begin wait in line."""
        zone_id, strategy = event.zone_id, event.intent.zone.strategy or self.strategy
        holding = self._admission.is_holding
        guarded = replace(named, fences=(*named.fences, self._admission.limits_guard))
        written = await self._partitions.write(zone_id, guarded, strategy, begins=not holding)
        self._admission.hold(zone_id, named, written.decisions, written.waiting)
        if written.overtaken:
            await self.overtaken(zone_id, written.overtaken)
        self._written[zone_id] = named.pointer_revision
        counts = {outcome.value: count for outcome, count in written.outcomes.items()}
        event_revision = named.target.pointer.event_revision
        log.info(
            "target written",
            zone=zone_id,
            event_revision=event_revision,
            **counts,
            waiting=len(written.waiting),
        )
        if written.unreadable:
            # The others of the zone have theirs. It comes up again until these have, too.
            self._written.pop(zone_id, None)
            raise next(iter(written.unreadable.values()))

    async def _next_event(self, zone_id: ZoneId) -> Event | None:
        """Intent, data nodes and pointer read together; data nodes are brought up to date first.

        None: nothing to place, for the zone is dropped or has no data node now; what is placed stays.
        """
        keys = self.keyspace
        names = keys.intent(zone_id), keys.data_nodes(zone_id), keys.target_pointer(zone_id), keys.epoch
        (intent_key, data_nodes_key, pointer, epoch_key), _ = await read_together(self.metastore, *names)
        epoch = readable(epoch_key, EpochRecord.decode) or EpochRecord()
        if epoch.halted:
            raise NotYetError(f"nothing is written: {epoch.halted}")
        if intent_key is None:
            return None
        intent = readable(intent_key, ZoneIntent.decode)
        if intent.dropped:
            self._pointers.pop(zone_id, None)
            self._admission.drop(zone_id)
            await self._clean_up(zone_id, intent_key, data_nodes_key)
            return None
        if pointer is not None:
            self._remember(zone_id, readable(pointer, TargetPointer.decode))
        data_nodes, revision = await self.data_nodes.bring_up_to_date(zone_id, intent_key, data_nodes_key)
        if not data_nodes.nodes:
            return None
        fence = as_read(keys.epoch, epoch_key)
        intent_at = intent_key.mod_revision
        taken_up = data_nodes_key is not None and data_nodes_key.mod_revision > intent_at
        return Event(zone_id, intent, intent_at, data_nodes, revision, pointer, epoch.epoch, fence, taken_up)

    async def _place(
        self, events: Sequence[Event], failures: dict[ZoneId, Exception]
    ) -> list[tuple[Event, NamedTarget]]:
        """One job for all events; when it fails, each alone, so that one zone cannot hold up the others."""
        if not events:
            return []
        again = [event for event in events if event.restores]
        if again:
            restored = [pair for event in again for pair in await self._restore(event, failures)]
            return restored + await self._place([event for event in events if not event.restores], failures)
        try:
            requests = await self._requests(events)
            results = list(zip(events, await self.engine.place(requests), strict=True))
        except Exception as error:
            if len(events) == 1:
                failures[events[0].zone_id] = error
                return []
            return [target for event in events for target in await self._place([event], failures)]
        placed: list[tuple[Event, NamedTarget]] = []
        for event, result in results:
            try:
                placed.append((event, await self._store(event, result)))
            except Exception as error:
                failures[event.zone_id] = error
        return placed

    async def _restore(
        self, event: Event, failures: dict[ZoneId, Exception]
    ) -> list[tuple[Event, NamedTarget]]:
        """The stored target that the event asks for, as its placement; where data nodes have changed so that it
        fits no more, a new one."""
        try:
            before = await self.metastore.get(self.keyspace.target_before(event.zone_id))
        except MetastoreError as error:
            failures[event.zone_id] = error
            return []
        for item in (before, event.pointer):
            try:
                if item is None or readable(item, TargetPointer.decode).event_revision != event.restores:
                    continue
                stored = await self._targets.read(event.zone_id, item)
                result = restored(event.zone_id, stored, event.intent, event.data_nodes)
                return [(event, await self._store(event, result, is_restored=True))]
            except (NotYetError, RecordNotReadableError) as error:
                failures[event.zone_id] = error
                return []
            except ValueError as error:
                log.warning("target not restored", zone=event.zone_id, reason=str(error))
        placed_anew = replace(event, intent=replace(event.intent, origin=_without_target(event.intent.origin)))
        return await self._place([placed_anew], failures)

    async def _requests(self, events: Sequence[Event]) -> list[PlacementRequest]:
        """Balanced zones with what they start from, and with what zones outside of the batch hold."""
        together = {event.zone_id for event in events}
        requests = []
        for event in events:
            request = event.request()
            if event.is_stateful:
                others = (pointer for zone, pointer in self._pointers.items() if zone not in together)
                elsewhere = np.array(surplus_of_others(others, request.nodes))
                request = replace(request, previous=await self._previous(event), elsewhere=elsewhere)
            requests.append(request)
        return requests

    async def _previous(self, event: Event) -> PreviousPlacement | None:
        """The stored target. Raises ValueError when it was replaced meanwhile."""
        if event.pointer is None:
            return None
        pointer = readable(event.pointer, TargetPointer.decode)
        target = await self._targets.read(event.zone_id, event.pointer)
        return PreviousPlacement(pointer.nodes, matrix_of(target), pointer.consensus)

    async def _store(self, event: Event, result: PlacementResult, *, is_restored: bool = False) -> NamedTarget:
        also, writes = await self._log.entry(event, result, is_restored=is_restored)
        guards = (
            unchanged(self.keyspace.intent(event.zone_id), event.intent_revision),
            unchanged(self.keyspace.data_nodes(event.zone_id), event.data_nodes_revision),
            event.fence,
            *also,
        )
        named = await self._targets.write(
            result, event.intent, event.revision, event.data_nodes, event.pointer, guards, writes
        )
        if named is None:
            raise NotYetError("a newer event came while the target was computed")
        self._remember(event.zone_id, named.target.pointer)
        return replace(named, fences=(event.fence,))

    def _remember(self, zone_id: ZoneId, pointer: TargetPointer) -> None:
        """Remember what balanced zones hold: the next placement of another one looks at it."""
        if pointer.surplus:
            self._pointers[zone_id] = pointer

    async def _clean_up(self, zone_id: ZoneId, intent: KeyValue, data_nodes: KeyValue | None) -> None:
        """A dropped zone: all its keys but the intent go at once; the nodes then stop its members."""
        keys = self.keyspace
        prefixes = (
            *(keys.zone_targets(zone_id), keys.zone_partitions(zone_id), keys.zone_operations(zone_id)),
            keys.zone_given_up(zone_id),
        )
        self.data_nodes.forget(zone_id)
        for prefix in prefixes:
            if data_nodes is not None or (await self.metastore.range(prefix)).items:
                break
        else:
            return
        guard = unchanged(keys.intent(zone_id), intent.mod_revision)
        writes: tuple[Operation, ...] = (
            Delete(keys.data_nodes(zone_id)),
            Delete(keys.data_nodes_history(zone_id)),
            Delete(keys.target_pointer(zone_id)),
            Delete(keys.target_before(zone_id)),
            Delete(keys.copy_sizes(zone_id)),
            *(delete_below(prefix) for prefix in prefixes),
        )
        done = await self.metastore.commit(Txn((guard,), writes))
        if not done.succeeded:
            raise NotYetError("the intent changed while the zone was cleaned up")
        self._written.pop(zone_id, None)
        log.info("dropped zone cleaned up", zone=zone_id)


def _without_target(origin: Origin | None) -> Origin | None:
    return None if origin is None else replace(origin, restores=0)
