"""The table of alerts. Rules for Prometheus, runbook pages, and what servers judge by themselves are made from
it.

``promql`` says the same as ``holds``, over metrics: of the installation they are aggregated by ``max``, as
every server tells them. A row without ``holds`` is Prometheus's alone: it needs a past, or it is about
processes that are not there to judge.

An objective, whose burn rate Prometheus judges, has a long window that says that it matters and a short one
that says that it goes on. A user's mistake (``outcome="refused"``) is no failure. Below ``REQUESTS_MIN``
requests in the long window nothing is said. The runbook's pages are shipped beside the package in a checkout,
in the installation's ``share`` elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from app.alerts import conditions
from app.alerts.conditions import InstallationFacts, in_zones, whole
from app.contract.health import InstallationPart
from app.core.alerts import Findings
from app.views.answer_state import OK
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.records import DISK_FULL_SHARE

STALE_S = 15.0
"""Age of the mirror, in seconds, above which it does not make an alert fire, and does not resolve one."""


class Severity(Enum):
    """Urgency of an alert. PAGE: wake a person. TICKET: within a working day. NONE: it fires always, to show
    that alerts arrive."""

    PAGE = "page"
    TICKET = "ticket"
    NONE = "none"


class AlertGroup(Enum):
    """Alerts with one cause are one message."""

    NODES = "nodes"
    CONTROL = "control"
    METASTORE = "metastore"
    MOVES = "moves"
    SERVICE = "service"
    MONITORING = "monitoring"


Predicate = Callable[[InstallationFacts], Findings | None]
"""None: unknown."""


_SILENT = "It is neither fired nor kept firing by Prometheus: NoServer or TargetMissing fires instead."
_OLD = (
    f"{_SILENT} A server whose mirror is old goes on saying what it saw last, so nothing is resolved by that."
)


@dataclass(frozen=True, slots=True)
class AlertRow:
    """``cause`` and ``part``: how readiness names the condition, from its first moment on; with ``is_ordinary``
    only once the alert fires. ``for_s``: longer than normal work makes it hold. ``absent``: what happens while
    its series are missing. ``of_mirror``: its facts come from the metastore, so they are unknown while the
    mirror is old. ``label``: what tells several alerts of the row apart; empty: there is one."""

    name: str
    severity: Severity
    group: AlertGroup
    for_s: int
    summary: str
    promql: str
    holds: Predicate | None = None
    absent: str = _OLD
    of_mirror: bool = True
    label: str = ""
    cause: Cause = Cause.OTHER
    part: InstallationPart = InstallationPart.SERVER
    is_ordinary: bool = False

    @property
    def page(self) -> str:
        """Path of the alert's page in the runbook, from the root of the repository."""
        return f"docs/runbook/{self.name}.md"

    def findings(self, facts: InstallationFacts) -> Findings | None:
        """None: unknown. Only for rows with ``holds``."""
        assert self.holds is not None, self.name
        if self.of_mirror and (facts.is_settling or facts.mirror_age_s > STALE_S):
            return None
        return self.holds(facts)


_OF_NODES = (
    "A node whose metrics are not scraped says nothing: TargetMissing fires. Servers judge by what it registers"
    " and by its members."
)

