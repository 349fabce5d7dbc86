"""A member whose store has reached its quota: it tidies up by itself, and takes puts again once there is room.

etcd answers a full store with an alarm that stays until somebody takes it back, and the whole group refuses
puts meanwhile. Most of a full store is history: compaction forgets it, and defragmentation gives the space
back. Each node does so for its own member, and takes back its own member's alarm only.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.calls.etcd_api import CallFailedError, EtcdApi, EtcdStatus

log = structlog.get_logger(__name__)

ROOM = 0.9
"""The alarm is taken back when less of the quota than this is in use."""
PAUSE_S = 10.0
"""Between two tries: a store that is full of data stays so until somebody gives it a larger quota."""


class SpaceKeeper:
    """Of one member. ``look`` as often as its status is read; ``stop`` before its process ends."""

    def __init__(self, partition: PartitionId, quota_bytes: int) -> None:
        self._partition = partition
        self._quota = quota_bytes
        self._task: asyncio.Task[None] | None = None
        self._not_before = 0.0

    def look(self, api: EtcdApi, status: EtcdStatus) -> str:
        """Begins to tidy up when the member's alarm is raised. Returns why it takes no puts, else empty."""
        if not status.no_space:
            return ""
        running = self._task is not None and not self._task.done()
        if not running and time.monotonic() >= self._not_before:
            self._not_before = time.monotonic() + PAUSE_S
            self._task = asyncio.create_task(self._tidy(api, status.member_id))
        held = f"{status.in_use_bytes / 2**20:.0f} of {self._quota / 2**20:.0f} MiB"
        return Cause.FULL.text(f"{held} are in use, the partition takes no puts")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _tidy(self, api: EtcdApi, member_id: int) -> None:
        try:
            await api.compact()
            await api.defragment()
            status = await api.status()
            if status.in_use_bytes < ROOM * self._quota:
                await api.take_back_alarm(member_id)
                log.warning("full member has room again", partition=str(self._partition))
        except CallFailedError as failed:
            log.warning("full member not tidied up yet", partition=str(self._partition), error=str(failed))
