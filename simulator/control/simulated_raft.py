"""One modelled replication group: elections, catch-up, membership steps as etcd 3.5 accepts or refuses them.

Data itself is not there: a member's progress is the moment at which it has caught up.
"""

from __future__ import annotations

import asyncio
import random
import zlib
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


class RaftSurroundings(Protocol):
    """Machines of a group's members, as far as the group knows them."""

    rates: GroupRates
    observer: GroupObserver
    cut: set[tuple[str, str]]
    """Links that carry nothing, each one way."""

    def linked(self, one: str, other: str) -> bool: ...

    def node_of(self, peer_url: str) -> str: ...

    def new_member_id(self) -> int: ...

    def expel(self, replica: SimulatedReplica) -> None: ...

    def changed(self, group: SimulatedGroup) -> None:
        """Another leader, or none, or other members that answer."""
        ...

    def grown(self, group: SimulatedGroup) -> None:
        """A step was committed."""
        ...


@dataclass(slots=True)
class SimulatedGroup:
    """One replication group: the committed member list, its leader and its term."""

    partition: PartitionId
    token: str
    rng: random.Random
    cluster: RaftSurroundings
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
