"""Bodies of the REST API, for reading requests and for the OpenAPI document.

Answers are written as plain dictionaries (``app/views/keyspace_views.py``); these models describe them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from app.api.bodies import RequestBody
from catalog.core.audit import REASON_MAX, checked_reason
from catalog.core.errors import RefusedError
from catalog.core.visible import VISIBLE_PATTERN


def _one_line(text: str) -> str:
    try:
        return checked_reason(text)
    except RefusedError as error:
        raise ValueError(error.message) from error


Reason = Annotated[
    str,
    Field(
        max_length=REASON_MAX,
        description="why; one line. It is kept with what is done, and shown there",
        json_schema_extra={"pattern": VISIBLE_PATTERN},
    ),
    AfterValidator(_one_line),
]


class StatementRequest(RequestBody):
    sql: str = Field(
        description="one statement or a script", examples=["CREATE ZONE orders (REPLICAS 3)", "SHOW ZONES"]
    )
    reason: Reason = ""


class Warned(BaseModel):
    name: str
    message: str


class ResultColumn(BaseModel):
    name: str
    type: Literal["bigint", "integer", "double", "boolean", "varchar", "timestamp(3)", "json"]


class StatementOutcome(BaseModel):
    """A statement that asks has ``columns`` and ``data``; one that changes zones has neither."""

    n: int = Field(description="number of the statement in its script, from 1")
    sql: str
    applied: bool | None = Field(
        description="false for an IF [NOT] EXISTS that had nothing to do; null for a statement that asks"
    )
    effect: dict[str, Any] | None
    zone_id: int | None
    catalog_version: int = Field(description="after a change; for a question, the version that it saw")
    warnings: list[Warned]
    columns: list[ResultColumn] | None = None
    data: list[list[Any]] | None = Field(None, description="rows, their values in the order of the columns")


class StatementResults(BaseModel):
    results: list[StatementOutcome]


class Roles(BaseModel):
    peers: list[str] = Field(description="voters, the preferred primary first")
    learners: list[str]


class MirrorBody(BaseModel):
    """A standing learner's copy."""

    state: Literal["READY", "STARTING", "RUNNING", "FAILED", "NODE_DOWN"]
    client_url: str = Field(description="where it may be read while it is RUNNING")
    safe_revision: int = Field(
        description="it may be read up to this revision of its group at least; rounded down"
    )
    reason: str = Field(description="what it waits for, or why it failed")


class Member(BaseModel):
    node: str
    state: Literal["READY", "STARTING", "RUNNING", "FAILED", "NODE_DOWN"]
    role: Literal["VOTER", "LEARNER"] | None = Field(
        description="null: neither in the group's configuration nor a learner"
    )
    peer_url: str
    client_url: str
    reason: str
    mirror: MirrorBody | None = Field(description="null: the node keeps no learner's copy")


class MappedCopy(BaseModel):
    state: Literal["MOVING", "OWNING", "RENTING", "EVICTED", "LOST"]
    counter: int = Field(description="how far its log is applied; sampled, so copies differ while updates come")
    size_bytes: int = Field(description="two significant bits, rounded up")


class MappedPartition(BaseModel):
    partition: int
    primary: str | None = Field(description="the node that leads; null when none says that it does")
    term: int
    copies: dict[str, MappedCopy] = Field(description="by node")


class PartitionMap(BaseModel):
    zone: str
    zone_id: int
    version: str = Field(description="major.minor: nodes that came or went, then changes of primaries")
    sequence: int = Field(description="grows with every published change")
    coordinator: str = Field(description="the controller that merged it")
    partitions: list[MappedPartition]


class MoveStatusBody(BaseModel):
    state: Literal["DONE", "MOVING", "WAITING"]
    cause: str = Field(description="what it waits for or is doing; empty when done")


class KeptCopy(BaseModel):
    node: str
    state: Literal["KEPT", "DELETING"]
    left_by: str = Field(description="the operation by which its member left")


class PartitionBody(BaseModel):
    partition: int
    stable: Roles | None
    pending: Roles | None
    planned: Roles | None
    target: Roles | None = Field(description="what the newest placement wants")
    trigger_revision: int | None
    leader: str | None
    term: int | None
    stage: Literal["NONE", "CATCHING_UP", "JOINT", "STABLE"]
    members: list[Member]
    kept: list[KeptCopy] = Field(description="copies of members that have left, until they are finalised")
    status: MoveStatusBody


class PhaseBody(BaseModel):
    phase: Literal["WRITE_INTENTION", "MOVE_GROUP", "SWITCH_STABLE", "CLEAN_UP"]
    state: Literal["NOT_BEGUN", "RUNNING", "DONE"]
    trigger: str = Field(description="the event that begins the phase, or what is waited for")
    steps: list[str] = Field(description="what is done, in order")
    result: str = Field(description="what came of it, or why it does not go on")


class FailureBody(BaseModel):
    node: str = Field(description="the leader's, which tells it")
    code: str
    term: int
    attempt: int = Field(description="how many attempts have failed; 0: none could be begun")
    cause: str
    since: str = Field(description="when it was first told")
    at: str = Field(description="when it was last seen to go on")


class PartitionDetail(PartitionBody):
    phases: list[PhaseBody] = Field(description="of the rebalance, in their order")
    failures: list[FailureBody] = Field(description="changes that did not succeed, the newest first")


class Partitions(BaseModel):
    zone: str
    zone_id: int
    partitions: list[PartitionBody]


class Counts(BaseModel):
    total: int
    done: int
    moving: int
    waiting: int


