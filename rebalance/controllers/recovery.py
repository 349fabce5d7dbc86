"""Carries out recoveries: reads a zone at one revision, plans, and writes each partition under its guards.

No leadership is needed: any process may ask. The event revision of a reset is the revision that it was planned
from, which is above every event that the zone knew by then; what comes later is newer and overtakes it.

Records and leases may be wrong about a group whose nodes are cut off from the metastore alone. So its members
are asked before each reset: one that answers a linearizable read proves that nothing has to be reset (R1).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import Origin, Zone, ZoneId
from rebalance.controllers.clock import Clock, WallClock
from rebalance.controllers.planned_resets import (
    PartitionReset,
    ShownReset,
    check_shown,
    check_terms,
    late_refusal,
    not_needed,
    not_reached,
    planned_reset,
)
from rebalance.controllers.zone_reading import ZoneReader, ZoneReading, in_slices, why_not_idle
from rebalance.core.assignments.guarded_write import decide_on_forced_move
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import readable
from rebalance.core.keyspace.records import GivenUpRecord, RestartRecord
from rebalance.core.keyspace.txn import Compare, Put, Txn, absent, as_read
from rebalance.core.moves.joiners import left_out_by_reset
from rebalance.core.operations.operation import Operation, OperationKind, Tally
from rebalance.core.recovery.recovery_plan import (
    BEST_COPY,
    ResetPlan,
    ResetTerms,
    RestartPlan,
    plan_restart,
    unconfirmed_loss,
)
from rebalance.ports.groups import ServingProbe
from rebalance.ports.metastore import Metastore

log = structlog.get_logger(__name__)

ROUNDS_MAX = 5
NO_ORIGIN = Origin()
GUARDED_NODES_MAX = 64
"""Nodes whose absence guards a reset, voters first: etcd takes 128 conditions in one transaction."""


OF_COPIES = (ErrorKind.RECOVERY_STATE_ILLEGAL, ErrorKind.NOT_ENOUGH_ALIVE_NODES, ErrorKind.COPIES_LEFT)
"""Refusals of a reset because of copies that records tell of, or do not."""
CALLS_AT_ONCE = 128
ASKING_S = 120.0
"""Seconds for which members are asked before a reset: enough for 5,000 partitions that do not answer."""


@dataclass(frozen=True, slots=True)
class PartitionRestart:
    partition: int
    plan: RestartPlan


@dataclass(frozen=True, slots=True)
class Serving:
    """``nodes``: of partitions that serve, the one whose member has answered. ``unasked``: those for which the
    time was not enough."""

    nodes: Mapping[PartitionId, str]
    unasked: frozenset[PartitionId]


@dataclass(eq=False)
class PartitionRecovery:
    """Methods raise RefusedError for what is in the way, RECORD_NOT_READABLE among it, and MetastoreError."""

    metastore: Metastore
    keyspace: Keyspace
    probe: ServingProbe
    clock: Clock = field(default_factory=WallClock)
    asking_s: float = ASKING_S

    def __post_init__(self) -> None:
        self._reader = ZoneReader(self.metastore, self.keyspace)

    async def read(self, zone_id: ZoneId) -> ZoneReading:
        """See ``ZoneReader.read``."""
        return await self._reader.read(zone_id)

    async def reset(
        self,
        zone: Zone,
        numbers: Sequence[int] = (),
        terms: ResetTerms = BEST_COPY,
        *,
        dry_run: bool = False,
        tells_refusals: bool = False,
        origin: Origin = NO_ORIGIN,
        shown: Collection[ShownReset] | None = None,
    ) -> list[PartitionReset]:
        """Partitions ``numbers``, each of which must need it, or every one of the zone that does. ``origin``
        says who asks. ``shown``: what a dry run has said; None: whatever is lost is accepted.

        ``tells_refusals``: a dry run of ``numbers`` returns each, with what is in its way; else the first that
        is refused is raised.

        All are planned from one reading before the first is written. One that changed meanwhile is read and
        planned again. Raises RefusedError: what ``plan_reset`` raises, PARTITION_NOT_FOUND, CLUSTER_NOT_IDLE,
        INVALID_REQUEST, SHOWN_STATE_CHANGED, and LOSS_NOT_CONFIRMED unless it is a dry run.
        """
        check_numbers(zone, numbers)
        check_terms(terms)
        reading = await self.read(zone.zone_id)
        await _check_idle(zone, reading, numbers)
        planned = []
        async for some in in_slices(numbers or range(zone.partitions)):
            planned += [planned_reset(reading, number, terms, tells_all=bool(numbers)) for number in some]
        planned = await self._without_serving(reading, planned)
        if numbers and dry_run and tells_refusals:
            return planned
        if numbers:
            for reset in planned:
                if reset.refusal is not None:
                    raise _of_partition(reset.partition, reset.refusal)
        needed = [
            reset
            for reset in planned
            if reset.refusal is None or reset.refusal.kind is not ErrorKind.RECOVERY_NOT_NEEDED
        ]
        if not needed:
            message = f"every partition of zone {zone.name} has a majority of its voters"
            raise RefusedError(ErrorKind.RECOVERY_NOT_NEEDED, message)
        if dry_run:
            return needed
        to_confirm = {node for reset in needed for node in reset.to_confirm}
        refusal = unconfirmed_loss(to_confirm, reading.alive, terms.confirmed_dead)
        if refusal is not None:
            raise refusal
        accepted = None if shown is None else {reset.partition: reset for reset in shown}
        for reset in needed:
            check_shown(reset, accepted)
        done = [
            reset if reset.plan is None else await self._write_reset(zone, reading, reset, accepted, terms)
            for reset in needed
        ]
        await self.note(reading, [reset.partition for reset in done if reset.written], origin)
        return done

    async def note(self, reading: ZoneReading, numbers: Sequence[int], origin: Origin) -> None:
        """The operation of what was reset from ``reading``, put if absent. Resets do not wait for it: one that
        is not noted, because the requester has died, is carried out all the same."""
        if not numbers or reading.intent is None:
            return
        operation = Operation(
            kind=OperationKind.RESET,
            zone_id=reading.zone_id,
            zone=reading.intent.zone.name,
            event_revision=reading.event,
            catalog_version=reading.intent.version,
            started_ms=self.clock.now_ms(),
            by=origin.by,
            verified=origin.verified,
            reason=origin.reason,
            moves=len(numbers),
            tally=Tally(total=len(numbers)),
            partitions=tuple(numbers),
        )
        key = self.keyspace.operation(operation.operation_id)
        await self.metastore.commit(Txn((absent(key),), (Put(key, operation.encode()),)))

    async def serving(self, reading: ZoneReading, partitions: Collection[PartitionId]) -> Serving:
        """Return the partitions that take writes whatever records and leases say. All members are asked, of
        nodes without a lease too; ``CALLS_AT_ONCE`` partitions side by side, all within ``asking_s``."""
        answers: dict[PartitionId, str] = {}
        waiting = iter(partitions)

        async def ask() -> None:
            for partition in waiting:
                members = reading.view(partition).members.items()
                urls = {node: member.client_url for node, member in members if member.client_url}
                answers[partition] = await self.probe.serving(partition, urls)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.asking_s), asyncio.TaskGroup() as tasks:
                for _ in range(min(CALLS_AT_ONCE, len(partitions))):
                    tasks.create_task(ask())
        return Serving(
            {partition: node for partition, node in answers.items() if node},
            frozenset(partitions) - answers.keys(),
        )

    async def _without_serving(
        self, reading: ZoneReading, planned: Sequence[PartitionReset]
    ) -> list[PartitionReset]:
        """A partition whose group serves needs no reset, and nobody waits for its copies. What is refused for
        another reason than these is not asked."""
        doubtful = [
            PartitionId(reading.zone_id, reset.partition)
            for reset in planned
            if reset.refusal is None or reset.refusal.kind in OF_COPIES
        ]
        if not doubtful:
            return list(planned)
        serving = await self.serving(reading, doubtful)
        resets = []
        for reset in planned:
            partition = PartitionId(reading.zone_id, reset.partition)
            if partition in serving.nodes:
                reset = reset.refused(not_needed(serving.nodes[partition]))
            elif partition in serving.unasked:
                reset = reset.refused(not_reached(self.asking_s))
            resets.append(reset)
        return resets

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
        async for some in in_slices(numbers or range(zone.partitions)):
            for number in some:
                view = reading.view(PartitionId(zone.zone_id, number))
                try:
                    plan = plan_restart(view, reading.alive, nodes, cleanup=cleanup)
                except RefusedError as refusal:
                    raise _of_partition(number, refusal) from refusal
                plans.append(PartitionRestart(number, plan))
        if not dry_run:
            for member_restart in plans:
                await self._write_restart(
                    PartitionId(zone.zone_id, member_restart.partition), member_restart.plan
                )
        return plans

    async def force(
        self,
        reading: ZoneReading,
        partition: PartitionId,
        plan: ResetPlan,
        also: Sequence[Compare] = (),
    ) -> bool:
        """The reset's transaction; False when something that it was planned from has changed, or ``also`` does
        not hold."""
        observed = reading.observed(partition)
        decision = decide_on_forced_move(
            observed,
            replace(plan.forced, absent=plan.absent[:GUARDED_NODES_MAX] if plan.empty else ()),
            reading.event,
            then=plan.then,
            empty=plan.empty,
        )
        if decision.transaction is None:
            return False
        configuration = reading.keys.get(observed.keys.configuration)
        committed = as_read(observed.keys.configuration, configuration)
        # A node that is back may have the better copy, or make a majority.
        given_up = reading.given_up.get(partition)
        left_out = left_out_by_reset(readable(given_up, GivenUpRecord.decode), reading.event, plan.left_out)
        key = self.keyspace.given_up(partition)
        noted = (Put(key, left_out.encode()),) if left_out is not None else ()
        still_absent = (absent(self.keyspace.node(node)) for node in plan.absent[:GUARDED_NODES_MAX])
        compares = (
            *(*reading.guards, *also, *decision.transaction.compares, committed, as_read(key, given_up)),
            *still_absent,
        )
        result = await self.metastore.commit(Txn(compares, (*decision.transaction.success, *noted)))
        if result.succeeded:
            log.warning(
                "partition reset",
                partition=str(partition),
                survivor=plan.survivor,
                then=plan.then.peers if plan.then else (),
                kind=plan.copy.kind.value if plan.copy is not None else "",
                revision=plan.copy.revision if plan.copy is not None else None,
                possibly_lost_entries=plan.possibly_lost_entries,
                silent=plan.silent,
                left_out=plan.left_out,
                empty=plan.empty,
            )
        return result.succeeded

    async def _write_reset(
        self,
        zone: Zone,
        reading: ZoneReading,
        reset: PartitionReset,
        accepted: Mapping[int, ShownReset] | None,
        terms: ResetTerms,
    ) -> PartitionReset:
        partition = PartitionId(zone.zone_id, reset.partition)
        for _ in range(ROUNDS_MAX):
            if reset.plan is None:
                return reset
            if await self.force(reading, partition, reset.plan):
                return replace(reset, written=True)
            reading = await self.read(zone.zone_id)
            await _check_idle(zone, reading, (reset.partition,))
            (reset,) = await self._without_serving(reading, [planned_reset(reading, reset.partition, terms)])
            refusal = late_refusal(reset, reading, accepted, terms)
            if refusal is not None:
                # The others were asked for already: this one is reported beside them.
                return reset.refused(refusal)
        message = f"partition {reset.partition} changed under every attempt"
        return reset.refused(RefusedError(ErrorKind.CLUSTER_NOT_IDLE, message))

    async def _write_restart(self, partition: PartitionId, plan: RestartPlan) -> None:
        """A request that is not carried out yet is asked for again: it is the same request."""
        value = RestartRecord(plan.cleanup).encode()
        exists = self.keyspace.partition(partition).stable
        item = await self.metastore.get(exists)
        guards = [as_read(exists, item)]
        for node in plan.nodes:
            restart_item = await self.metastore.get(self.keyspace.restart(partition, node))
            readable(restart_item, RestartRecord.decode)
            name = self.keyspace.restart(partition, node)
            guards.append(as_read(name, restart_item))
        puts = tuple(Put(self.keyspace.restart(partition, node), value) for node in plan.nodes)
        if not (await self.metastore.commit(Txn(tuple(guards), puts))).succeeded:
            message = f"partition {partition.partition} changed meanwhile"
            raise RefusedError(ErrorKind.CLUSTER_NOT_IDLE, message)


def check_numbers(zone: Zone, numbers: Sequence[int]) -> None:
    """Raises RefusedError: PARTITION_NOT_FOUND."""
    wrong = sorted(number for number in numbers if not 0 <= number < zone.partitions)
    if wrong:
        message = (
            f"zone {zone.name} has partitions 0 to {zone.partitions - 1}, not {', '.join(map(str, wrong))}"
        )
        raise RefusedError(ErrorKind.PARTITION_NOT_FOUND, message)


async def _check_idle(zone: Zone, reading: ZoneReading, numbers: Sequence[int]) -> None:
    if reading.data_nodes is not None and not reading.data_nodes.nodes:
        message = f"zone {zone.name} has no data node now"
        raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, message)
    why = await why_not_idle(reading, numbers or range(zone.partitions))
    if not why and reading.intent is not None and reading.intent.zone != zone:
        why = "its newest change is not published yet"
    if why:
        raise RefusedError(ErrorKind.CLUSTER_NOT_IDLE, f"zone {zone.name}: {why}")


def _of_partition(number: int, refusal: RefusedError) -> RefusedError:
    return RefusedError(refusal.kind, f"partition {number}: {refusal.message}")
