"""Storing a placement once per event, and reading it back (``rebalance/core/target.py`` has the format)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.core.data_nodes import DataNodes
from rebalance.core.keys import Keyspace
from rebalance.core.target import StoredTarget, TargetPointer, cut_into_chunks
from rebalance.core.txn import Compare, DeleteRange, KeyValue, Put, Txn, absent, unchanged
from rebalance.ports.metastore import Metastore
from rebalance.ports.placement import PlacementResult


@dataclass(frozen=True, slots=True)
class NamedTarget:
    """A stored target and the revision of the pointer that names it: the guard of every write made from it.
    ``fences`` are further guards of all of them."""

    target: StoredTarget
    pointer_revision: int
    fences: tuple[Compare, ...] = ()


class TargetStore:
    """Targets of all zones in the metastore."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace) -> None:
        self._metastore = metastore
        self._keyspace = keyspace

    async def read(self, zone_id: ZoneId, pointer: KeyValue) -> StoredTarget:
        """The target that ``pointer`` names. Raises ValueError when it was replaced meanwhile."""
        named = TargetPointer.decode(pointer.value)
        snapshot = await self._metastore.range(self._keyspace.target(zone_id, named.event_revision))
        return StoredTarget(named, tuple(item.value for item in snapshot.items))

    async def write(
        self,
        result: PlacementResult,
        intent: ZoneIntent,
        event_revision: int,
        data_nodes: DataNodes,
        previous: KeyValue | None,
        guards: tuple[Compare, ...],
    ) -> NamedTarget | None:
        """Store ``result`` and point to it; None when ``guards`` or the previous pointer no longer hold.

        Chunks are put if absent: of two controllers that computed the same event, the second uses what the
        first has stored.
        """
        zone_id, keyspace = result.zone_id, self._keyspace
        partitions, replicas = result.matrix.shape
        matrix = await asyncio.to_thread(lambda: result.matrix.astype("<i4").tobytes())
        chunks = cut_into_chunks(matrix, replicas)
        for number, chunk in enumerate(chunks):
            key = keyspace.target_chunk(zone_id, event_revision, number)
            await self._metastore.commit(Txn((absent(key),), (Put(key, chunk),)))
        pointer = TargetPointer(
            event_revision,
            intent.version,
            len(chunks),
            partitions,
            replicas,
            result.consensus,
            result.nodes,
            result.engine.value,
            intent.zone.algorithm.value,
            () if result.surplus is None else tuple(map(tuple, result.surplus.round(4).tolist())),
            data_nodes.weights,
            data_nodes.domains,
        )
        key = keyspace.target_pointer(zone_id)
        older = DeleteRange(keyspace.zone_targets(zone_id), keyspace.target(zone_id, event_revision))
        named = await self._metastore.commit(
            Txn(
                (*guards, unchanged(key, previous.mod_revision if previous else 0)),
                (Put(key, pointer.encode()), older),
            )
        )
        if not named.succeeded:
            return None
        return NamedTarget(StoredTarget(pointer, chunks), named.revision)
