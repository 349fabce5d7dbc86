"""Brings operations forward: counts what is done, carries out cancels, and ends what has nothing left.

Level-triggered and without a memory that matters: the leading controller reads the operations that are not
over, looks at their zones, and writes what has changed, guarded by the operation as it was read. Large zones
are looked at seldom, and not again before one of their keys has changed, so that looking takes a small part of
the time: what waits for a node that is down may wait for days.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog
from structlog.contextvars import bound_contextvars

from catalog.core.errors import RefusedError
from catalog.core.zone import ZoneId
from rebalance.controllers.clock import Clock
from rebalance.controllers.partitions import PARTITIONS_PER_REQUEST
from rebalance.controllers.recovery import check_numbers
from rebalance.controllers.targets import TargetStore
from rebalance.controllers.zone_reading import ZoneReader, ZoneReading
from rebalance.core.admission.move_admission import Limits, move_of
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import decode_trigger
from rebalance.core.assignments.target import StoredTarget, TargetPointer, available_target, known_start
from rebalance.core.assignments.withdrawal import (
    CancelledPartitions,
    cancelled,
    decide_on_call_back,
    decide_on_withdrawal,
)
from rebalance.core.backoff import Backoff
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, readable
from rebalance.core.keyspace.txn import KeyValue, Put, Txn, unchanged
from rebalance.core.moves.move_status import MoveState, StoreOwners
from rebalance.core.operations.operation import (
    Operation,
    OperationKind,
    OperationState,
    PartitionStep,
    Step,
    advance,
    given_up_cause,
    is_finished,
    moved,
    step_of,
)
from rebalance.hosting.background import Background
from rebalance.hosting.keyed_queue import KeyedQueue, work_each
from rebalance.metastore.guarded_update import commit_each
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.metastore import Metastore, MetastoreError, Newest
from rebalance.ports.metric_rows import NO_MEASURES, Measures, Metric

log = structlog.get_logger(__name__)

LOOK_S = 1.0
LOOK_PARTITION_S = 0.001
"""A zone is looked at again after ``look_s`` and so long for each of its partitions."""
RETRY = Backoff(1.0, 30.0)
PARTITIONS_PER_SLICE = 500
STOPPED = (OperationState.CANCELLED, OperationState.FAILED)


Owners = Callable[[ZoneId, int], StoreOwners | None]


@dataclass(frozen=True, slots=True)
class _Still:
    """Basis of a look that found nothing new."""

    newest: tuple[Newest, ...]
    limits: Limits


@dataclass(frozen=True, slots=True)
class _Seen:
    """Findings of one look. ``moving``: some partition moves to the target now. ``leaving``: drained nodes that
    do not live."""

    steps: tuple[PartitionStep, ...]
    moving: bool
    leaving: frozenset[str]

    @property
    def untouched(self) -> list[int]:
        """Partitions of which nothing has begun."""
        return [step.partition for step in self.steps if step.untouched]


@dataclass(eq=False)
class OperationKeeper:
    """``follow`` keeps the operations known, in every controller; ``run`` brings them forward, in the one that
    leads. ``limits`` answers with those of now: a pause of the zone or of the cluster is one of its operation.
    """

    metastore: Metastore
    keyspace: Keyspace
    clock: Clock
    limits: Callable[[], Limits]
    background: Background = field(default_factory=lambda: Background(restarts=False))
    owners: Owners = lambda zone_id, partition: None
    measures: Measures = NO_MEASURES
    drained: Callable[[], Collection[str]] = tuple
    look_s: float = LOOK_S

    def __post_init__(self) -> None:
        self._reader = ZoneReader(self.metastore, self.keyspace)
        self._targets = TargetStore(self.metastore, self.keyspace)
        self.mirror = KeyspaceMirror(self.metastore, self.keyspace.operations)
        """``run`` keeps the operations current, and tells who listens that some came or ended."""
        self.mirror.listen(self._on_change)
        self._unreadable = UnreadableLog()
        self._not_over: dict[str, Operation] = {}
        self._queue: KeyedQueue[str] | None = None
        self._copies: dict[str, tuple[int, ...]] = {}
        self._still: dict[str, _Still] = {}

    def first(self) -> tuple[ZoneId, str] | None:
        """The earliest operation that moves data and is not over: the one that may go on where only one may."""
        moving = (each for each in self._not_over.values() if each.kind.moves_data)
        first = min(moving, key=lambda each: (each.event_revision, each.zone_id), default=None)
        return (first.zone_id, first.operation_id) if first is not None else None

    async def run(self) -> None:
        """Run until cancelled."""
        self._still.clear()
        queue = self._queue = KeyedQueue[str](RETRY, random.Random("operations"))
        for key in self._not_over:
            queue.add(key)
        try:
            await work_each(queue, self._look_in_time, 1, self._note_failure)
        finally:
            self._queue = None

    def _on_change(self, changed: frozenset[str]) -> None:
        for key in sorted(changed):
            operation = self._unreadable.read(key, self.mirror.get(key), Operation.decode)
            # One that cannot be read is not brought forward, and keeps no other one from its turn.
            if not isinstance(operation, Operation) or operation.is_over:
                for known in (self._not_over, self._copies, self._still):
                    known.pop(key, None)
            else:
                before = self._not_over.get(key)
                self._not_over[key] = operation
                if before is None or before.state is not operation.state:
                    self._still.pop(key, None)
                    if self._queue is not None:
                        self._queue.add(key)

    async def _look_in_time(self, key: str) -> float | None:
        item, operation = self.mirror.get(key), self._not_over.get(key)
        if item is None or operation is None:
            return None
        seen = _Still(await self._newest(operation.zone_id), self.limits())
        if self._still.get(key) != seen or self._hastens(operation, seen.limits):
            self._still.pop(key, None)
            if await self.look(item) == operation:
                self._still[key] = seen
        self._unreadable.goes_on(key)
        return self.look_s + LOOK_PARTITION_S * operation.tally.total

    def _note_failure(self, key: str, error: Exception, delay_s: float) -> None:
        if isinstance(error, RecordNotReadableError):
            self._unreadable.waits(key, error)
        elif isinstance(error, MetastoreError | RefusedError):
            log.info("operation not looked at", operation=key, error=str(error), again_in_s=round(delay_s, 1))
        else:
            self.background.defect("an operation's look", error, operation=key)

    async def _newest(self, zone_id: ZoneId) -> tuple[Newest, ...]:
        """Return the newest revisions of all that a look reads. Taken before it: what changes during the look
        is seen the next time."""
        keys = self.keyspace
        zone = (
            *(keys.zone_partitions(zone_id), keys.zone_members(zone_id), keys.zone_targets(zone_id)),
            keys.zone_given_up(zone_id),
        )
        shared = keys.nodes, keys.intents, keys.all_data_nodes, keys.pointers, keys.epoch, keys.last_result
        return tuple([await self.metastore.newest(prefix) for prefix in (*zone, *shared)])

    def _hastens(self, operation: Operation, limits: Limits) -> bool:
        """Check that time alone changes it: the end of a pause, or the limit of how long it may take."""
        now_ms = self.clock.now_ms()
        timed = limits.operation_s is not None and not operation.is_over
        return timed or operation.state is OperationState.PAUSED or limits.next_end_ms(now_ms) is not None

    async def look(self, item: KeyValue) -> Operation:
        """The operation as it is after one look. Raises MetastoreError, and RefusedError when its zone changed
        under the look."""
        operation = readable(item, Operation.decode)
        if operation.is_over:
            return operation
        with bound_contextvars(operation=operation.operation_id, zone=operation.zone_id):
            return await self._looked(item, operation)

    async def _looked(self, item: KeyValue, operation: Operation) -> Operation:
        reading = await self._reader.read(operation.zone_id)
        if reading.epoch.halted:
            return operation
        after = await self._after(operation, reading)
        if after == replace(operation, tally=replace(operation.tally, at_ms=after.tally.at_ms)):
            return operation
        guard = unchanged(item.key, item.mod_revision)
        written = await self.metastore.commit(Txn((guard,), (Put(item.key, after.encode()),)))
        if not written.succeeded:
            return operation
        if after.is_over:
            self._count(after)
        if after.state is not operation.state or after.is_over:
            log.info("operation", state=after.state.value, over=after.is_over)
        return after

    def _count(self, ended: Operation) -> None:
        labels = ended.kind.value, ended.state.value
        self.measures.count(Metric.OPERATIONS_ENDED, *labels)
        lasted_ms = max((ended.ended_ms or ended.started_ms) - ended.started_ms, 0)
        self.measures.observe(Metric.OPERATION_SECONDS, lasted_ms / 1_000, *labels)

    async def withdraw(self, item: KeyValue, only: Collection[int] | None = None) -> bool:
        """Gives up what the operation ``item`` has not begun, and calls back what it has, of the partitions
        ``only`` (None: of all, as it was cancelled); False: there was nothing."""
        operation = readable(item, Operation.decode)
        reading = await self._reader.read(operation.zone_id)
        pointer = reading.pointer
        if pointer is None or pointer.event_revision != operation.event_revision:
            return False
        seen = await self._seen(operation, reading, ())
        untouched = [number for number in seen.untouched if only is None or number in only]
        begun = _numbers(operation, pointer) if only is None else only
        return await self._give_up(operation, reading, untouched, begun)

    async def cancelled(
        self, operation: Operation, numbers: Collection[int] | None = None
    ) -> CancelledPartitions:
        """Return what a cancel has come to by now, of partitions ``numbers`` (None: of all). Raises
        RefusedError (PARTITION_NOT_FOUND)."""
        reading = await self._reader.read(operation.zone_id)
        if numbers is None:
            numbers = _numbers(operation, reading.pointer) if reading.pointer is not None else ()
        elif reading.intent is not None:
            check_numbers(reading.intent.zone, sorted(numbers))
        outcomes: dict[str, list[int]] = {}
        for number in sorted(numbers):
            observed = reading.observed(PartitionId(operation.zone_id, number))
            if what := cancelled(observed, operation.event_revision):
                outcomes.setdefault(what, []).append(number)
        return CancelledPartitions(**{what: tuple(members) for what, members in outcomes.items()})

    async def _after(self, operation: Operation, reading: ZoneReading) -> Operation:
        now_ms, pointer = self.clock.now_ms(), reading.pointer
        if reading.intent is None or reading.intent.dropped or pointer is None:
            return self._ended(operation, "the zone was dropped")
        of_target = operation.kind is not OperationKind.RESET
        if of_target and pointer.event_revision != operation.event_revision:
            return self._ended(operation, "another target took its place")
        seen = await self._seen(operation, reading, await self._copies_of(operation, reading))
        if operation.state in STOPPED:
            is_cancelled = operation.state is OperationState.CANCELLED
            begun = _numbers(operation, pointer) if is_cancelled else ()
            if not await self._give_up(operation, reading, seen.untouched, begun) and is_finished(seen.steps):
                return operation.closed(now_ms)
            return operation
        return self._counted(operation, seen, now_ms)

    def _counted(self, operation: Operation, seen: _Seen, now_ms: int) -> Operation:
        grown = operation.tally.at_ms > 0
        tally = advance(operation.tally, seen.steps, now_ms)
        grown = grown and tally.done > operation.tally.done
        limited = self.limits().holds(now_ms)
        movement = moved(operation.movement, seen.steps, now_ms, limited=limited, leaving=seen.leaving)
        counted = replace(operation, tally=tally, movement=movement)
        if is_finished(seen.steps):
            cause = given_up_cause(seen.steps)
            failed = counted.after(Step.FAILED, now_ms, cause) if cause else None
            return (failed or counted).closed(now_ms)
        if (seen.moving or grown) and counted.begun_ms is None:
            counted = counted.after(Step.BEGUN, now_ms, counted.cause) or counted
        limits = self.limits()
        timed = limits.operation_s is not None and counted.kind.moves_data
        if timed and limits.operation_s and now_ms - counted.started_ms > 1_000 * limits.operation_s:
            detail = Cause.TIME_LIMIT.text(f"it took longer than {limits.operation_s} s")
            return counted.after(Step.FAILED, now_ms, detail) or counted
        paused = limits.pause_cause(counted.zone_id, now_ms) if counted.kind.moves_data else ""
        if counted.state is OperationState.PAUSED:
            if not paused:
                return counted.after(Step.RESUMED, now_ms) or counted
            return replace(counted, cause=paused)
        return (counted.after(Step.PAUSED, now_ms, paused) or counted) if paused else counted

    def _ended(self, operation: Operation, why: str) -> Operation:
        """Return the operation as ended, as its target is not the zone's any more. A stopped one keeps its
        state."""
        now_ms = self.clock.now_ms()
        return operation.after(Step.SUPERSEDED, now_ms, why) or operation.closed(now_ms)

    async def _seen(self, operation: Operation, reading: ZoneReading, copies: Sequence[int]) -> _Seen:
        pointer = reading.pointer
        assert pointer is not None
        numbers = _numbers(operation, pointer)
        steps: list[PartitionStep] = []
        moving = False
        for place, number in enumerate(numbers):
            if place % PARTITIONS_PER_SLICE == 0:
                # Lets others have the loop: a zone may have many.
                await asyncio.sleep(0)
            step, moves = _step(operation, reading, number, copies[number] if copies else 0, self.owners)
            steps.append(step)
            moving |= moves
        return _Seen(tuple(steps), moving, frozenset(self.drained()) - reading.alive)

    async def _copies_of(self, operation: Operation, reading: ZoneReading) -> tuple[int, ...]:
        """Return how many copies the operation makes of each partition; empty: not known."""
        key = self.keyspace.operation(operation.operation_id)
        known = self._copies.get(key)
        if known is None:
            before = await self.metastore.get(self.keyspace.target_before(operation.zone_id))
            known = ()
            if before is not None and readable(before, TargetPointer.decode).event_revision == operation.before:
                stored = await self._targets.read(operation.zone_id, before)
                sizes = await self.metastore.get(self.keyspace.copy_sizes(operation.zone_id))
                start = known_start(sizes, operation.event_revision)
                standing = dict(start.standing) if start is not None else {}
                known = await asyncio.to_thread(_copies, stored, reading, standing)
            self._copies[key] = known
        return known

    async def _give_up(
        self, operation: Operation, reading: ZoneReading, untouched: Sequence[int], begun: Collection[int]
    ) -> bool:
        """``untouched`` stay at what is stable, and those of ``begun`` that can go back to it; a partition that
        changed meanwhile is looked at again. False: there was nothing."""
        writes = list(_withdrawals(operation, reading, untouched, begun))
        if writes:
            done, _ = await commit_each(self.metastore, reading.guards, writes, PARTITIONS_PER_REQUEST)
            log.info("moves given up", operation=operation.operation_id, partitions=done)
        return bool(writes)


def _step(
    operation: Operation, reading: ZoneReading, number: int, copies: int, owners: Owners
) -> tuple[PartitionStep, bool]:
    """Return where the partition is, and True if it moves by the operation now."""
    partition = PartitionId(reading.zone_id, number)
    view, pointer = reading.view(partition), reading.pointer
    assert pointer is not None
    trigger = reading.observed(partition).trigger
    processed = readable(trigger, decode_trigger) or 0
    target = view.stable if operation.kind is OperationKind.RESET else view.target
    if target is not None and operation.kind is not OperationKind.RESET:
        target = available_target(target, view.stable, pointer.gone)
    view = replace(
        view,
        target=target,
        processed=processed >= operation.event_revision,
        recovered=processed > operation.event_revision,
        owners=owners(reading.zone_id, number),
    )
    step = step_of(number, view, reading.alive, copies)
    if step.untouched and view.stable == target and view.pending is None and operation.state in STOPPED:
        # It is where the target wants it: there is nothing to give up.
        step = PartitionStep(number, MoveState.DONE)
    planned_only = view.planned is not None and processed == operation.event_revision
    if planned_only:
        step = replace(step, untouched=True)
    return step, view.processed and view.pending is not None and view.planned is None


def _numbers(operation: Operation, pointer: TargetPointer) -> Sequence[int]:
    return operation.partitions or range(pointer.partitions)


def _withdrawals(
    operation: Operation, reading: ZoneReading, untouched: Sequence[int], begun: Collection[int]
) -> Iterator[Txn]:
    """Yield writes that call back what can be; the rest of ``untouched`` is withdrawn."""
    event, back = operation.event_revision, frozenset(begun)
    for number in sorted(back.union(untouched)):
        observed = reading.observed(PartitionId(reading.zone_id, number))
        if number in back and observed.pending is not None:
            configuration = reading.keys.get(observed.keys.configuration)
            decision = decide_on_call_back(observed, configuration, event, reading.event)
            if decision.transaction is not None:
                yield decision.transaction
                continue
        if number in untouched:
            decision = decide_on_withdrawal(observed, event, reading.event)
            if decision.transaction is not None:
                yield decision.transaction


def _copies(before: StoredTarget, reading: ZoneReading, standing: Mapping[int, Assignments]) -> tuple[int, ...]:
    """Raises ValueError for a target that is incomplete."""
    after = reading.targets
    if before.pointer.partitions != len(after):
        return ()
    counts: dict[tuple[bytes | Assignments, Assignments], int] = {}
    counts_of_rows = []
    for number, (row, target) in enumerate(zip(before.rows(), after, strict=True)):
        stands = standing.get(number)
        pair = stands or row, target
        if pair not in counts:
            counts[pair] = len(move_of(stands or before.assignments_of(row), target).receivers)
        counts_of_rows.append(counts[pair])
    return tuple(counts_of_rows)
