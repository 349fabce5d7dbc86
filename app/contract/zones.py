"""Zones, their partitions, and how far each is."""

from __future__ import annotations

from collections.abc import Iterable
from types import new_class
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typing_extensions import TypedDict

from app.contract.columns import Long, Milliseconds, Moment, Named
from app.contract.marks import About, OneOf
from catalog.core.zone_options import ZONE_OPTIONS, OptionKind, ZoneOptionRow
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.records import MemberRole, MemberState, Stage
from rebalance.core.moves.move_status import MoveState, PhaseName, PhaseState
from rebalance.core.moves.partition_state import LocalState
from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.ports.placement import Engine

MemberStateName = Annotated[str, OneOf(MemberState, Cause.NODE_DOWN.name, less=MemberState.NONE)]
RoleName = Annotated[str, OneOf(MemberRole)]
IdOfZone = Annotated[int, Named("given once, never used again", "ZONE_ID")]
NameOfZone = Annotated[str, Named("name of the zone", "ZONE_NAME")]
PartitionNumber = Annotated[int, Named("from 0", "PARTITION_ID")]
NodeName = Annotated[str, Named("name of the node", "NODE_NAME")]
LocalStateName = Annotated[
    str, OneOf(LocalState), Named("in SQL, UNKNOWN while the metastore is silent", "PARTITION_STATE")
]
Term = Annotated[Long, Named("of the primary, grows with each change of it", "TERM")]
MapVersion = Annotated[
    str,
    Named("major.minor: counts joins and leaves of nodes, then changes of primaries", "TOPOLOGY_VERSION"),
]
MapSequence = Annotated[Long, Named("grows with every published change", "UPDATE_SEQUENCE")]


SINCE = "start of the current state as seen by this server, UTC; null: not known"
Since = Annotated[str | None, About(SINCE)]


class AsOf(TypedDict):
    """Part of each answer that is read from what the server has seen of the metastore."""

    metastore_silent_since: Annotated[
        str | None,
        About("UTC; the answer is as of then and may be out of date; null: it is current"),
    ]


class Roles(TypedDict):
    peers: Annotated[list[str], About("voters, the preferred primary first")]
    learners: list[str]


class MirrorBody(TypedDict):
    """A learner's copy."""

    state: Annotated[MemberStateName, Named("in SQL, NOT_STARTED: its node has not begun it", "STATE")]
    client_url: Annotated[str, Named("where it may be read while it is RUNNING", "CLIENT_URL")]
    safe_revision: Annotated[
        Long, Named("it may be read up to this revision of its group at least; rounded down", "SAFE_REVISION")
    ]
    reason: Annotated[str, Named("what it waits for, or why it failed", "REASON")]


class Member(TypedDict):
    node: str
    state: MemberStateName
    role: Annotated[RoleName | None, About("null: neither in the group's configuration nor a learner")]
    peer_url: str
    client_url: Annotated[str, Named(title="Client address")]
    reason: str
    mirror: Annotated[MirrorBody | None, About("null: the node keeps no learner's copy")]


class StoreCopy(TypedDict):
    """A copy of a partition of a store zone."""

    node: str
    state: LocalStateName
    leads: Annotated[bool, Named(title="Role")]


class MappedCopy(TypedDict):
    state: Annotated[str, Named("as its node reports it", "PARTITION_STATE"), OneOf(CopyState)]
    counter: Annotated[
        Long,
        Named("how far its log is applied; sampled, so copies differ while updates come", "UPDATE_COUNTER"),
    ]
    size_bytes: Annotated[Long, Named("two significant bits, rounded up", "SIZE_BYTES")]


class MappedPartition(TypedDict):
    partition: int
    primary: Annotated[str | None, About("node that leads; null: not known")]
    term: Term
    copies: Annotated[dict[str, MappedCopy], About("by node")]


class PartitionMap(TypedDict):
    zone: str
    zone_id: int
    version: MapVersion
    sequence: MapSequence
    coordinator: Annotated[str, About("the controller that merged it")]
    partitions: list[MappedPartition]


class MoveStatusBody(TypedDict):
    state: Annotated[str, OneOf(MoveState)]
    cause: Annotated[str, About("what it waits for or is doing; empty when done")]
    since: Since


class KeptCopy(TypedDict):
    node: str
    state: Literal["KEPT", "DELETING"]
    left_by: Annotated[str, About("the operation by which its member left")]


