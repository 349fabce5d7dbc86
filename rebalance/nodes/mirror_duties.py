"""Carries out what ``decide_mirror`` decides, and keeps what is published of the mirror true."""

from __future__ import annotations

import random
from collections.abc import Callable

import structlog

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberState, MirrorRecord
from rebalance.nodes.mirror_decision import MirrorDecision, MirrorDuty, decide_mirror, mirror_record
from rebalance.nodes.own_records import OwnRecords
from rebalance.nodes.pace import Pace
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.nodes.removal import RemovalJudge, RemovalVerdict
from rebalance.ports.groups import MemberLife, NoPlaceError
from rebalance.ports.mirrors import MirrorHost

log = structlog.get_logger(__name__)

PAUSE_S = 2.0
AGAIN_S = 0.1


class MirrorDuties:
    """The life of this node's mirrors, one partition at a time. ``full``: why one more replica has no place on
    this node, empty when it has."""

    def __init__(
        self,
        node: str,
        host: MirrorHost,
        records: OwnRecords,
        removals: RemovalJudge,
        full: Callable[[PartitionId], str],
        pace: Pace | None = None,
    ) -> None:
        self._node = node
        self._host = host
        self._records = records
        self._removals = removals
        self._full = full
        self._pace = pace or Pace(random.Random(node))

    async def tend(self, view: NodePartitionView) -> float | None:
        """One duty; returns when to look again at the latest, None when there is nothing to look after."""
        partition = view.partition
        status = await self._host.status(partition)
        decision = decide_mirror(view, self._node, status)
        match decision.duty:
            case MirrorDuty.NOTHING:
                return None
            case MirrorDuty.CLEAN_UP:
                return await self._clean_up(partition, has_data=status is not None)
            case MirrorDuty.WAIT:
                await self._records.write_mirror(partition, mirror_record(status, decision.reason))
                return PAUSE_S
            case MirrorDuty.FOLLOW:
                return await self._follow(partition, decision)

    async def keep(self, view: NodePartitionView) -> None:
        """Keep what this node has going while no assignment counts."""
        status = await self._host.status(view.partition)
        if status is None or status.life is MemberLife.RUNNING:
            return
        decision = decide_mirror(view, self._node, status)
        if decision.duty is MirrorDuty.FOLLOW:
            await self._ask(view.partition, decision)

    async def _ask(self, partition: PartitionId, decision: MirrorDecision) -> None:
        await self._host.follow(
            partition,
            decision.group,
            decision.sources,
            generation=decision.generation,
            shared_revision=decision.shared_revision,
        )

    async def _follow(self, partition: PartitionId, decision: MirrorDecision) -> float:
        try:
            full = self._full(partition)
            if full:
                raise NoPlaceError(full)
            await self._ask(partition, decision)
        except NoPlaceError as error:
            await self._records.write_mirror(partition, MirrorRecord(MemberState.FAILED, reason=str(error)))
            return PAUSE_S
        status = await self._host.status(partition)
        await self._records.write_mirror(partition, mirror_record(status))
        runs = status is not None and status.life is MemberLife.RUNNING
        return self._pace.idle_s() if runs else self._pace.copying_s(partition)

    async def _clean_up(self, partition: PartitionId, *, has_data: bool) -> float | None:
        """The record goes first, guarded: a data directory without a record is found again, the other way round
        readers would be sent to nobody."""
        removal = await self._removals.judge(
            partition, lambda assignments: self._node in assignments.learners, "" if has_data else None
        )
        match removal.verdict:
            case RemovalVerdict.ASSIGNED:
                return AGAIN_S
            case RemovalVerdict.STORE_IS_BEHIND:
                return PAUSE_S
            case RemovalVerdict.KEPT:
                log.info("mirror kept", partition=str(partition), reason=removal.why)
                return PAUSE_S
        if not await self._records.write_mirror(partition, None, removal.guards):
            return AGAIN_S
        if partition in self._host.partitions():
            await self._host.stop(partition, destroy=True)
            log.info("mirror destroyed", partition=str(partition))
        return None
