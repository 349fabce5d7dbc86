"""Carries out recoveries: reads a zone at one revision, plans, and writes each partition under its guards.

No leadership is needed: any process may ask. The event revision of a reset is the revision that it was planned
from, which is above every event that the zone knew by then; what comes later is newer and overtakes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import Origin, Zone, ZoneId, ZoneIntent
from rebalance.controllers.clock import Clock, WallClock
from rebalance.core.assignments import Assignments
from rebalance.core.data_nodes import DataNodes
from rebalance.core.epoch import EpochRecord, event_revision, split_event_revision
from rebalance.core.guarded_write import Observed, decide_on_forced_move, decode_trigger
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.move_status import PartitionView, given_up_of
from rebalance.core.operation import Operation, OperationKind
from rebalance.core.operation_progress import Tally
from rebalance.core.readable import RecordNotReadableError, readable
from rebalance.core.records import ConfigurationRecord, GivenUpRecord, MemberRecord, RestartRecord
from rebalance.core.recovery import ResetPlan, RestartPlan, plan_reset, plan_restart
from rebalance.core.target import StoredTarget, TargetPointer, is_target_of
from rebalance.core.txn import Compare, Get, KeyValue, Put, Txn, absent, unchanged
from rebalance.ports.metastore import Metastore

log = structlog.get_logger(__name__)

ROUNDS_MAX = 5
NOBODY_ASKED = Origin()


@dataclass(frozen=True, slots=True)
class PartitionReset:
    """What becomes of one partition: a plan, or why there is none. ``written``: it was asked for, and is under
    way."""

    partition: int
    plan: ResetPlan | None = None
    refusal: RefusedError | None = None
    written: bool = False


@dataclass(frozen=True, slots=True)
class ShownReset:
    """What whoever asks has seen of one partition's plan, and so accepts to lose."""

    partition: int
    survivor: str
    empty: bool
    possibly_lost_entries: int


@dataclass(frozen=True, slots=True)
class PartitionRestart:
    partition: int
    plan: RestartPlan


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
    targets: tuple[Assignments, ...] = field(default=())
    given_up: dict[PartitionId, KeyValue] = field(default_factory=dict)

    @property
    def event(self) -> int:
        """The event revision of what is decided from this reading."""
        return event_revision(self.epoch.epoch, self.revision)

    def observed(self, partition: PartitionId) -> Observed:
        keys = self.keyspace.partition(partition)
        names = (keys.stable, keys.pending, keys.planned, keys.trigger, keys.lock)
        return Observed(keys, *(self.keys.get(name) for name in names))

    def view(self, partition: PartitionId) -> PartitionView:
        seen = self.observed(partition)
        configuration = self.keys.get(seen.keys.configuration)
        processed = readable(seen.trigger, decode_trigger) or 0
        return PartitionView(
            target=self.targets[partition.partition] if self.targets else None,
            stable=_assignments(seen.stable),
            pending=_assignments(seen.pending),
            planned=_assignments(seen.planned),
            processed=self.pointer is not None and processed >= self.pointer.event_revision,
            members={
                node: readable(item, MemberRecord.decode)
                for node, item in self.members.get(partition, {}).items()
            },
            configuration=readable(configuration, ConfigurationRecord.decode),
            given_up=given_up_of(readable(self.given_up.get(partition), GivenUpRecord.decode), processed),
        )

    def why_not_idle(self, numbers: Iterable[int]) -> str:
        """What of the zone is not carried out yet; empty: its partitions know the newest target."""
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


