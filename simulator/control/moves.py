"""Moves and operations of a simulation as invariants, and somebody who sets limits meanwhile.

What moves is counted anew after each revision, by what pending asks for. Only the beginning of a move is
limited, so only a beginning can break a limit: a lower cap stops nothing that moves, and a newer target of what
moves already is never held back. Limits are set from a random stream of their own.

What operations say of themselves (progress, the end, and the cause of each wait) is held against what is so:
groups and copies are asked themselves, not the records that the product counts by.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from catalog.core.zone import ZoneId
from rebalance.controllers.zone_reading import ZoneReading
from rebalance.core.admission.move_admission import Limits, Move, Pause, move_of
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import decode_trigger
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.core.moves.move_status import MoveState, PartitionView, partition_status
from rebalance.core.operations.operation import (
    STATES,
    Operation,
    OperationKind,
    OperationState,
    PartitionStep,
    step_of,
)
from rebalance.ports.metastore import KeyEvent, MetastoreUnavailableError
from simulator.control.invariants import (
    AppliedConfigurations,
    Auditor,
    ObservedStore,
    ZoneFacts,
    assignments_at,
)
from simulator.control.processes import Environment

CLUSTER = "cluster"

Broken = tuple[str, str]
"""The invariant, and what was found."""


def broken_limits(
    limits: Limits, moving: Counter[str], zone_id: ZoneId, move: Move, batch: int, now_ms: int
) -> Iterator[Broken]:
    """Yield the limits that the beginning of ``move`` breaks. ``moving`` counts the moves of now, by
    ``sides_of``, with this move; ``batch`` moves of the zone have begun since none of it moved, this one among
    them."""
    if paused := limits.pause_cause(zone_id, now_ms):
        yield "no move begins while it is paused", paused
    caps = (limits.cluster_moves, limits.zone_moves, limits.donor_moves, limits.receiver_moves)
    for (whose, names), cap in zip(sides_of(zone_id, move).items(), caps, strict=True):
        for name in names:
            if cap is not None and moving[name] > cap:
                yield f"no more partitions move than the {whose}'s limit", f"{name}: {moving[name]}/{cap}"
    if limits.batch_size is not None and batch > limits.batch_size:
        yield "a batch begins when none of the last moves", f"{batch}/{limits.batch_size}"


def sides_of(zone_id: ZoneId, move: Move) -> dict[str, tuple[str, ...]]:
    """Names for which a move counts: the cluster, its zone, each donor and each receiver."""
    return {
        "cluster": (CLUSTER,),
        "zone": (f"zone {zone_id}",),
        "donor": tuple(f"donor {node}" for node in move.donors),
        "receiver": tuple(f"receiver {node}" for node in move.receivers),
    }


class MovesAuditor:
    """Observes a store and calls ``fail`` with what is broken. ``now_ms`` is the controllers' clock. Nothing of
    the admission's own counting is used.

    ``begun`` counts the moves that have begun, ``instants`` the revisions that changed what moves, ``peak`` the
    most that ever moved at once.
    """

    def __init__(
        self,
        store: ObservedStore,
        keyspace: Keyspace,
        fail: Callable[[str, str], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._keyspace = keyspace
        self._fail = fail
        self._now_ms = now_ms
        self._limits = Limits()
        self._moves: dict[PartitionId, Move] = {}
        self._batches: Counter[ZoneId] = Counter()
        self._counts: Counter[str] = Counter()
        self.begun = 0
        self.instants = 0
        self.peak = 0
        store.observe(self.on_revision)

    @property
    def moving(self) -> frozenset[PartitionId]:
        return frozenset(self._moves)

    def on_revision(self, _revision: int, events: tuple[KeyEvent, ...]) -> None:
        touched: dict[PartitionId, None] = {}
        for event in events:
            if event.key == self._keyspace.limits:
                self._on_limits(event)
            elif "/assignments/" in event.key:
                parsed = self._keyspace.parse_partition(event.key)
                if parsed is not None:
                    touched[parsed[0]] = None
        begun = [partition for partition in touched if self._recount(partition)]
        if touched:
            self.instants += 1
            self.peak = max(self.peak, len(self._moves))
            self._on_begun(begun)

    def _on_limits(self, event: KeyEvent) -> None:
        self._limits = Limits.decode(event.current.value if event.current is not None else None)
        # What moves now is the last batch: nothing of the zone begins beside it, whatever the new size is.
        size = self._limits.batch_size or 0
        self._batches = Counter({partition.zone_id: size for partition in self._moves})

    def _recount(self, partition: PartitionId) -> bool:
        """Count the partition's move anew; True if it begins."""
        before = self._moves.pop(partition, None)
        if before is not None:
            self._counts.subtract(_flat(partition.zone_id, before))
        keys = self._keyspace.partition(partition)
        stable, pending = self._store.peek(keys.stable), self._store.peek(keys.pending)
        if stable is None or pending is None:
            return False
        now, target = Assignments.decode(stable.value), Assignments.decode(pending.value)
        move = self._moves[partition] = move_of(now, target)
        self._counts.update(_flat(partition.zone_id, move))
        return before is None

    def _on_begun(self, begun: list[PartitionId]) -> None:
        self.begun += len(begun)
        for zone_id, count in Counter(partition.zone_id for partition in begun).items():
            if self._counts[f"zone {zone_id}"] == count:
                self._batches[zone_id] = 0
            self._batches[zone_id] += count
        now_ms = self._now_ms() if begun else 0
        for partition in begun:
            batch = self._batches[partition.zone_id]
            for invariant, detail in broken_limits(
                self._limits, self._counts, partition.zone_id, self._moves[partition], batch, now_ms
            ):
                self._fail(invariant, f"{partition}: {detail}")


