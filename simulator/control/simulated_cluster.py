"""The groups and the disks of all nodes of a simulation.

A modelled group has elections, catch-up and membership steps as etcd 3.5 accepts or refuses them. Data itself
is not there: the progress of a member is the moment at which it has caught up.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from catalog.core.quorum import majority
from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.calls.etcd_api import CallFailedError, EtcdMemberEntry, FailureKind
from rebalance.ports.groups import MemberEndpoints, MemberLife

CALL_TIMEOUT_S = 2.0
HEALTHY_AFTER_S = 5.0
"""etcd accepts a new member only when all voters have been connected for so long."""
KNOWN_DOWN_S = 40.0
"""Time after which every agent knows that a node is gone, also one that was paused or cut off meanwhile."""


@dataclass(frozen=True, slots=True)
class GroupRates:
    """Times in seconds (lower and upper end) and probabilities per membership call."""

    start_s: tuple[float, float] = (0.05, 0.4)
    election_s: tuple[float, float] = (0.3, 2.0)
    catch_up_s: tuple[float, float] = (0.1, 4.0)
    mirror_copy_s: tuple[float, float] = (0.1, 20.0)
    restart_delay_s: float = 0.5
    lost_call: float = 0.01
    late_call: float = 0.01
    lost_answer: float = 0.01


class GroupObserver(Protocol):
    """Hears of each committed step, for the invariants."""

    def on_step(self, group: SimulatedGroup, step: str) -> None: ...

    def on_removal(self, group: SimulatedGroup, before: int, known_up: int, voters: int) -> None:
        """``before``: living voters before, ``known_up``: voters left that nobody can know to be down."""
        ...

    def on_voter_gone(self, replica: SimulatedReplica) -> None:
        """The group has removed this voter, which ran for long enough for everybody to know it."""
        ...

    def on_destroy(self, replica: SimulatedReplica) -> None:
        """Called before the data of ``replica`` goes."""
        ...

    def on_mirror_destroy(self, mirror: SimulatedMirror) -> None: ...


@dataclass(slots=True)
class SimulatedReplica:
    """A member's directory on a node, and its process. ``down_since``: when the process ended last."""

    node: str
    partition: PartitionId
    endpoints: MemberEndpoints
    group: SimulatedGroup | None = None
    member_id: int = 0
    runs: bool = False
    answers: bool = False
    up_since: float = 0.0
    down_since: float = 0.0
    synced_at: float = float("inf")
    not_before: float = 0.0
    exit_reason: str = ""
    removed: bool = False
    starts: int = 0
    generation: int = 0
    founding_revision: int = 0
    strict: bool = True
    """True: its process checks membership steps itself, as etcd does with ``--strict-reconfig-check``."""
    acknowledged: int = 0
    """The newest of its group's acknowledged puts that its disk has."""

    @property
    def life(self) -> MemberLife:
        if self.removed:
            return MemberLife.REMOVED
        if self.group is None:
            return MemberLife.RESERVED
        return MemberLife.FAILED if self.exit_reason else MemberLife.STOPPED

    @property
    def reason(self) -> str:
        return "removed by its group" if self.removed else self.exit_reason


@dataclass(slots=True)
class SimulatedMirror:
    """A learner's directory on a node, and its process. ``ready_at``: when its copy is complete, or
    its store has started on the copy that it has; ``safe_revision``: the group's steps that it has seen."""

    node: str
    partition: PartitionId
    group: str
    client_url: str
    rng: random.Random
    sources: tuple[str, ...] = ()
    runs: bool = False
    has_copy: bool = False
    ready_at: float = 0.0
    safe_revision: int = 0
    acknowledged: int = 0
    """The newest of its group's acknowledged puts that it has."""
    generation: int = 0
    exit_reason: str = ""


