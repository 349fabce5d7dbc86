"""Step 1 for all partitions of a zone: guarded writes from a stored target, many to a request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

import structlog

from catalog.core.zone import ZoneId
from rebalance.controllers.targets import NamedTarget
from rebalance.core.admission.bulk_write import BulkDecisions, ZoneKeys
from rebalance.core.admission.move_admission import Move
from rebalance.core.assignments.assignment import Strategy
from rebalance.core.assignments.guarded_write import Decision, Observed, Outcome
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError
from rebalance.core.keyspace.txn import Txn, TxnResult, unchanged
from rebalance.ports.metastore import ContendedError, Metastore, MetastoreUnavailableError
from rebalance.ports.metric_rows import NO_MEASURES, Measures, Metric

log = structlog.get_logger(__name__)

PARTITIONS_PER_REQUEST = 120
"""Partitions of one request, with the four guards of a partition that is not as usual: below
``OPERATIONS_MAX``."""
REQUESTS_IN_FLIGHT = 4
KEYS_PER_SLICE = 5_000
ROUNDS_MAX = 10
Planned = tuple[int, Outcome, Txn]
"""A partition's number, and what is decided about it."""


class StaleTargetError(Exception):
    """A newer target was named while this one was being written, or limits were set: work from those."""


@dataclass(frozen=True, slots=True)
class Written:
    """Outcomes with their counts, and the partitions that were left alone: number -> the move that waits, or
    what of the partition cannot be read. ``overtaken``: those to which something later than the target was
    written."""

    outcomes: Counter[Outcome]
    decisions: BulkDecisions
    waiting: dict[int, Move]
    unreadable: dict[int, RecordNotReadableError]
    overtaken: set[int]


class PartitionWriter:
    """Commits the decisions of ``decide_on_trigger``."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace, measures: Measures = NO_MEASURES) -> None:
        self._metastore = metastore
        self._keyspace = keyspace
        self._measures = measures

    async def write(
        self, zone_id: ZoneId, named: NamedTarget, strategy: Strategy = Strategy.QUEUE, *, begins: bool = True
    ) -> Written:
        """Take every partition to ``named``. The moves that begin have ``strategy``; without ``begins`` none
        does, and what would begin is left alone.

        A request whose outcome is unknown is resolved by reading its partitions back in the next round: what it
        wrote counts as OUTDATED_UPDATE_RECEIVED then.
        Raises StaleTargetError when the zone's pointer moved on, ContendedError after ``ROUNDS_MAX`` rounds.
        """
        decisions = await asyncio.to_thread(BulkDecisions, named.target, strategy)
        left: Sequence[int] = range(named.target.pointer.partitions)
        written = Written(Counter(), decisions, {}, {}, set())
        for _ in range(ROUNDS_MAX):
            work = _ZoneRound(self._metastore, self._keyspace, zone_id, named, written, begins=begins)
            left = await work.run(left)
            self._measures.count(Metric.GUARDED_WRITE_CONFLICTS, by=len(left))
            if not left:
                for outcome, count in written.outcomes.items():
                    self._measures.count(Metric.GUARDED_WRITES, outcome.value, by=count)
                return written
        raise ContendedError(f"{len(left)} partitions of zone {zone_id} changed under every attempt")


@dataclass(eq=False)
class _ZoneRound:
    """One attempt at each partition that is left, from one reading of the zone."""

    metastore: Metastore
    keyspace: Keyspace
    zone_id: ZoneId
    named: NamedTarget
    written: Written
    _: KW_ONLY
    begins: bool

    def __post_init__(self) -> None:
        self._event_revision = self.named.target.pointer.event_revision
        self._guards = (
            unchanged(self.keyspace.target_pointer(self.zone_id), self.named.pointer_revision),
            *self.named.fences,
        )
        self._again: list[int] = []

    async def run(self, numbers: Iterable[int]) -> list[int]:
        """Adds to what was written; returns the partitions whose guards failed or whose outcome is unknown."""
        keys = await self._read()
        in_flight: set[asyncio.Task[None]] = set()
        try:
            for batch in self._batches(keys, numbers):
                if len(in_flight) == REQUESTS_IN_FLIGHT:
                    in_flight = await _one_done(in_flight)
                in_flight.add(asyncio.create_task(self._commit(batch)))
                # Lets the request out, and others have the loop, before the next batch is decided.
                await asyncio.sleep(0)
            while in_flight:
                in_flight = await _one_done(in_flight)
        finally:
            for task in in_flight:
                task.cancel()
            await asyncio.gather(*in_flight, return_exceptions=True)
        return self._again

    async def _read(self) -> ZoneKeys:
        prefix = self.keyspace.zone_partitions(self.zone_id)
        snapshot = await self.metastore.range(prefix)
        keys = ZoneKeys(prefix, snapshot.revision)
        for start in range(0, len(snapshot.items), KEYS_PER_SLICE):
            keys.add(snapshot.items[start : start + KEYS_PER_SLICE])
            await asyncio.sleep(0)
        return keys

    def _batches(self, keys: ZoneKeys, numbers: Iterable[int]) -> Iterator[list[Planned]]:
        batch: list[Planned] = []
        for number in numbers:
            try:
                decision = self.written.decisions.decide(keys, number) or self._decide_alone(keys, number)
            except RecordNotReadableError as error:
                self.written.unreadable[number] = error
                continue
            if decision.transaction is None:
                self.written.outcomes[decision.outcome] += 1
                if self.written.decisions.is_overtaken(keys.trigger(number)):
                    self.written.overtaken.add(number)
                continue
            stable = keys.stable(number)
            if not self.begins and decision.outcome is Outcome.PENDING_KEY_UPDATED and stable is not None:
                self.written.waiting[number] = self.written.decisions.move(stable.value, number)
                continue
            batch.append((number, decision.outcome, decision.transaction))
            if len(batch) == PARTITIONS_PER_REQUEST:
                yield batch
                batch = []
        if batch:
            yield batch

    def _decide_alone(self, keys: ZoneKeys, number: int) -> Decision:
        partition_keys = self.keyspace.partition(PartitionId(self.zone_id, number))
        items = {item.key: item for item in keys.of(number)}
        return self.written.decisions.decide_alone(Observed.of(partition_keys, items.get), number)

    async def _commit(self, batch: list[Planned]) -> None:
        try:
            result = await self.metastore.commit(Txn(self._guards, tuple(decided[2] for decided in batch)))
        except MetastoreUnavailableError as error:
            if not error.outcome_unknown:
                raise
            self._again.extend(number for number, _, _ in batch)
            return
        if not result.succeeded:
            what = f"target {self._event_revision}, the epoch or the limits"
            raise StaleTargetError(f"zone {self.zone_id}: {what} were replaced")
        for (number, outcome, _), response in zip(batch, result.responses, strict=True):
            if isinstance(response, TxnResult) and response.succeeded:
                self.written.outcomes[outcome] += 1
            else:
                self._again.append(number)


async def _one_done(tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Waits for one at least; returns the others. Raises what failed."""
    done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return waiting
