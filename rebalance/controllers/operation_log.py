"""Writing operations down: with the target that they belong to, in the same transaction.

So there is exactly one operation for each target that was ever named, by whichever controller, and the
operation that it takes the place of is ended by the same write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from catalog.core.zone import TIMER_OFF, Zone
from rebalance.controllers.clock import Clock
from rebalance.controllers.event import Event
from rebalance.controllers.targets import PlacedRows, TargetStore, moved_copies, standing_of
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.target import CopySizes, Standing, StoredTarget, TargetPointer
from rebalance.core.keyspace.epoch import split_event_revision
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read, readable
from rebalance.core.keyspace.records import ConfigurationRecord
from rebalance.core.keyspace.txn import Compare, Delete, KeyValue, Put, absent, unchanged
from rebalance.core.keyspace.txn import Operation as Write
from rebalance.core.moves.drain import Drain
from rebalance.core.operations.operation import (
    Operation,
    OperationKind,
    Step,
    Tally,
    operation_id,
    parse_operation_id,
    too_old,
)
from rebalance.core.topology.data_nodes import DataNodes
from rebalance.ports.metastore import Metastore
from rebalance.ports.placement import PlacementResult

TIMERS = ", AUTO SCALE UP "
Entry = tuple[tuple[Compare, ...], tuple[Write, ...]]


@dataclass(frozen=True, slots=True)
class _Start:
    """Start of an operation. ``before`` None: there is no target before it."""

    before: StoredTarget | None
    sizes: tuple[int, ...]
    standing: Standing = ()


class OperationLog:
    """The ``operations/`` keys. Raises MetastoreError."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace, clock: Clock) -> None:
        self._metastore = metastore
        self._keyspace = keyspace
        self._clock = clock
        self._targets = TargetStore(metastore, keyspace)

    async def entry(self, event: Event, result: PlacementResult, *, is_restored: bool = False) -> Entry:
        """Return guards and writes for the transaction that names the target: the new operation, the end of the
        one before, and what is forgotten. ``is_restored``: ``result`` is a stored target."""
        snapshot = await self._metastore.range(self._keyspace.zone_operations(event.zone_id))
        known = {item.key: readable(item, Operation.decode) for item in snapshot.items}
        start = await self._start(event, len(result.matrix))
        before = readable(event.pointer, TargetPointer.decode)
        named = operation_id(event.zone_id, before.event_revision) if before is not None else ""
        earlier = known.get(self._keyspace.operation(named))
        opened = await self._opened(event, result, earlier, start, is_restored=is_restored)
        guards: list[Compare] = []
        writes: list[Write] = []
        key = self._keyspace.operation(opened.operation_id)
        # A store that was restored may know it already.
        if key not in known:
            guards.append(absent(key))
            writes.append(Put(key, opened.encode()))
            writes.extend(await self._kept_start(event, start))
        for item in snapshot.items:
            if item.key == key:
                continue
            earlier = known[item.key]
            step = Step.REVERSED if earlier.operation_id == opened.reverses else Step.SUPERSEDED
            if earlier.is_over and step is not Step.REVERSED:
                continue
            end = "reversed" if step is Step.REVERSED else "superseded"
            ended = earlier.after(step, self._clock.now_ms(), f"{end} by {opened.operation_id}")
            if ended is not None:
                guards.append(unchanged(item.key, item.mod_revision))
                writes.append(Put(item.key, ended.encode()))
        parsed = (parse_operation_id(name.removeprefix(self._keyspace.operations)) for name in known)
        old = too_old([parts[1] for parts in parsed if parts is not None])
        writes += [Delete(self._keyspace.operation(operation_id(event.zone_id, each))) for each in old]
        return tuple(guards), tuple(writes)

    async def _kept_start(self, event: Event, start: _Start) -> list[Write]:
        key = self._keyspace.copy_sizes(event.zone_id)
        if isinstance(read(await self._metastore.get(key), CopySizes.decode), Unreadable):
            return []
        return [Put(key, CopySizes(event.revision, start.sizes, start.standing).encode())]

    async def _opened(
        self,
        event: Event,
        result: PlacementResult,
        earlier: Operation | None,
        start: _Start,
        *,
        is_restored: bool,
    ) -> Operation:
        intent, origin = event.intent, event.intent.origin
        before = readable(event.pointer, TargetPointer.decode)
        topology = await self._metastore.get(self._keyspace.topology)
        nodes_changed = topology is not None and topology.mod_revision > event.intent_revision
        kind = _kind(event, before, earlier, is_restored=is_restored, nodes_changed=nodes_changed)
        by, verified, reason = (origin.by, origin.verified, origin.reason) if origin else ("", False, "")
        statement = origin.statement if origin else ""
        if kind in (OperationKind.NODES_CHANGED, OperationKind.DRAIN, OperationKind.ADOPTED):
            by, verified, reason, statement = "", False, _causes_of(before, event.data_nodes), ""
            drain = await self._drain(before, event.data_nodes)
            if drain is not None and kind is OperationKind.NODES_CHANGED:
                node, mark = drain
                kind, by, verified = OperationKind.DRAIN, mark.by, mark.verified
                reason = f"{node} is leaving" + (f": {mark.reason}" if mark.reason else "")
        moves, bytes_total = await self._moves(event, result, start)
        return Operation(
            kind=kind,
            zone_id=event.zone_id,
            zone=intent.zone.name,
            event_revision=event.revision,
            catalog_version=intent.version,
            started_ms=self._clock.now_ms(),
            by=by,
            verified=verified,
            reason=reason,
            statement=statement,
            parameters=parameters_of(intent.zone),
            before=before.event_revision if before else 0,
            before_version=before.catalog_version if before else 0,
            moves=moves,
            tally=Tally(total=len(result.matrix), bytes_total=bytes_total),
            reverses=origin.reverses if kind is OperationKind.REVERSE and origin else "",
        )

    async def _drain(self, before: TargetPointer | None, data_nodes: DataNodes) -> tuple[str, Drain] | None:
        """The mark of the first node that is no data node any more because it is leaving."""
        for node in sorted(set(before.nodes if before else ()) - set(data_nodes.nodes)):
            item = await self._metastore.get(self._keyspace.drain(node))
            if item is not None:
                drain = read(item, Drain.decode)
                # Only who drains it, and why, is not known then.
                return node, Drain("", "", 0) if isinstance(drain, Unreadable) else drain
        return None

    async def _start(self, event: Event, partitions: int) -> _Start:
        """A new zone has no sizes, and its partitions are nowhere."""
        if event.pointer is None:
            return _Start(None, (0,) * partitions)
        stored = await self._metastore.range(self._keyspace.zone_partitions(event.zone_id))
        try:
            before = await self._targets.read(event.zone_id, event.pointer)
        except ValueError:
            # It is not there any more.
            before = None
        return await asyncio.to_thread(self._read_start, before, stored.items, partitions)

    def _read_start(self, before: StoredTarget | None, items: Sequence[KeyValue], partitions: int) -> _Start:
        """Sizes as each partition's leader last said them."""
        sizes = [0] * partitions
        stable: dict[int, Assignments] = {}
        for item in items:
            parsed = self._keyspace.parse_partition(item.key)
            if parsed is None or parsed[0].partition >= partitions:
                continue
            number, what = parsed[0].partition, parsed[1]
            if what == "configuration":
                configuration = read(item, ConfigurationRecord.decode)
                if isinstance(configuration, ConfigurationRecord):
                    sizes[number] = configuration.size_bytes
            elif what == "assignments/stable":
                stands = read(item, Assignments.decode)
                if isinstance(stands, Assignments):
                    stable[number] = stands
        standing = standing_of(before, stable) if before is not None else ()
        return _Start(before, tuple(sizes), standing)

    async def _moves(self, event: Event, result: PlacementResult, start: _Start) -> tuple[int, int]:
        """Count the partitions that are not where they are to be, and estimate the bytes that are copied for
        it; of a new zone all of them, and none."""
        partitions = len(result.matrix)
        if start.before is None:
            return partitions, 0
        voters, gone = max(1, result.consensus), event.data_nodes.gone
        after = PlacedRows(tuple(result.nodes), result.matrix, voters, gone)
        try:
            return await asyncio.to_thread(_moved, start, after)
        except ValueError:
            # Of another number of partitions.
            return partitions, 0


