"""Operations' own accounts, compared with the truth: progress, the end, and the cause of each wait.

The truth is read from groups and copies, not from the records that the product counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from catalog.core.zone import ZoneId
from rebalance.controllers.zone_reading import ZoneReading
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import decode_trigger
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.moves.move_status import MoveState, PartitionView, partition_status
from rebalance.core.operations.operation import (
    STATES,
    Operation,
    OperationKind,
    OperationState,
    PartitionStep,
    step_of,
)
from rebalance.ports.metastore import KeyEvent
from simulator.control.invariants import (
    AppliedConfigurations,
    Auditor,
    ObservedStore,
    ZoneFacts,
    assignments_at,
)

SHOWN_MAX = 3
PROGRESS = "progress never runs backwards"
LIFE = "an operation's state follows its table"
ENDS_ONCE = "an operation ends once"
NOT_DONE = "an operation is not done before everything is"
COUNTED = "no more is counted as done than is"
CAUSE = "every partition that waits names its cause"
ONE_OPEN = "each newest target has its operation, and no other of its zone is open"


def broken_records(before: Operation, after: Operation) -> Iterator[tuple[str, str]]:
    """Yield rules that a step of one operation has broken, by its two records: (invariant, finding)."""
    name = after.operation_id
    if any(now < was for was, now in zip(before.tally.numbers, after.tally.numbers, strict=True)):
        yield PROGRESS, f"{name}: {before.tally} to {after.tally}"
    allowed = {before.state, *STATES[before.state].values()}
    if OperationState.WAITING in allowed and (before.begun_ms or after.begun_ms):
        allowed.add(OperationState.RUNNING)
    if after.state not in allowed:
        yield LIFE, f"{name}: {before.state.value} to {after.state.value}"
    if before.ended_ms is not None and (after.ended_ms != before.ended_ms or after.tally != before.tally):
        yield ENDS_ONCE, f"{name}: ended at {before.ended_ms}, now {after.ended_ms} with {after.tally}"


def what_is_left(
    store: ObservedStore,
    keyspace: Keyspace,
    partition: PartitionId,
    target: Assignments,
    event_revision: int,
    configurations: AppliedConfigurations,
) -> str:
    """The part of an operation with this target that is still to be done at the partition; empty: none."""
    keys = keyspace.partition(partition)
    trigger = store.peek(keys.trigger)
    if trigger is None or decode_trigger(trigger.value) < event_revision:
        return "it has not taken up the target"
    if assignments_at(store, keys.stable) != target:
        return "stable is not the target"
    if store.peek(keys.pending) is not None or store.peek(keys.planned) is not None:
        return "it moves"
    applied = configurations.applied(partition)
    voters, learners = applied if applied is not None else (frozenset(), frozenset())
    if voters != frozenset(target.peers) or learners - configurations.strays(partition):
        return "the group is not the target"
    copies = configurations.mirrors(partition)
    missing = frozenset(target.learners) - copies if copies is not None else frozenset()
    return f"no copy on {', '.join(sorted(missing))}" if missing else ""


class OperationAuditor:
    """Observes the store of ``auditor``, after it. With ``causes`` partitions that wait are looked at, too."""

    def __init__(
        self,
        store: ObservedStore,
        keyspace: Keyspace,
        auditor: Auditor,
        *,
        causes: bool,
    ) -> None:
        self._store = store
        self._keyspace = keyspace
        self._auditor = auditor
        self._causes = causes
        self._known: dict[ZoneId, dict[int, Operation]] = defaultdict(dict)
        nodes = store.range_now(keyspace.nodes).items
        self._alive = frozenset(item.key.removeprefix(keyspace.nodes) for item in nodes)
        self.done = 0
        """Operations that came to their end as DONE."""
        store.observe(self.on_revision)

    def on_revision(self, _revision: int, events: tuple[KeyEvent, ...]) -> None:
        keys = self._keyspace
        touched: dict[PartitionId, None] = {}
        zones: dict[ZoneId, None] = {}
        for event in events:
            if event.key.startswith(keys.operations):
                self._on_operation(event)
            elif event.key.startswith(keys.pointers):
                zones[ZoneId(int(event.key.removeprefix(keys.pointers)))] = None
            elif event.key.startswith(keys.nodes):
                name = frozenset({event.key.removeprefix(keys.nodes)})
                self._alive = self._alive - name if event.current is None else self._alive | name
            else:
                parsed = keys.parse_partition(event.key) or keys.parse_member(event.key)
                if parsed is not None:
                    touched[parsed[0]] = None
        for zone_id in zones:
            self._on_target(zone_id)
        if self._causes:
            for partition in touched:
                self._on_partition(partition)

    def _on_operation(self, event: KeyEvent) -> None:
        if event.current is None:
            return
        after = Operation.decode(event.current.value)
        of_zone = self._known[after.zone_id]
        before, of_zone[after.event_revision] = of_zone.get(after.event_revision), after
        if before is None:
            return
        for invariant, detail in broken_records(before, after):
            self._auditor.fail(invariant, detail)
        zone = self._auditor.zones.get(after.zone_id)
        if zone is None or zone.pointer.event_revision != after.event_revision:
            return
        counted = (after.tally, after.state) != (before.tally, before.state)
        if after.kind is not OperationKind.RESET and counted:
            self._on_counted(after, zone)

    def _on_counted(self, operation: Operation, zone: ZoneFacts) -> None:
        configurations = self._auditor.configurations
        if configurations is None:
            return
        left = {}
        for number in range(zone.pointer.partitions):
            partition = PartitionId(operation.zone_id, number)
            lack = what_is_left(
                self._store,
                self._keyspace,
                partition,
                zone.target(number),
                operation.event_revision,
                configurations,
            )
            if lack:
                left[partition] = lack
        there = zone.pointer.partitions - len(left)
        shown = "; ".join(f"{partition}: {lack}" for partition, lack in list(left.items())[:SHOWN_MAX])
        if operation.state is OperationState.DONE and left:
            self._auditor.fail(NOT_DONE, f"{operation.operation_id}: {shown}")
        if operation.tally.done > there:
            counts = f"{operation.tally.done} are counted, and {there} are"
            self._auditor.fail(COUNTED, f"{operation.operation_id}: {counts}: {shown}")
        self.done += operation.state is OperationState.DONE

    def _on_target(self, zone_id: ZoneId) -> None:
        zone = self._auditor.zones.get(zone_id)
        if zone is None:
            self._known.pop(zone_id, None)
            return
        known = self._known[zone_id].values()
        of_targets = (operation for operation in known if operation.kind is not OperationKind.RESET)
        is_open = [operation.event_revision for operation in of_targets if operation.state.is_open]
        if is_open != [zone.pointer.event_revision]:
            detail = f"zone {zone_id}: target {zone.pointer.event_revision}, open are {is_open}"
            self._auditor.fail(ONE_OPEN, detail)

    def _on_partition(self, partition: PartitionId) -> None:
        zone = self._auditor.zones.get(partition.zone_id)
        if zone is None or partition.partition >= zone.pointer.partitions:
            return
        step = self.step(partition, zone)
        if step.state is not MoveState.DONE and not step.cause:
            self._auditor.fail(CAUSE, f"{partition} is {step.state.value}")

    def step(self, partition: PartitionId, zone: ZoneFacts) -> PartitionStep:
        """The step at which an operation sees the partition now."""
        return step_of(partition.partition, self._view(partition, zone), self._alive)

    def cause(self, partition: PartitionId, zone: ZoneFacts) -> str:
        """Cause that the partition's status shows; empty when all is well."""
        return partition_status(self._view(partition, zone), self._alive).cause

    def _view(self, partition: PartitionId, zone: ZoneFacts) -> PartitionView:
        view = self._reading(partition, zone).view(partition)
        return replace(view, target=zone.target(partition.partition))

    def _reading(self, partition: PartitionId, zone: ZoneFacts) -> ZoneReading:
        """Reading of one partition alone, at once."""
        store, keys = self._store, self._keyspace
        below = f"{keys.zone_partitions(partition.zone_id)}{partition.partition}/"
        prefix = keys.member(partition, "")
        snapshot = store.range_now(below)
        members = {item.key.removeprefix(prefix): item for item in store.range_now(prefix).items}
        return ZoneReading(
            zone_id=partition.zone_id,
            keyspace=keys,
            revision=snapshot.revision,
            epoch=EpochRecord(),
            intent=None,
            data_nodes=None,
            pointer=zone.pointer,
            alive=self._alive,
            guards=(),
            keys={item.key: item for item in snapshot.items},
            members={partition: members},
        )
