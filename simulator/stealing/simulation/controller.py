"""The rebalance controller: a program beside the cluster that reaches every node and decides nothing alone.

It may die at any time: what it has done is on the nodes, and another one takes it back or finishes it
(``recover``). Source: VOL-013, VOL-014, VOL-020..047, VOL-088..094.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from simulator.stealing.core.steal_checks import (
    NodeReport,
    RebalanceOptions,
    Refusal,
    check_nodes,
    check_options,
    check_rollback,
    check_target,
    has_kind,
)
from simulator.stealing.core.steal_cluster import ClusterMetadata, StoreKind
from simulator.stealing.core.steal_plan import PlannedBatch, StealUnit, of_kind, plan
from simulator.stealing.core.steal_schedule import ProgressBoard, next_units
from simulator.stealing.core.steal_state_change import (
    BatchId,
    Recovery,
    StealStateChange,
    StealStep,
    batch_steps,
    decide_on_recovery,
    rollback_after,
    state_change,
)
from simulator.stealing.simulation.steal_errors import (
    InjectedError,
    NodeDownError,
    StealingError,
    UnitFailedError,
)
from simulator.stealing.simulation.steal_metadata import ChangeOrder
from simulator.stealing.simulation.steal_server import Server
from simulator.stealing.simulation.steal_world import World
from simulator.stealing.simulation.unit_view import JobStatus

T = TypeVar("T")

POLL_S = 0.02
INSIST_S = 0.1
INSIST_TIMES = 100
CONTROLLER = -1


class StealOutcome(Enum):
    """REFUSED: nothing was touched. ROLLED_BACK: the batch that failed was taken back; those before it hold.
    INCOMPLETE: some node could not be reached to take back or commit its part; ``recover`` when it is there."""

    COMPLETED = "COMPLETED"
    REFUSED = "REFUSED"
    ROLLED_BACK = "ROLLED_BACK"
    INCOMPLETE = "INCOMPLETE"


@dataclass(slots=True)
class Result:
    """``batches``: how many were committed. ``deleted_at``: donors that lost moved data. ``left``: nodes that
    have to be recovered."""

    start: ClusterMetadata
    outcome: StealOutcome = StealOutcome.COMPLETED
    refusals: tuple[Refusal, ...] = ()
    transitions: list[ClusterMetadata] = field(default_factory=list)
    batches: int = 0
    error: str = ""
    failed_step: StealStep | None = None
    deleted_at: set[int] = field(default_factory=set)
    left: tuple[int, ...] = ()


class Controller:
    """``run``: a name that no other run has. ``board``: progress of the run so far; ``nodes_seen``: whom it has
    to reach."""

    def __init__(self, world: World, run: str, options: RebalanceOptions | None = None) -> None:
        self.world = world
        self.run = run
        self.options = options or RebalanceOptions()
        self.board = ProgressBoard({})
        self._stores = world.stores
        self._has_ro = has_kind(self._stores, StoreKind.READ_ONLY)
        self._has_rw = has_kind(self._stores, StoreKind.READ_WRITE)

    async def show_plan(self, target: ClusterMetadata) -> tuple[PlannedBatch, ...]:
        """VOL-087: from the cluster as it is, without changing it."""
        reports = await self._reports(target.nodes)
        return plan(_current(reports), target, self._stores, self.options.batch_size)

    async def rebalance(self, target: ClusterMetadata) -> Result:
        """Returns after the last batch, or after what was done was taken back."""
        reports = await self._reports(target.nodes)
        current = _current(reports)
        result = Result(current)
        result.refusals = (
            *check_options(self.options),
            *check_nodes({*current.nodes, *target.nodes}, reports),
        ) or check_target(current, target, self._stores, self.options.batch_size)
        if result.refusals:
            result.outcome = StealOutcome.REFUSED
            return result
        planned = plan(current, target, self._stores, self.options.batch_size)
        self.board = ProgressBoard(self._totals(planned))
        for node in target.nodes:
            await self._insist(node, lambda server: server.add_nodes(target.nodes))
        for number, batch in enumerate(planned, 1):
            self.world.note(CONTROLLER, "Batch", f"{number}: {[move.partition for move in batch.moves]}")
            await self._run_batch(BatchId(self.run, number), batch, result)
            if result.outcome is not StealOutcome.COMPLETED:
                return result
            result.batches += 1
        if self.options.delete:
            await self._delete(planned, result)
        self.world.note(CONTROLLER, "Done")
        return result

    async def roll_back(self, result: Result) -> Result:
        """VOL-093: every owner as before the run, also of batches that were committed. It is a rebalancing the
        other way round, as donors do not hear of writes after the commit. Refused after deletes (VOL-094)."""
        refusals = check_rollback(result.deleted_at)
        if refusals:
            return Result(result.start, StealOutcome.REFUSED, refusals)
        return await self.rebalance(result.start.with_nodes(self.world.servers))

    async def recover(self) -> Result:
        """Recover after a controller died, or nodes were left behind. Every node must answer: one that does not
        may be the one that has committed."""
        reports = await self._reports(())
        result = Result(_current(reports))
        absent = set(self.world.servers) - {report.node for report in reports}
        if absent:
            result.refusals = check_nodes(absent, ())
            result.outcome = StealOutcome.REFUSED
            return result
        nodes = [report.node for report in reports]
        unfinished, committed = zip(*((report.unfinished, report.committed) for report in reports), strict=True)
        decision, batch = decide_on_recovery(unfinished, committed)
        self.world.note(CONTROLLER, "Recover", f"{decision.value} {batch or ''}".strip())
        if decision is Recovery.FORWARD and batch is not None:
            await self._commit(batch, nodes, result)
        elif decision is Recovery.BACK and batch is not None:
            await self._take_back(batch, tuple(StealStateChange), nodes, result)
        return result

    def _totals(self, planned: Iterable[PlannedBatch]) -> dict[str, int]:
        return {
            job_name(number, kind, unit): len(unit.names)
            for number, batch in enumerate(planned, 1)
            for kind in StoreKind
            for unit in of_kind(batch.units, self._stores, kind)
        }

    async def _reports(self, nodes: Iterable[int]) -> tuple[NodeReport, ...]:
        """VOL-025: from every node, now. Those that do not answer are left out."""
        reports = []
        for node in sorted({*self.world.servers, *nodes}):
            try:
                reports.append(await self.world.call(node, lambda server: server.report()))
            except NodeDownError:
                continue
        return tuple(reports)

    # One batch

    async def _run_batch(self, batch: BatchId, planned: PlannedBatch, result: Result) -> None:
        result.transitions.append(planned.after)
        changed: dict[int, None] = {}
        for step in batch_steps(self._has_ro, self._has_rw):
            self.world.note(CONTROLLER, "Step", step.value)
            try:
                if step in (StealStep.CHANGE_RO, StealStep.CHANGE_RW):
                    await self._change_state(step, batch, planned, changed)
                else:
                    kind = StoreKind.READ_ONLY if step is StealStep.MIGRATE_RO else StoreKind.READ_WRITE
                    await self._migrate(batch, of_kind(planned.units, self._stores, kind), kind)
            except StealingError as error:
                self.world.note(CONTROLLER, "Failed", f"{step.value}: {error}")
                result.outcome, result.error, result.failed_step = StealOutcome.ROLLED_BACK, str(error), step
                parts = rollback_after(step, self._has_ro, self._has_rw)
                await self._take_back(batch, parts, list(changed), result)
                return
        await self._commit(batch, list(changed), result)

    async def _change_state(
        self, step: StealStep, batch: BatchId, planned: PlannedBatch, changed: dict[int, None]
    ) -> None:
        """Node by node; ``changed`` grows by those that have done it, and those of which nobody knows."""
        change = state_change(step, self._has_ro, self._has_rw)
        units = of_kind(planned.units, self._stores, change.rebalance) if change.rebalance else ()
        nodes = list(planned.after.nodes)
        self.world.rng.shuffle(nodes)
        for node in nodes:
            own = tuple(unit for unit in units if unit.stealer == node)
            parts = change.on_node(bool(own))
            if not parts:
                continue
            order = ChangeOrder(batch, planned.before, planned.after, parts, own)
            try:
                await self._change_node(node, order)
            except NodeDownError:
                changed[node] = None
                raise
            changed[node] = None

    async def _change_node(self, node: int, order: ChangeOrder) -> None:
        await self.world.order(node, lambda server: server.change_state(order))

    async def _migrate(self, batch: BatchId, units: tuple[StealUnit, ...], kind: StoreKind) -> None:
        """Never more units at once than allowed (VOL-024). The first that fails ends the others."""
        waiting = list(units)
        running: dict[asyncio.Task[None], StealUnit] = {}
        try:
            while waiting or running:
                for unit in next_units(waiting, running.values(), self.options.max_parallel):
                    waiting.remove(unit)
                    name = job_name(batch.number, kind, unit)
                    running[asyncio.create_task(self._run_unit(name, unit))] = unit
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del running[task]
                    task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _run_unit(self, name: str, unit: StealUnit) -> None:
        number = await self.world.order(unit.stealer, lambda server: server.start_unit(unit))
        while True:
            await asyncio.sleep(POLL_S)
            job = await self.world.call(unit.stealer, lambda server: server.job(number))
            before = self.board.overall
            self.board = self.board.heard(name, job.progress.done)
            if self.board.overall != before:
                self.world.note(CONTROLLER, "Progress", str(self.board.overall))
            if job.status is JobStatus.COMPLETED:
                return
            if job.status is not JobStatus.RUNNING:
                raise UnitFailedError(f"{job.description}: {job.status.value} {job.error}".rstrip())

    # Ends of a batch

    async def _take_back(
        self, batch: BatchId, parts: tuple[StealStateChange, ...], changed: list[int], result: Result
    ) -> None:
        """Take parts of a batch back. Before the first node is back in the old state every stealer redirects
        again: its copies get old as soon as a donor serves clients itself. One that is down does so when it
        starts."""
        for node in changed:
            await self._try(node, lambda server: server.redirect_again(batch))
        left = [
            node for node in changed if not await self._insist(node, lambda server: server.undo(batch, parts))
        ]
        self._left_behind(left, result)
        self.world.note(CONTROLLER, "RolledBack", str(batch))

    async def _commit(self, batch: BatchId, nodes: list[int], result: Result) -> None:
        left = [node for node in nodes if not await self._insist(node, lambda server: server.commit(batch))]
        self._left_behind(left, result)

    @staticmethod
    def _left_behind(left: list[int], result: Result) -> None:
        if left:
            result.outcome, result.left = StealOutcome.INCOMPLETE, tuple(left)

    async def _delete(self, planned: Iterable[PlannedBatch], result: Result) -> None:
        """VOL-103: after the last copy of the last batch, so that everything before can be taken back."""
        batches = tuple(planned)
        final = batches[-1].after if batches else result.start
        replication = {entry.name: entry.replication for entry in self._stores}
        moved = sorted(
            {
                (unit.donor, store, partition)
                for batch in batches
                for unit in batch.units
                for store, partitions in unit.stores
                for partition in partitions
                if unit.donor not in final.replicas(partition, replication[store])
            }
        )
        for donor, store, partition in moved:
            result.deleted_at.add(donor)
            await self._delete_at(donor, store, partition)

    async def _delete_at(self, donor: int, store: str, partition: int) -> None:
        await self._insist(donor, lambda server: server.delete(store, partition))

    async def _insist(self, node: int, operation: Callable[[Server], Awaitable[T]]) -> bool:
        """Try many times, since nodes come back; True if it was done."""
        for _ in range(INSIST_TIMES):
            if await self._try(node, operation):
                return True
            await asyncio.sleep(INSIST_S)
        return False

    async def _try(self, node: int, operation: Callable[[Server], Awaitable[T]]) -> bool:
        try:
            await self.world.order(node, operation)
        except (NodeDownError, InjectedError) as error:
            self.world.note(CONTROLLER, "NotReached", str(error))
            return False
        return True


def job_name(batch: int, kind: StoreKind, unit: StealUnit) -> str:
    return f"batch {batch}, {kind.value}: {unit.stealer} <- {unit.donor}"


def _current(reports: Iterable[NodeReport]) -> ClusterMetadata:
    """Metadata on which the nodes agree. Nodes that some do not know yet own nothing."""
    clusters = [report.cluster for report in reports]
    if not clusters:
        return ClusterMetadata((), ())
    return clusters[0].with_nodes(node for cluster in clusters for node in cluster.nodes)