class PartitionRecovery:
    """Methods raise RefusedError for what is in the way, RECORD_NOT_READABLE among it, and MetastoreError."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace, clock: Clock | None = None) -> None:
        self._metastore = metastore
        self._keyspace = keyspace
        self._clock = clock or WallClock()

    async def reset(
        self,
        zone: Zone,
        numbers: Sequence[int] = (),
        *,
        empty: bool = False,
        dry_run: bool = False,
        origin: Origin = NOBODY_ASKED,
        shown: Collection[ShownReset] | None = None,
    ) -> list[PartitionReset]:
        """Partitions ``numbers``, each of which must need it, or every one of the zone that does. ``origin``
        says who asks. ``shown``: what a dry run has said; None: whatever is lost is accepted.

        All are planned from one reading before the first is written. One that changed meanwhile is read and
        planned again. Raises RefusedError: what ``plan_reset`` raises, PARTITION_NOT_FOUND, CLUSTER_NOT_IDLE,
        SHOWN_STATE_CHANGED.
        """
        check_numbers(zone, numbers)
        reading = await self.read(zone.zone_id)
        _check_idle(zone, reading, numbers)
        planned = self.plan(reading, numbers or range(zone.partitions), empty=empty)
        if numbers:
            for each in planned:
                if each.refusal is not None:
                    raise _of_partition(each.partition, each.refusal)
        needed = [
            each
            for each in planned
            if each.refusal is None or each.refusal.kind is not ErrorKind.RECOVERY_NOT_NEEDED
        ]
        if not needed:
            message = f"every partition of zone {zone.name} has a majority of its voters"
            raise RefusedError(ErrorKind.RECOVERY_NOT_NEEDED, message)
        if dry_run:
            return needed
        accepted = None if shown is None else {each.partition: each for each in shown}
        for each in needed:
            _check_shown(each, accepted)
        done = [
            each if each.plan is None else await self._write_reset(zone, reading, each, accepted, empty=empty)
            for each in needed
        ]
        await self.note(reading, [each.partition for each in done if each.written], origin)
        return done

    async def note(self, reading: ZoneReading, numbers: Sequence[int], origin: Origin) -> None:
        """The operation of what was reset from ``reading``, put if absent. Resets do not wait for it: one that
        is not noted, because whoever asked has died, is carried out all the same."""
        if not numbers or reading.intent is None:
            return
        operation = Operation(
            kind=OperationKind.RESET,
            zone_id=reading.zone_id,
            zone=reading.intent.zone.name,
            event_revision=reading.event,
            catalog_version=reading.intent.version,
            started_ms=self._clock.now_ms(),
            by=origin.by,
            verified=origin.verified,
            reason=origin.reason,
            moves=len(numbers),
            tally=Tally(total=len(numbers)),
            partitions=tuple(numbers),
        )
        key = self._keyspace.operation(operation.operation_id)
        await self._metastore.commit(Txn((absent(key),), (Put(key, operation.encode()),)))

    def plan(
        self, reading: ZoneReading, numbers: Iterable[int], *, empty: bool = False, automatic: bool = False
    ) -> list[PartitionReset]:
        """Without writing anything."""
        data_nodes: Collection[str] = reading.data_nodes.nodes if reading.data_nodes else ()
        found = []
        for number in numbers:
            try:
                view = reading.view(PartitionId(reading.zone_id, number))
                plan = plan_reset(view, reading.alive, data_nodes, automatic=automatic, empty=empty)
            except RefusedError as refusal:
                found.append(PartitionReset(number, refusal=refusal))
            else:
                found.append(PartitionReset(number, plan))
        return found

    async def restart(
        self,
        zone: Zone,
        numbers: Sequence[int],
        nodes: Sequence[str] = (),
        *,
        cleanup: bool = False,
        dry_run: bool = False,
    ) -> list[PartitionRestart]:
        """Ask the members of the partitions on ``nodes`` (empty: on all) to restart.

        Raises RefusedError: what ``plan_restart`` raises, PARTITION_NOT_FOUND, NODE_NOT_FOUND.
        """
        check_numbers(zone, numbers)
        reading = await self.read(zone.zone_id)
        known = reading.alive | {node for members in reading.members.values() for node in members}
        unknown = sorted(set(nodes) - known)
        if unknown:
            message = f"there is no node {', '.join(unknown)}; there are {', '.join(sorted(known)) or 'none'}"
            raise RefusedError(ErrorKind.NODE_NOT_FOUND, message)
        plans = []
        for number in numbers or range(zone.partitions):
            view = reading.view(PartitionId(zone.zone_id, number))
            try:
                plans.append(
                    PartitionRestart(number, plan_restart(view, reading.alive, nodes, cleanup=cleanup))
                )
            except RefusedError as refusal:
                raise _of_partition(number, refusal) from refusal
        if not dry_run:
            for each in plans:
                await self._write_restart(PartitionId(zone.zone_id, each.partition), each.plan)
        return plans

    async def read(self, zone_id: ZoneId) -> ZoneReading:
        keys = self._keyspace
        names = keys.intent(zone_id), keys.data_nodes(zone_id), keys.target_pointer(zone_id), keys.epoch
        result = await self._metastore.commit(Txn((), tuple(Get(name) for name in names)))
        intent, data_nodes, pointer, epoch = (result.only(index) for index in range(len(names)))
        partitions = await self._metastore.range(keys.zone_partitions(zone_id))
        members: dict[PartitionId, dict[str, KeyValue]] = {}
        for item in (await self._metastore.range(keys.zone_members(zone_id))).items:
            parsed = keys.parse_member(item.key)
            if parsed is not None:
                members.setdefault(parsed[0], {})[parsed[1]] = item
        given_up = await self._metastore.range(keys.zone_given_up(zone_id))
        nodes = await self._metastore.range(keys.nodes)
        reading = ZoneReading(
            zone_id=zone_id,
            keyspace=keys,
            revision=result.revision,
            epoch=readable(epoch, EpochRecord.decode) or EpochRecord(),
            intent=readable(intent, ZoneIntent.decode),
            data_nodes=readable(data_nodes, DataNodes.decode),
            pointer=readable(pointer, TargetPointer.decode),
            alive=frozenset(item.key.removeprefix(keys.nodes) for item in nodes.items),
            guards=tuple(
                unchanged(name, found.mod_revision if found else 0)
                for name, found in zip(names, (intent, data_nodes, pointer, epoch), strict=True)
            ),
            keys={item.key: item for item in partitions.items},
            members=members,
            given_up={
                partition: item
                for item in given_up.items
                if (partition := keys.parse_given_up(item.key)) is not None
            },
        )
        if reading.pointer is not None:
            chunks = await self._metastore.range(keys.target(zone_id, reading.pointer.event_revision))
            target = StoredTarget(reading.pointer, tuple(item.value for item in chunks.items))
            try:
                reading.targets = tuple(target.assignments())
            except RecordNotReadableError:
                raise
            except ValueError as error:
                # Replaced since the pointer was read.
                message = "its newest target was replaced just now"
                raise RefusedError(ErrorKind.CLUSTER_NOT_IDLE, message) from error
        return reading

    async def force(self, reading: ZoneReading, partition: PartitionId, plan: ResetPlan) -> bool:
        """The reset's transaction; False when something that it was planned from has changed."""
        observed = reading.observed(partition)
        decision = decide_on_forced_move(observed, plan.forced, reading.event, then=plan.then, empty=plan.empty)
        if decision.transaction is None:
            return False
        configuration = reading.keys.get(observed.keys.configuration)
        committed = unchanged(observed.keys.configuration, configuration.mod_revision if configuration else 0)
        compares = (*reading.guards, *decision.transaction.compares, committed)
        result = await self._metastore.commit(Txn(compares, decision.transaction.success))
        if result.succeeded:
            log.warning(
                "partition reset",
                partition=str(partition),
                survivor=plan.survivor,
                then=plan.then.peers if plan.then else (),
                possibly_lost_entries=plan.possibly_lost_entries,
                empty=plan.empty,
            )
        return result.succeeded

    async def _write_reset(
        self,
        zone: Zone,
        reading: ZoneReading,
        reset: PartitionReset,
        accepted: Mapping[int, ShownReset] | None,
        *,
        empty: bool,
    ) -> PartitionReset:
        partition = PartitionId(zone.zone_id, reset.partition)
        for _ in range(ROUNDS_MAX):
            if reset.plan is None:
                return reset
            if await self.force(reading, partition, reset.plan):
                return PartitionReset(reset.partition, reset.plan, written=True)
            reading = await self.read(zone.zone_id)
            _check_idle(zone, reading, (reset.partition,))
            (reset,) = self.plan(reading, (reset.partition,), empty=empty)
            try:
                _check_shown(reset, accepted)
            except RefusedError as refusal:
                # The others were asked for already: this one is told beside them.
                return PartitionReset(reset.partition, refusal=refusal)
        message = f"partition {reset.partition} changed under every attempt"
        return PartitionReset(reset.partition, refusal=RefusedError(ErrorKind.CLUSTER_NOT_IDLE, message))

    async def _write_restart(self, partition: PartitionId, plan: RestartPlan) -> None:
        """A request that is not carried out yet is asked for again: it is the same request."""
        value = RestartRecord(plan.cleanup).encode()
        exists = self._keyspace.partition(partition).stable
        found = await self._metastore.get(exists)
        guards = [unchanged(exists, found.mod_revision if found else 0)]
        for node in plan.nodes:
            asked = await self._metastore.get(self._keyspace.restart(partition, node))
            readable(asked, RestartRecord.decode)
            name = self._keyspace.restart(partition, node)
            guards.append(unchanged(name, asked.mod_revision if asked else 0))
        puts = tuple(Put(self._keyspace.restart(partition, node), value) for node in plan.nodes)
        if not (await self._metastore.commit(Txn(tuple(guards), puts))).succeeded:
            message = f"partition {partition.partition} changed meanwhile"
            raise RefusedError(ErrorKind.CLUSTER_NOT_IDLE, message)


