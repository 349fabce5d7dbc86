"""Replication groups on etcd: a partition's group is an etcd cluster, one process per replica on its node.

``EtcdGroupHost`` is the ``GroupHost`` of one node. What etcd cannot express is kept here: terms and tokens of
change requests, which leaving members were announced, and which change is under way. None of it has to survive:
the member list does, and a change continues from the list.
"""

from __future__ import annotations

import asyncio
import shutil
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from catalog.core.zone import DEFAULT_ENGINE
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import GroupRecord, LogPosition, MemberRole
from rebalance.groups.calls.etcd_api import CallFailedError, EtcdApi, EtcdStatus
from rebalance.groups.calls.group_guard import group_identity, group_members
from rebalance.groups.calls.member_calls import GroupCalls, GroupMemberProcess, ReservationBook
from rebalance.groups.change.etcd_change import ChangeRequest, EtcdChange, StepProgress
from rebalance.groups.change.step_gate import StepGate
from rebalance.groups.files.etcd_tuning import EtcdTuning
from rebalance.groups.files.reservations import Reservations
from rebalance.groups.process.etcd_member import EtcdMember
from rebalance.groups.process.member_metrics import MemberMeasures
from rebalance.hosting.etcd_binary import find_etcd, remember
from rebalance.ports.fence import MemberGuard
from rebalance.ports.groups import (
    NO_SIGHTS,
    CancelAnswer,
    ChangeAnswer,
    GroupChange,
    GroupMember,
    MemberEndpoints,
    MemberStatus,
    MemberUnavailableError,
    NoPlaceError,
    PeerSight,
)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Led:
    """Knowledge that this host has of one member beyond its process; empty again after a restart of the
    node."""

    term: int = 0
    """Term in which this member was last seen leading and announced as leader; 0 when it does not lead."""
    token: int = 0
    progress: StepProgress = field(default_factory=StepProgress)
    last_change: EtcdChange | None = None

    @property
    def change(self) -> EtcdChange | None:
        """The one that nobody has closed."""
        return self.last_change if self.last_change is not None and not self.last_change.closed else None


