"""A replication group as a node's agent sees it: its own members, and the change of a group that it leads.

One ``GroupHost`` per node. Methods speak of the node's *own* member of a partition; a change of peers is
asked of the host whose member leads. A host never calls its agent: the agent advances an accepted change step
by step, and each step's outcome comes back as a ``GroupEvent``.

An engine keeps the members of groups. A storage profile names one; ``etcd`` is the one that comes along.
Another one is a ``GroupHost`` of its own, found by the entry point group ``zonekeeper.engines``:
``rebalance/tech-notes/engines.md`` says what it must hold to. At the end stand the refusals of requests that
the group itself would take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from catalog.core.zone import DEFAULT_ENGINE
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import GroupRecord, LogPosition, MemberRole
from rebalance.ports.fence import MemberGuard, NoGuard


class GroupError(Exception):
    """Base of what a group host and the data path raise.

    GroupError
    ├── NoPlaceError            the node cannot hold one more member; the message says what ran out
    ├── MemberUnavailableError  the own member gave no usable answer; asking again is right
    ├── DataDirectoryInUseError another process holds this node's data directory
    ├── OutcomeUnknownError     40003: a put was repeated until its time limit; it may have been applied
    ├── GenerationRefusedError  40001: another life of the group answered until the time limit; nothing happened
    ├── ValueRefusedError       the group will never take this value (too large)
    ├── GroupFullError          53100: a member's store is full, nothing was written
    ├── (``write_refusals``)    NobodyAskedError, ConditionFailedError, OperationAbandonedError
    ├── ReplicaBehindError      no replica has what a read wants, within its time limit
    └── RevisionGoneError       a read wants a revision that is compacted
    """


class NoPlaceError(GroupError):
    """Error of a full node: no free port pair, no space on the disk, or its member limit is reached."""


class MemberUnavailableError(GroupError):
    """The member is not running, or did not answer in time."""


class DataDirectoryInUseError(GroupError):
    """A second node process on one data directory."""


class OutcomeUnknownError(GroupError):
    """Error of a request without an answer within the time limit. The same operation id may be used to repeat
    the put safely for as long as ids are kept (see ``rebalance/tech-notes/etcd-group.md``)."""

    code = 40003


class GenerationRefusedError(GroupError):
    """Every attempt reached a member of another generation of the group than the routing map names: nothing was
    written or read. ``expected``: what the map names; ``answered``: of the last member; 0 is the group's first
    life. Asking again is right: the map follows the metastore."""

    code = 40001

    def __init__(self, message: str, expected: int, answered: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.answered = answered


class ValueRefusedError(GroupError):
    """Repeating cannot help."""


class GroupFullError(GroupError):
    """The group's members tidy up by themselves; what stays full needs a larger quota."""

    code = 53100


class ReplicaBehindError(GroupError):
    """Asking again later is right, or reading from the leader; the message says where each replica is."""


class RevisionGoneError(GroupError):
    """Groups keep a bounded history: a newer revision can be read."""


class MemberLife(Enum):
    """State of a member by the node's own files and processes."""

    RESERVED = "RESERVED"  # a directory and ports, nothing was ever started
    STOPPED = "STOPPED"  # there is data, no process runs
    STARTING = "STARTING"  # the process runs and does not answer yet
    RUNNING = "RUNNING"  # the process answers
    REMOVED = "REMOVED"  # the process ended by itself because the group removed it: its data is of no use
    FAILED = "FAILED"  # the process ended with an error; ``reason`` says which
    DATA_LOST = "DATA_LOST"  # it was started once and its data is gone: it must never start afresh


@dataclass(frozen=True, slots=True)
class MemberEndpoints:
    """Endpoints of a member, which stay the same for its life: the peer URL is in the group's membership."""

    peer_url: str
    client_url: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One entry of the group's committed configuration; ``node`` is ``_<id>`` when nobody knows it."""

    node: str
    member_id: str
    role: MemberRole
    peer_url: str
    started: bool = True
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class PeerSight:
    """Knowledge of the agent about the member behind a peer URL. ``down``: its node is gone or has given it up.
    ``serving``: its own node says that it answers clients. ``mirror_missing``: its node lives and keeps no
    mirror of the partition that runs, so it cannot become a learner yet."""

    node: str
    down: bool = False
    serving: bool = True
    mirror_missing: bool = False


