"""Targets of zones: stored once per event and read (format: ``rebalance/core/assignments/target.py``), and
their moves.

The copies that a target makes and ends are counted from where each partition is. One that is where the target
before wanted it is told by the two targets, all of them at once; others, which an earlier operation had not
brought there, by where they *stand*.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.target import (
    Standing,
    StoredTarget,
    TargetPointer,
    available_target,
    cut_into_chunks,
)
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
from rebalance.kernels.assessment import renumbered
from rebalance.kernels.rendezvous import Matrix
from rebalance.kernels.transfers import Sizes, Transfers, copies
from rebalance.ports.metastore import Metastore
from rebalance.ports.placement import PlacementResult


@dataclass(frozen=True, slots=True)
class NamedTarget:
    """A stored target and the revision of the pointer that names it: the guard of every write made from it.
    ``fences`` are further guards of all of them."""

    target: StoredTarget
    pointer_revision: int
    fences: tuple[Compare, ...] = ()


def matrix_of(stored: StoredTarget) -> npt.NDArray[np.int32]:
    """Partitions x replicas, indexes into the pointer's nodes. Raises RecordNotReadableError for an index of no
    node."""
    pointer, raw = stored.pointer, b"".join(stored.chunks)
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
        return StoredTarget(named, tuple(item.value for item in snapshot.items))

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


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """``matrix`` int32 [P, R], indexes into ``nodes``; the first ``voters`` columns vote. ``gone``: see
    ``available_target``."""

    nodes: tuple[str, ...]
    matrix: Matrix
    voters: int
    gone: Collection[str] = ()

    @classmethod
    def of(cls, stored: StoredTarget) -> PlacedRows:
        pointer = stored.pointer
        return cls(pointer.nodes, matrix_of(stored), max(1, pointer.consensus), pointer.gone)

    def asked_of(self, number: int, stands: Assignments) -> Assignments:
        names = [self.nodes[index] for index in self.matrix[number].tolist()]
        target = Assignments(tuple(names[: self.voters]), tuple(names[self.voters :]))
        return available_target(target, stands, self.gone)


def standing_of(before: StoredTarget, stable: Mapping[int, Assignments]) -> Standing:
    """Return what of ``stable`` is not as ``before`` wants it, by the numbers of partitions. Raises
    ValueError."""
    pairs: dict[tuple[bytes, Assignments], bool] = {}
    standing = []
    for number, row in enumerate(before.rows()):
        stands = stable.get(number)
        if stands is None:
            continue
        differs = pairs.get((row, stands))
        if differs is None:
            wanted = available_target(before.assignments_of(row), stands, before.pointer.gone)
            differs = pairs[row, stands] = wanted != stands
        if differs:
            standing.append((number, stands.at_rest()))
    return tuple(standing)


def moved_copies(
    before: PlacedRows | None, after: PlacedRows, standing: Standing, sizes: Sizes
) -> tuple[tuple[str, ...], Transfers]:
    """The nodes that are numbered, and the copies in the order of partitions. ``before`` None: of a new zone.
    ``sizes`` int64 [P]. Raises ValueError where the numbers of partitions differ."""
    was = before or PlacedRows((), np.zeros((len(after.matrix), 0), dtype=np.int32), 1)
    named = (name for _, stands in standing for name in stands.copies)
    names = tuple(dict.fromkeys((*was.nodes, *after.nodes, *named)))
    old, new = renumbered(was.nodes, was.matrix, names), renumbered(after.nodes, after.matrix, names)
    if len(old) != len(new):
        raise ValueError(f"{len(old)} partitions before and {len(new)} after")
    rests = np.ones(len(new), dtype=np.bool_)
    rests[[number for number, _ in standing if number < len(new)]] = False
    numbers = np.flatnonzero(rests)
    moved = copies(old[numbers], new[numbers], (was.voters, after.voters), sizes[numbers])
    parts = [_numbered(moved, numbers), *_of_standing(after, standing, names, sizes)]
    partition = np.concatenate([part.partition for part in parts])
    order = np.argsort(partition, kind="stable")
    donor = np.concatenate([part.donor for part in parts])
    stealer = np.concatenate([part.stealer for part in parts])
    size = np.concatenate([part.size for part in parts])
    return names, Transfers(partition[order], donor[order], stealer[order], size[order])


def _of_standing(
    after: PlacedRows, standing: Standing, names: tuple[str, ...], sizes: Sizes
) -> Iterator[Transfers]:
    """Yield the transfers of one shape at once: as many voters and learners before and after."""
    index = {name: number for number, name in enumerate(names)}
    shapes: dict[tuple[int, ...], list[tuple[int, list[int], list[int]]]] = {}
    for number, stands in standing:
        if number >= len(after.matrix):
            continue
        asked = after.asked_of(number, stands)
        shape = len(stands.peers), len(stands.learners), len(asked.peers), len(asked.learners)
        rows = [index[name] for name in stands.copies], [index[name] for name in asked.copies]
        shapes.setdefault(shape, []).append((number, *rows))
    for (voters, _, votes, _), group in shapes.items():
        numbers = np.array([number for number, _, _ in group], dtype=np.int64)
        old = np.array([row for _, row, _ in group], dtype=np.int32)
        new = np.array([row for _, _, row in group], dtype=np.int32)
        yield _numbered(copies(old, new, (voters, votes), sizes[numbers]), numbers)


def _numbered(moved: Transfers, numbers: npt.NDArray[np.int64]) -> Transfers:
    return replace(moved, partition=numbers[moved.partition].astype(np.int32))