class SteppedGroupHost(ABC):
    """A host whose groups are changed one member at a time. ``new_member`` makes a reserved member's handle.

    What it keeps are terms, tokens, announcements and the running change; members come from a subclass.
    """

    def __init__(self, reservations: ReservationBook, member_limit: int, tuning: EtcdTuning) -> None:
        self._reservations = reservations
        self._member_limit = member_limit
        self._tuning = tuning
        self._members: dict[PartitionId, GroupMemberProcess] = {}
        self._led: dict[PartitionId, _Led] = {}
        self._measured = MemberMeasures(tuning.measures)
        self._node = ""

    def open(self, node: str) -> None:
        self._node = node
        self._reservations.open()

    @abstractmethod
    def new_member(self, partition: PartitionId) -> GroupMemberProcess: ...

    @abstractmethod
    def calls_at(self, partition: PartitionId, client_url: str) -> AbstractAsyncContextManager[GroupCalls]:
        """Open calls to another node's member of the group."""

    def partitions(self) -> frozenset[PartitionId]:
        return self._reservations.partitions()

    def engine(self, partition: PartitionId) -> str:
        return DEFAULT_ENGINE

    def endpoints(self, partition: PartitionId) -> MemberEndpoints | None:
        held = self._reservations.get(partition)
        return held.endpoints if held else None

    async def reserve(self, partition: PartitionId, listed: Collection[str] = ()) -> MemberEndpoints:
        held = self._reservations.partitions()
        if partition not in held and len(held) >= self._member_limit:
            raise NoPlaceError(Cause.NODE_MEMBER_LIMIT.text(f"{self._member_limit} members are held"))
        try:
            return self._reservations.reserve(partition, listed).endpoints
        except OSError as error:
            raise NoPlaceError(Cause.NO_DISK.text(str(error.strerror))) from error

    async def bootstrap(self, partition: PartitionId, group: GroupRecord) -> None:
        await self._member(partition).start(group.token, group.peers, "new", group.generation)

    async def join(self, partition: PartitionId, peers: Mapping[str, str], generation: int = 0) -> None:
        own = self._member(partition).reservation.endpoints.peer_url
        # etcd looks itself up by name; the others' names must differ from it and are not looked at.
        initial = {f"_{node}": peer_url for node, peer_url in peers.items() if peer_url != own}
        everybody = {**initial, self._node: own}
        await self._member(partition).start(str(partition), everybody, "existing", generation)

    async def found_alone(self, partition: PartitionId, generation: int) -> bool:
        await self._forget_led(partition)
        return await self._member(partition).found_alone(generation)

    async def found_from_mirror(
        self, partition: PartitionId, generation: int, client_url: str, complete_revision: int
    ) -> bool:
        return await self._member(partition).found_from_mirror(generation, client_url, complete_revision)

    async def log_position(self, partition: PartitionId) -> LogPosition | None:
        return await self._member(partition).log_position()

    async def restart(self, partition: PartitionId) -> None:
        await self._member(partition).restart()

    async def stop(self, partition: PartitionId, *, destroy: bool) -> None:
        await self._forget_led(partition)
        member = self._member(partition)
        if destroy:
            await member.destroy()
            self._members.pop(partition, None)
        else:
            await member.stop()

    async def set_aside(self, partition: PartitionId) -> None:
        await self._forget_led(partition)
        await self._member(partition).set_aside()
        self._members.pop(partition, None)

    def aside(self) -> Mapping[PartitionId, frozenset[int]]:
        return self._reservations.aside()

    async def discard_aside(self, partition: PartitionId, generation: int) -> None:
        doomed = self._reservations.forget_aside(partition, generation)
        if doomed is not None:
            await asyncio.to_thread(shutil.rmtree, doomed, True)

    def measure(self) -> None:
        """Sets the gauges of the members, as they were when they were last looked at."""
        self._measured.publish(self.partitions())

    async def status(self, partition: PartitionId) -> MemberStatus | None:
        if self._reservations.get(partition) is None:
            return None
        status = await self._status(partition)
        self._measured.note(partition, status)
        return status

    async def _status(self, partition: PartitionId) -> MemberStatus:
        member, led = self._member(partition), self._led.setdefault(partition, _Led())
        life, reason, answer = await member.look()
        held = member.reservation
        status = MemberStatus(
            life, held.endpoints, reason, generation=held.generation, founding_revision=held.founding_revision
        )
        if answer is None:
            led.term = 0
            return replace(status, received=member.received_bytes())
        await self._note_leadership(partition, member, led, answer)
        return replace(
            status,
            member_id=f"{answer.member_id:x}",
            role=MemberRole.LEARNER if answer.is_learner else MemberRole.VOTER,
            is_leader=led.term != 0,
            leader=await member.name_of(answer.leader_id),
            term=answer.term,
            applied_index=answer.applied_index,
            size_bytes=answer.size_bytes,
            changing=led.change is not None,
            waiting=led.change.waiting if led.change is not None else None,
            received=answer.size_bytes + answer.applied_index if answer.is_learner else 0,
        )

    async def configuration(
        self, partition: PartitionId, sights: Mapping[str, PeerSight] = NO_SIGHTS, *, linearizable: bool = False
    ) -> tuple[GroupMember, ...]:
        entries = await self._member(partition).entries(linearizable=linearizable)
        led = self._led.setdefault(partition, _Led())
        return group_members(entries, sights, led.progress.announced_at)

    async def settled_configuration(
        self, partition: PartitionId, term: int, sights: Mapping[str, PeerSight] = NO_SIGHTS
    ) -> tuple[GroupMember, ...]:
        member = self._member(partition)
        # What was proposed in this term before it is applied with it, or never will be.
        await member.api.claim_identity(group_identity(partition))
        members = await self.configuration(partition, sights, linearizable=True)
        status = await member.api.status()
        if status.leader_id != status.member_id or status.term != term:
            raise MemberUnavailableError(f"term {term} of {partition} is over, now {status.term}")
        return members

    async def change_peers_and_learners(
        self,
        partition: PartitionId,
        term: int,
        token: int,
        target: Assignments,
        endpoints: Mapping[str, str],
        stable: Sequence[str] = (),
    ) -> ChangeAnswer:
        led = self._led.setdefault(partition, _Led())
        refused = _refusal(led, term, token)
        if refused is not None:
            return refused
        request = ChangeRequest(term, token, target, dict(endpoints), tuple(stable))
        if led.change is not None:
            if led.change.request == request:
                return ChangeAnswer.ALREADY_RUNNING
            if led.change.in_call or (led.change.touches_voters and not target.forced):
                return ChangeAnswer.BUSY
            await self._end_change(partition)
        if token != led.token:
            # A newer target: what was announced as leaving may stay after all.
            led.progress = StepProgress(outcome=led.progress.outcome)
        led.token = token
        member = self._member(partition)
        led.last_change = EtcdChange(partition, member, request, led.progress, self._tuning, self.calls_at)
        return ChangeAnswer.RECEIVED

    def change(self, partition: PartitionId) -> GroupChange | None:
        led = self._led.get(partition)
        return led.change if led is not None else None

    async def cancel_change_peers(self, partition: PartitionId, term: int, token: int) -> CancelAnswer:
        led = self._led.setdefault(partition, _Led())
        if led.term == 0 or term != led.term:
            return CancelAnswer.NOT_LEADER
        if led.change is None or led.token != token:
            return CancelAnswer.NOTHING_RUNNING
        if led.change.touches_voters or led.change.in_call:
            return CancelAnswer.TOO_LATE
        await self._end_change(partition)
        gate = StepGate(
            partition,
            member=self._member(partition),
            term=term,
            outcome=led.progress.outcome,
            calls_at=self.calls_at,
            strict=self._tuning.strict_steps,
        )
        async with gate:
            await gate.remove_learners()
        # The voter that was announced as leaving stays.
        led.progress = StepProgress(outcome=led.progress.outcome)
        return CancelAnswer.CANCELLED

    async def transfer_leadership(self, partition: PartitionId, node: str) -> bool:
        members = await self.configuration(partition, linearizable=True)
        voters = [member for member in members if member.node == node and member.role is MemberRole.VOTER]
        if not voters:
            return False
        try:
            await self._member(partition).api.move_leader(int(voters[0].member_id, 16))
        except CallFailedError as failed:
            log.info("leadership not transferred", partition=str(partition), to=node, error=str(failed))
            return False
        return True

    async def take_leadership(self, partition: PartitionId, leader_url: str) -> bool:
        _life, _reason, answer = await self._member(partition).look()
        if answer is None:
            return False
        try:
            async with self.calls_at(partition, leader_url) as leader:
                await leader.move_leader(answer.member_id)
        except CallFailedError as failed:
            log.info("leadership not taken over", partition=str(partition), error=str(failed))
            return False
        return True

    async def close(self) -> None:
        for partition in list(self._led):
            await self._end_change(partition)
        gate = asyncio.Semaphore(8)

        async def stop(member: GroupMemberProcess) -> None:
            async with gate:
                await member.stop()

        await asyncio.gather(*(stop(member) for member in self._members.values()))
        self._members.clear()
        self._led.clear()
        self._reservations.close()

    def _member(self, partition: PartitionId) -> GroupMemberProcess:
        member = self._members.get(partition)
        if member is None:
            member = self._members[partition] = self.new_member(partition)
        return member

    async def _note_leadership(
        self, partition: PartitionId, member: GroupMemberProcess, led: _Led, answer: EtcdStatus
    ) -> None:
        """``led.term`` is set only once the group carries its identity and its generation, so that a failure is
        tried again."""
        if answer.leader_id != answer.member_id:
            led.term = 0
            return
        if led.term == answer.term:
            return
        try:
            await member.api.claim_identity(group_identity(partition), member.reservation.generation)
        except MemberUnavailableError as failed:
            log.info("leader is not ready", partition=str(partition), error=str(failed))
            led.term = 0
            return
        led.term = answer.term
        led.progress = StepProgress()
        log.info("leader elected", partition=str(partition), term=answer.term)

    async def _forget_led(self, partition: PartitionId) -> None:
        await self._end_change(partition)
        self._led.pop(partition, None)

    async def _end_change(self, partition: PartitionId) -> None:
        led = self._led.get(partition)
        if led is not None and led.last_change is not None:
            await led.last_change.close()
            led.last_change = None


