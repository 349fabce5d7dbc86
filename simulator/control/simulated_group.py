"""A node's hosts of groups and of mirrors over what is simulated.

The group host and its change loop are the product's own, a modelled group is below: terms, tokens,
announcements and steps are those of ``SteppedGroupHost`` and ``EtcdChange``. A mirror fetches its first copy
from any of its sources that answers, and then shows the group's newest step each time that it is looked at;
with no source it stands still. What etcd, its processes and its directories would do is in
``simulated_cluster``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import LogPosition
from rebalance.groups.calls.etcd_api import (
    MEMBERSHIP_TIMEOUT_S,
    CallFailedError,
    EtcdMemberEntry,
    EtcdStatus,
    FailureKind,
)
from rebalance.groups.etcd_group import SteppedGroupHost
from rebalance.groups.files.etcd_tuning import EtcdTuning
from rebalance.ports.groups import MemberLife, MemberUnavailableError, NoPlaceError
from rebalance.ports.mirrors import FollowedGroup, MirrorStatus
from simulator.control.simulated_cluster import (
    CALL_TIMEOUT_S,
    SimulatedCluster,
    SimulatedGroup,
    SimulatedMirror,
    SimulatedReplica,
)

Step = Callable[[SimulatedGroup], None]


class SimulatedReservations:
    """Reservations on the node's disk, which survive the node."""

    def __init__(self, cluster: SimulatedCluster, node: str) -> None:
        self._cluster = cluster
        self._node = node
        self._held = cluster.disk(node)

    def open(self) -> None: ...

    def close(self) -> None: ...

    def partitions(self) -> frozenset[PartitionId]:
        return frozenset(self._held)

    def get(self, partition: PartitionId) -> SimulatedReplica | None:
        return self._held.get(partition)

    def reserve(self, partition: PartitionId, listed: Collection[str] = ()) -> SimulatedReplica:
        """No URL is given twice."""
        held = self._held.get(partition)
        return held or self._cluster.reserve(self._node, partition)

    def aside(self) -> Mapping[PartitionId, frozenset[int]]:
        return {
            partition: frozenset(held) for partition, held in self._cluster.aside(self._node).items() if held
        }

    def forget_aside(self, partition: PartitionId, generation: int) -> Path | None:
        self._cluster.aside(self._node).get(partition, {}).pop(generation, None)
        return None


class SimulatedGroupHost(SteppedGroupHost):
    """The host of ``node`` for as long as its process lives: after ``kill`` it reaches nobody any more."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        node: str,
        *,
        member_limit: int = 100_000,
        tuning: EtcdTuning | None = None,
    ) -> None:
        super().__init__(SimulatedReservations(cluster, node), member_limit, tuning or EtcdTuning())
        self._cluster = cluster
        self.incarnation = Incarnation(node, strict=self._tuning.strict_steps)

    def kill(self) -> None:
        """End the node's process, and with it all its members."""
        self.incarnation.dead = True
        self._cluster.stop_node(self.incarnation.node)

    @asynccontextmanager
    async def calls_at(self, partition: PartitionId, client_url: str) -> AsyncIterator[SimulatedCalls]:
        replica = self._cluster.replica_at(partition, client_url)
        if replica is None or not self._cluster.linked(self.incarnation.node, replica.node):
            raise CallFailedError(FailureKind.NO_ANSWER, f"nobody listens at {client_url}")
        yield SimulatedCalls(self._cluster, replica, self.incarnation)

    def new_member(self, partition: PartitionId) -> SimulatedMember:
        return SimulatedMember(self._cluster, self.incarnation, partition)


@dataclass(slots=True)
class Incarnation:
    """One run of a node's process."""

    node: str
    dead: bool = False
    strict: bool = True
    """``EtcdTuning.strict_steps`` of the members that it starts."""


class SimulatedMember:
    """A ``GroupMemberProcess``."""

    def __init__(self, cluster: SimulatedCluster, owner: Incarnation, partition: PartitionId) -> None:
        self._cluster = cluster
        self._owner = owner
        self._partition = partition

    @property
    def reservation(self) -> SimulatedReplica:
        """Raises MemberUnavailableError when nothing is reserved, or when the asking process is gone."""
        held = self._cluster.disk(self._owner.node).get(self._partition)
        if held is None or self._owner.dead:
            raise MemberUnavailableError(f"no member of {self._partition} is reserved here")
        return held

    @property
    def api(self) -> SimulatedCalls:
        replica = self.reservation
        if not replica.runs:
            raise MemberUnavailableError(f"the member of {self._partition} is not running")
        return SimulatedCalls(self._cluster, replica, self._owner)

    async def found_alone(self, generation: int) -> bool:
        replica = self.reservation
        if replica.group is None:
            raise MemberUnavailableError(f"the data of {self._partition} is gone")
        if replica.generation != generation:
            replica.strict = self._owner.strict
            self._cluster.found_alone(replica, generation)
        return replica.answers

    async def found_from_mirror(self, generation: int, client_url: str, complete_revision: int) -> bool:
        replica = self.reservation
        if replica.group is None:
            if self._partition not in self._cluster.mirror_disk(self._owner.node):
                raise MemberUnavailableError(f"there is no mirror of {self._partition}")
            self._set_flag(replica)
            self._cluster.found_from_mirror(replica, generation)
        return replica.answers

    async def log_position(self) -> LogPosition | None:
        replica = self.reservation
        if replica.group is None:
            return None
        applied = replica.group.applied
        return LogPosition(applied, applied, replica.runs, applied)

    async def start(self, token: str, initial: Mapping[str, str], state: str, generation: int = 0) -> None:
        replica = self.reservation
        replica.generation = generation
        self._set_flag(replica)
        if not replica.runs and asyncio.get_running_loop().time() >= replica.not_before:
            self._cluster.start(replica, token, initial, is_new=state == "new")

    async def restart(self) -> None:
        replica = self.reservation
        may_start = asyncio.get_running_loop().time() >= replica.not_before
        self._set_flag(replica)
        if replica.group is not None and not replica.runs and may_start:
            self._cluster.restart(replica)

    def _set_flag(self, replica: SimulatedReplica) -> None:
        """A process that runs keeps its own."""
        if not replica.runs:
            replica.strict = self._owner.strict

    async def stop(self) -> None:
        if not self._owner.dead and self._partition in self._cluster.disk(self._owner.node):
            self._cluster.stop(self.reservation)

    async def destroy(self) -> None:
        await self.stop()
        if not self._owner.dead:
            self._cluster.forget(self._owner.node, self._partition)

    async def set_aside(self) -> None:
        if not self._owner.dead:
            self._cluster.set_aside(self.reservation)

    async def look(self) -> tuple[MemberLife, str, EtcdStatus | None]:
        replica = self.reservation
        if not replica.runs:
            return replica.life, replica.reason, None
        try:
            return MemberLife.RUNNING, "", await self.api.status()
        except MemberUnavailableError as failure:
            return MemberLife.STARTING, str(failure), None

    def received_bytes(self) -> int:
        return 0

    async def entries(self, *, linearizable: bool) -> tuple[EtcdMemberEntry, ...]:
        return await self.api.members(linearizable=linearizable)

    async def name_of(self, member_id: int) -> str:
        group = self.reservation.group
        entry = group.entries.get(member_id) if group is not None else None
        return entry.name if entry is not None else ""