def _moved(start: _Start, after: PlacedRows) -> tuple[int, int]:
    assert start.before is not None
    sizes = np.array(start.sizes, dtype=np.int64)
    _, moved = moved_copies(PlacedRows.of(start.before), after, start.standing, sizes)
    return len(np.unique(moved.partition)), int(moved.size.sum())


def parameters_of(zone: Zone) -> str:
    """Return the parameters of a zone that decide where its data is, and when that follows the nodes."""
    replicas = "ALL" if zone.all_replicas else str(zone.replicas)
    quorum = f", QUORUM SIZE {zone.quorum_size}" if zone.quorum_size is not None else ""
    placed = f"REPLICAS {replicas}{quorum}, NODES FILTER {zone.nodes_filter}, {zone.algorithm.value}"
    up, down = (
        "OFF" if timer == TIMER_OFF else str(timer) for timer in (zone.auto_scale_up, zone.auto_scale_down)
    )
    return f"{placed}{TIMERS}{up}, AUTO SCALE DOWN {down}"


def _placed_and_timers(parameters: str) -> tuple[str, str]:
    """The halves of ``parameters_of``; earlier builds wrote the first one alone."""
    placed, timers, rest = parameters.rpartition(TIMERS)
    return (placed, rest) if timers else (parameters, "")