class PartitionBody(TypedDict):
    partition: int
    stable: Roles | None
    pending: Roles | None
    planned: Roles | None
    target: Annotated[Roles | None, About("what the newest placement wants")]
    trigger_revision: int | None
    leader: str | None
    term: int | None
    stage: Annotated[str, OneOf(Stage)]
    members: list[Member]
    copies: Annotated[list[StoreCopy], About("of a store zone, whose partitions have no members")]
    kept: Annotated[list[KeptCopy], About("copies of members that have left, until they are finalised")]
    status: MoveStatusBody


class PhaseBody(TypedDict):
    phase: Annotated[str, Named(of="name"), OneOf(PhaseName)]
    state: Annotated[str, OneOf(PhaseState)]
    trigger: Annotated[str, About("the event that begins the phase, or what is waited for")]
    steps: Annotated[list[str], About("what is done, in order")]
    result: Annotated[str, About("outcome, or why it does not continue")]


class FailureBody(TypedDict):
    node: Annotated[str, Named("node of the leader, which reports it", "NODE_NAME", title="Reported by")]
    code: Annotated[str, Named(sql="FAILURE_CODE")]
    term: Annotated[Long, Named(sql="TERM")]
    attempt: Annotated[Long, Named("failed attempts; 0: none could be started", "ATTEMPT", title="Attempts")]
    cause: Annotated[str, Named(sql="CAUSE")]
    since: Annotated[Moment, Named("when it was first reported", "FAILED_SINCE", "since_ms")]
    at: Annotated[Moment, Named("when it was last reported", "FAILED_AT", "at_ms", title="Time")]


class PartitionName(TypedDict):
    zone_id: IdOfZone
    zone: NameOfZone
    partition: PartitionNumber


class FailureRow(PartitionName, FailureBody):
    """Failure in the list of all partitions' failures."""


class PartitionState(PartitionName):
    """State of a partition as a whole."""

    state: Annotated[str, Named("READ_ONLY and UNAVAILABLE: it takes no writes", "PARTITION_STATE")]
    since: Annotated[Milliseconds | None, Named(SINCE, "STATE_SINCE")]


class PlacedPartition(TypedDict):
    """Partition on a node, which is named first."""

    node: NodeName
    zone: NameOfZone
    zone_id: IdOfZone
    partition: PartitionNumber


class LocalCopy(PlacedPartition):
    state: LocalStateName
    estimated_rows: Annotated[Long | None, Named("null: not reported", "ESTIMATED_ROWS")]


class LearnerRow(PlacedPartition, MirrorBody):
    """Mirror that is kept or asked for."""


class PartitionOnNode(PartitionName):
    node: NodeName


class AssignmentRow(PartitionOnNode):
    """Node that a partition's stable, pending, planned or newest target names."""

    role: Annotated[str, Named("VOTER or LEARNER, in the first of these that names the node", "ROLE")]
    position: Annotated[int, Named("preference, from 1", "POSITION")]
    is_stable: Annotated[bool, Named("the assignment in force names the node", "IS_STABLE")]
    is_pending: Annotated[bool, Named("the one that is being made names it", "IS_PENDING")]
    is_planned: Annotated[bool, Named("the one that follows names it", "IS_PLANNED")]
    is_target: Annotated[bool, Named("the newest placement names it", "IS_TARGET")]
    is_leader: Annotated[bool, Named("it leads now", "IS_LEADER")]


class AffinityRow(PartitionName):
    """Ideal against effective assignment."""

    ideal: Annotated[str, Named("nodes that the newest placement wants, the preferred primary first", "IDEAL")]
    effective: Annotated[str, Named("nodes that serve, the primary first; empty: none does", "EFFECTIVE")]
    preferred_primary: Annotated[str | None, Named("the first of the ideal that lives", "PREFERRED_PRIMARY")]
    primary_node: Annotated[str | None, Named("node that leads now", "PRIMARY_NODE")]
    is_ideal: Annotated[bool, Named("both are the same, and the first leads", "IS_IDEAL")]


class MappedCopyRow(PartitionOnNode, MappedCopy):
    """Copy in the published map of its zone."""

    term: Term
    is_primary: Annotated[bool, Named("the node leads", "IS_PRIMARY")]
    version: MapVersion
    sequence: MapSequence