class SimulatedCalls:
    """A ``GroupCalls``: what a member answers, with the delays and the lost answers of a network.

    A membership call that got no answer may land later, when its sender is long deposed: the stale step.
    """

    def __init__(self, cluster: SimulatedCluster, replica: SimulatedReplica, owner: Incarnation) -> None:
        self._cluster = cluster
        self._replica = replica
        self._owner = owner

    async def status(self) -> EtcdStatus:
        group = await self._reach()
        own = group.entries.get(self._replica.member_id)
        learns = own is not None and own.is_learner
        # A node that copies has nothing until it has all.
        copies = learns and self._replica.synced_at > asyncio.get_running_loop().time()
        applied = 0 if copies else group.applied
        return EtcdStatus(
            self._replica.member_id,
            group.leader_id if group.has_leader else 0,
            group.term,
            applied,
            1024 * group.applied,
            learns,
            commit_index=group.applied,
            cluster_id=group.cluster_id,
        )

    async def members(self, *, linearizable: bool) -> tuple[EtcdMemberEntry, ...]:
        group = await self._reach()
        if linearizable and not group.has_leader:
            await self._no_answer(FailureKind.NO_LEADER)
        return tuple(group.entries.values())

    async def add_learner(self, peer_url: str, timeout_s: float = MEMBERSHIP_TIMEOUT_S) -> None:
        await self._propose(lambda group: group.add_learner(peer_url), timeout_s)

    async def promote(self, member_id: int, timeout_s: float = MEMBERSHIP_TIMEOUT_S) -> None:
        await self._propose(lambda group: group.promote(member_id), timeout_s)

    async def remove(self, member_id: int, timeout_s: float = MEMBERSHIP_TIMEOUT_S) -> None:
        await self._propose(lambda group: group.remove(member_id), timeout_s)

    async def move_leader(self, member_id: int) -> None:
        group = await self._reach()
        if group.leader_id != self._replica.member_id:
            raise CallFailedError(FailureKind.NOT_LEADER, "not leader")
        if not group.move_leader(member_id):
            await self._no_answer(FailureKind.NO_ANSWER)

    async def claim_identity(self, identity: bytes, generation: int = 0) -> None:
        group = await self._reach()
        if not group.has_leader:
            await self._no_answer(FailureKind.NO_LEADER)
        group.identity = group.identity or identity

    async def _propose(self, step: Step, timeout_s: float) -> None:
        group = await self._reach()
        rng, rates = group.rng, self._cluster.rates
        fate = rng.random()
        if fate < rates.lost_call:
            await self._no_answer(FailureKind.NO_ANSWER, min(timeout_s, CALL_TIMEOUT_S))
        if fate < rates.lost_call + rates.late_call:
            asyncio.get_running_loop().call_later(rng.uniform(0.5, 10.0), _land, group, step)
            await self._no_answer(FailureKind.NO_ANSWER, min(timeout_s, CALL_TIMEOUT_S))
        group.check_leader()
        step(group)
        if rng.random() < rates.lost_answer:
            await self._no_answer(FailureKind.NO_ANSWER, min(timeout_s, CALL_TIMEOUT_S))

    async def _reach(self) -> SimulatedGroup:
        """Raises CallFailedError when the member does not answer."""
        replica = self._replica
        await asyncio.sleep(self._cluster.delay_s(replica))
        group = replica.group
        if self._owner.dead or group is None or not replica.answers:
            raise CallFailedError(FailureKind.NO_ANSWER, "the member does not answer")
        return group

    async def _no_answer(self, kind: FailureKind, timeout_s: float = CALL_TIMEOUT_S) -> None:
        await asyncio.sleep(timeout_s)
        raise CallFailedError(kind, "no answer in time")


def _land(group: SimulatedGroup, step: Step) -> None:
    known = set(group.entries)
    group.lands_late = True
    try:
        group.check_leader()
        step(group)
    except CallFailedError:
        return  # nobody hears the answer
    finally:
        group.lands_late = False
    group.strays |= set(group.entries) - known


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