LEVEL_ROWS = (
    AlertRow(
        "PartitionWithoutMajority",
        Severity.PAGE,
        AlertGroup.NODES,
        60,
        "Partitions have no majority of their voters, so they take no writes.",
        "max by (zone) (zonekeeper_zone_partitions_without_majority) > 0"
        " or max(zonekeeper_partitions_lost) > 0",
        lambda facts: in_zones(facts.without_majority, "without a majority of voters"),
        label="zone",
        cause=Cause.NO_MAJORITY,
        part=InstallationPart.ZONES,
    ),
    AlertRow(
        "NodeDown",
        Severity.TICKET,
        AlertGroup.NODES,
        120,
        "A node that zones or replicas need is down.",
        "max by (node) (zonekeeper_node_up) == 0",
        conditions.node_down,
        label="node",
        cause=Cause.NODE_DOWN,
        part=InstallationPart.NODES,
    ),
    AlertRow(
        "ReplicasMissing",
        Severity.TICKET,
        AlertGroup.NODES,
        300,
        "Partitions have fewer replicas than their zone asks for, and none is on its way.",
        "max by (zone) (zonekeeper_zone_partitions_replicas_missing) > 0",
        lambda facts: in_zones(facts.replicas_missing, "with fewer replicas than wanted"),
        label="zone",
        cause=Cause.REPLICAS_MISSING,
        part=InstallationPart.ZONES,
    ),
    AlertRow(
        "PartitionDegraded",
        Severity.TICKET,
        AlertGroup.NODES,
        600,
        "Partitions serve with fewer replicas in order than wanted, and nothing moves.",
        "max by (zone) (zonekeeper_zone_partitions_degraded) > 0",
        lambda facts: in_zones(facts.degraded, "with fewer replicas in order than wanted"),
        label="zone",
        cause=Cause.DEGRADED,
        part=InstallationPart.ZONES,
    ),
    AlertRow(
        "ReplicaBroken",
        Severity.TICKET,
        AlertGroup.NODES,
        300,
        "A replica is broken: its process does not stay, or its data cannot be read.",
        "max by (zone) (zonekeeper_zone_partitions_replicas_broken) > 0",
        lambda facts: in_zones(facts.replicas_broken, "with a broken replica"),
        label="zone",
        cause=Cause.MEMBER_FAILED,
        part=InstallationPart.ZONES,
    ),
    AlertRow(
        "StoreServerDown",
        Severity.TICKET,
        AlertGroup.NODES,
        180,
        "A living node's store server is down, so its replicas serve no requests.",
        "max by (node) (zonekeeper_node_store_server_up) == 0",
        conditions.store_server_down,
        label="node",
        cause=Cause.SERVER_DOWN,
        part=InstallationPart.NODES,
    ),
    AlertRow(
        "DiskFull",
        Severity.PAGE,
        AlertGroup.NODES,
        30,
        "The disk of a node is full, or was when members ended.",
        "max by (node) (zonekeeper_node_members_without_space) > 0"
        " or min by (node) (zonekeeper_node_disk_free_bytes / zonekeeper_node_disk_size_bytes) < "
        f"{DISK_FULL_SHARE:g}",
        conditions.disk_full,
        _OF_NODES,
        label="node",
        cause=Cause.DISK_FULL,
        part=InstallationPart.NODES,
    ),
    AlertRow(
        "NoController",
        Severity.PAGE,
        AlertGroup.CONTROL,
        60,
        "No controller leads, so nothing is placed or moved.",
        "max(zonekeeper_controller_present) == 0",
        lambda facts: whole(facts.controller is None, "no controller leads, so nothing is placed or moved"),
        cause=Cause.NO_LEADER,
        part=InstallationPart.CONTROLLER,
    ),
    AlertRow(
        "SparkAway",
        Severity.TICKET,
        AlertGroup.CONTROL,
        300,
        "Spark takes no placements; the controller computes them itself.",
        "max(zonekeeper_spark_up) == 0 and max(zonekeeper_controller_present) == 1",
        conditions.spark_away,
        cause=Cause.SPARK_DOWN,
        part=InstallationPart.SPARK,
        is_ordinary=True,
    ),
    AlertRow(
        "MetastoreUnreachable",
        Severity.PAGE,
        AlertGroup.METASTORE,
        30,
        "The metastore does not answer: statements are taken, and nothing else happens.",
        "min(zonekeeper_metastore_up) == 0",
        lambda facts: whole(facts.metastore != OK, f"the metastore does not answer: {facts.metastore}"),
        _SILENT,
        of_mirror=False,
        cause=Cause.METASTORE_UNAVAILABLE,
        part=InstallationPart.METASTORE,
    ),
    AlertRow(
        "MetastoreSpace",
        Severity.PAGE,
        AlertGroup.METASTORE,
        30,
        "etcd has no space left and refuses every write.",
        'max(zonekeeper_etcd_alarms{alarm="NOSPACE"}) > 0',
        lambda facts: whole(
            facts.metastore_full, f"etcd refuses writes for want of space: {facts.metastore_full}"
        ),
        cause=Cause.METASTORE_FULL,
        part=InstallationPart.METASTORE,
    ),
    AlertRow(
        "Divergence",
        Severity.PAGE,
        AlertGroup.METASTORE,
        30,
        "Catalog and metastore do not belong together, so nothing is written.",
        "max(zonekeeper_stores_agree) == 0",
        lambda facts: whole(facts.divergence, f"nothing is written: {facts.divergence}"),
        cause=Cause.STORES_DIFFER,
        part=InstallationPart.METASTORE,
    ),
    AlertRow(
        "MoveStuck",
        Severity.TICKET,
        AlertGroup.MOVES,
        0,
        "A move has made no progress for 10 minutes, and no pause or limit explains it.",
        "max by (operation) (zonekeeper_operation_still_seconds) > 0",
        conditions.move_stuck,
        label="operation",
        cause=Cause.MOVE_STUCK,
        part=InstallationPart.MOVES,
    ),
    AlertRow(
        "RelayLag",
        Severity.TICKET,
        AlertGroup.SERVICE,
        60,
        "A catalog version has not reached the metastore.",
        f"max(zonekeeper_relay_lag_seconds) >= {conditions.RELAY_LATE_S:.0f}",
        conditions.relay_lag,
        _SILENT,
        of_mirror=False,
        cause=Cause.OUTBOX_LATE,
        part=InstallationPart.QUEUE,
    ),
    AlertRow(
        "CatalogUnreachable",
        Severity.PAGE,
        AlertGroup.SERVICE,
        30,
        "The catalog does not answer: no statement is taken.",
        "min(zonekeeper_catalog_up) == 0",
        lambda facts: whole(facts.catalog != OK, f"the catalog does not answer: {facts.catalog}"),
        _SILENT,
        of_mirror=False,
        cause=Cause.CATALOG_UNAVAILABLE,
        part=InstallationPart.CATALOG,
    ),
    AlertRow(
        "CertificateExpires",
        Severity.TICKET,
        AlertGroup.SERVICE,
        300,
        "A certificate that a process has loaded, or its authority, expires within seven days.",
        'floor(min by (process) (zonekeeper_certificate_expiry_timestamp_seconds{source="loaded"} - time())'
        f" / 86400) < {conditions.CERTIFICATE_S / 86_400:.0f}",
        conditions.certificate_expires,
        "A process that is not scraped says nothing: TargetMissing fires. Servers judge by what it registers.",
        label="process",
        cause=Cause.CERTIFICATE_EXPIRES,
        part=InstallationPart.SERVER,
    ),
)
"""Rows that servers judge, at most ``LEVEL_ROWS_MAX``."""
LEVEL_ROWS_MAX = 16
"""Twelve of parts of the installation, and four of replicas: one that is missing, broken or on a server that is
down calls for a remedy of its own, and says nothing of the others."""

