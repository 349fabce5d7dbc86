"""A node's mirrors without data: what is copied is the number of the group's last step, and copying takes time.

A ``MirrorHost`` for tests and the simulator. A mirror fetches its first copy from any of its sources that
answers, and then shows the group's newest step each time that it is looked at; with no source it stands still.
"""

from __future__ import annotations

import asyncio

from rebalance.core.keyspace.keys import PartitionId
from rebalance.ports.groups import MemberLife, NoPlaceError
from rebalance.ports.mirrors import FollowedGroup, MirrorStatus
from simulator.control.simulated_cluster import SimulatedCluster
from simulator.control.simulated_group import Incarnation
from simulator.control.simulated_raft import SimulatedGroup, SimulatedMirror


class SimulatedMirrorHost:
    """The mirrors of the node whose process ``owner`` is. ``limit``: how many it has a place for."""

    def __init__(self, cluster: SimulatedCluster, owner: Incarnation, *, limit: int = 100_000) -> None:
        self._cluster = cluster
        self._owner = owner
        self._limit = limit

    def open(self, node: str) -> None:
        """The cluster keeps the disks."""

    def partitions(self) -> frozenset[PartitionId]:
        return frozenset(self._held)

    async def follow(self, partition: PartitionId, group: FollowedGroup, sources: tuple[str, ...]) -> None:
        await asyncio.sleep(0)
        if self._owner.dead:
            return
        mirror = self._held.get(partition)
        if mirror is not None and mirror.group != group.token:
            is_earlier = mirror.generation < group.generation
            if is_earlier and 0 < mirror.safe_revision <= group.shared_revision:
                mirror.group, mirror.generation = group.token, group.generation
            else:
                self._cluster.forget_mirror(self._owner.node, partition)
                mirror = None
        if mirror is None:
            if len(self._held) >= self._limit:
                raise NoPlaceError(f"no free port: {self._limit} mirrors are kept")
            mirror = self._cluster.reserve_mirror(self._owner.node, partition, group.token)
            mirror.generation = group.generation
        mirror.sources = sources
        if not mirror.runs:
            self._cluster.start_mirror(mirror)

    async def serve(self, partition: PartitionId) -> None:
        await asyncio.sleep(0)
        mirror = self._held.get(partition)
        if mirror is not None and not self._owner.dead and not mirror.runs:
            self._cluster.start_mirror(mirror)

    async def status(self, partition: PartitionId) -> MirrorStatus | None:
        await asyncio.sleep(0)
        mirror = self._held.get(partition)
        if mirror is None or self._owner.dead:
            return None
        group = self._source_of(mirror)
        return MirrorStatus(
            life=self._life(mirror, group),
            client_url=mirror.client_url,
            safe_revision=mirror.safe_revision,
            size_bytes=1024 * mirror.safe_revision,
            reason=mirror.exit_reason or ("" if group is not None else "no source answers"),
            source=mirror.sources[0] if group is not None else "",
            complete_revision=mirror.safe_revision if mirror.has_copy else 0,
            is_silent=group is None or not group.has_leader,
            generation=mirror.generation,
        )

    async def stop(self, partition: PartitionId, *, destroy: bool) -> None:
        await asyncio.sleep(0)
        mirror = self._held.get(partition)
        if mirror is None or self._owner.dead:
            return
        self._cluster.stop_mirror(mirror)
        if destroy:
            self._cluster.forget_mirror(self._owner.node, partition)

    async def close(self) -> None:
        for partition in list(self._held):
            await self.stop(partition, destroy=False)

    @property
    def _held(self) -> dict[PartitionId, SimulatedMirror]:
        return self._cluster.mirror_disk(self._owner.node)

    def _life(self, mirror: SimulatedMirror, group: SimulatedGroup | None) -> MemberLife:
        """Life of a mirror; goes on with its copying as well, since mirrors are seen here only."""
        if mirror.exit_reason:
            return MemberLife.FAILED
        if not mirror.runs:
            return MemberLife.STOPPED if mirror.has_copy else MemberLife.RESERVED
        now = asyncio.get_running_loop().time()
        if not mirror.has_copy and group is None:
            # Nothing comes in: what remains to be fetched takes as long later.
            mirror.ready_at = max(mirror.ready_at, now + self._cluster.rates.start_s[1])
            return MemberLife.RESERVED
        if now < mirror.ready_at:
            self._cluster.awaited(mirror)
            return MemberLife.STARTING
        mirror.has_copy = True
        if group is not None:
            mirror.safe_revision = max(mirror.safe_revision, group.applied)
            mirror.acknowledged = max(mirror.acknowledged, group.acknowledged)
        return MemberLife.RUNNING

    def _source_of(self, mirror: SimulatedMirror) -> SimulatedGroup | None:
        """The group, when a voter that the mirror knows the address of answers."""
        group = self._cluster.groups.get(mirror.partition)
        if group is None or group.token != mirror.group:
            return None
        voters = {member: group.replicas.get(member) for member in group.voters}
        known = (
            voter is not None and voter.answers and voter.endpoints.client_url in mirror.sources
            for voter in voters.values()
        )
        return group if any(known) else None