def _kind(
    event: Event,
    before: TargetPointer | None,
    earlier: Operation | None,
    *,
    is_restored: bool,
    nodes_changed: bool,
) -> OperationKind:
    """``nodes_changed``: after the intent was written."""
    if before is None:
        return OperationKind.CREATE_ZONE
    if is_restored:
        return OperationKind.REVERSE
    epoch, revision = split_event_revision(before.event_revision)
    if split_event_revision(event.revision)[0] != epoch:
        return OperationKind.ADOPTED
    if event.intent_revision <= revision:
        return OperationKind.NODES_CHANGED
    # The target before did not know the intent: that asks for this one if it changed what decides. A timer
    # does so only while the nodes are those that it was set for, as anything that was taken up before.
    placed, timers = _placed_and_timers(parameters_of(event.intent.zone))
    knew, had = _placed_and_timers(earlier.parameters) if earlier is not None else ("", "")
    altered = placed != knew and not (nodes_changed and event.taken_up)
    retimed = bool(had) and timers != had and not nodes_changed
    return OperationKind.ALTER_ZONE if altered or retimed else OperationKind.NODES_CHANGED


def _causes_of(before: TargetPointer | None, data_nodes: DataNodes) -> str:
    """``data nodes: n4 came, n2 went``; who returned was placed around while it was away."""
    was, now = set(before.nodes if before else ()), set(data_nodes.nodes)
    came, went = sorted(now - was), sorted(was - now)
    if before is not None and before.asked != data_nodes.asked and not (came or went):
        return "nodes are back that moves went on without"
    returned = sorted(set(before.gone if before else ()) - set(data_nodes.gone) - set(went))
    words = (came, "came"), (went, "went"), (returned, "returned")
    changes = [f"{', '.join(names)} {word}" for names, word in words if names]
    return "data nodes: " + ("; ".join(changes) or "weights, domains or who lives changed")