@dataclass(slots=True)
class SimulatedGroup:
    """One replication group: the committed member list, its leader and its term."""

    partition: PartitionId
    token: str
    rng: random.Random
    cluster: SimulatedCluster
    entries: dict[int, EtcdMemberEntry] = field(default_factory=dict)
    replicas: dict[int, SimulatedReplica] = field(default_factory=dict)
    """Members that have a process or had one; a learner that never started has none."""
    leader_id: int = 0
    term: int = 1
    applied: int = 0
    identity: bytes = b""
    electing: bool = False
    strays: set[int] = field(default_factory=set)
    """Members whose addition came after its caller had given it up."""
    lands_late: bool = False
    """The step that is taken now was sent long ago."""
    acknowledged: int = 0
    """Number of puts that it has acknowledged."""
    lost: int = 0
    """Number of them that a leader did not have."""

    @property
    def cluster_id(self) -> int:
        return zlib.crc32(self.token.encode())

    @property
    def is_strict(self) -> bool:
        """Steps are sent to the leader, so its flag counts."""
        leader = self.replicas.get(self.leader_id)
        return leader is None or leader.strict

    @property
    def voters(self) -> list[int]:
        return [entry.member_id for entry in self.entries.values() if not entry.is_learner]

    def answers(self, member_id: int) -> bool:
        replica = self.replicas.get(member_id)
        return replica is not None and replica.answers

    @property
    def has_majority(self) -> bool:
        if self.cluster.cut:
            return any(map(self._could_lead, self.voters))
        voters = self.voters
        return sum(map(self.answers, voters)) >= majority(len(voters))

    @property
    def has_leader(self) -> bool:
        leads = self.leader_id in self.entries and self.answers(self.leader_id) and self.has_majority
        return leads and (not self.cluster.cut or self._could_lead(self.leader_id))

    def hears(self, member_id: int, leader_id: int) -> bool:
        """True if the member answers, and no link between the leader and it is cut."""
        if not self.answers(member_id) or not self.cluster.cut:
            return self.answers(member_id)
        leader = self.replicas.get(leader_id)
        return leader is not None and self.cluster.linked(leader.node, self.replicas[member_id].node)

    def _could_lead(self, member_id: int) -> bool:
        voters = self.voters
        hearing = sum(self.hears(voter, member_id) for voter in voters)
        return self.answers(member_id) and hearing >= majority(len(voters))

    def put(self) -> bool:
        """A client's write; acknowledged when a majority has it. Learners in sync follow."""
        if not self.has_leader:
            return False
        self.acknowledged += 1
        self._replicate()
        return True

    def _replicate(self) -> None:
        """Bring what is acknowledged to every replica that hears the leader; learners have it once they are in
        sync."""
        if not self.has_leader:
            return
        now = asyncio.get_running_loop().time()
        for member_id, replica in self.replicas.items():
            if self.hears(member_id, self.leader_id) and replica.synced_at <= now:
                replica.acknowledged = self.acknowledged

    @property
    def nodes(self) -> tuple[frozenset[str], frozenset[str]]:
        """Names of the nodes that vote, and of those that learn; the peer URL where none was ever known."""
        named = [(self.cluster.node_of(entry.peer_url), entry.is_learner) for entry in self.entries.values()]
        return (
            frozenset(node for node, learns in named if not learns),
            frozenset(node for node, learns in named if learns),
        )

    @property
    def stray_learners(self) -> frozenset[str]:
        learners = (
            entry for entry in self.entries.values() if entry.is_learner and entry.member_id in self.strays
        )
        return frozenset(self.cluster.node_of(entry.peer_url) for entry in learners)

    def check_leader(self) -> None:
        if not self.has_leader:
            raise CallFailedError(FailureKind.NO_LEADER, "no leader")

    def add_learner(self, peer_url: str) -> None:
        if any(entry.peer_url == peer_url for entry in self.entries.values()):
            raise CallFailedError(FailureKind.ALREADY_DONE, "peer URL already exists")
        if any(entry.is_learner for entry in self.entries.values()):
            raise CallFailedError(FailureKind.LEARNER_SLOT_TAKEN, "too many learner members")
        now = asyncio.get_running_loop().time()
        for voter in self.voters if self.is_strict else ():
            heard = self.hears(voter, self.leader_id)
            if not heard or self.replicas[voter].up_since > now - HEALTHY_AFTER_S:
                raise CallFailedError(FailureKind.UNHEALTHY, "unhealthy cluster")
        member_id = self.cluster.new_member_id()
        self.entries[member_id] = EtcdMemberEntry(member_id, "", peer_url, True)
        self._committed(f"learner {self.cluster.node_of(peer_url)}")

    def promote(self, member_id: int) -> None:
        entry = self.entries.get(member_id)
        if entry is None or not entry.is_learner:
            raise CallFailedError(FailureKind.ALREADY_DONE, "can only promote a learner member")
        replica = self.replicas.get(member_id)
        now = asyncio.get_running_loop().time()
        in_sync = self.hears(member_id, self.leader_id) and replica is not None and replica.synced_at <= now
        if not in_sync or replica is None:
            raise CallFailedError(FailureKind.NOT_IN_SYNC, "learner is not in sync with leader")
        replica.acknowledged = self.acknowledged
        self.entries[member_id] = replace(entry, is_learner=False)
        self._committed(f"voter {self.cluster.node_of(entry.peer_url)}")

    def remove(self, member_id: int) -> None:
        entry = self.entries.get(member_id)
        if entry is None:
            raise CallFailedError(FailureKind.ALREADY_DONE, "member not found")
        self._replicate()
        before = sum(map(self.answers, self.voters))
        if not entry.is_learner:
            self._check_removal(member_id)
        del self.entries[member_id]
        if not entry.is_learner:
            now = asyncio.get_running_loop().time()
            known_up = sum(not self._known_down(voter, now) for voter in self.voters)
            self.cluster.observer.on_removal(self, before, known_up, len(self.voters))
        replica = self.replicas.pop(member_id, None)
        if replica is not None:
            known_up_since = asyncio.get_running_loop().time() - KNOWN_DOWN_S
            if not entry.is_learner and replica.answers and replica.up_since < known_up_since:
                self.cluster.observer.on_voter_gone(replica)
            self.cluster.expel(replica)
        self._committed(f"gone {self.cluster.node_of(entry.peer_url)}")
        if member_id == self.leader_id:
            self.elect()

    def move_leader(self, member_id: int) -> bool:
        entry = self.entries.get(member_id)
        if entry is None or entry.is_learner or not self.has_leader:
            return False
        if not self.hears(member_id, self.leader_id):
            # Whom the leader does not reach it cannot bring up to date, and so does not ask.
            return False
        self.lead(member_id)
        return True

    def lead(self, member_id: int) -> None:
        if member_id != self.leader_id:
            # Who hands its lead over brings the other one up to date first.
            self._replicate()
            self.lost = max(self.lost, self.acknowledged - self.replicas[member_id].acknowledged)
            self.term += 1
            self.leader_id = member_id
            self._committed(f"leader {self.replicas[member_id].node}")
            self.cluster.changed(self)

    def elect(self) -> None:
        """An election unless one is under way; it takes its time and needs a majority."""
        if not self.electing:
            self.electing = True
            delay_s = self.rng.uniform(*self.cluster.rates.election_s)
            asyncio.get_running_loop().call_later(delay_s, self._elected)

    def _elected(self) -> None:
        self.electing = False
        if self.has_leader or not self.has_majority:
            return  # the next member that starts asks again
        self.leader_id = 0
        candidates = [voter for voter in self.voters if self.answers(voter)]
        if self.cluster.cut:
            candidates = [voter for voter in candidates if self._could_lead(voter)]
        # Nobody votes for a member whose log is behind its own.
        newest = max(self.replicas[voter].acknowledged for voter in candidates)
        self.lead(
            self.rng.choice([voter for voter in candidates if self.replicas[voter].acknowledged == newest])
        )

    def _check_removal(self, member_id: int) -> None:
        left = [voter for voter in self.voters if voter != member_id]
        connected = sum(self.hears(voter, self.leader_id) for voter in left)
        if not left:
            raise CallFailedError(FailureKind.OTHER, "the last member cannot be removed")
        if self.is_strict and self.answers(member_id) and connected < majority(len(left)):
            raise CallFailedError(FailureKind.UNHEALTHY, "unhealthy cluster")

    def _known_down(self, member_id: int, now: float) -> bool:
        replica = self.replicas.get(member_id)
        return replica is None or (not replica.runs and replica.down_since < now - KNOWN_DOWN_S)

    def _committed(self, step: str) -> None:
        self.applied += 1
        self._replicate()
        self.cluster.grown(self)
        self.cluster.observer.on_step(self, step)


