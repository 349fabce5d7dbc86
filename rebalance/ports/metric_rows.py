"""The table of all metrics, and the port by which a process measures them.

``docs/metrics-table.md`` is made from it, and so is what a process can measure. A name is a promise to all
who have made a dashboard or a rule: changing one needs an entry in CHANGELOG.md. Shells name a row
(``Metric``), and know nothing of who collects it (``Measures``). In the simulator, and wherever nobody
collects, ``NO_MEASURES`` takes everything and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from rebalance.core.keyspace.records import ProcessRole

PREFIX = "zonekeeper_"
REQUEST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets of requests, in seconds. The threshold of an objective must be one of these."""
MOVE_BUCKETS_S = (
    *(1.0, 5.0, 15.0, 30.0, 60.0),
    *(120.0, 300.0, 600.0, 1_800.0, 3_600.0),
    *(10_800.0, 21_600.0, 43_200.0, 86_400.0),
)
"""Buckets of background work, in seconds: one second to a day."""
BUCKETS_MAX = 14
ZONES_SHOWN_MAX = 200
"""Number of zones with series of their own, those in the worst state first."""
ZONE_GAUGES_MAX = 10
"""Series of one zone."""
OTHER = "_other"
"""The label of all that has no series of its own: zones beyond the limit, words that no table knows."""