class EtcdGroupHost(SteppedGroupHost):
    """``ports``: the node's own range, two ports a member. ``member_limit``: most members at once. ``guard``:
    asked before a member starts."""

    def __init__(
        self,
        data_dir: Path,
        ports: range,
        *,
        host: str = "127.0.0.1",
        member_limit: int = 100,
        tuning: EtcdTuning | None = None,
        guard: MemberGuard | None = None,
    ) -> None:
        tuning = tuning or EtcdTuning()
        self._guard = guard
        self._data_dir = data_dir
        self._directories = Reservations(data_dir, ports, host, scheme="https" if tuning.tls else "http")
        super().__init__(self._directories, member_limit, tuning)
        self._starts = asyncio.Semaphore(self._tuning.starts_at_once)
        self._binary = ""

    def open(self, node: str) -> None:
        etcd = self._tuning.etcd or find_etcd()
        if etcd.warning:
            log.warning(etcd.warning)
        self._binary = etcd.path
        super().open(node)
        # Not before the directory is ours alone.
        try:
            remember(self._data_dir, etcd)
        except OSError as error:
            # A full disk: what runs goes on, and the next start remembers it.
            log.warning("the etcd of this directory is not remembered", error=str(error))

    def mirror_places(self) -> Reservations:
        """Reservations of this node's mirrors: beside those of its members, with ports from the same range."""
        return self._directories.beside("mirrors")

    @asynccontextmanager
    async def calls_at(self, partition: PartitionId, client_url: str) -> AsyncIterator[GroupCalls]:
        api = EtcdApi(client_url, self._tuning.tls)
        try:
            yield api
        finally:
            await api.close()

    def new_member(self, partition: PartitionId) -> GroupMemberProcess:
        return EtcdMember(
            partition,
            self._node,
            self._directories,
            self._binary,
            self._tuning,
            self._starts,
            guard=self._guard,
        )


def _refusal(led: _Led, term: int, token: int) -> ChangeAnswer | None:
    if led.term == 0:
        return ChangeAnswer.NOT_LEADER
    if term < led.term:
        return ChangeAnswer.OLD_TERM
    if term > led.term:
        return ChangeAnswer.NOT_LEADER
    return ChangeAnswer.STALE_TOKEN if token < led.token else None