BY_NAME: Mapping[str, AlertRow] = {row.name: row for row in LEVEL_ROWS}


def findings_of(facts: InstallationFacts) -> dict[str, Findings | None]:
    """Return what each level condition finds, by name; None: unknown."""
    return {row.name: row.findings(facts) for row in LEVEL_ROWS}


def for_ms(name: str, divisor: float = 1.0) -> int:
    """Milliseconds for which the condition holds before its alert fires. ``divisor`` shortens all times
    alike."""
    return round(BY_NAME[name].for_s * 1_000 / divisor)


REQUESTS_MIN = 100
WINDOWS = (("1h", "5m", 14.4), ("6h", "30m", 6.0))
"""Long and short window, and the burn rate: two per cent of a month's budget in an hour, five in six."""
STATEMENT_S = "2.5"
PUT_S = "0.5"
"""Boundaries of buckets: a put during a planned move waits for less."""
_UNUSED = "Nothing fires: no request was counted. NoServer fires when that is because nobody serves."


def burning(bad: str, total: str, budget: float) -> str:
    """PromQL. ``bad`` and ``total``: counts of requests over ``{window}``; ``budget``: the part that may be
    bad."""
    return " or ".join(
        f"({bad.replace('{window}', long)} / {total.replace('{window}', long)} > {rate * budget:.4g}"
        f" and {bad.replace('{window}', short)} / {total.replace('{window}', short)} > {rate * budget:.4g}"
        f" and {total.replace('{window}', long)} >= {REQUESTS_MIN})"
        for long, short, rate in WINDOWS
    )


