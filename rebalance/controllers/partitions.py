"""Step 1 for all partitions of a zone: guarded writes from a stored target, many to a request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

import structlog

from catalog.core.zone import ZoneId
from rebalance.controllers.targets import NamedTarget
from rebalance.core.assignments import Assignments
from rebalance.core.guarded_write import Decision, Observed, Outcome, decide_on_trigger
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.txn import KeyValue, Txn, TxnResult, unchanged
from rebalance.ports.metastore import Metastore

log = structlog.get_logger(__name__)

PARTITIONS_PER_REQUEST = 100
ROUNDS_MAX = 10
ASSIGNMENT_FIELDS = {
    "assignments/stable": "stable",
    "assignments/pending": "pending",
    "assignments/planned": "planned",
    "assignments/change.trigger.revision": "trigger",
}


class StaleTargetError(Exception):
    """A newer target was named while this one was being written: work from that one."""


class ContendedError(Exception):
    """Some partitions changed under every attempt; they are tried again later."""


def observe(keyspace: Keyspace, items: Iterable[KeyValue]) -> dict[PartitionId, Observed]:
    """The assignment keys among ``items``, by partition."""
    found: dict[PartitionId, dict[str, KeyValue]] = {}
    for item in items:
        parsed = keyspace.parse_partition(item.key)
        if parsed is not None and parsed[1] in ASSIGNMENT_FIELDS:
            found.setdefault(parsed[0], {})[ASSIGNMENT_FIELDS[parsed[1]]] = item
    return {partition: Observed(keyspace.partition(partition), **fields) for partition, fields in found.items()}


class PartitionWriter:
    """Commits the decisions of ``decide_on_trigger``."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace) -> None:
        self._metastore = metastore
        self._keyspace = keyspace

    async def write(self, zone_id: ZoneId, named: NamedTarget) -> Counter[Outcome]:
        """Take every partition to ``named``; returns how often each outcome came.

        Raises StaleTargetError when the zone's pointer moved on, ContendedError after ``ROUNDS_MAX`` rounds.
        """
        targets = await asyncio.to_thread(lambda: dict(enumerate(named.target.assignments())))
        outcomes: Counter[Outcome] = Counter()
        for _ in range(ROUNDS_MAX):
            snapshot = await self._metastore.range(self._keyspace.zone_partitions(zone_id))
            observed = observe(self._keyspace, snapshot.items)
            targets = await self._write_round(zone_id, named, targets, observed, outcomes)
            if not targets:
                return outcomes
        raise ContendedError(f"{len(targets)} partitions of zone {zone_id} changed under every attempt")

    async def _write_round(
        self,
        zone_id: ZoneId,
        named: NamedTarget,
        targets: Mapping[int, Assignments],
        observed: Mapping[PartitionId, Observed],
        outcomes: Counter[Outcome],
    ) -> dict[int, Assignments]:
        """One attempt at each partition; returns those whose guards failed."""
        again: dict[int, Assignments] = {}
        batch: list[tuple[int, Decision, Txn]] = []
        for number, target in targets.items():
            partition = PartitionId(zone_id, number)
            seen = observed.get(partition) or Observed(self._keyspace.partition(partition))
            decision = decide_on_trigger(seen, target, named.target.pointer.event_revision)
            if decision.transaction is None:
                outcomes[decision.outcome] += 1
                continue
            batch.append((number, decision, decision.transaction))
            if len(batch) == PARTITIONS_PER_REQUEST:
                again.update(
                    (each, targets[each]) for each in await self._commit(zone_id, named, batch, outcomes)
                )
                batch = []
        if batch:
            again.update((each, targets[each]) for each in await self._commit(zone_id, named, batch, outcomes))
        return again

    async def _commit(
        self,
        zone_id: ZoneId,
        named: NamedTarget,
        batch: list[tuple[int, Decision, Txn]],
        outcomes: Counter[Outcome],
    ) -> list[int]:
        guard = unchanged(self._keyspace.target_pointer(zone_id), named.pointer_revision)
        result = await self._metastore.commit(Txn((guard,), tuple(transaction for _, _, transaction in batch)))
        if not result.succeeded:
            raise StaleTargetError(f"zone {zone_id}: target {named.target.pointer.event_revision} was replaced")
        failed: list[int] = []
        for (number, decision, _), response in zip(batch, result.responses, strict=True):
            if isinstance(response, TxnResult) and response.succeeded:
                outcomes[decision.outcome] += 1
            else:
                failed.append(number)
        return failed
