"""Operations as clients see them: the records, how far each is, what it waits for, and its plan.

Pure functions of a mirror or of a copy of it. Counts of an operation never run backwards: what its record says
is the least.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from app.contract.columns import Facts, body_of
from app.contract.operations import (
    NoteBody,
    OperationBody,
    OperationDetail,
    OperationPlanBody,
    OperationProgress,
    RememberedOperation,
    UnitBody,
)
from app.views.keyspace_views import KeyspaceViews
from catalog.core.zone import ZoneId
from rebalance.controllers.targets import PlacedRows, moved_copies
from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.guarded_write import decode_trigger
from rebalance.core.assignments.target import StoredTarget, TargetPointer, known_start
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read, readable
from rebalance.core.keyspace.records import ConfigurationRecord
from rebalance.core.keyspace.txn import KeyValue
from rebalance.core.moves.move_status import MoveState
from rebalance.core.operations.operation import (
    Operation,
    OperationKind,
    OperationState,
    PartitionStep,
    Tally,
    advance,
    estimate,
    step_of,
    stuck,
)
from rebalance.kernels.transfers import NOBODY, totals
from rebalance.metastore.mirror import KeyspaceCopy

BATCHES_SHOWN_MAX = 100


@dataclass(frozen=True, slots=True)
class OperationFilter:
    """Criteria of a list of operations; an empty one lets all pass. ``seen``: the zones whose operations may
    be shown; None: all, also those that are gone."""

    zone_id: ZoneId | None = None
    states: Collection[OperationState] = ()
    kinds: Collection[OperationKind] = ()
    seen: Collection[ZoneId] | None = None

    def passes(self, operation: Operation) -> bool:
        if self.seen is not None and operation.zone_id not in self.seen:
            return False
        return (not self.states or operation.state in self.states) and (
            not self.kinds or operation.kind in self.kinds
        )


class OperationViews:
    """Read models of operations over ``keys``; ``views`` are those over the same keys."""

    def __init__(self, keys: KeyspaceCopy, keyspace: Keyspace, views: KeyspaceViews) -> None:
        self._keys = keys
        self._keyspace = keyspace
        self._views = views

    def find(self, name: str) -> tuple[Operation, KeyValue] | None:
        item = self._keys.get(self._keyspace.operation(name))
        return None if item is None else (readable(item, Operation.decode), item)

    def listed(self, criteria: OperationFilter) -> list[tuple[Operation, KeyValue]]:
        """Operations that pass, the newest first; without those that cannot be read."""
        keys = self._keyspace
        prefix = keys.operations if criteria.zone_id is None else keys.zone_operations(criteria.zone_id)
        passed = []
        for item in self._keys.below(prefix):
            operation = read(item, Operation.decode)
            if not isinstance(operation, Unreadable) and criteria.passes(operation):
                passed.append((operation, item))
        return sorted(passed, key=lambda pair: (-pair[0].event_revision, pair[0].zone_id))

    def reverse_of(self, operation: Operation) -> Operation | None:
        """The operation that reverses this one."""
        prefix = self._keyspace.zone_operations(operation.zone_id)
        parsed = (read(item, Operation.decode) for item in self._keys.below(prefix))
        known = (record for record in parsed if not isinstance(record, Unreadable))
        return next((other for other in known if other.reverses == operation.operation_id), None)

    def is_newest(self, operation: Operation) -> bool:
        """True if the zone's newest target is the operation's."""
        pointer = read(self._keys.get(self._keyspace.target_pointer(operation.zone_id)), TargetPointer.decode)
        return isinstance(pointer, TargetPointer) and pointer.event_revision == operation.event_revision

    def summary(self, operation: Operation, item: KeyValue, now_ms: int) -> OperationBody:
        """The operation as a list shows it."""
        return body_of(OperationBody, self.facts(operation, item, now_ms))

    @staticmethod
    def facts(operation: Operation, item: KeyValue, now_ms: int) -> Facts:
        """Facts of the operation, with the counts of its record."""
        return operation_facts(operation, item, _progress(operation, operation.tally, now_ms), now_ms)

    def detail(
        self, operation: Operation, item: KeyValue, now_ms: int, *, with_plan: bool = True
    ) -> OperationDetail:
        """The operation with its moves and waits of now, and its plan while both of its targets are stored."""
        steps = tuple(self.steps(operation)) if not operation.is_over else ()
        tally = advance(operation.tally, steps, operation.tally.at_ms)
        progress = _progress(operation, tally, now_ms)
        states = [step.state for step in steps]
        progress["partitions"]["moving"] = states.count(MoveState.MOVING)
        progress["partitions"]["waiting"] = states.count(MoveState.WAITING)
        facts = operation_facts(operation, item, progress, now_ms)
        body = cast(OperationDetail, body_of(RememberedOperation, facts))
        body["waiting"] = [
            {"cause": cause.cause, "partitions": cause.count, "numbers": list(cause.partitions)}
            for cause in stuck(steps)
        ]
        if with_plan:
            body["plan"] = self.plan(operation)
        return body

    def steps(self, operation: Operation) -> Iterator[PartitionStep]:
        """Yield the step at which each partition is, of an operation that is not over; none where its target is
        no longer the newest."""
        alive = self._views.alive()
        if operation.kind is OperationKind.RESET:
            yield from self._steps_of_reset(operation, alive)
        elif self.is_newest(operation):
            placed = self._views.placed(operation.zone_id)
            for number in range(placed.pointer.partitions if placed else 0):
                view, _ = self._views.view(PartitionId(operation.zone_id, number), placed)
                yield step_of(number, view, alive)

    def _steps_of_reset(self, operation: Operation, alive: frozenset[str]) -> Iterator[PartitionStep]:
        for number in operation.partitions:
            partition = PartitionId(operation.zone_id, number)
            trigger = read(self._keys.get(self._keyspace.partition(partition).trigger), decode_trigger)
            processed = 0 if trigger is None or isinstance(trigger, Unreadable) else trigger
            yield step_of(number, self._views.reset_view(partition, operation.event_revision, processed), alive)

    def plan(self, operation: Operation) -> OperationPlanBody | None:
        """Donors and stealers, and batches; None: a target of it is not stored any more."""
        zone_id, keys = operation.zone_id, self._keyspace
        after = self._target(zone_id, keys.target_pointer(zone_id), operation.event_revision)
        before = self._target(zone_id, keys.target_before(zone_id), operation.before)
        if after is None or (before is None and operation.before):
            return None
        partitions = len(after.matrix)
        start = known_start(self._keys.get(keys.copy_sizes(zone_id)), operation.event_revision)
        standing = start.standing if start is not None else ()
        sizes = self._sizes(zone_id, partitions, start.sizes if start is not None else ())
        try:
            names, moved = moved_copies(before, after, standing, sizes)
        except ValueError:
            return None
        sums = totals(moved)
        units: list[UnitBody] = [
            {
                "donor": names[donor] if donor != NOBODY else None,
                "stealer": names[stealer] if stealer != NOBODY else None,
                "copies": int(count),
                "bytes": int(size),
            }
            for donor, stealer, count, size in zip(
                sums.donor.tolist(), sums.stealer.tolist(), sums.replicas, sums.size, strict=True
            )
        ]
        return self._in_batches(units, np.unique(moved.partition).tolist())

    def _in_batches(self, units: list[UnitBody], moving: list[int]) -> OperationPlanBody:
        """The plan, cut into batches by the limits in force now: without ``batch_size`` it is one batch."""
        limits = Limits.of(self._keys.get(self._keyspace.limits))
        size = limits.batch_size or max(1, len(moving))
        starts = range(0, len(moving), size)
        shown = [moving[start : start + size] for start in starts[:BATCHES_SHOWN_MAX]]
        return {
            "units": units,
            "batch_size": limits.batch_size,
            "batches": len(starts),
            "first_batches": [{"batch": n, "partitions": numbers} for n, numbers in enumerate(shown, start=1)],
        }

    def _target(self, zone_id: ZoneId, key: str, event: int) -> PlacedRows | None:
        """The stored target that ``key`` names, if it is that of ``event``."""
        pointer = read(self._keys.get(key), TargetPointer.decode)
        if not isinstance(pointer, TargetPointer) or pointer.event_revision != event:
            return None
        below = self._keys.below(self._keyspace.target(zone_id, event))
        try:
            return PlacedRows.of(StoredTarget(pointer, tuple(chunk.value for chunk in below)))
        except ValueError:
            return None

    def _sizes(self, zone_id: ZoneId, partitions: int, known: Sequence[int]) -> npt.NDArray[np.int64]:
        """Sizes of the partitions in bytes: those that the operation was estimated with; of one that an earlier
        build began, those of now."""
        if len(known) == partitions:
            return np.array(known, dtype=np.int64)
        sizes = np.zeros(partitions, dtype=np.int64)
        for number in range(partitions):
            item = self._keys.get(self._keyspace.partition(PartitionId(zone_id, number)).configuration)
            configuration = read(item, ConfigurationRecord.decode)
            if isinstance(configuration, ConfigurationRecord):
                sizes[number] = configuration.size_bytes
        return sizes


def operation_facts(operation: Operation, item: KeyValue, progress: OperationProgress, now_ms: int) -> Facts:
    values = {
        "catalog_version_before": operation.before_version or None,
        "event_revision_before": operation.before or None,
        "target_revision": item.create_revision,
        "last_progress": operation.movement.at_ms or None,
        "stuck": operation.is_stuck(now_ms),
        "progress": progress,
        "history": history_of(operation),
    }
    return Facts(operation, values)


def history_of(operation: Operation) -> list[NoteBody]:
    return [body_of(NoteBody, Facts(note)) for note in operation.notes]


def _progress(operation: Operation, tally: Tally, now_ms: int) -> OperationProgress:
    runs = operation.state is OperationState.RUNNING and not operation.is_over
    forecast = estimate(tally, operation.begun_ms if runs else None, now_ms)
    return {
        "partitions": {"total": tally.total, "done": tally.done},
        "bytes": {"estimated": tally.bytes_total, "copied": tally.bytes_done},
        "bytes_per_s": None if forecast.rate is None else round(forecast.rate),
        "seconds_left": None if forecast.left_s is None else round(forecast.left_s, 1),
    }
