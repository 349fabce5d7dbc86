"""Storing a placement once per event, and reading it (format: ``rebalance/core/assignments/target.py``)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.core.assignments.target import StoredTarget, TargetPointer, cut_into_chunks
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError, readable
from rebalance.core.keyspace.txn import (
    Compare,
    DeleteRange,
    Get,
    KeyValue,
    Operation,
    Put,
    Txn,
    absent,
    as_read,
    unchanged,
)
from rebalance.core.topology.data_nodes import DataNodes
from rebalance.ports.metastore import Metastore
from rebalance.ports.placement import PlacementResult


@dataclass(frozen=True, slots=True)
class NamedTarget:
    """A stored target and the revision of the pointer that names it: the guard of every write made from it.
    ``fences`` are further guards of all of them."""

    target: StoredTarget
    pointer_revision: int
    fences: tuple[Compare, ...] = ()


class TargetIncompleteError(ValueError):
    """Parts of a stored target are not there: it was replaced while it was read."""


def matrix_of(stored: StoredTarget) -> npt.NDArray[np.int32]:
    """Partitions x replicas, indexes into the pointer's nodes. Raises TargetIncompleteError when chunks are
    missing, and RecordNotReadableError for an index of no node."""
    pointer, raw = stored.pointer, b"".join(stored.chunks)
    if not stored.is_whole:
        message = f"target {pointer.event_revision} is incomplete: {len(stored.chunks)} chunks"
        raise TargetIncompleteError(message)
    matrix = np.frombuffer(raw, dtype="<i4").astype(np.int32).reshape(pointer.partitions, pointer.replicas)
    if matrix.size and not 0 <= matrix.min() <= matrix.max() < len(pointer.nodes):
        raise RecordNotReadableError(f"the stored target of event {pointer.event_revision} names no node")
    return matrix


def pointer_of(
    result: PlacementResult, intent: ZoneIntent, data_nodes: DataNodes, event_revision: int, chunks: int = 0
) -> TargetPointer:
    """Return the pointer that names ``result`` once it is stored in ``chunks`` chunks."""
    partitions, replicas = result.matrix.shape
    return TargetPointer(
        event_revision,
        intent.version,
        chunks,
        partitions,
        replicas,
        result.consensus,
        result.nodes,
        result.engine.value,
        intent.zone.algorithm.value,
        () if result.surplus is None else tuple(map(tuple, result.surplus.round(4).tolist())),
        data_nodes.weights,
        data_nodes.domains,
        data_nodes.gone,
        data_nodes.asked,
    )


class TargetStore:
    """Targets of all zones in the metastore."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace) -> None:
        self._metastore = metastore
        self._keyspace = keyspace

    async def read(self, zone_id: ZoneId, pointer: KeyValue) -> StoredTarget:
        """The target that ``pointer`` names. Raises TargetIncompleteError when it was replaced meanwhile."""
        named = readable(pointer, TargetPointer.decode)
        snapshot = await self._metastore.range(self._keyspace.target(zone_id, named.event_revision))
        stored = StoredTarget(named, tuple(item.value for item in snapshot.items))
        if not stored.is_whole:
            message = f"zone {zone_id}: target {named.event_revision} has {len(stored.chunks)} chunks"
            raise TargetIncompleteError(f"{message}, and they are not all")
        return stored

    async def write(
        self,
        result: PlacementResult,
        intent: ZoneIntent,
        event_revision: int,
        data_nodes: DataNodes,
        previous: KeyValue | None,
        guards: tuple[Compare, ...],
        beside: tuple[Operation, ...] = (),
    ) -> NamedTarget | None:
        """Store ``result`` and point to it; None when ``guards`` or the previous pointers no longer hold.
        Raises RecordNotReadableError: what ``target_before`` names is not given up while it cannot be read.

        ``beside`` is written in the transaction that names the target. The target before it stays stored, and
        named by a pointer of its own: it can be asked for again. Earlier ones go.

        The transaction that names the target is guarded by each of its chunks. Two controllers that place the
        same event may come to different results (a balanced zone looks at what other zones hold), so one must
        not name what the other has written over.
        """
        zone_id, keyspace = result.zone_id, self._keyspace
        replicas = result.matrix.shape[1]
        matrix = await asyncio.to_thread(lambda: result.matrix.astype("<i4").tobytes())
        chunks = cut_into_chunks(matrix, replicas)
        key = keyspace.target_pointer(zone_id)
        not_named = as_read(key, previous)
        older = await self._metastore.get(keyspace.target_before(zone_id))
        readable(older, TargetPointer.decode)
        not_moved_on = as_read(keyspace.target_before(zone_id), older)
        stored: list[Compare] = []
        for number, chunk in enumerate(chunks):
            guard = await self._store_chunk(
                keyspace.target_chunk(zone_id, event_revision, number), chunk, not_named
            )
            if guard is None:
                return None
            stored.append(guard)
        pointer = pointer_of(result, intent, data_nodes, event_revision, len(chunks))
        naming: list[Operation] = [Put(key, pointer.encode()), *beside]
        if previous is not None:
            before = readable(previous, TargetPointer.decode).event_revision
            naming.append(Put(keyspace.target_before(zone_id), previous.value))
            naming.append(DeleteRange(keyspace.zone_targets(zone_id), keyspace.target(zone_id, before)))
        named = await self._metastore.commit(Txn((*guards, not_named, not_moved_on, *stored), tuple(naming)))
        if not named.succeeded:
            return None
        return NamedTarget(StoredTarget(pointer, chunks), named.revision)

    async def _store_chunk(self, key: str, chunk: bytes, not_named: Compare) -> Compare | None:
        """The guard that ``key`` still holds ``chunk``; None when another target was named meanwhile, or
        another controller writes this one as well."""
        put = await self._metastore.commit(Txn((absent(key),), (Put(key, chunk),), (Get(key),)))
        if put.succeeded:
            return unchanged(key, put.revision)
        item = put.only(0)
        if item is not None and item.value != chunk:
            guards = not_named, unchanged(key, item.mod_revision)
            put = await self._metastore.commit(Txn(guards, (Put(key, chunk),)))
            return unchanged(key, put.revision) if put.succeeded else None
        return unchanged(key, item.mod_revision) if item is not None else None
