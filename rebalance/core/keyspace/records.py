"""Records of nodes, members and processes about themselves in the metastore: small JSON documents with a
version field.

Who writes what: a node writes its own ``nodes/<name>`` (under its lease) and its own ``members/...`` keys; the
agent beside a group's leader writes ``partition/.../configuration``; the first agent that sees every initial
member reserved writes ``partition/.../group``, once. Each process writes a record for every server's /readyz,
and each node one of the newest changes of peers that do not succeed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Self

from catalog.core.codec import Codec, Extensible, Form, Record, optional, pairs
from catalog.core.level import NO_LEVEL
from catalog.core.zone import DEFAULT_ENGINE, Node, ZoneId
from rebalance.core.keyspace.keys import PartitionId

REMEMBERED = 4_096
"""Records of members and configurations that are decoded once."""


@dataclass(frozen=True, slots=True)
class NodeRecord(Record):
    """A living node; the key goes with its lease. ``incarnation`` is new at each start of the node process."""

    node: Node
    incarnation: str
    pid: int = 0
    etcd: str = ""
    """Version of the etcd that runs its members, as "3.5.16"; empty: not known, or it has none."""
    highest_zone: int = 0
    """The highest id of the zones that it ever had something of, as its own disk knows: new zones get ids above
    it. 0: none, or an older build."""
    level: int = NO_LEVEL
    level_of: str = ""
    """The incarnation that ``level`` was written by: an older build that takes its node's entry over keeps the
    fields that it does not know."""

    @property
    def build_level(self) -> int:
        """The release level of the build that runs."""
        return self.level if self.level_of == self.incarnation else NO_LEVEL

    def at_level(self, level: int) -> NodeRecord:
        """Return the record as a build of that level writes it."""
        return replace(self, level=level, level_of=self.incarnation)


def _weight(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise ValueError("not above 0")
    return value  # type: ignore[no-any-return]  # an int stays one: it is written as it was read


NODE_FIELDS = Codec(
    Node,
    omit=("engines",),
    # Weight, failure domain and engines may be missing: they came later than the rest.
    required=("attributes", "profiles", "member_limit"),
    order=("engines", "name", "attributes", "profiles", "member_limit", "weight", "failure_domain"),
    forms={"attributes": pairs(), "engines": pairs(), "weight": Form(_weight, lambda held: held)},
)
NodeRecord.codec = Codec(
    NodeRecord,
    omit=("etcd", "highest_zone", "level", "level_of"),
    required=("pid",),
    inline={"node": NODE_FIELDS},
)


class MemberState(Enum):
    """Life of one replica's member process, as its own node sees it."""

    READY = "READY"  # directory and ports are reserved; the process waits for its configuration
    STARTING = "STARTING"  # the process runs but does not answer yet
    RUNNING = "RUNNING"  # it answers
    FAILED = "FAILED"  # it cannot be started; ``reason`` says why, and the node goes on trying
    NONE = "NONE"  # there is no member here: the node keeps a mirror only


class MemberRole(Enum):
    VOTER = "VOTER"
    LEARNER = "LEARNER"


class Stage(Enum):
    """Stage of a group's reconfiguration. CATCHING_UP: a learner was added, nothing promoted or removed.
    JOINT: from the first promote or remove until the member list is the target. STABLE: it is the target, and
    the stable key is not switched yet."""

    NONE = "NONE"
    CATCHING_UP = "CATCHING_UP"
    JOINT = "JOINT"
    STABLE = "STABLE"


@dataclass(frozen=True, slots=True)
class MirrorRecord(Extensible):
    """A learner's copy on one node. READY: it waits for the group's voters; STARTING: the first copy
    is fetched; RUNNING: it may be read up to ``safe_revision`` at least (``rounded_revision``)."""

    state: MemberState
    client_url: str = ""
    safe_revision: int = 0
    reason: str = ""
    complete_revision: int = 0
    """The last revision of the group that the copy has completely, exactly. Published while the group has no
    leader; 0: not published, or the first copy is unfinished, which counts for nothing."""
    generation: int = 0
    """Generation of the group whose data the copy holds."""