class Cause(BaseModel):
    cause: str
    partitions: int


class Progress(BaseModel):
    zone_id: int
    zone: str | None
    catalog_version: int | None
    state: Literal["CONVERGED", "MOVING"]
    partitions: Counts
    causes: list[Cause]
    engine: Literal["spark", "local"] | None


class ZoneBody(BaseModel):
    zone_id: int
    name: str
    partitions: int
    replicas: int | Literal["ALL"]
    quorum_size: int | None = Field(description="the effective one")
    voters: int = Field(description="of each partition, with the data nodes there are")
    learners: int = Field(description="replicas of each partition that do not vote")
    storage_profiles: list[str]
    rebalance_strategy: Literal["queue", "update", "cancel"] | None = Field(
        description="of moves that begin; null: as the controllers are set"
    )
    catalog_version: int
    data_nodes: list[str]


class ZoneDetail(ZoneBody):
    progress: Progress


class Zones(BaseModel):
    catalog_version: int
    zones: list[ZoneBody]


class DrainBody(BaseModel):
    """A node that is leaving; DRAINED: it holds no member any more."""

    state: Literal["DRAINING", "DRAINED"]
    by: str
    reason: str
    since: str = Field(description="UTC")


class NodeBody(BaseModel):
    name: str
    alive: bool
    attributes: dict[str, str]
    profiles: list[str]
    member_limit: int | None
    weight: float | None
    failure_domain: str | None
    members: int
    drain: DrainBody | None = Field(description="null: it is not leaving")
    pid: int | None


class Nodes(BaseModel):
    nodes: list[NodeBody]


class PutRequest(RequestBody):
    value: str


class PutResult(BaseModel):
    zone: str
    key: str
    partition: int
    operation_id: str
    repeated: bool = Field(description="an earlier put with this operation id had stored it")


class GetResult(BaseModel):
    zone: str
    key: str
    partition: int
    value: str
    revision: int = Field(description="of the partition's group, at which the key was put")
    read_revision: int | None = Field(None, description="of a read from a replica: as of which revision")
    safe_time: str | None = Field(None, description="of a read from a replica: how new it is; null: unknown")
    replica: str | None = Field(None, description="of a read from a replica: its address")


class RoutedPartition(BaseModel):
    partition: int
    voters: list[str] = Field(description="client URLs, the one to ask first at the start")
    generation: int | None = Field(
        description="of the group: 0, and a higher one after each reset; members of another one refuse puts; "
        "null: not known"
    )


class RoutingMapBody(BaseModel):
    zone: str
    zone_id: int
    key_hash: Literal["murmur3-32"]
    partitions: list[RoutedPartition]
    version: int = Field(description="the map was right at this revision of the metastore; higher is newer")


class Health(BaseModel):
    status: Literal["ok"]


class Degraded(BaseModel):
    part: Literal["catalog", "metastore", "controller", "spark", "nodes", "queue", "background"]
    cause: str = Field(
        description="a word and a colon, then what is known: CATALOG_UNAVAILABLE, METASTORE_UNAVAILABLE, "
        "RECORD_NOT_READABLE, NO_LEADER, SPARK_DOWN, NO_NODE, OUTBOX_LATE, ZONE_LATE, TASK_ENDED",
        examples=["NO_LEADER: no controller leads, so nothing is placed or moved"],
    )


class QueueBody(BaseModel):
    outbox_oldest_seconds: float = Field(
        description="for how long this server has not been able to publish a catalog version; 0: none waits"
    )
    zone_oldest_seconds: float = Field(
        description="for how long the controller has not been able to place a zone; 0: none waits for more "
        "than 5 s"
    )
    zone_id: int | None = Field(description="the zone that waits for longest")


class TaskTrouble(BaseModel):
    task: str
    ends: int = Field(description="how often it has ended")
    cause: str = Field(description="of its last end")
    runs: bool = Field(description="it was started again, and has not run for a minute yet")


class ProcessBody(BaseModel):
    process: str = Field(description='"server" is the one that answers; a node or controller by its name')
    role: Literal["server", "controller", "node", ""]
    troubles: list[TaskTrouble] = Field(description="background tasks that ended and are not in order yet")
    defects: int = Field(
        description="unexpected failures since the process started; each is logged as an error"
    )
    last_defect: str


class BackgroundBody(BaseModel):
    tasks: int = Field(description="background tasks of the server that answers")
    processes: list[ProcessBody] = Field(
        description="the server that answers, the leading controller and the nodes; of the latter two only "
        "those in which something has gone wrong"
    )


class Readiness(BaseModel):
    state: Literal["ready", "degraded", "not ready"]
    ready: bool = Field(description="statements can be taken; answered with 200, else with 503")
    degraded: list[Degraded] = Field(description="parts that are not in order; empty: all are")
    catalog: str = Field(description='"ok", or what is wrong')
    metastore: str = Field(
        description='"ok", or what is wrong; while it is silent statements are taken and published later'
    )
    unreadable: list[str] = Field(
        description="keys of the whole cluster that cannot be read, with the reason, and the first one of the "
        "zone that has waited for longest"
    )
    nodes: int = Field(description="nodes that are alive")
    controller: str | None = Field(description="the controller that leads; null: none does, as far as is known")
    spark: Literal["starting", "ready", "down", "unknown"] = Field(
        description="placements are computed by the same kernel without it"
    )
    spark_message: str
    spark_driver_pid: int | None
    queue: QueueBody
    background: BackgroundBody
