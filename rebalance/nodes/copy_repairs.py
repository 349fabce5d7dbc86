"""A copy that is damaged or gone is made anew by its own node: once a day, where its group does not need it.

The engine says what is damaged (``Cause.COPY_DAMAGED``). The group goes on with the others: what it has
committed is in a majority, which lives. A second time within a day the disk is not to be trusted: the member
stays as it is, and its reason says what an operator can do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from catalog.core.quorum import majority
from rebalance.core.causes.cause import Cause, cause_of
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRole, MemberState
from rebalance.core.keyspace.txn import Compare, Delete, Txn, unchanged
from rebalance.hosting.private_files import read_note, write_note
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.nodes.replica_decision import Duty, MemberDecision
from rebalance.ports.groups import MemberLife, MemberStatus
from rebalance.ports.metric_rows import Metric

log = structlog.get_logger(__name__)

AGAIN_MS = 86_400_000
"""A copy that is damaged again within so long is left to an operator."""
_FILE = "repaired_copies.json"


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def broken_by(status: MemberStatus | None, decision: MemberDecision) -> str:
    """Return why the member never runs again on what its node has of it; empty: it may."""
    if status is None or status.life is MemberLife.DATA_LOST:
        return decision.reason if decision.duty is Duty.REPORT_DATA_LOST else ""
    is_damaged = status.life is MemberLife.FAILED and cause_of(status.reason) is Cause.COPY_DAMAGED
    return status.reason if is_damaged else ""


def others_that_serve(view: NodePartitionView, node: str) -> frozenset[str]:
    """Nodes of the group's other voters that live, run their member and know a leader."""
    members = view.configuration.value.members if view.configuration is not None else {}
    return frozenset(
        name
        for name, member in members.items()
        if name != node
        and member.role is MemberRole.VOTER
        and name in view.living
        and (record := view.records.get(name)) is not None
        and record.value.state is MemberState.RUNNING
        and record.value.position is None
    )


def why_not_repaired(view: NodePartitionView, node: str, now_ms: int, repaired_ms: int | None) -> str:
    """Return why the broken copy of ``node`` is not made anew now; empty: it is. ``repaired_ms``: when it was
    last."""
    if view.configuration is None or view.stable is None or node not in view.voting:
        return "its group is not known"
    if view.pending is not None and view.pending.value.forced:
        return "its group is being founded anew"
    if repaired_ms is not None and now_ms - repaired_ms < AGAIN_MS:
        at = datetime.fromtimestamp(repaired_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"it was made anew at {at} already: check the disk, then `zonectl recovery restart --cleanup`"
    members = view.configuration.value.members
    voters = [name for name, member in members.items() if member.role is MemberRole.VOTER]
    serving = others_that_serve(view, node)
    if len(serving) < majority(len(voters)):
        return f"{len(serving)} of {len(voters)} voters serve without it: its data may be needed"
    return ""


class CopyRepairs:
    """Repairs of one node. ``data_dir`` keeps when copies were made anew; None: it is remembered until the node
    ends. ``now_ms``: of the wall clock."""

    def __init__(self, node: NodeContext, data_dir: Path | None, now_ms: Callable[[], int]) -> None:
        self._node = node
        self._file = data_dir / _FILE if data_dir is not None else None
        self._now_ms = now_ms
        self._known: dict[str, int] = read_note(self._file, _copies_in, {}) if self._file is not None else {}

    async def repaired(self, view: NodePartitionView, reason: str) -> bool:
        """Empties the copy, broken by ``reason``, where it may; rounds that follow reserve a new member."""
        if self.obstacle(view):
            return False
        partition, name = view.partition, self._node.name
        own = view.records.get(name)
        guards = self._guards(view)
        # The record goes first: data that is gone under a record that says "started" would count as lost.
        key = self._node.keyspace.member(partition, name)
        writes = (Delete(key),) if own is not None else ()
        if not (await self._node.metastore.commit(Txn(guards, writes))).succeeded:
            return False
        if partition in self._node.host.partitions():
            await self._node.host.stop(partition, destroy=True)
        await self._note(partition)
        self._node.measures.count(Metric.NODE_COPIES_REPAIRED)
        log.warning("broken copy emptied, it is made anew", partition=str(partition), reason=reason)
        return True

    def obstacle(self, view: NodePartitionView) -> str:
        """See ``why_not_repaired``."""
        repaired_ms = self._known.get(str(view.partition))
        return why_not_repaired(view, self._node.name, self._now_ms(), repaired_ms)

    def _guards(self, view: NodePartitionView) -> tuple[Compare, ...]:
        """The group, and all who are counted on, are as they were read."""
        keys, configuration, pending = view.keys, view.configuration, view.pending
        counted = sorted({self._node.name, *others_that_serve(view, self._node.name)} & view.records.keys())
        return (
            unchanged(keys.configuration, configuration.mod_revision if configuration is not None else 0),
            unchanged(keys.pending, pending.mod_revision if pending is not None else 0),
            *(
                unchanged(self._node.keyspace.member(view.partition, name), view.records[name].mod_revision)
                for name in counted
            ),
        )

    async def _note(self, partition: PartitionId) -> None:
        now_ms = self._now_ms()
        recent = {name: at_ms for name, at_ms in self._known.items() if now_ms - at_ms < AGAIN_MS}
        self._known = {**recent, str(partition): now_ms}
        if self._file is not None:
            await asyncio.to_thread(write_note, self._file, copies=self._known)


def _copies_in(note: dict[str, Any]) -> dict[str, int]:
    return {str(name): int(at_ms) for name, at_ms in note["copies"].items()}