@dataclass(frozen=True, slots=True)
class LogPosition(Extensible):
    """Position of a copy, as indexes of its group's log. ``committed``: up to here the copy knows that the
    group has decided, and a reset keeps it; ``last``: its newest entry. What lies between may have been
    acknowledged by members that are lost now. ``orderly``: the process lives, so it can write down all it knows
    first."""

    committed: int
    last: int
    orderly: bool
    revision: int = 0
    """Data revision of the store once every entry up to ``committed`` is applied: what copies of any kind are
    compared by. 0: nobody can tell, or an older build has written this."""

    @property
    def undecided(self) -> int:
        """Entries that a reset drops: possibly lost writes (decision 19)."""
        return max(self.last - self.committed, 0)


@dataclass(frozen=True, slots=True)
class MemberRecord(Record):
    """One replica on one node. URLs stay the same for the life of the member (they are in its membership).

    A node has a member and a mirror of one partition while its role changes, so one record speaks of both;
    state NONE: of a mirror alone.
    """

    state: MemberState
    peer_url: str
    client_url: str
    started: bool = False
    """True once the process was started with data of its own: an empty directory is a loss then."""
    reason: str = ""
    mirror: MirrorRecord | None = None
    position: LogPosition | None = None
    """Published while the group has no leader: what a recovery chooses by."""
    copied: int = 0
    """Bytes of its store and entries that it has applied, while it catches up; one figure, which stands still
    when nothing comes."""

    @classmethod
    def of_mirror(cls, mirror: MirrorRecord) -> Self:
        """The node holds no member of the partition."""
        return cls(MemberState.NONE, "", "", mirror=mirror)

    @property
    def has_member(self) -> bool:
        return self.state is not MemberState.NONE

    @property
    def has_failed(self) -> bool:
        """True if its process ended or its copy cannot be used: the member's, or the mirror's."""
        is_broken = self.mirror is not None and self.mirror.state is MemberState.FAILED
        return is_broken or self.state is MemberState.FAILED

    @property
    def is_mirroring(self) -> bool:
        """A mirror runs, so a learner's copy is here."""
        return self.mirror is not None and self.mirror.state is MemberState.RUNNING


# Fields that came later are left out while they say nothing: so the record is what earlier builds wrote.
MemberRecord.codec = Codec(
    MemberRecord,
    omit=("mirror", "position", "copied"),
    forms={
        "mirror": optional(Codec(MirrorRecord, omit=("complete_revision", "generation")).form),
        "position": optional(Codec(LogPosition, omit=("revision",)).form),
    },
    remembered=REMEMBERED,
)


@dataclass(frozen=True, slots=True)
class GroupRecord(Record):
    """The first configuration of a group, frozen by put-if-absent: node -> peer URL, and the cluster token.

    A recovery writes it anew, with a higher ``generation`` (``Assignments.forced``): members of an earlier one
    belong to a group that was given up, and never run again.
    """

    token: str
    peers: dict[str, str]
    generation: int = 0
    engine: str = DEFAULT_ENGINE
    """Engine that keeps the members; a node whose profile names another one has no place in the group."""
    founding_revision: int = 0
    """Data revision that the group of this generation began with. A copy of an earlier one goes on with the new
    group where it is not beyond it. 0: not known."""
    earlier: dict[str, int] = field(default_factory=dict)
    """Founding revisions of the generations between the first one and this one, by generation."""

    def founded_anew(
        self, token: str, peers: dict[str, str], generation: int, revision: int, engine: str
    ) -> GroupRecord:
        """The record of the group's next life, which begins with data of ``revision``."""
        earlier = dict(self.earlier)
        if self.generation:
            earlier[str(self.generation)] = self.founding_revision
        return GroupRecord(token, peers, generation, engine, revision, earlier)

    def shared_revision(self, generation: int) -> int:
        """The last data revision that copies of an earlier ``generation`` have in common with this group: 0
        where nobody can tell. Every founding in between may have dropped something."""
        foundings = {int(name): shared for name, shared in self.earlier.items() if name.isdigit()}
        foundings[self.generation] = self.founding_revision
        return min((revision for founded, revision in foundings.items() if founded > generation), default=0)


# The engine is left out where it is the first one: so the record is what builds wrote that knew no other.
GroupRecord.codec = Codec(GroupRecord, omit=("engine", "founding_revision", "earlier"))


@dataclass(frozen=True, slots=True)
class ConfiguredMember(Extensible):
    """A member as the group's own committed configuration lists it."""

    member_id: str
    role: MemberRole
    peer_url: str
    leaving: bool = False
    """About to be removed: clients turn elsewhere before it goes."""