NOTIFY_S = (0.0, 0.2)
"""Time after a change of a member until its node hears of it."""

Notify = Callable[[PartitionId, float], None]
"""A member or a mirror of the partition is another one after so many seconds."""


class SimulatedCluster:
    """All groups and disks. ``observer`` is notified of what happens to them, each node of its own part of
    it."""

    def __init__(self, seed: str, rates: GroupRates, observer: GroupObserver) -> None:
        self.rates = rates
        self.observer = observer
        self.groups: dict[PartitionId, SimulatedGroup] = {}
        self._seed = seed
        self._rng = random.Random(f"{seed}/processes")
        self._disks: dict[str, dict[PartitionId, SimulatedReplica]] = {}
        self._aside: dict[str, dict[PartitionId, dict[int, SimulatedReplica]]] = {}
        self._mirrors: dict[str, dict[PartitionId, SimulatedMirror]] = {}
        self._nodes: dict[str, str] = {}
        self._notified: dict[str, Notify] = {}
        self._notify_rng = random.Random(f"{seed}/told")
        self._member_ids = 0
        self._urls = 0
        self.cut: set[tuple[str, str]] = set()
        """Links between nodes on which nothing arrives: from, to."""
        self.full: set[str] = set()
        """Nodes whose disk is full: no member starts there, those that run go on."""
        self.slow: dict[str, float] = {}
        """Seconds that each copy to a node takes at least."""

    def tell(self, node: str, notify: Notify) -> None:
        """``notify`` is called at each change of the members and mirrors of ``node``, in place of the
        former one."""
        self._notified[node] = notify

    def changed(self, group: SimulatedGroup) -> None:
        """Notify nodes of a change of the group's leader, or of its majority: all its members answer otherwise
        now, and its mirrors may have another source."""
        for replica in group.replicas.values():
            self._tell(replica.node, group.partition)
        self.grown(group)

    def grown(self, group: SimulatedGroup) -> None:
        """Notify nodes of a step that the group has committed: its leader sees another list, and its mirrors
        have something to fetch."""
        leader = group.replicas.get(group.leader_id)
        if leader is not None:
            self._tell(leader.node, group.partition)
        for node, mirrors in self._mirrors.items():
            if group.partition in mirrors:
                self._tell(node, group.partition)

    def _tell(self, node: str, partition: PartitionId, delay_s: float = 0.0) -> None:
        notify = self._notified.get(node)
        if notify is not None:
            notify(partition, delay_s + self._notify_rng.uniform(*NOTIFY_S))

    def linked(self, one: str, other: str) -> bool:
        return one == other or ((one, other) not in self.cut and (other, one) not in self.cut)

    def cut_link(self, source: str, destination: str) -> None:
        self.cut.add((source, destination))
        for group in self.groups.values():
            if not group.has_leader:
                group.elect()
                self.changed(group)

    def disk(self, node: str) -> dict[PartitionId, SimulatedReplica]:
        return self._disks.setdefault(node, {})

    def replica_at(self, partition: PartitionId, client_url: str) -> SimulatedReplica | None:
        held = (disk.get(partition) for disk in self._disks.values())
        return next((member for member in held if member and member.endpoints.client_url == client_url), None)

    def node_of(self, peer_url: str) -> str:
        return self._nodes.get(peer_url, peer_url)

    def new_member_id(self) -> int:
        self._member_ids += 1
        return self._member_ids

    def delay_s(self, replica: SimulatedReplica) -> float:
        rng = replica.group.rng if replica.group is not None else self._rng
        return rng.uniform(0.001, 0.01)

    def reserve(self, node: str, partition: PartitionId) -> SimulatedReplica:
        self._urls += 1
        endpoints = MemberEndpoints(f"peer://{node}/{self._urls}", f"client://{node}/{self._urls}")
        self._nodes[endpoints.peer_url] = node
        replica = SimulatedReplica(node, partition, endpoints)
        self.disk(node)[partition] = replica
        return replica

    def forget(self, node: str, partition: PartitionId) -> None:
        replica = self.disk(node).get(partition)
        if replica is not None:
            self.observer.on_destroy(replica)
            del self.disk(node)[partition]

    def aside(self, node: str) -> dict[PartitionId, dict[int, SimulatedReplica]]:
        """Replicas of a node that were put aside, by partition and generation."""
        return self._aside.setdefault(node, {})

    def set_aside(self, replica: SimulatedReplica) -> None:
        self.stop(replica)
        held = self.aside(replica.node).setdefault(replica.partition, {})
        held[replica.generation] = self.disk(replica.node).pop(replica.partition)

    def start(self, replica: SimulatedReplica, token: str, initial: Mapping[str, str], *, is_new: bool) -> None:
        """The first start of a member: into a new group of ``initial``, or into the one that has added it."""
        group = self.groups.get(replica.partition)
        if is_new and (group is None or group.token != token):
            group = self._found(replica.partition, token, initial)
        own = replica.endpoints.peer_url
        entry = (
            next((other for other in group.entries.values() if other.peer_url == own), None) if group else None
        )
        if group is None or entry is None or (not is_new and len(initial) != len(group.entries)):
            # As etcd: a member that does not know exactly the list of its group refuses to start.
            self._fail(replica, "EXIT 1: member count is unequal")
            return
        replica.group, replica.member_id = group, entry.member_id
        group.replicas[entry.member_id] = replica
        if not is_new:
            replica.synced_at = float("inf")
        self.restart(replica)

    def found_alone(self, replica: SimulatedReplica, generation: int) -> None:
        """The member leaves its group as it is and begins a new one, with what it has."""
        self.stop(replica)
        applied = replica.group.applied if replica.group is not None else 0
        term = replica.group.term + 1 if replica.group is not None else 1
        self._begin(replica, generation, applied, term)

    def found_from_mirror(self, replica: SimulatedReplica, generation: int) -> None:
        """The same for a reserved member, with what the node's mirror has."""
        mirror = self.mirror_disk(replica.node)[replica.partition]
        replica.acknowledged = mirror.acknowledged
        self._begin(replica, generation, mirror.safe_revision, 1)

    def _begin(self, replica: SimulatedReplica, generation: int, applied: int, term: int) -> None:
        zone, number = replica.partition.zone_id, replica.partition.partition
        own = {replica.node: replica.endpoints.peer_url}
        group = self._found(replica.partition, f"{zone}-{number}-{generation}", own)
        group.applied, group.term, group.acknowledged = applied, term, replica.acknowledged
        replica.group, replica.member_id = group, next(iter(group.entries))
        group.replicas[replica.member_id] = replica
        replica.generation, replica.founding_revision = generation, applied
        self.restart(replica)

    def restart(self, replica: SimulatedReplica) -> None:
        if replica.node in self.full:
            self._fail(replica, "EXIT 1: no space left on device")
            return
        replica.runs, replica.removed, replica.exit_reason = True, False, ""
        replica.starts += 1
        self._tell(replica.node, replica.partition)
        delay_s = self._rng.uniform(*self.rates.start_s)
        asyncio.get_running_loop().call_later(delay_s, self._started, replica, replica.starts)

    def _started(self, replica: SimulatedReplica, start: int) -> None:
        group = replica.group
        if group is None or not replica.runs or replica.starts != start:
            return
        entry = group.entries.get(replica.member_id)
        if entry is None:
            self.expel(replica)
            return
        now = asyncio.get_running_loop().time()
        replica.answers, replica.up_since = True, now
        if not entry.client_url:
            client_url = replica.endpoints.client_url
            group.entries[entry.member_id] = replace(entry, name=replica.node, client_url=client_url)
        copy_s = group.rng.uniform(*self.rates.catch_up_s) if entry.is_learner else 0.0
        replica.synced_at = now + (max(copy_s, self.slow.get(replica.node, 0.0)) if entry.is_learner else 0.0)
        if not group.has_leader:
            group.elect()
        self.changed(group)

    def stop(self, replica: SimulatedReplica, reason: str = "") -> None:
        """The process ends; ``reason`` says how when nobody asked it to."""
        if replica.runs:
            replica.down_since = asyncio.get_running_loop().time()
        replica.runs = replica.answers = False
        replica.exit_reason = reason
        group = replica.group
        if group is not None and group.leader_id == replica.member_id:
            group.elect()
        self._tell(replica.node, replica.partition)
        if group is not None:
            self.changed(group)

    def stop_node(self, node: str) -> None:
        for replica in self.disk(node).values():
            self.stop(replica)
        for mirror in self.mirror_disk(node).values():
            self.stop_mirror(mirror)

    def mirror_disk(self, node: str) -> dict[PartitionId, SimulatedMirror]:
        return self._mirrors.setdefault(node, {})

    def reserve_mirror(self, node: str, partition: PartitionId, group: str) -> SimulatedMirror:
        self._urls += 1
        rng = random.Random(f"{self._seed}/{partition}/{group}/mirror on {node}/{self._urls}")
        mirror = SimulatedMirror(node, partition, group, f"client://{node}/{self._urls}", rng)
        self.mirror_disk(node)[partition] = mirror
        return mirror

    def start_mirror(self, mirror: SimulatedMirror) -> None:
        """A first copy takes its time; one that is there already is only opened."""
        mirror.runs, mirror.exit_reason = True, ""
        delay_s = mirror.rng.uniform(*self.rates.start_s)
        if not mirror.has_copy:
            delay_s += mirror.rng.uniform(*self.rates.mirror_copy_s)
        mirror.ready_at = asyncio.get_running_loop().time() + delay_s
        self._tell(mirror.node, mirror.partition, delay_s)

    def awaited(self, mirror: SimulatedMirror) -> None:
        """Notify the mirror's node once it is ready: it was asked for before."""
        self._tell(mirror.node, mirror.partition, mirror.ready_at - asyncio.get_running_loop().time())

    def stop_mirror(self, mirror: SimulatedMirror, reason: str = "") -> None:
        """Stop a mirror, as ``stop`` does a member."""
        mirror.runs, mirror.exit_reason = False, reason
        self._tell(mirror.node, mirror.partition)

    def forget_mirror(self, node: str, partition: PartitionId) -> None:
        self.observer.on_mirror_destroy(self.mirror_disk(node)[partition])
        del self.mirror_disk(node)[partition]

    def expel(self, replica: SimulatedReplica) -> None:
        """A member that learns that it was removed ends by itself."""
        runs = replica.runs
        self.stop(replica)
        replica.removed = runs or replica.removed

    def _fail(self, replica: SimulatedReplica, reason: str) -> None:
        replica.exit_reason = reason
        replica.not_before = asyncio.get_running_loop().time() + self.rates.restart_delay_s
        self._tell(replica.node, replica.partition)

    def _found(self, partition: PartitionId, token: str, initial: Mapping[str, str]) -> SimulatedGroup:
        group = SimulatedGroup(partition, token, random.Random(f"{self._seed}/{partition}/{token}"), self)
        for name, peer_url in sorted(initial.items()):
            member_id = self.new_member_id()
            group.entries[member_id] = EtcdMemberEntry(member_id, name, peer_url, False)
        self.groups[partition] = group
        self.observer.on_step(group, "founded")
        return group