def _flat(zone_id: ZoneId, move: Move) -> list[str]:
    return [name for names in sides_of(zone_id, move).values() for name in names]


GAPS_S = (0.5, 2.0, 6.0)
PAUSE_S_MAX = 12.0
RETRY_S = 0.5


class LimitsSetter:
    """Setter of limits: ``cluster_moves`` at all times; other caps and pauses, also of single zones, come and
    go until ``calm``."""

    def __init__(self, seed: int, environment: Environment, cluster_moves: int) -> None:
        self._rng = random.Random(f"{seed}/limits")
        self._environment = environment
        self._limits = Limits(cluster_moves=cluster_moves)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def calm(self) -> None:
        """The cap of the cluster alone stays."""
        self.end()
        await self._set(self._limits)

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        await self._set(self._limits)
        while True:
            await asyncio.sleep(self._rng.choice(GAPS_S) * self._rng.uniform(0.2, 2.0))
            await self._set(self._drawn())

    def _drawn(self) -> Limits:
        rng, cap = self._rng, self._limits.cluster_moves or 1
        caps: dict[str, Any] = {
            name: rng.randint(1, cap)
            for name in ("zone_moves", "donor_moves", "receiver_moves", "batch_size")
            if rng.random() < 0.3
        }
        zones = {
            zone: self._pause() for zone in sorted(self._environment.catalog.intents) if rng.random() < 0.2
        }
        pause = self._pause() if rng.random() < 0.3 else None
        return replace(self._limits, **caps, pause=pause, zone_pauses=zones)

    def _pause(self) -> Pause:
        now_ms = round(1_000 * asyncio.get_running_loop().time())
        return Pause("simulation", "", now_ms, now_ms + self._rng.randint(1, round(1_000 * PAUSE_S_MAX)))

    async def _set(self, limits: Limits) -> None:
        self._environment.trace.note("limits", limits.encode().decode())
        key = self._environment.keyspace.limits
        while True:
            try:
                await self._environment.store.commit(Txn((), (Put(key, limits.encode()),)))
            except MetastoreUnavailableError:
                await asyncio.sleep(RETRY_S)
            else:
                return


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