def _failed(counter: str) -> str:
    bad = f'sum(increase({counter}{{outcome="failed"}}[{{window}}]))'
    return burning(bad, f"sum(increase({counter}[{{window}}]))", 0.001)


def _slow(histogram: str, within_s: str) -> str:
    total = f'sum(increase({histogram}_count{{outcome="ok"}}[{{window}}]))'
    good = f'sum(increase({histogram}_bucket{{outcome="ok",le="{within_s}"}}[{{window}}]))'
    return burning(f"({total} - {good})", total, 0.01)


def _failures(name: str, what: str, counter: str) -> AlertRow:
    summary = f"More than one {what} in a thousand fails, by the installation's fault."
    return AlertRow(name, Severity.PAGE, AlertGroup.SERVICE, 0, summary, _failed(counter), absent=_UNUSED)


def _latency(name: str, what: str, histogram: str, within_s: str) -> AlertRow:
    summary = f"More than one {what} in a hundred takes longer than {within_s} s."
    return AlertRow(
        name, Severity.PAGE, AlertGroup.SERVICE, 0, summary, _slow(histogram, within_s), absent=_UNUSED
    )


PROMETHEUS_ROWS = (
    _failures("StatementFailures", "statement", "zonekeeper_statements_total"),
    _latency("StatementLatency", "statement", "zonekeeper_statement_seconds", STATEMENT_S),
    _failures("PutFailures", "put", "zonekeeper_puts_total"),
    _latency("PutLatency", "put", "zonekeeper_put_seconds", PUT_S),
    AlertRow(
        "NoServer",
        Severity.PAGE,
        AlertGroup.SERVICE,
        60,
        "No server is scraped: the state of the installation is unknown.",
        'absent(zonekeeper_build_info{role="server"})',
        absent="It fires: absence is what it is about.",
    ),
    AlertRow(
        "TargetMissing",
        Severity.TICKET,
        AlertGroup.MONITORING,
        120,
        "A process that Prometheus knows is not scraped.",
        'up{job="zonekeeper"} == 0',
        absent="Nothing fires: Prometheus knows no target. NoServer fires instead.",
        label="instance",
    ),
    AlertRow(
        "Watchdog",
        Severity.NONE,
        AlertGroup.MONITORING,
        0,
        "Always fires. When it stops, alerts no longer arrive.",
        "vector(1)",
        absent="It needs no series.",
    ),
)

ALERT_ROWS = (*LEVEL_ROWS, *PROMETHEUS_ROWS)
"""All alerts that ship."""


FOLDERS = (
    Path(__file__).parents[2] / "docs" / "runbook",
    Path(sys.prefix) / "share" / "zonekeeper" / "runbook",
)
NAMES = frozenset(row.name for row in ALERT_ROWS)


def runbook_page(name: str) -> str | None:
    """Markdown. None: there is no alert of this name. Raises OSError where its page is not installed."""
    if name not in NAMES:
        return None
    folder = next((folder for folder in FOLDERS if folder.is_dir()), FOLDERS[-1])
    return (folder / f"{name}.md").read_text()