@dataclass(frozen=True, slots=True)
class ConfigurationRecord(Record):
    """Configuration that the group has committed, as published by the agent beside its leader after each
    step."""

    term: int
    leader: str
    stage: Stage
    members: dict[str, ConfiguredMember] = field(default_factory=dict)
    reason: str = ""
    """Reason that the running change does not go on at the moment; empty when it does."""
    size_bytes: int = 0
    """Bytes that a copy takes on disk, rounded (``rounded_size``); 0 until it is known."""
    generation: int = 0
    """Generation of the group that committed it; terms are compared within one generation."""

    @property
    def voters(self) -> frozenset[str]:
        return frozenset(name for name, member in self.members.items() if member.role is MemberRole.VOTER)


ConfigurationRecord.codec = Codec(ConfigurationRecord, required=("members", "reason"), remembered=REMEMBERED)


@dataclass(frozen=True, slots=True)
class RestartRecord(Record):
    """A member is asked to stop and start; its node deletes the key when it has. ``cleanup``: on new data."""

    cleanup: bool


@dataclass(frozen=True, slots=True)
class KeptRecord(Record):
    """A node keeps the copy of a member that has left its group. ``event``: of the operation that it left by;
    ``peer_url``: of that member, so that a later one is never taken for it; ``discard``: somebody has finalised
    it, the node deletes the copy and then this key."""

    event: int
    peer_url: str
    discard: bool = False


RestartRecord.codec = Codec(RestartRecord)
KeptRecord.codec = Codec(KeptRecord)


@dataclass(frozen=True, slots=True)
class GivenUpJoiner(Extensible):
    """``event``: of the target that went on without it; ``times``: how often in a row it was given up;
    ``incarnation``: of its node then, empty where that did not live."""

    event: int
    times: int
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class GivenUpRecord(Record):
    """A partition's move went on without joiners that were gone for too long. It says nothing once the
    partition has taken up a later event than ``event``."""

    event: int
    joiners: dict[str, GivenUpJoiner] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Nodes that were given up for ``event``, in name order."""
        return tuple(sorted(name for name, joiner in self.joiners.items() if joiner.event == self.event))


GivenUpRecord.codec = Codec(GivenUpRecord)


def rounded_size(size_bytes: int) -> int:
    """Up to the next number with two significant bits, so that a growing group is published a few times and not
    each second."""
    step = 1 << max(size_bytes.bit_length() - 2, 0)
    return -(-size_bytes // step) * step


def rounded_revision(revision: int) -> int:
    """Down to the last number with two significant bits: a mirror that follows is published twice each time
    that its group's revision doubles, and what is published is never too much."""
    step = 1 << max(revision.bit_length() - 2, 0)
    return revision // step * step


DISK_FULL_SHARE = 0.02
"""A disk of which less is free counts as full."""

_OF_STORE = " store"


def store_name(node: str) -> str:
    """Name of the process that is a node's store server. No node's own name has a space."""
    return f"{node}{_OF_STORE}"


def is_store(process: str) -> bool:
    """True if the process is the store server of a node, which starts and stops it."""
    return process.endswith(_OF_STORE)


class ProcessRole(Enum):
    """The kinds of processes. A server that runs controllers speaks for them too."""

    SERVER = "server"
    CONTROLLER = "controller"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Trouble(Extensible):
    """A task that has ended ``ends`` times, the last time for ``cause``. ``runs``: it was started again, and
    is not steady yet."""

    task: str
    ends: int
    cause: str
    runs: bool


@dataclass(frozen=True, slots=True)
class ProcessRecord(Record):
    """``defects``: unexpected failures since the process started. ``build``: the version that runs, made of
    ``commit``, of release level ``level`` (0: of a build that knows of none).
    ``formats``: of the records that it reads. ``metrics``: URL at which it is scraped; empty: it is not.
    ``disk_full``: the disk of its data directory has less than ``DISK_FULL_SHARE`` left.
    ``certificate``: of those that it has loaded, authorities among them, the file of the one that ends first,
    at ``certificate_end_s`` since 1970; empty: it has none."""

    role: str
    troubles: tuple[Trouble, ...] = ()
    defects: int = 0
    last_defect: str = ""
    build: str = ""
    formats: tuple[int, ...] = ()
    metrics: str = ""
    disk_full: bool = False
    certificate: str = ""
    certificate_end_s: int = 0
    commit: str = ""
    level: int = NO_LEVEL


