"""Reports of a node to keys of its own: failures at the groups that it leads, and its single partition map.

Failures are for operators, in ``SYSTEM.FAILURES``: changes whose attempts are used up (``CopyRules``), and
those of which none could be begun for ``BLOCKED_S``; each once, and again when its cause is another one or
its attempts have doubled. The key has no lease: what was reported outlives its node, and goes with the zone
or when enough newer ones are there.

The map has what the agent knows of each copy. States are written at most once a period, counters and sizes
alone at most once in ten: they grow with every update, and readers of the map do not route by them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import structlog

from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import (
    NODE_MAX,
    Failing,
    Failure,
    FailureRecord,
    failure_after,
    outdated,
    rounded_size,
)
from rebalance.core.keyspace.txn import (
    Delete,
    Operation,
    Put,
    Txn,
    present,
    unchanged,
)
from rebalance.core.moves.move_status import PartitionView as CoreView
from rebalance.core.moves.partition_state import copy_states
from rebalance.core.partition_maps.partition_map import CopyReport, CopyState
from rebalance.kernels.partition_map import STATE_NAMES, MapHeader, SingleArrays, encode_map, join_maps, merge
from rebalance.metastore.mirror import KeyspaceCopy
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.ports.groups import MemberStatus, ReconfigurationFailure
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

FAILURES_PERIOD_S = 2.0
BLOCKED_S = 10.0
"""Members of an ordinary move are reserved long before."""
CLEARED_MAX = 50
"""Records of other nodes that one request deletes."""


def log_failure(partition: PartitionId, failure: ReconfigurationFailure) -> None:
    """The failure handler of a node that was given none."""
    log.error(
        "a change of peers has failed, it is still tried now and then",
        partition=str(partition),
        code=failure.code.value,
        detail=failure.detail,
    )


@dataclass(slots=True)
class _Series:
    """Repeated failures at one partition, by code. ``blocked``: the code because of which no attempt is begun,
    and since when (the event loop's seconds)."""

    failures: dict[str, Failure] = field(default_factory=dict)
    blocked: tuple[str, float] | None = None


@dataclass(eq=False)
class FailureReport:
    """``note`` is called in the agent's rounds; ``run`` writes, at most once a period and only news."""

    node: str
    metastore: Metastore
    keyspace: Keyspace
    partitions: KeyspaceCopy
    now_ms: Callable[[], int]
    period_s: float
    blocked_s: float = BLOCKED_S

    def __post_init__(self) -> None:
        self._series: dict[PartitionId, _Series] = {}
        self._news: deque[Failure] = deque(maxlen=NODE_MAX)
        self._written: FailureRecord | None = None
        self._unreadable = UnreadableLog()

    def note(self, partition: PartitionId, term: int, failing: Failing | None) -> None:
        """Note the state of a partition, as its leader's node sees it; None: nothing fails, or it does not
        lead."""
        if failing is None:
            self._series.pop(partition, None)
            return
        series = self._series.setdefault(partition, _Series())
        if failing.attempt:
            series.blocked = None
        elif not self._is_blocked(series, failing.code):
            return
        before = series.failures.get(failing.code)
        if before is None or before.is_news(failing):
            failure = failure_after(before, partition, term, failing, self.now_ms())
            series.failures[failing.code] = failure
            self._news.append(failure)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(self.period_s)
            try:
                await self.write_if_changed()
            except MetastoreError as error:
                log.info("failures not written", error=str(error))

    async def write_if_changed(self) -> bool:
        """Write the report if it has changed; True if it was written. Raises MetastoreError."""
        if self._written is not None and not self._news and all(map(self._lives, self._written.partitions)):
            return False
        records: dict[str, FailureRecord] = {}
        revisions: dict[str, int] = {}
        prefix = self.keyspace.failures
        for item in (await self.metastore.range(prefix)).items:
            node, record = item.key.removeprefix(prefix), read(item, FailureRecord.decode)
            if not isinstance(record, Unreadable):
                records[node], revisions[node] = record, item.mod_revision
            elif node == self.node:
                # Nobody writes over what cannot be read; the news wait.
                self._unreadable.waits("failures", record)
                return False
        self._unreadable.goes_on("failures")
        before, news = records.get(self.node, FailureRecord()), tuple(self._news)
        after = before.with_news(news, self._lives)
        if after == before:
            self._noted(news, after)
            return False
        records[self.node] = after
        gone = [node for node in outdated(records) if node != self.node][:CLEARED_MAX]
        keys = self.keyspace
        guards = [present(keys.partition(each).stable) for each in sorted(after.partitions, key=str)]
        guards += [unchanged(keys.failures_of(node), revisions.get(node, 0)) for node in (self.node, *gone)]
        writes: list[Operation] = [Delete(self.keyspace.failures_of(node)) for node in gone]
        own = self.keyspace.failures_of(self.node)
        writes.append(Put(own, after.encode()) if after.failures else Delete(own))
        if not (await self.metastore.commit(Txn(tuple(guards), tuple(writes)))).succeeded:
            return False  # a zone was dropped just now, or another node wrote: once more after the period
        self._noted(news, after)
        return True

    def _noted(self, news: tuple[Failure, ...], after: FailureRecord) -> None:
        """Note what was written; other news may have come meanwhile."""
        for failure in news:
            if failure in self._news:
                self._news.remove(failure)
        self._written = after

    def _is_blocked(self, series: _Series, code: str) -> bool:
        now_s = asyncio.get_running_loop().time()
        if series.blocked is None or series.blocked[0] != code:
            series.blocked = code, now_s
        return now_s - series.blocked[1] >= self.blocked_s

    def _lives(self, partition: PartitionId) -> bool:
        return self.partitions.get(self.keyspace.partition(partition).stable) is not None


QUIET_PERIODS = 10


@dataclass(eq=False)
class MapReporter:
    """``note`` is called in the agent's rounds; ``run`` writes."""

    node: str
    incarnation: str
    metastore: Metastore
    keyspace: Keyspace
    period_s: float

    def __post_init__(self) -> None:
        self._key = self.keyspace.node_map(self.node)
        self._copies: dict[PartitionId, CopyReport] = {}
        self._sequence = 0
        self._written: dict[PartitionId, CopyReport] | None = None
        self._periods = 0

    def note(self, view: NodePartitionView, status: MemberStatus | None) -> None:
        """One member as its own node sees it; without a status there is none to report."""
        if status is None:
            self._copies.pop(view.partition, None)
            return
        state = _state(view, self.node)
        self._copies[view.partition] = CopyReport(
            state, status.applied_index, rounded_size(status.size_bytes), status.term, status.is_leader
        )

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(self.period_s)
            try:
                await self.write_if_changed()
            except MetastoreError as error:
                log.info("partition map not written", error=str(error))

    async def write_if_changed(self) -> bool:
        """One period is over; returns whether the key was written."""
        self._periods += 1
        copies = dict(self._copies)
        if copies == self._written:
            return False
        is_quiet = self._written is not None and _routes(copies) == _routes(self._written)
        if is_quiet and self._periods < QUIET_PERIODS:
            return False
        value = encode_report(self.node, self.incarnation, self._sequence + 1, copies)
        await self.metastore.commit(Txn((), (Put(self._key, value),)))
        self._sequence += 1
        self._written, self._periods = copies, 0
        return True


def encode_report(node: str, incarnation: str, sequence: int, copies: dict[PartitionId, CopyReport]) -> bytes:
    """The incarnation that speaks, then one map for each zone, in the order of zones, as maps of a single
    node."""
    zones: dict[int, dict[int, CopyReport]] = {}
    for partition, report in copies.items():
        zones.setdefault(partition.zone_id, {})[partition.partition] = report
    maps = [incarnation.encode()]
    for zone in sorted(zones):
        full = merge((node,), (_arrays(zones[zone]),), max(zones[zone]) + 1)
        maps.append(encode_map(MapHeader(zone, 0, 0, 0, sequence), full))
    return join_maps(maps)


def _arrays(copies: dict[int, CopyReport]) -> SingleArrays:
    numbers = sorted(copies)
    reports = [copies[number] for number in numbers]
    return SingleArrays(
        np.array(numbers, dtype=np.int32),
        np.array([STATE_NAMES.index(report.state.value) for report in reports], dtype=np.uint8),
        np.array([report.counter for report in reports], dtype=np.int64),
        np.array([report.size for report in reports], dtype=np.int64),
        np.array([report.term for report in reports], dtype=np.int64),
        np.array([report.leads for report in reports], dtype=np.bool_),
    )


def _routes(copies: dict[PartitionId, CopyReport]) -> dict[PartitionId, tuple[CopyState, int, bool]]:
    """Return the parts of copies that clients route by."""
    return {partition: (copy.state, copy.term, copy.leads) for partition, copy in copies.items()}


def _state(view: NodePartitionView, node: str) -> CopyState:
    """A member that has no record yet is being made."""
    seen = CoreView(
        target=None,
        stable=view.stable.value if view.stable is not None else None,
        pending=view.pending.value if view.pending is not None else None,
        planned=None,
        processed=True,
        members={name: record.value for name, record in view.records.items()},
        configuration=view.configuration.value if view.configuration is not None else None,
    )
    return copy_states(seen, frozenset((node,))).get(node, CopyState.MOVING)
