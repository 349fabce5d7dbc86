"""The node's single partition map: what its agent knows of each copy, written to one key when it changed.

States are written at most once a period, counters and sizes alone at most once in ten: they grow with every
update, and readers of the map do not route by them.
"""

from __future__ import annotations

import asyncio

import numpy as np
import structlog

from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import rounded_size
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.core.moves.move_status import PartitionView as CoreView
from rebalance.core.moves.partition_state import copy_states
from rebalance.core.partition_maps.affinity import CopyState
from rebalance.core.partition_maps.partition_map import CopyReport
from rebalance.kernels.partition_map import STATE_NAMES, SingleArrays, merge
from rebalance.kernels.partition_map_codec import MapHeader, encode_map, join_maps
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.ports.groups import MemberStatus
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

QUIET_PERIODS = 10


class MapReporter:
    """``note`` is called in the agent's rounds; ``run`` writes."""

    def __init__(
        self, node: str, incarnation: str, metastore: Metastore, keyspace: Keyspace, period_s: float
    ) -> None:
        self._node = node
        self._incarnation = incarnation
        self._metastore = metastore
        self._key = keyspace.node_map(node)
        self._period_s = period_s
        self._copies: dict[PartitionId, CopyReport] = {}
        self._sequence = 0
        self._written: dict[PartitionId, CopyReport] | None = None
        self._periods = 0

    def note(self, view: NodePartitionView, status: MemberStatus | None) -> None:
        """One member as its own node sees it; without a status there is none to report."""
        if status is None:
            self._copies.pop(view.partition, None)
            return
        state = _state(view, self._node)
        self._copies[view.partition] = CopyReport(
            state, status.applied_index, rounded_size(status.size_bytes), status.term, status.is_leader
        )

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
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
        value = encode_report(self._node, self._incarnation, self._sequence + 1, copies)
        await self._metastore.commit(Txn((), (Put(self._key, value),)))
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