@dataclass(frozen=True, slots=True)
class WaitingZone(Extensible):
    """``since_ms``: Unix milliseconds."""

    zone_id: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class EngineRecord(Record):
    """Spark's state, and the zone that has waited for its placement for longest; None: none for long."""

    state: str
    message: str
    driver_pid: int | None = None
    waiting: WaitingZone | None = None


ProcessRecord.codec = Codec(
    ProcessRecord,
    # They came later than the rest.
    omit=(
        *("build", "formats", "metrics", "disk_full", "certificate", "certificate_end_s"),
        *("commit", "level"),
    ),
    required=("troubles", "defects", "last_defect"),
)
EngineRecord.codec = Codec(EngineRecord)


NODE_MAX = 20
"""Failures that one node tells."""
ALL_MAX = 100
"""Failures that are shown; a node's record goes when all of these are newer."""
CAUSE_MAX = 300


@dataclass(frozen=True, slots=True)
class Failing:
    """Failure that keeps a change from going on, as its leader's node sees it now. ``attempt``: how many have
    failed; 0: none could be begun."""

    code: str
    cause: str
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Failure(Extensible):
    """``since_ms``: when it was first reported, ``at_ms`` when it was last seen to go on; Unix milliseconds."""

    zone_id: ZoneId
    partition: int
    code: str
    cause: str
    term: int
    attempt: int
    since_ms: int
    at_ms: int

    @property
    def of(self) -> PartitionId:
        return PartitionId(self.zone_id, self.partition)

    def is_news(self, failing: Failing) -> bool:
        """True if ``failing``, which has the same code, is to be reported after this: the cause is another one,
        or attempts have doubled. The 2,001st is no news."""
        return failing.cause[:CAUSE_MAX] != self.cause or failing.attempt >= 2 * max(self.attempt, 1)


@dataclass(frozen=True, slots=True)
class FailureRecord(Record):
    """Failures that one node reports, the newest first."""

    failures: tuple[Failure, ...] = ()

    @property
    def partitions(self) -> frozenset[PartitionId]:
        return frozenset(failure.of for failure in self.failures)

    def with_news(self, news: Collection[Failure], lives: Callable[[PartitionId], bool]) -> FailureRecord:
        """Return the record with ``news`` in place of the earlier reports of the same failures, and without
        partitions that are no more: the newest ``NODE_MAX``."""
        known = {_series(failure): failure for failure in (*self.failures, *news)}
        kept = (failure for failure in known.values() if lives(failure.of))
        return replace(self, failures=tuple(sorted(kept, key=_newest_first)[:NODE_MAX]))


def failure_after(
    before: Failure | None, partition: PartitionId, term: int, failing: Failing, now_ms: int
) -> Failure:
    """``failing`` as it is reported after ``before``, the same failure."""
    since_ms = before.since_ms if before is not None else now_ms
    cause, (zone_id, number) = failing.cause[:CAUSE_MAX], (partition.zone_id, partition.partition)
    return Failure(zone_id, number, failing.code, cause, term, failing.attempt, since_ms, now_ms)


def newest(records: Mapping[str, FailureRecord]) -> list[tuple[str, Failure]]:
    """Newest ``ALL_MAX`` failures of ``records`` (by node), each with its reporting node, the newest first."""
    failures = [(node, failure) for node, record in records.items() for failure in record.failures]
    return sorted(failures, key=lambda entry: (_newest_first(entry[1]), entry[0]))[:ALL_MAX]


def outdated(records: Mapping[str, FailureRecord]) -> Sequence[str]:
    """Nodes of whose failures none is among the newest ``ALL_MAX``: their records may go."""
    shown = {node for node, _ in newest(records)}
    return sorted(records.keys() - shown)


def _series(failure: Failure) -> tuple[PartitionId, str, int]:
    return failure.of, failure.code, failure.since_ms


def _newest_first(failure: Failure) -> tuple[int, ZoneId, int, str]:
    return -failure.at_ms, failure.zone_id, failure.partition, failure.code


FailureRecord.codec = Codec(FailureRecord, required=("failures",))