class MetricType(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Scope(Enum):
    """PROCESS: each process speaks for itself, and the values are summed. INSTALLATION: every server says the
    same of the whole installation, as its mirror shows it; values are aggregated with ``max``."""

    PROCESS = "process"
    INSTALLATION = "installation"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """``name`` is complete: prefix, unit and ``_total``. ``buckets`` are those of a histogram, in seconds."""

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    scope: Scope = Scope.PROCESS
    roles: frozenset[ProcessRole] = field(default_factory=lambda: frozenset(ProcessRole))
    buckets: tuple[float, ...] = ()

    @property
    def unit(self) -> str:
        """The last word of the name that is a unit; empty: it counts things."""
        words = self.name.removesuffix("_total").split("_")
        return words[-1] if words[-1] in ("seconds", "bytes", "ratio") else ""


_SERVER = frozenset({ProcessRole.SERVER})
_CONTROLLER = frozenset({ProcessRole.CONTROLLER})
_NODE = frozenset({ProcessRole.NODE})
_ALL = frozenset(ProcessRole)


def _counter(name: str, text: str, *labels: str, roles: frozenset[ProcessRole] = _SERVER) -> MetricRow:
    return MetricRow(f"{PREFIX}{name}_total", MetricType.COUNTER, text, labels, Scope.PROCESS, roles)


def _gauge(name: str, text: str, *labels: str, roles: frozenset[ProcessRole] = _SERVER) -> MetricRow:
    return MetricRow(PREFIX + name, MetricType.GAUGE, text, labels, Scope.PROCESS, roles)


def _seen(name: str, text: str, *labels: str) -> MetricRow:
    """A gauge of the whole installation."""
    return MetricRow(PREFIX + name, MetricType.GAUGE, text, labels, Scope.INSTALLATION, _SERVER)


def _requests(name: str, text: str, *labels: str, roles: frozenset[ProcessRole] = _SERVER) -> MetricRow:
    kind = MetricType.HISTOGRAM
    return MetricRow(PREFIX + name, kind, text, labels, Scope.PROCESS, roles, REQUEST_BUCKETS_S)


def _moves(name: str, text: str, *labels: str, roles: frozenset[ProcessRole] = _CONTROLLER) -> MetricRow:
    return MetricRow(PREFIX + name, MetricType.HISTOGRAM, text, labels, Scope.PROCESS, roles, MOVE_BUCKETS_S)


class Metric(Enum):
    """Metrics by name; the value of a member is its row."""

    # The process and its metrics.
    BUILD_INFO = _gauge(
        "build_info", "Always 1; the labels say what runs in this process.", "version", "role", roles=_ALL
    )
    SCRAPE_SECONDS = _gauge("scrape_seconds", "Time that the previous scrape took.", roles=_ALL)
    SERIES = _gauge("series", "Series in the previous scrape.", roles=_ALL)
    LOOP_LAG_SECONDS = _gauge(
        "event_loop_lag_seconds", "Longest delay of the event loop since the previous scrape."
    )
    TASKS = _gauge("background_tasks", "Background tasks that are kept running.", roles=_ALL)
    TASKS_FAILING = _gauge(
        "background_tasks_failing", "Background tasks that ended and are not in order yet.", roles=_ALL
    )
    DEFECTS = _counter("defects", "Unexpected failures; each is logged as an error.", roles=_ALL)
    CERTIFICATE_EXPIRY = _gauge(
        "certificate_expiry_timestamp_seconds",
        "When a certificate expires (Unix time): of the one that is in use (source loaded) and of its file.",
        "certificate",
        "source",
        roles=_ALL,
    )

    # Statements and requests.
    STATEMENTS = _counter(
        "statements",
        "Statements that have ended: ok, refused (the statement is at fault) or failed (the installation is).",
        "kind",
        "outcome",
        "code",
    )
    STATEMENT_SECONDS = _requests(
        "statement_seconds",
        "Time from a statement's arrival to its answer, waiting included.",
        "kind",
        "outcome",
    )
    STATEMENTS_WAITING = _gauge("statements_waiting", "Statements and queries that wait for their turn.")
    STATEMENTS_RUNNING = _gauge("statements_running", "Statements and queries that have their turn.")
    HTTP_REQUESTS = _counter(
        "http_requests",
        "Requests that were answered, by the template of their route.",
        "route",
        "method",
        "status",
    )
    HTTP_REQUEST_SECONDS = _requests(
        "http_request_seconds", "Time from a request's arrival to the end of its answer.", "area"
    )
    HTTP_CONNECTIONS = _gauge("http_connections", "Connections to the API and the console.")
    PUTS = _counter("puts", "Values written through the API, by outcome as of statements.", "outcome", "code")
    PUT_SECONDS = _requests("put_seconds", "Time that writing a value through the API took.", "outcome")
    LOGINS = _counter(
        "logins", "Attempts to log in. The outcome is ok, or the name of the error.", "method", "outcome"
    )
    REFUSALS = _counter(
        "refusals", "Requests and statements that were refused for want of a login or a privilege.", "code"
    )

    # The catalog and its way into the metastore.
    CATALOG_UP = _gauge("catalog_up", "1 if the catalog answered when it was last asked, else 0.")
    CATALOG_VERSION = _seen("catalog_version", "Newest version of the catalog that the server has read.")
    CATALOG_COMMITS = _counter("catalog_commits", "Transactions of this server that have changed the catalog.")
    RELAY_LAG_SECONDS = _gauge(
        "relay_lag_seconds", "Time that versions of the catalog have waited to be published; 0: none waits."
    )
    RELAY_ROWS = _counter("relay_rows", "Versions of zones that were published.")
    RELAY_FAILURES = _counter("relay_failures", "Attempts to publish that failed and are repeated.")

    # Controllers.
    CONTROLLER_PRESENT = _seen("controller_present", "1 if a controller leads, else 0.")
    CONTROLLER_LEADS = _gauge("controller_leads", "1 if this controller leads, else 0.", roles=_CONTROLLER)
    CONTROLLER_TERMS = _counter(
        "controller_terms", "Times that this controller became the leader.", roles=_CONTROLLER
    )
    QUEUE_ITEMS = _gauge("queue_items", "Entries in a queue that wait or are worked on.", "queue", roles=_ALL)
    QUEUE_OLDEST_SECONDS = _gauge(
        "queue_oldest_seconds", "Time that the oldest due entry has waited.", "queue", roles=_ALL
    )
    QUEUE_RETRIES = _counter(
        "queue_retries", "Entries of a queue that failed and were put back for later.", "queue", roles=_ALL
    )
    ZONE_ROUNDS = _counter(
        "zone_rounds", "Rounds of a zone through the controller.", "outcome", roles=_CONTROLLER
    )
    PLACEMENTS = _counter(
        "placements", "Placements that were computed, counted by zone.", "engine", "outcome", roles=_CONTROLLER
    )
    PLACEMENT_SECONDS = _moves("placement_seconds", "Time that one batch of placements took.", "engine")
    PLACED_PARTITIONS = _counter(
        "placed_partitions", "Partitions in the placements that were computed.", "engine", roles=_CONTROLLER
    )
    SPARK_UP = _seen("spark_up", "1 if Spark takes placements, 0 while it starts or is away.")
    GUARDED_WRITES = _counter(
        "guarded_writes",
        "Guarded writes of partitions, by the decision that they carry out.",
        "outcome",
        roles=_CONTROLLER,
    )
    GUARDED_WRITE_CONFLICTS = _counter(
        "guarded_write_conflicts",
        "Guarded writes of partitions that were decided anew, as another write came first.",
        roles=_CONTROLLER,
    )
    OPERATIONS_ENDED = _counter(
        "operations_ended", "Operations that have ended.", "kind", "outcome", roles=_CONTROLLER
    )
    OPERATION_SECONDS = _moves(
        "operation_seconds", "Time from an operation's start to its end.", "kind", "outcome"
    )

    # Moves, partitions and zones, as the mirror shows them.
    MOVES = _seen("moves", "Partitions whose move is at a stage, by what they wait for.", "stage", "cause")
    MOVE_OLDEST_SECONDS = _seen("move_oldest_seconds", "Age of the oldest move by stage.", "stage")
    OPERATIONS = _seen("operations", "Operations that have not ended, by state.", "state")
    OPERATION_OLDEST_SECONDS = _seen(
        "operation_oldest_seconds", "Age of the oldest operation that has not ended."
    )
    OPERATIONS_STUCK = _seen(
        "operations_stuck",
        "Operations stalled for 10 minutes that no pause or limit holds.",
    )
    OPERATION_STILL_SECONDS = _seen(
        "operation_still_seconds",
        "Time since the last progress of an operation that is stuck; the 20 that have stood for longest.",
        "operation",
    )
    OPERATION_PARTITIONS_LEFT = _seen(
        "operation_partitions_left", "Partitions that operations have not finished."
    )
    OPERATION_BYTES_LEFT = _seen("operation_bytes_left", "Bytes that operations have not copied, estimated.")
    PARTITIONS = _seen("partitions", "Partitions by state: DONE, MOVING or WAITING.", "state")
    PARTITIONS_WITHOUT_MAJORITY = _seen(
        "partitions_without_majority", "Partitions of which less than a majority of the voters live and run."
    )
    PARTITIONS_WITHOUT_LEADER = _seen("partitions_without_leader", "Partitions without a known leader.")
    PARTITIONS_REPLICAS_MISSING = _seen(
        "partitions_replicas_missing",
        "Partitions with fewer replicas than their zone asks for.",
    )
    PARTITIONS_REPLICAS_BROKEN = _seen(
        "partitions_replicas_broken", "Partitions with a replica that has failed on a node that lives."
    )
    PARTITIONS_LOST = _seen("partitions_lost", "Partitions of store servers that have no copy in sync left.")
    PARTITIONS_UNREADABLE = _seen("partitions_unreadable", "Partitions with a record that cannot be read.")
    ZONES = _seen("zones", "Zones of the catalog.")
    ZONE_PARTITIONS = _seen("zone_partitions", "Partitions of a zone by state.", "zone", "state")
    ZONE_WITHOUT_MAJORITY = _seen(
        "zone_partitions_without_majority", "Partitions of a zone that have no majority.", "zone"
    )
    ZONE_WITHOUT_LEADER = _seen(
        "zone_partitions_without_leader", "Partitions of a zone without a known leader.", "zone"
    )
    ZONE_REPLICAS_MISSING = _seen(
        "zone_partitions_replicas_missing",
        "Partitions of a zone with fewer replicas than it asks for, none on its way.",
        "zone",
    )
    ZONE_REPLICAS_BROKEN = _seen(
        "zone_partitions_replicas_broken",
        "Partitions of a zone with a replica that has failed on a node that lives.",
        "zone",
    )
    ZONE_DEGRADED = _seen(
        "zone_partitions_degraded",
        "Partitions of a zone that serve with fewer replicas in order than wanted, and do not move.",
        "zone",
    )
    ZONE_BYTES = _seen("zone_bytes", "Bytes of a zone's partitions, each counted once.", "zone")
    COUNT_AGE_SECONDS = _seen(
        "partition_count_age_seconds", "Age of the count that the numbers of partitions are from."
    )
    COUNT_SECONDS = _gauge("partition_count_seconds", "Time that the last count of all partitions took.")

    # The mirror and the metastore.
    MIRROR_LOADED = _gauge("mirror_loaded", "1 if the mirror of the keyspace is complete, else 0.")
    MIRROR_AGE_SECONDS = _gauge(
        "mirror_age_seconds", "Time since the mirror was last known to show the metastore as it is."
    )
    MIRROR_LAG_REVISIONS = _gauge(
        "mirror_lag_revisions",
        "Revisions that the mirror was behind the metastore when they were last compared.",
    )
    MIRROR_KEYS = _gauge("mirror_keys", "Keys in the mirror.")
    UNREADABLE_KEYS = _seen("unreadable_keys", "Keys of the whole cluster that this build cannot read.")
    STORES_AGREE = _seen(
        "stores_agree",
        "1 if catalog and metastore belong together, 0 after one was restored or replaced.",
    )
    METASTORE_UP = _gauge(
        "metastore_up", "1 if the metastore answered when it was last asked, else 0.", roles=_ALL
    )
    METASTORE_SECONDS = _requests(
        "metastore_request_seconds", "Time that requests to the metastore took.", "operation", roles=_ALL
    )
    METASTORE_REQUESTS = _counter(
        "metastore_requests",
        "Requests to the metastore: ok, conflict (a guard failed) or failed.",
        "operation",
        "outcome",
        roles=_ALL,
    )
    ETCD_UP = _seen(
        "etcd_member_up", "1 if a member of the metastore answered when it was last asked, else 0.", "member"
    )
    ETCD_HAS_LEADER = _seen(
        "etcd_member_has_leader", "1 if a member of the metastore knows a leader, else 0.", "member"
    )
    ETCD_IN_USE_BYTES = _seen(
        "etcd_member_in_use_bytes", "Bytes of a member's database that hold data.", "member"
    )
    ETCD_ALLOCATED_BYTES = _seen("etcd_member_allocated_bytes", "Size of a member's database file.", "member")
    ETCD_QUOTA_BYTES = _seen(
        "etcd_member_quota_bytes", "Size at which a member refuses writes; absent: not known.", "member"
    )
    ETCD_ALARMS = _seen("etcd_alarms", "Alarms that the metastore has raised.", "alarm")
    METASTORE_LEASES = _seen("metastore_leases", "Leases in the metastore.")

    # Nodes.
    NODES = _seen("nodes", "Nodes by state: alive, draining or down (a zone needs it).", "state")
    NODE_UP = _seen(
        "node_up",
        "1 if a node is registered, 0 if it is not, a zone needs it and it is not drained.",
        "node",
    )
    NODE_MEMBERS = _gauge("node_members", "Members that the node keeps, by state.", "state", roles=_NODE)
    NODE_MEMBERS_WITHOUT_SPACE = _gauge(
        "node_members_without_space", "Members that have ended because the node's disk is full.", roles=_NODE
    )
    NODE_MEMBER_BYTES = _gauge("node_member_bytes", "Bytes that the node's members have on disk.", roles=_NODE)
    NODE_DISK_FREE = _gauge(
        "node_disk_free_bytes", "Free bytes on the disk of the node's data directory.", roles=_NODE
    )
    NODE_DISK_SIZE = _gauge(
        "node_disk_size_bytes", "Size of the disk of the node's data directory.", roles=_NODE
    )
    NODE_LEADS = _gauge("node_leads", "Groups that a member of the node leads.", roles=_NODE)
    NODE_LEADER_CHANGES = _counter("node_leader_changes", "Elections that the node's members saw.", roles=_NODE)
    NODE_STARTS = _counter("node_member_starts", "Members that the node has started.", roles=_NODE)
    NODE_RESTARTS = _counter(
        "node_member_restarts", "Members that ended unexpectedly and were restarted.", roles=_NODE
    )
    NODE_COPIES_REPAIRED = _counter(
        "node_copies_repaired", "Damaged replicas that the node has emptied to rebuild them.", roles=_NODE
    )
    NODE_FSYNCS = _counter("node_member_fsyncs", "Times that members' logs were synced to disk.", roles=_NODE)
    NODE_FSYNC_SECONDS = _counter(
        "node_member_fsync_seconds", "Time that syncing members' logs took.", roles=_NODE
    )
    NODE_COMMITS = _counter(
        "node_member_commits", "Times that members' databases were written to disk.", roles=_NODE
    )
    NODE_COMMIT_SECONDS = _counter(
        "node_member_commit_seconds", "Time that writing members' databases took.", roles=_NODE
    )
    NODE_PROPOSALS_FAILED = _counter(
        "node_member_proposals_failed", "Writes that members' groups did not take.", roles=_NODE
    )
    COPIED_BYTES = _counter(
        "copied_bytes", "Bytes of copies that the node's members have received.", roles=_NODE
    )
    MOVE_STAGE_SECONDS = _moves(
        "move_stage_seconds",
        "Time that a move was at a stage, seen by the node that leads it.",
        "stage",
        roles=_NODE,
    )
    MOVE_SECONDS = _moves("move_seconds", "Time from a move's first step to its last.", roles=_NODE)

    # Store servers.
    STORE_EXCHANGE_RUNNING = _seen(
        "store_exchange_running",
        "1 if an exchange of store servers has begun and has no result yet, else 0.",
    )
    STORE_FILLING = _seen(
        "store_partitions_filling", "Partitions of store servers with a copy that is being filled."
    )
    STORE_SERVERS_DOWN = _seen("store_servers_down", "Live nodes whose store server is down.")
    NODE_STORE_SERVER_UP = _seen(
        "node_store_server_up",
        "1 if the store server of a live node is up, else 0; of nodes that keep store zones.",
        "node",
    )

    # Alerts.
    ALERTS_FIRING = _seen("alerts_firing", "Alerts that fire, as the server judges.", "severity")
    WEBHOOK_MESSAGES = _counter(
        "webhook_messages", "Messages to the alerts' webhook: sent or failed.", "outcome"
    )

    @property
    def row(self) -> MetricRow:
        return self.value


class Measures(Protocol):
    """Labels are given in the order of the row. Nothing here blocks, fails or yields to the event loop, and any
    thread may call it."""

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Adds to a counter. ``by`` is not negative."""
        ...

    def observe(self, metric: Metric, seconds: float, *labels: str) -> None:
        """Adds to a histogram."""
        ...

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """One series of a gauge."""
        ...

    def replace(self, metric: Metric, series: Iterable[tuple[tuple[str, ...], float]]) -> None:
        """All series of a gauge, as labels and value: those that are not among them go."""
        ...


class NoMeasures:
    """A ``Measures`` that keeps nothing."""

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        return

    def observe(self, metric: Metric, seconds: float, *labels: str) -> None:
        return

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        return

    def replace(self, metric: Metric, series: Iterable[tuple[tuple[str, ...], float]]) -> None:
        return


NO_MEASURES = NoMeasures()
