"""Asking again for what moves went on without (M2).

A partition whose joiners were gone for too long, or that was reset while nodes of its target were not there,
rests short of its target. When such a node lives again, the zone's data nodes are written anew, unchanged but
for their count of askings: a new event, which each partition takes up as any other, under the same limits. A
node that comes and goes gets its copies less and less often. Those that are still away stand in ``gone`` then:
they are placed around, so that nobody waits for them, and their return is an event of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import structlog

from catalog.core.errors import RefusedError
from catalog.core.zone import ZoneId
from rebalance.controllers.clock import Clock, DueTimes
from rebalance.controllers.topology import NotYetError
from rebalance.controllers.zone_reading import ZoneReader, ZoneReading, in_slices
from rebalance.core.assignments.guarded_write import decode_trigger
from rebalance.core.assignments.target import TargetPointer
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, read, readable
from rebalance.core.keyspace.records import GivenUpRecord, NodeRecord
from rebalance.core.keyspace.txn import Put, Txn, as_read
from rebalance.core.moves.joiners import again_s, back_again, left_out_by_reset, left_without_note
from rebalance.core.operations.operation import Operation, OperationState, operation_id
from rebalance.core.topology.data_nodes import DataNodes
from rebalance.metastore.guarded_update import commit_each, read_together
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

AGAIN_MS = 1_000
"""Milliseconds until a zone is looked at again that could not be asked now."""


NOTES_PER_REQUEST = 60


@dataclass(eq=False)
class JoinersAgain:
    """``nodes`` mirrors those that live, ``ask`` puts a zone into its controller's queue. Times begin anew with
    each controller that leads. ``first_s``: after the first time that a joiner was given up."""

    metastore: Metastore
    keyspace: Keyspace
    nodes: KeyspaceMirror
    clock: Clock
    ask: Callable[[ZoneId], None]

    def __post_init__(self) -> None:
        self.mirror = KeyspaceMirror(self.metastore, self.keyspace.all_given_up)
        """Records of nodes that were given up; ``run`` keeps it current."""
        self.mirror.listen(self.notice)
        self._unreadable = UnreadableLog()
        self._back_ms: dict[tuple[PartitionId, str, str, int], int] = {}
        self._requested: dict[ZoneId, int] = {}
        """The event of the target that was asked for anew last."""
        self.due = DueTimes(self.clock)

    def begin(self) -> None:
        """Called on taking the lead."""
        self._back_ms.clear()
        self._requested.clear()
        self.notice()

    def notice(self, _changed: frozenset[str] = frozenset()) -> None:
        """A node or a record has come, changed or gone."""
        now_ms, incarnations = self.clock.now_ms(), self._incarnations()
        back_ms: dict[tuple[PartitionId, str, str, int], int] = {}
        zones: dict[ZoneId, int] = {}
        for partition, record in self._records():
            for name in back_again(record, incarnations):
                key = partition, name, incarnations[name], record.event
                back_ms[key] = self._back_ms.get(key, now_ms)
                delay_s = again_s(record.joiners[name].times)
                # The last of a zone's decides: they are asked for together.
                zones[partition.zone_id] = max(
                    zones.get(partition.zone_id, 0), back_ms[key] + int(1_000 * delay_s)
                )
        for zone_id in {key[0].zone_id for key in self._back_ms} - zones.keys():
            self.due.set(zone_id, None)
        self._back_ms = back_ms
        for zone_id, due_ms in zones.items():
            self.due.set(zone_id, due_ms)

    async def look(self, zone_id: ZoneId) -> None:
        """The zone is due. What cannot be done now is looked at again."""
        try:
            again = await self._ask_again(zone_id)
        except RecordNotReadableError as error:
            self._unreadable.waits(zone_id, error)
            again = True
        except MetastoreError as error:
            log.info("not asked again", zone=zone_id, error=str(error))
            again = True
        else:
            self._unreadable.goes_on(zone_id)
        if again:
            self.due.set(zone_id, self.clock.now_ms() + AGAIN_MS)

    async def note_left_out(self, zone_id: ZoneId, numbers: Collection[int]) -> None:
        """Writes down whom resets left out of partitions ``numbers``, where no record says so yet: they are
        asked for as if one did. Raises NotYetError, MetastoreError, and RecordNotReadableError for what is not
        of one partition."""
        try:
            reading = await ZoneReader(self.metastore, self.keyspace).read(zone_id)
        except RefusedError as error:
            raise NotYetError(error.message) from error
        writes: list[Txn] = []
        async for some in in_slices(sorted(numbers)):
            for partition in (PartitionId(zone_id, number) for number in some):
                try:
                    writes += _note(reading, partition)
                except RecordNotReadableError as error:
                    self._unreadable.waits(partition, error)
        await commit_each(self.metastore, (), writes, NOTES_PER_REQUEST)

    async def _ask_again(self, zone_id: ZoneId) -> bool:
        """Ask again for what the zone lacks; True if it has to be looked at again."""
        keys = self.keyspace
        names = keys.data_nodes(zone_id), keys.target_pointer(zone_id), keys.epoch
        items, _ = await read_together(self.metastore, *names)
        data_nodes, pointer = readable(items[0], DataNodes.decode), readable(items[1], TargetPointer.decode)
        epoch = readable(items[2], EpochRecord.decode)
        if epoch is not None and epoch.halted:
            return True
        if data_nodes is None or pointer is None or self._requested.get(zone_id) == pointer.event_revision:
            return False
        incarnations, back, gone = self._incarnations(), Counter[str](), set(data_nodes.gone)
        for partition, record in self._records():
            # What a reset has left out was written after the target. Where a node is placed around, its return
            # is an event of its own.
            if partition.zone_id == zone_id and record.event >= pointer.event_revision:
                back.update(set(back_again(record, incarnations)).difference(data_nodes.gone))
                gone |= set(record.names()) & set(data_nodes.nodes) - incarnations.keys()
        operation = await self.metastore.get(keys.operation(operation_id(zone_id, pointer.event_revision)))
        operation_record = readable(operation, Operation.decode)
        if not back or (operation_record is not None and operation_record.state is OperationState.CANCELLED):
            return False
        guards = tuple(map(as_read, names, items))
        anew = replace(data_nodes, asked=data_nodes.asked + 1, gone=tuple(sorted(gone)))
        written = await self.metastore.commit(Txn(guards, (Put(names[0], anew.encode()),)))
        if not written.succeeded:
            return True
        self._requested[zone_id] = pointer.event_revision
        log.info("nodes are back, their copies are asked for again", zone=zone_id, partitions=dict(back))
        self.ask(zone_id)
        return False

    def _records(self) -> list[tuple[PartitionId, GivenUpRecord]]:
        records = []
        for item in self.mirror.below(self.keyspace.all_given_up):
            partition = self.keyspace.parse_given_up(item.key)
            record = self._unreadable.read(item.key, item, GivenUpRecord.decode)
            if partition is not None and isinstance(record, GivenUpRecord):
                records.append((partition, record))
        return records

    def _incarnations(self) -> dict[str, str]:
        """Return the incarnations of the nodes that live and whose records can be read."""
        prefix = self.keyspace.nodes
        incarnations = {}
        for item in self.nodes.below(prefix):
            record = read(item, NodeRecord.decode)
            if isinstance(record, NodeRecord):
                incarnations[item.key.removeprefix(prefix)] = record.incarnation
        return incarnations


def _note(reading: ZoneReading, partition: PartitionId) -> Iterator[Txn]:
    """Yield the note for a partition; nothing for one that lacks no node, or is not as it was read
    any more."""
    observed, item = reading.observed(partition), reading.given_up.get(partition)
    processed = readable(observed.trigger, decode_trigger) or 0
    names = left_without_note(reading.view(partition), processed)
    record = left_out_by_reset(readable(item, GivenUpRecord.decode), processed, names) if names else None
    if record is not None:
        key = reading.keyspace.given_up(partition)
        guards = (*observed.guards("stable", "pending", "planned", "trigger"), as_read(key, item))
        log.info("a reset left a partition short", partition=str(partition), nodes=names)
        yield Txn(guards, (Put(key, record.encode()),))