def _check_shown(reset: PartitionReset, accepted: Mapping[int, ShownReset] | None) -> None:
    """Raises RefusedError when more would be lost than was accepted, or another copy kept."""
    plan = reset.plan
    if plan is None or accepted is None:
        return
    shown = accepted.get(reset.partition)
    if shown is None:
        message = f"partition {reset.partition} now needs a reset, too"
    elif (shown.survivor, shown.empty) != (plan.survivor, plan.empty):
        message = f"partition {reset.partition} would now go on with the copy of {plan.survivor}"
    elif shown.possibly_lost_entries < plan.possibly_lost_entries:
        message = (
            f"partition {reset.partition} may now lose {plan.possibly_lost_entries} entries, not "
            f"{shown.possibly_lost_entries}"
        )
    else:
        return
    raise RefusedError(ErrorKind.SHOWN_STATE_CHANGED, f"{message}: look at a dry run again")


def check_numbers(zone: Zone, numbers: Sequence[int]) -> None:
    """Raises RefusedError: PARTITION_NOT_FOUND."""
    wrong = sorted(number for number in numbers if not 0 <= number < zone.partitions)
    if wrong:
        message = (
            f"zone {zone.name} has partitions 0 to {zone.partitions - 1}, not {', '.join(map(str, wrong))}"
        )
        raise RefusedError(ErrorKind.PARTITION_NOT_FOUND, message)


def _check_idle(zone: Zone, reading: ZoneReading, numbers: Sequence[int]) -> None:
    if reading.data_nodes is not None and not reading.data_nodes.nodes:
        message = f"zone {zone.name} has no data node now"
        raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, message)
    why = reading.why_not_idle(numbers or range(zone.partitions))
    if not why and reading.intent is not None and reading.intent.zone != zone:
        why = "its newest change is not published yet"
    if why:
        raise RefusedError(ErrorKind.CLUSTER_NOT_IDLE, f"zone {zone.name}: {why}")


def _of_partition(number: int, refusal: RefusedError) -> RefusedError:
    return RefusedError(refusal.kind, f"partition {number}: {refusal.message}")


def _assignments(item: KeyValue | None) -> Assignments | None:
    return readable(item, Assignments.decode)