class PartitionDetail(PartitionBody):
    phases: Annotated[list[PhaseBody], About("of the rebalance, in their order")]
    failures: Annotated[list[FailureBody], About("changes that did not succeed, the newest first")]


class PartitionAnswer(PartitionDetail, AsOf):
    """One partition."""


class Partitions(AsOf):
    zone: str
    zone_id: int
    partitions: list[PartitionBody]


class Counts(TypedDict):
    total: Annotated[int, Named(sql="PARTITIONS")]
    done: Annotated[int, Named(sql="DONE")]
    moving: Annotated[int, Named(sql="MOVING")]
    waiting: Annotated[int, Named(sql="WAITING")]


class CauseCount(TypedDict):
    cause: str
    partitions: int


class CopyCounts(TypedDict):
    assigned: Annotated[int, About("copies that the zone is to have, of all partitions")]
    in_sync: Annotated[int, About("those that have every acknowledged write")]


class ChangedZone(TypedDict):
    zone_id: IdOfZone
    zone: Annotated[str | None, Named("name of the zone", "ZONE_NAME")]
    catalog_version: Annotated[Long | None, Named("that the zone is on its way to", "CATALOG_VERSION")]


class ChangeState(TypedDict):
    state: Annotated[
        Literal["CONVERGED", "MOVING"],
        Named("CONVERGED: nothing is left to do; in SQL, WAITING: nothing of it moves", "STATE"),
    ]
    partitions: Counts
    causes: Annotated[list[CauseCount], Named("partitions by what they wait for", "CAUSES")]
    engine: Annotated[Annotated[str, OneOf(Engine)] | None, Named("that placed it; null: none", "ENGINE")]
    copies: Annotated[CopyCounts | None, About("of a store zone that is placed; null: of any other")]


class Progress(ChangedZone, ChangeState):
    """Progress of a zone's newest change."""


class ProgressAnswer(Progress, AsOf):
    """Progress of one zone."""


class ZoneName(TypedDict):
    zone_id: Annotated[int, Named("given once, never used again", "ZONE_ID", title="Id")]
    name: Annotated[str, Named("name of the zone", "ZONE_NAME", title="Zone")]


class ZoneStanding(TypedDict):
    """A zone beside its name and its options."""

    voters: Annotated[int, Named("of each partition, with the data nodes there are", "ZONE_VOTERS")]
    learners: Annotated[int, Named("replicas of each partition that do not vote", "ZONE_LEARNERS")]
    data_nodes: Annotated[list[str], Named("nodes that may hold its replicas", "DATA_NODES")]
    is_default: Annotated[bool, Named("the zone of tables that name none", "IS_DEFAULT_ZONE")]
    zone_state: Annotated[Literal["ACTIVE", "DEACTIVATED"], Named("DEACTIVATED: its files rest", "ZONE_STATE")]
    catalog_version: Annotated[int, Named("that made the zone what it is")]


def zone_row(options: Iterable[ZoneOptionRow]) -> type:
    """A zone with these options. They stand behind its name."""
    fields = {row.name.lower(): _option(row) for row in options}
    named = new_class("ZoneOptions", (ZoneName,), {}, lambda body: body.update(__annotations__=fields))
    return new_class("ZoneBody", (named, ZoneStanding))


def _option(row: ZoneOptionRow) -> Any:
    kinds: dict[OptionKind, Any] = {OptionKind.NUMBER: int, OptionKind.NAMES: list[str]}
    kind = kinds.get(row.kind, str) if row.choices is None else Annotated[str, OneOf(row.choices)]
    if row.word:
        kind |= Annotated[str, OneOf((), row.word)]
    if row.is_optional:
        kind |= None
    words = {row.word_number: row.word} if row.word else {}
    sql = row.old_key or f"ZONE_{row.name}"
    none = row.none_word or "derived"
    text = row.text.replace("`", "")
    column = Named(text, sql, row.field, words=words, none=none, unit=row.unit, is_option=True)
    return Annotated[kind, column]


if TYPE_CHECKING:

    class ZoneBody(ZoneName, ZoneStanding):
        """Zone with its options, by their names in small letters."""

        partitions: int
else:
    ZoneBody = zone_row(ZONE_OPTIONS)


class ZoneDetail(ZoneBody, AsOf):
    progress: Progress


class Zones(AsOf):
    catalog_version: int
    zones: list[ZoneBody]
