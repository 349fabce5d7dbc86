"""Liveness and readiness, and alerts as the server that answers judges them."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

from typing_extensions import TypedDict

from app.contract.columns import Moment, Named
from app.contract.marks import About, OneOf
from app.core.alerts import AlertState


class InstallationPart(Enum):
    CATALOG = "catalog"
    METASTORE = "metastore"
    CONTROLLER = "controller"
    SPARK = "spark"
    NODES = "nodes"
    ZONES = "zones"
    MOVES = "moves"
    QUEUE = "queue"
    SERVER = "server"
    BACKGROUND = "background"


class Health(TypedDict):
    status: Literal["ok"]


class Degraded(TypedDict):
    part: Annotated[str, OneOf(InstallationPart)]
    cause: Annotated[
        str,
        About(
            "a word of docs/causes.md and a colon, then what is known",
            examples=["NO_LEADER: no controller leads, so nothing is placed or moved"],
        ),
    ]
    severity: Annotated[Literal["page", "ticket"], About("page: now; ticket: within a working day")]
    labels: Annotated[dict[str, str], About("what it is about: a zone, a node, an operation")]
    since: Annotated[str | None, About("when it began, UTC; null: this server cannot tell")]
    alert: Annotated[
        str | None, About("the alert that fires for it, or is about to; null: it has none, or has just begun")
    ]


class LostPartitions(TypedDict):
    zone: str
    partitions: Annotated[int, About("how many are lost")]


class QueueBody(TypedDict):
    outbox_oldest_seconds: Annotated[
        float, About("for how long this server has not been able to publish a catalog version; 0: none waits")
    ]
    zone_oldest_seconds: Annotated[
        float,
        About("for how long the controller has not been able to place a zone; 0: none waits for more than 5 s"),
    ]
    zone_id: Annotated[int | None, About("the zone that waits for longest")]


class TaskTrouble(TypedDict):
    task: str
    ends: Annotated[int, About("how often it has ended")]
    cause: Annotated[str, About("cause of the last end")]
    runs: Annotated[bool, About("it was started again, and has not run for a minute yet")]


class ProcessBody(TypedDict):
    process: Annotated[str, About('"server" is the one that answers; a node or controller by its name')]
    role: Literal["server", "controller", "node", ""]
    troubles: Annotated[list[TaskTrouble], About("background tasks that ended and are not in order yet")]
    defects: Annotated[int, About("unexpected failures since the process started; each is logged as an error")]
    last_defect: str


class BackgroundBody(TypedDict):
    tasks: Annotated[int, About("background tasks of the server that answers")]
    processes: Annotated[
        list[ProcessBody],
        About(
            "the server that answers, the leading controller and the nodes; of the latter two only "
            "those in which something has gone wrong"
        ),
    ]


class Readiness(TypedDict):
    state: Annotated[
        Literal["ready", "degraded", "not ready"],
        About("ready: no condition of an alert holds, and nothing else is out of order"),
    ]
    ready: Annotated[bool, About("statements are accepted: HTTP 200, else 503")]
    degraded: Annotated[list[Degraded], About("parts that are not in order; empty: all are")]
    catalog: Annotated[str, About('"ok", or what is wrong')]
    metastore: Annotated[
        str,
        About('"ok", or what is wrong; without it statements are accepted, and published later'),
    ]
    unreadable: Annotated[
        list[str],
        About(
            "keys of the whole cluster that cannot be read, with the reason, and the first one of "
            "the zone that has waited for longest"
        ),
    ]
    nodes: Annotated[int, About("nodes that are alive")]
    store_servers_down: Annotated[
        list[str],
        About(
            "live nodes with a profile of the store engine whose store server is down, while a zone needs it"
        ),
    ]
    lost_partitions: Annotated[
        list[LostPartitions], About("zones of store servers with partitions that have no in-sync copy left")
    ]
    controller: Annotated[str | None, About("leading controller; null: none is known")]
    spark: Annotated[
        Literal["starting", "ready", "down", "unknown"],
        About("placements are computed by the same kernel without it"),
    ]
    spark_message: str
    spark_driver_pid: int | None
    queue: QueueBody
    background: BackgroundBody
    unprotected: Annotated[
        list[str],
        About(
            "missing protections: of an address that other machines reach (`--insecure`), and of the loopback "
            "address without login"
        ),
    ]
    recovered_administrators: Annotated[
        list[str],
        About("administrators that `zonectl admin recover` made in the last 7 days, with time and user"),
    ]
    upgrade: Annotated[
        list[str],
        About("features that wait for the end of an upgrade, and processes of builds that may no longer run"),
    ]


AlertStateName = Annotated[str, OneOf(AlertState)]


class SilenceBody(TypedDict):
    silence_id: Annotated[str, About("the same for the same alerts", examples=["5a3c0c62d6f1b8e4"])]
    alert: Annotated[str | None, Named("name of the alerts that it applies to; null: any", of="name")]
    labels: Annotated[dict[str, str], About("labels that an alert must have")]
    since: Annotated[Moment, Named(of="since_ms")]
    until: Annotated[Moment, Named("end of the silence, UTC", of="until_ms")]
    by: str
    reason: str


class SilenceBegun(SilenceBody):
    alerts: Annotated[int, About("firing and pending alerts that it applies to now")]


class SilenceEnded(TypedDict):
    silence_id: str
    changed: Annotated[bool, About("false: the silence did not exist or had ended")]


class SilenceList(TypedDict):
    silences: Annotated[list[SilenceBody], About("silences in force, ordered by end")]


class AlertBody(TypedDict):
    name: Annotated[
        str, Named("as in the rules for Prometheus", "ALERT_NAME", example="PartitionWithoutMajority")
    ]
    state: Annotated[AlertStateName, Named(sql="STATE")]
    known: Annotated[
        bool,
        Named(
            "false: the condition cannot be judged now, so the alert keeps its state", "IS_KNOWN", "is_known"
        ),
    ]
    severity: Annotated[str, Named("page: now; ticket: within a working day", "SEVERITY")]
    group: Annotated[str, Named("alerts of one group that are sent together", "ALERT_GROUP")]
    labels: Annotated[dict[str, str], Named("what it is about: a zone, a node, an operation", "LABELS")]
    text: Annotated[str, Named("summary of what is wrong, as last known", "DESCRIPTION")]
    since: Annotated[Moment, Named("when its condition began to hold, UTC", "ACTIVE_SINCE", "since_ms")]
    starts_at: Annotated[Moment | None, Named("when it began to fire, UTC; null: it has not", "STARTS_AT")]
    ends_at: Annotated[Moment | None, Named("when it was resolved, UTC; null: it was not", "ENDS_AT")]
    fingerprint: Annotated[str, Named("the same on every server and after each restart", "FINGERPRINT")]
    runbook: Annotated[str, Named("the page that says what to do", "RUNBOOK")]
    silence: Annotated[SilenceBody | None, About("the silence that applies to it; null: none")]


class Alerts(TypedDict):
    judged_at: Annotated[str | None, About("UTC; null: not yet")]
    alerts: Annotated[list[AlertBody], About("firing first, then pending, then resolved ones")]
