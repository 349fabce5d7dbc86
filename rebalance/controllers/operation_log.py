"""Writing operations down: with the target that they belong to, in the same transaction.

So there is exactly one operation for each target that was ever named, whoever named it, and the operation that
it takes the place of is ended by the same write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from catalog.core.zone import Zone, ZoneId, ZoneIntent
from rebalance.controllers.clock import Clock
from rebalance.controllers.targets import TargetStore, matrix_of
from rebalance.core.data_nodes import DataNodes
from rebalance.core.drain import Drain
from rebalance.core.epoch import split_event_revision
from rebalance.core.keys import Keyspace
from rebalance.core.operation import (
    Operation,
    OperationKind,
    Step,
    operation_id,
    parse_operation_id,
    too_old,
)
from rebalance.core.operation_progress import Tally
from rebalance.core.readable import Unreadable, read, readable
from rebalance.core.target import StoredTarget, TargetPointer
from rebalance.core.txn import Compare, Delete, KeyValue, Put, absent, unchanged
from rebalance.core.txn import Operation as Write
from rebalance.kernels.difference import changed_rows
from rebalance.ports.metastore import Metastore
from rebalance.ports.placement import PlacementResult


@dataclass(frozen=True, slots=True)
class PlacedEvent:
    """What a target is about to be named for: ``previous`` is the pointer that it replaces."""

    zone_id: ZoneId
    intent: ZoneIntent
    intent_revision: int
    data_nodes: DataNodes
    event_revision: int
    previous: KeyValue | None
    is_restored: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """What goes into the transaction that names the target."""

    guards: tuple[Compare, ...]
    writes: tuple[Write, ...]


class OperationLog:
    """The ``operations/`` keys. Raises MetastoreError."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace, clock: Clock) -> None:
        self._metastore = metastore
        self._keyspace = keyspace
        self._clock = clock
        self._targets = TargetStore(metastore, keyspace)

    async def entry(self, event: PlacedEvent, result: PlacementResult) -> Entry:
        """The new operation, the end of the one before, and what is forgotten."""
        snapshot = await self._metastore.range(self._keyspace.zone_operations(event.zone_id))
        known = {item.key: readable(item, Operation.decode) for item in snapshot.items}
        opened = await self._opened(event, result, self._of_target_before(event, known))
        guards: list[Compare] = []
        writes: list[Write] = []
        key = self._keyspace.operation(opened.operation_id)
        # A store that was restored may know it already.
        if key not in {item.key for item in snapshot.items}:
            guards.append(absent(key))
            writes.append(Put(key, opened.encode()))
        for item in snapshot.items:
            if item.key == key:
                continue
            earlier = known[item.key]
            step = Step.REVERSED if earlier.operation_id == opened.reverses else Step.SUPERSEDED
            if earlier.is_over and step is not Step.REVERSED:
                continue
            told = "reversed" if step is Step.REVERSED else "superseded"
            ended = earlier.after(step, self._clock.now_ms(), f"{told} by {opened.operation_id}")
            if ended is not None:
                guards.append(unchanged(item.key, item.mod_revision))
                writes.append(Put(item.key, ended.encode()))
        writes.extend(self._forgotten(event.zone_id, [item.key for item in snapshot.items]))
        return Entry(tuple(guards), tuple(writes))

    def _forgotten(self, zone_id: ZoneId, keys: Sequence[str]) -> list[Write]:
        parsed = (parse_operation_id(key.removeprefix(self._keyspace.operations)) for key in keys)
        old = too_old([each[1] for each in parsed if each is not None])
        return [Delete(self._keyspace.operation(operation_id(zone_id, each))) for each in old]

    def _of_target_before(self, event: PlacedEvent, known: Mapping[str, Operation]) -> Operation | None:
        if event.previous is None:
            return None
        revision = readable(event.previous, TargetPointer.decode).event_revision
        return known.get(self._keyspace.operation(operation_id(event.zone_id, revision)))

    async def _opened(
        self, event: PlacedEvent, result: PlacementResult, earlier: Operation | None
    ) -> Operation:
        intent, origin = event.intent, event.intent.origin
        before = readable(event.previous, TargetPointer.decode)
        kind = _kind(event, before, earlier)
        by, verified, reason = (origin.by, origin.verified, origin.reason) if origin else ("", False, "")
        statement = origin.statement if origin else ""
        if kind in (OperationKind.NODES_CHANGED, OperationKind.DRAIN, OperationKind.ADOPTED):
            by, verified, reason, statement = "", False, _told(before, event.data_nodes), ""
            drain = await self._drain(before, event.data_nodes)
            if drain is not None and kind is OperationKind.NODES_CHANGED:
                node, found = drain
                kind, by = OperationKind.DRAIN, found.by
                reason = f"{node} is leaving" + (f": {found.reason}" if found.reason else "")
        return Operation(
            kind=kind,
            zone_id=event.zone_id,
            zone=intent.zone.name,
            event_revision=event.event_revision,
            catalog_version=intent.version,
            started_ms=self._clock.now_ms(),
            by=by,
            verified=verified,
            reason=reason,
            statement=statement,
            parameters=parameters_of(intent.zone),
            before=before.event_revision if before else 0,
            before_version=before.catalog_version if before else 0,
            moves=await self._moves(event, result),
            tally=Tally(total=len(result.matrix)),
            reverses=origin.reverses if kind is OperationKind.REVERSE and origin else "",
        )

    async def _drain(self, before: TargetPointer | None, data_nodes: DataNodes) -> tuple[str, Drain] | None:
        """The mark of the first node that is no data node any more because it is leaving."""
        for node in sorted(set(before.nodes if before else ()) - set(data_nodes.nodes)):
            found = await self._metastore.get(self._keyspace.drain(node))
            if found is not None:
                drain = read(found, Drain.decode)
                # Only what is told of it is not known then.
                return node, Drain("", "", 0) if isinstance(drain, Unreadable) else drain
        return None

    async def _moves(self, event: PlacedEvent, result: PlacementResult) -> int:
        """How many partitions are placed otherwise than before; of a new zone all of them."""
        partitions = len(result.matrix)
        if event.previous is None:
            return partitions
        try:
            stored = await self._targets.read(event.zone_id, event.previous)
            return await asyncio.to_thread(_moved, stored, result)
        except ValueError:
            # The target before is not there any more, or of another number of partitions.
            return partitions


