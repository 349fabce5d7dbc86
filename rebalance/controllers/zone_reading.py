"""Reading that a recovery is planned from: all of a zone, read at one revision and decoded where it is looked
at.

Work over all partitions of a zone is done in slices (``in_slices``), which leave the event loop to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import Observed, decode_trigger
from rebalance.core.assignments.target import StoredTarget, TargetIncompleteError, TargetPointer, is_target_of
from rebalance.core.keyspace.epoch import EpochRecord, event_revision, split_event_revision
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import read, readable
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    GivenUpRecord,
    KeptRecord,
    MemberRecord,
    NodeRecord,
)
from rebalance.core.keyspace.txn import Compare, KeyValue, as_read
from rebalance.core.moves.move_status import PartitionView, given_up_of
from rebalance.core.topology.data_nodes import DataNodes
from rebalance.metastore.guarded_update import read_together
from rebalance.ports.metastore import Metastore

T = TypeVar("T")

PARTITIONS_PER_SLICE = 100
"""Some ten milliseconds, where each takes some ten microseconds to decode and to judge."""


async def in_slices(items: Sequence[T], size: int = PARTITIONS_PER_SLICE) -> AsyncIterator[Sequence[T]]:
    """``items`` in order, at most ``size`` at a time; everybody else has a turn before each part."""
    for start in range(0, len(items), size):
        await asyncio.sleep(0)
        yield items[start : start + size]


KEYS = 2_000
"""Keys that are sorted into a reading at once."""
KEPT = "kept/"
"""``Keyspace.kept_copies`` of a partition, below the partition."""


@dataclass(slots=True)
class ZoneReading:
    """A zone's keys: those that guard every write at ``revision`` (``guards``), the others as of then or later.
    Decoded only where they are looked at: a zone may have many partitions."""

    zone_id: ZoneId
    keyspace: Keyspace
    revision: int
    epoch: EpochRecord
    intent: ZoneIntent | None
    data_nodes: DataNodes | None
    pointer: TargetPointer | None
    alive: frozenset[str]
    guards: tuple[Compare, ...]
    keys: dict[str, KeyValue]
    members: dict[PartitionId, dict[str, KeyValue]]
    target: StoredTarget | None = None
    rows: Sequence[bytes] = ()
    """Rows of ``target``, a partition each."""
    given_up: dict[PartitionId, KeyValue] = field(default_factory=dict)
    kept: dict[PartitionId, dict[str, KeyValue]] = field(default_factory=dict)
    nodes: dict[str, KeyValue] = field(default_factory=dict)
    _versions: dict[str, str] = field(default_factory=dict)

    @property
    def event(self) -> int:
        """The event revision of what is decided from this reading."""
        return event_revision(self.epoch.epoch, self.revision)

    @property
    def targets(self) -> tuple[Assignments, ...]:
        """Return the targets of all partitions; empty: the zone was not placed yet. Takes long for many. Raises
        RecordNotReadableError."""
        return tuple(self.target.assignments()) if self.target is not None else ()

    def observed(self, partition: PartitionId) -> Observed:
        return Observed.of(self.keyspace.partition(partition), self.keys.get)

    def view(self, partition: PartitionId) -> PartitionView:
        seen = self.observed(partition)
        configuration = self.keys.get(seen.keys.configuration)
        processed = readable(seen.trigger, decode_trigger) or 0
        return PartitionView(
            target=self.target.assignments_of(self.rows[partition.partition])
            if self.target is not None
            else None,
            stable=readable(seen.stable, Assignments.decode),
            pending=readable(seen.pending, Assignments.decode),
            planned=readable(seen.planned, Assignments.decode),
            processed=self.pointer is not None and processed >= self.pointer.event_revision,
            members={
                node: readable(item, MemberRecord.decode)
                for node, item in self.members.get(partition, {}).items()
            },
            configuration=readable(configuration, ConfigurationRecord.decode),
            given_up=given_up_of(readable(self.given_up.get(partition), GivenUpRecord.decode), processed),
            kept={
                node: readable(item, KeptRecord.decode) for node, item in self.kept.get(partition, {}).items()
            },
        )

    def etcd_version(self, node: str) -> str:
        """Return the version of etcd that the living ``node`` runs its members with; empty: it is not known."""
        known = self._versions.get(node)
        if known is None:
            record = read(self.nodes.get(node), NodeRecord.decode)
            known = self._versions[node] = record.etcd if isinstance(record, NodeRecord) else ""
        return known

    def why_not_idle(self, numbers: Iterable[int]) -> str:
        """Return what of the zone is not carried out yet; empty: its partitions know the newest target."""
        if self.epoch.halted:
            return f"nothing is written: {self.epoch.halted}"
        if self.intent is None or self.data_nodes is None or self.pointer is None:
            return "the zone was not placed yet"
        in_epoch = split_event_revision(self.pointer.event_revision)[0] == self.epoch.epoch
        if not in_epoch or not is_target_of(self.pointer, self.intent, self.data_nodes):
            return "its newest change is not placed yet"
        for number in numbers:
            trigger = self.observed(PartitionId(self.zone_id, number)).trigger
            if trigger is None or readable(trigger, decode_trigger) < self.pointer.event_revision:
                return f"partition {number} has not taken up the newest target yet"
        return ""


async def why_not_idle(reading: ZoneReading, numbers: Sequence[int]) -> str:
    """``ZoneReading.why_not_idle`` of many partitions, a slice at a time."""
    why = reading.why_not_idle(())
    async for some in in_slices(numbers):
        why = why or reading.why_not_idle(some)
        if why:
            break
    return why


class ZoneReader:
    """Reads zones from the metastore."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace) -> None:
        self._metastore = metastore
        self._keyspace = keyspace

    async def read(self, zone_id: ZoneId) -> ZoneReading:
        """Raises MetastoreError, RecordNotReadableError, and RefusedError (CLUSTER_NOT_IDLE) when the zone's
        target was replaced meanwhile."""
        keys = self._keyspace
        names = keys.intent(zone_id), keys.data_nodes(zone_id), keys.target_pointer(zone_id), keys.epoch
        guarded, revision = await read_together(self._metastore, *names)
        intent, data_nodes, pointer, epoch = guarded
        partitions = await self._metastore.range(keys.zone_partitions(zone_id))
        members: dict[PartitionId, dict[str, KeyValue]] = {}
        async for items in in_slices((await self._metastore.range(keys.zone_members(zone_id))).items, KEYS):
            for item in items:
                parsed = keys.parse_member(item.key)
                if parsed is not None:
                    members.setdefault(parsed[0], {})[parsed[1]] = item
        kept: dict[PartitionId, dict[str, KeyValue]] = {}
        by_key: dict[str, KeyValue] = {}
        async for items in in_slices(partitions.items, KEYS):
            for item in items:
                by_key[item.key] = item
                parsed = keys.parse_partition(item.key) if KEPT in item.key else None
                if parsed is not None and parsed[1].startswith(KEPT):
                    kept.setdefault(parsed[0], {})[parsed[1].removeprefix(KEPT)] = item
        given_up = await self._metastore.range(keys.zone_given_up(zone_id))
        nodes = await self._metastore.range(keys.nodes)
        reading = ZoneReading(
            zone_id=zone_id,
            keyspace=keys,
            revision=revision,
            epoch=readable(epoch, EpochRecord.decode) or EpochRecord(),
            intent=readable(intent, ZoneIntent.decode),
            data_nodes=readable(data_nodes, DataNodes.decode),
            pointer=readable(pointer, TargetPointer.decode),
            alive=frozenset(item.key.removeprefix(keys.nodes) for item in nodes.items),
            guards=tuple(map(as_read, names, guarded)),
            keys=by_key,
            members=members,
            given_up={
                partition: item
                for item in given_up.items
                if (partition := keys.parse_given_up(item.key)) is not None
            },
            kept=kept,
            nodes={item.key.removeprefix(keys.nodes): item for item in nodes.items},
        )
        if reading.pointer is not None:
            chunks = await self._metastore.range(keys.target(zone_id, reading.pointer.event_revision))
            try:
                target = StoredTarget(reading.pointer, tuple(item.value for item in chunks.items))
                reading.target, reading.rows = target, target.rows()
            except TargetIncompleteError as error:
                # Replaced since the pointer was read.
                message = "its newest target was replaced just now"
                raise RefusedError(ErrorKind.CLUSTER_NOT_IDLE, message) from error
        return reading