NO_SIGHTS: Mapping[str, PeerSight] = {}


class ChangeAnswer(Enum):
    """Answers to a request; the first two mean that the target is being worked on."""

    RECEIVED = "RECEIVED"
    ALREADY_RUNNING = "ALREADY_RUNNING"  # the very same request is under way
    BUSY = "BUSY"  # an earlier change touches voters, or is inside a call: ask again (forced ones need not)
    NOT_LEADER = "NOT_LEADER"
    OLD_TERM = "OLD_TERM"  # the sender speaks for an earlier leadership and must stop
    STALE_TOKEN = "STALE_TOKEN"  # a newer target was asked for already


class Intention(Enum):
    """Standing of a target: the newest, or not."""

    CURRENT = "CURRENT"
    REPLACED = "REPLACED"  # by another one: the change ends
    UNKNOWN = "UNKNOWN"  # nobody can tell: the change waits and asks again


class CancelAnswer(Enum):
    CANCELLED = "CANCELLED"
    NOTHING_RUNNING = "NOTHING_RUNNING"
    TOO_LATE = "TOO_LATE"  # voters are being touched: the change goes on
    NOT_LEADER = "NOT_LEADER"


class FailureCode(Enum):
    """Reason of a failed attempt at a change. All but LEADER_STEPPED_DOWN and CANCELLED are tried again."""

    LEADER_STEPPED_DOWN = "LEADER_STEPPED_DOWN"
    CANCELLED = "CANCELLED"
    SUPERSEDED = "SUPERSEDED"  # another target has come while the new members caught up
    UNHEALTHY_CLUSTER = "UNHEALTHY_CLUSTER"  # the group wants its members connected for 5 s first
    MEMBER_NOT_STARTED = "MEMBER_NOT_STARTED"
    MIRROR_NOT_RUNNING = "MIRROR_NOT_RUNNING"  # a voter that is to become a learner has no mirror yet
    CATCHING_UP = "CATCHING_UP"  # no failure: what a running change waits for
    METASTORE_SILENT = "METASTORE_SILENT"  # the same: nobody can tell now what is wanted
    CATCH_UP_TIMEOUT = "CATCH_UP_TIMEOUT"
    NO_MAJORITY = "NO_MAJORITY"
    TRANSFER_FAILED = "TRANSFER_FAILED"
    TIMED_OUT = "TIMED_OUT"
    REFUSED = "REFUSED"
    DEFECT = "DEFECT"  # what nothing expected; the node's log has the rest


@dataclass(frozen=True, slots=True)
class ReconfigurationFailure:
    """``peer_url`` is the member that the failed step was about, empty when there is none."""

    code: FailureCode
    detail: str
    peer_url: str = ""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """``leader`` is a node's name, empty when the member knows none. Numbers are 0 unless it is RUNNING."""

    life: MemberLife
    endpoints: MemberEndpoints
    reason: str = ""
    member_id: str = ""
    role: MemberRole = MemberRole.VOTER
    is_leader: bool = False
    leader: str = ""
    term: int = 0
    applied_index: int = 0
    size_bytes: int = 0
    changing: bool = False
    """A change of peers that this host drives is under way."""
    waiting: ReconfigurationFailure | None = None
    """Reason why that change waits; None when it goes on or when there is none."""
    generation: int = 0
    """Generation of the group that the member's data belongs to."""
    founding_revision: int = 0
    """Data revision that this member founded the group of its generation with; 0 where it did not."""
    received: int = 0
    """Bytes and entries received while it catches up, answering or not; 0: it does not. Of one that is
    STARTING it is above 0 only where that was started to join a running group and has never answered."""


@dataclass(frozen=True, slots=True)
class Committed:
    """``members`` is the committed list, or waits to be seen by a member that joins: it is to be published. A
    leaving member is removed only once it was published as leaving (``StepInput.published``)."""

    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Event before a step that touches a voter or ends the change, after others (``tryCatchUpFinish``).
    ``joiner``: id of the member that is in sync and votes next. The change ends unless it is CURRENT."""

    joiner: str = ""


@dataclass(frozen=True, slots=True)
class VotersLeftAlone:
    """Event before a step that touches no voter, after one that did: another target may take this one's place
    now. Unless the target is CURRENT, the change ends."""


@dataclass(frozen=True, slots=True)
class IntentionNeeded:
    """The next step is taken only for what the metastore itself says now (``needs_intention``)."""


@dataclass(frozen=True, slots=True)
class Paused:
    """Pause of ``delay_s`` seconds, in which nothing is to be done."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Applied:
    """The end: the group has exactly the target's voters."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of the attempt. CANCELLED: the host gave the change up, or another one took its place."""

    failure: ReconfigurationFailure