def _moved(stored: StoredTarget, result: PlacementResult) -> int:
    pointer = stored.pointer
    changed = changed_rows(
        (pointer.nodes, matrix_of(stored), pointer.consensus), (result.nodes, result.matrix, result.consensus)
    )
    return int(changed.sum())


def parameters_of(zone: Zone) -> str:
    """What of a zone decides where its data is."""
    replicas = "ALL" if zone.all_replicas else str(zone.replicas)
    quorum = f", QUORUM SIZE {zone.quorum_size}" if zone.quorum_size is not None else ""
    return f"REPLICAS {replicas}{quorum}, NODES FILTER {zone.nodes_filter}, {zone.algorithm.value}"


def _kind(event: PlacedEvent, before: TargetPointer | None, earlier: Operation | None) -> OperationKind:
    if before is None:
        return OperationKind.CREATE_ZONE
    if event.is_restored:
        return OperationKind.REVERSE
    epoch, revision = split_event_revision(before.event_revision)
    if split_event_revision(event.event_revision)[0] != epoch:
        return OperationKind.ADOPTED
    # An intent that the target before did not know is what asks for this one, unless it only renamed the zone.
    parameters = parameters_of(event.intent.zone)
    altered = event.intent_revision > revision and (earlier is None or earlier.parameters != parameters)
    return OperationKind.ALTER_ZONE if altered else OperationKind.NODES_CHANGED


def _told(before: TargetPointer | None, data_nodes: DataNodes) -> str:
    """``data nodes: n4 came, n2 went``."""
    was, now = set(before.nodes if before else ()), set(data_nodes.nodes)
    came, went = sorted(now - was), sorted(was - now)
    told = [f"{', '.join(names)} {word}" for names, word in ((came, "came"), (went, "went")) if names]
    return "data nodes: " + ("; ".join(told) or "weights, domains or who lives changed")