GroupEvent = Committed | CaughtUp | VotersLeftAlone | IntentionNeeded | Paused | Applied | Failed


@dataclass(frozen=True, slots=True)
class StepInput:
    """Input of the agent when it asks for the next step. ``sights``: of each known peer URL; ``intention`` and
    ``published`` answer the event before."""

    sights: Mapping[str, PeerSight]
    intention: Intention = Intention.UNKNOWN
    published: bool = False


class GroupChange(Protocol):
    """An accepted change. Nothing happens between two calls of ``advance``."""

    async def advance(self, given: StepInput) -> GroupEvent:
        """The outcome of the next step; ``Applied`` and ``Failed`` are the last."""
        ...

    async def close(self) -> None:
        """Close the change: no step is taken any more once this returns, and the host takes up another one."""
        ...


class GroupHost(Protocol):
    """The members of one node. Every call is bounded in time."""

    def open(self, node: str) -> None:
        """Take the node's data directory and find its members. Raises DataDirectoryInUseError."""
        ...

    def partitions(self) -> frozenset[PartitionId]:
        """Partitions that this node has a reservation or data for."""
        ...

    def engine(self, partition: PartitionId) -> str:
        """The name of what keeps the partition's member here, or would keep it."""
        ...

    def endpoints(self, partition: PartitionId) -> MemberEndpoints | None: ...

    async def reserve(self, partition: PartitionId, listed: Collection[str] = ()) -> MemberEndpoints:
        """A directory and a port pair; the same answer when repeated. ``listed``: peer URLs of the group's
        members, which a new one must not have: on an empty directory it would be taken for one that has voted.
        Raises NoPlaceError."""
        ...

    async def bootstrap(self, partition: PartitionId, group: GroupRecord) -> None:
        """Start the reserved member as one of the group's first members."""
        ...

    async def join(self, partition: PartitionId, peers: Mapping[str, str], generation: int = 0) -> None:
        """Start the reserved member into a running group; ``peers`` is its configuration, this one included."""
        ...

    async def found_alone(self, partition: PartitionId, generation: int) -> bool:
        """A step of a recovery: the own member is stopped in order and becomes the only one of a group of
        ``generation``, on its data. True once it is; repeating it then does nothing. Raises
        MemberUnavailableError while there is no data or no answer."""
        ...

    async def found_from_mirror(
        self, partition: PartitionId, generation: int, client_url: str, complete_revision: int
    ) -> bool:
        """Found a group, as ``found_alone``, with a reserved member on the data of the node's mirror: its store
        answers at ``client_url``, has its group's data up to ``complete_revision``, and stays as it is."""
        ...

    async def log_position(self, partition: PartitionId) -> LogPosition | None:
        """Return how far the own member's copy goes; None when it has none."""
        ...

    async def restart(self, partition: PartitionId) -> None:
        """Start the member on the data that it has. Does nothing while it runs, or before its back-off ends."""
        ...

    async def stop(self, partition: PartitionId, *, destroy: bool) -> None:
        """SIGTERM, then SIGKILL; ``destroy`` removes data, reservation and ports."""
        ...

    async def set_aside(self, partition: PartitionId) -> None:
        """End the member and keep its data under its generation: nothing of it ever runs again, and nothing is
        reserved any more."""
        ...

    def aside(self) -> Mapping[PartitionId, frozenset[int]]:
        """Generations of the data that was set aside."""
        ...

    async def discard_aside(self, partition: PartitionId, generation: int) -> None:
        """Delete it; nothing happens where there is none."""
        ...

    async def status(self, partition: PartitionId) -> MemberStatus | None:
        """Return the member's status; None when nothing is reserved."""
        ...

    async def configuration(
        self, partition: PartitionId, sights: Mapping[str, PeerSight] = NO_SIGHTS, *, linearizable: bool = False
    ) -> tuple[GroupMember, ...]:
        """The committed member list as the own member has it. Who is not in ``sights`` has the name that the
        group knows. Raises MemberUnavailableError."""
        ...

    async def settled_configuration(
        self, partition: PartitionId, term: int, sights: Mapping[str, PeerSight] = NO_SIGHTS
    ) -> tuple[GroupMember, ...]:
        """The member list after every call that was made in ``term`` or before has been done, or never will be:
        read behind a write of the leader's own. Raises MemberUnavailableError, also when ``term`` is over."""
        ...

    async def change_peers_and_learners(
        self,
        partition: PartitionId,
        term: int,
        token: int,
        target: Assignments,
        endpoints: Mapping[str, str],
        stable: Sequence[str] = (),
    ) -> ChangeAnswer:
        """Bring the group's voters to those of ``target``; ``endpoints`` is node -> peer URL for each of them.
        ``stable``: peer URLs of the voters before the move; a voter that is in neither leaves first.

        Learners are no members: they are part of what is applied and not waited for, but a voter that
        becomes one is removed only when the mirror on its node runs (``PeerSight.mirror_missing``). RECEIVED:
        the caller advances the ``change``."""
        ...

    def change(self, partition: PartitionId) -> GroupChange | None:
        """The accepted change, until it is closed."""
        ...

    async def cancel_change_peers(self, partition: PartitionId, term: int, token: int) -> CancelAnswer:
        """End a change that touches no voter at the moment, and take its learner out again. Who was promoted
        before stays in the list: the next target decides."""
        ...

    async def transfer_leadership(self, partition: PartitionId, node: str) -> bool:
        """Transfer leadership; True when ``node``'s member leads afterwards."""
        ...

    async def take_leadership(self, partition: PartitionId, leader_url: str) -> bool:
        """Ask the leading member, at the client URL ``leader_url``, to hand over to the own one. True when it
        did."""
        ...

    async def close(self) -> None:
        """Stop every member in order and give the data directory back. Data stays."""
        ...


class ServingProbe(Protocol):
    """Probe that asks whether a group serves, whatever the metastore says of it."""

    async def serving(self, partition: PartitionId, client_urls: Mapping[str, str]) -> str:
        """The node whose member has answered a linearizable read; empty: none did. ``client_urls``: of members
        by node, all asked at once. Bounded in time, and never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Route:
    """Address and generation of one partition's group. ``voters``: client URLs of those that stay, the
    preferred one first; empty while none is known. ``generation``: 0 is the group's first life, each reset
    begins a later one; None: not known, and members of any are taken. ``engine``: what keeps the copies; of a
    store zone ``voters`` are the servers of its owners, the primary's first."""

    voters: tuple[str, ...] = ()
    generation: int | None = None
    engine: str = DEFAULT_ENGINE


class EndpointSource(Protocol):
    """Source of the addresses of groups, for clients."""

    def route(self, partition: PartitionId) -> Route: ...

    def learners(self, partition: PartitionId) -> tuple[str, ...]:
        """Client URLs of the learners that may be read; empty while there are none."""
        ...

    async def wait_for_change(self, partition: PartitionId, seen: Route, timeout_s: float) -> None:
        """Returns when the route is no longer ``seen``, or when the time is over."""
        ...

    def doubt(self, partition: PartitionId) -> None:
        """A listed member did not answer, or is of another group or generation. Returns at once."""
        ...


ENTRY_POINTS = "zonekeeper.engines"


@dataclass(frozen=True, slots=True)
class EngineRoom:
    """Room that a node gives one of its engines: a directory of its own, which exists; ports of its own, two a
    member; the address that its members listen on; and the most members at once. ``guard`` is called before
    each start of a member, and gets its process before that serves."""

    data_dir: Path
    ports: range
    host: str
    member_limit: int
    guard: MemberGuard = field(default_factory=NoGuard)


EngineFactory = Callable[[EngineRoom], GroupHost]


class NobodyAskedError(GroupError):
    """58000: no member of the group was known in time, so nothing was sent. Asking again is right."""

    code = 58000


class ConditionFailedError(GroupError):
    """Write whose condition failed. ``wants_absence``: the key was to be absent; else to have another
    revision."""

    def __init__(self, message: str, *, wants_absence: bool) -> None:
        super().__init__(message)
        self.wants_absence = wants_absence


class OperationAbandonedError(GroupError):
    """The write with this operation id had not been applied when a later one named it as abandoned, or when
    it was refused while attempts of it were late."""
