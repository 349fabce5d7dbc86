"""The system views: names, columns, and rows from a snapshot. Their names and columns are reserved and stable.

The first six are those of Ignite (``facts`` of its zones); the others show things for which it has no view:
learners, nodes, assignments, rebalances under way, the history of the catalog and the snapshot itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from app.alerts.shown_alerts import alert_facts
from app.contract.audit import AuditBody
from app.contract.health import AlertBody
from app.contract.logins import GrantRow, RoleRow, UserRow
from app.contract.nodes import NodeBody
from app.contract.operations import RememberedOperation, RunningChange
from app.contract.zones import (
    AffinityRow,
    AssignmentRow,
    FailureRow,
    LearnerRow,
    LocalCopy,
    MappedCopyRow,
    PartitionState,
    ZoneBody,
)
from app.requests.request_audit import audit_facts
from app.sql.statements.results import BIGINT, BOOLEAN, INTEGER, TIMESTAMP, VARCHAR
from app.sql.views.view_registry import (
    ALERTS,
    AUDIT,
    EVENTS,
    EXCHANGES,
    SQL_QUERIES,
    STORE_COPIES,
    Row,
    large_view,
    view,
    view_of,
)
from app.sql.views.view_rows import (
    EXCHANGE_COLUMNS,
    GRANTS,
    OF_CALLERS,
    ROLES,
    STORE_COPY_COLUMNS,
    USERS,
    affinity,
    assignments,
    exchange_rows,
    failures,
    grants,
    learners,
    local_copies,
    mapped_copies,
    partition_states,
    remembered_operations,
    roles,
    store_copy_rows,
    users,
    zone_changes,
)
from app.sql.views.view_snapshot import SystemSnapshot


def _storage_profiles(snapshot: SystemSnapshot) -> Iterator[Row]:
    for zone in snapshot.catalog.zones:
        for index, profile in enumerate(zone.storage_profiles):
            yield zone.zone_id, zone.name, profile, index == 0


def _tables(snapshot: SystemSnapshot) -> Iterator[Row]:
    names = {zone.zone_id: zone.name for zone in snapshot.catalog.zones}
    for table in snapshot.catalog.tables:
        yield (
            table.table_id,
            "PUBLIC",
            table.name,
            names[table.zone_id],
            table.zone_id,
            table.storage_profile,
            ", ".join(table.colocation),
        )


def _events(snapshot: SystemSnapshot) -> Iterator[Row]:
    for event in snapshot.events:
        at_ms, by, why = event.committed_at_us // 1000, event.by or None, event.reason
        yield event.version, at_ms, event.statement_id, event.statement, by, why


def _sql_queries(snapshot: SystemSnapshot) -> Iterator[Row]:
    for query in snapshot.queries:
        yield (
            query.statement_id or None,
            "WAITING" if query.position else "RUNNING",
            query.position or None,
            query.client.user or None,
            query.client.address or None,
            query.is_cheap,
            query.waited_ms,
            query.ran_ms,
            query.sql,
        )


def _snapshot(snapshot: SystemSnapshot) -> Iterator[Row]:
    yield snapshot.catalog.version, snapshot.keys.revision, snapshot.taken_at_ms


_ZONE = {"ZONE_ID": INTEGER, "ZONE_NAME": VARCHAR}

SYSTEM_VIEWS = (
    view_of("ZONES", ZoneBody, lambda snapshot: map(snapshot.zone_facts, snapshot.catalog.zones)),
    view(
        "ZONE_STORAGE_PROFILES",
        {**_ZONE, "STORAGE_PROFILE": VARCHAR, "IS_DEFAULT_PROFILE": BOOLEAN},
        _storage_profiles,
    ),
    view(
        "TABLES",
        {
            "TABLE_ID": INTEGER,
            "SCHEMA_NAME": VARCHAR,
            "TABLE_NAME": VARCHAR,
            "ZONE_NAME": VARCHAR,
            "ZONE_ID": INTEGER,
            "STORAGE_PROFILE": VARCHAR,
            "TABLE_COLOCATION_COLUMNS": VARCHAR,
        },
        _tables,
    ),
    large_view("GLOBAL_ZONE_PARTITION_STATES", PartitionState, partition_states),
    large_view("LOCAL_ZONE_PARTITION_STATES", LocalCopy, local_copies),
    view_of("LEARNERS", LearnerRow, learners),
    view_of("NODES", NodeBody, lambda snapshot: snapshot.views.node_facts()),
    large_view("ASSIGNMENTS", AssignmentRow, assignments),
    large_view("AFFINITY", AffinityRow, affinity),
    large_view("PARTITION_MAP", MappedCopyRow, mapped_copies),
    view_of("FAILURES", FailureRow, failures),
    view_of("OPERATIONS", RunningChange, zone_changes),
    view_of("OPERATION_HISTORY", RememberedOperation, remembered_operations),
    view(EXCHANGES, EXCHANGE_COLUMNS, exchange_rows),
    view(STORE_COPIES, STORE_COPY_COLUMNS, store_copy_rows),
    view(
        EVENTS,
        {
            "CATALOG_VERSION": BIGINT,
            "COMMITTED_AT": TIMESTAMP,
            **dict.fromkeys(("STATEMENT_ID", "STATEMENT", "ACTOR", "REASON"), VARCHAR),
        },
        _events,
    ),
    view_of(AUDIT, AuditBody, lambda snapshot: map(audit_facts, snapshot.audit)),
    view(
        SQL_QUERIES,
        {
            **dict.fromkeys(("STATEMENT_ID", "STATE"), VARCHAR),
            "POSITION": INTEGER,
            **dict.fromkeys(("USER_NAME", "ADDRESS"), VARCHAR),
            "IS_CHEAP": BOOLEAN,
            **dict.fromkeys(("WAITED_MS", "RAN_MS"), BIGINT),
            "STATEMENT": VARCHAR,
        },
        _sql_queries,
    ),
    view_of(ALERTS, AlertBody, lambda snapshot: map(alert_facts, snapshot.alerts)),
    view_of(USERS, UserRow, users),
    view_of(ROLES, RoleRow, roles),
    view_of(GRANTS, GrantRow, grants),
    view(
        "SNAPSHOT",
        {"CATALOG_VERSION": BIGINT, "METASTORE_REVISION": BIGINT, "TAKEN_AT": TIMESTAMP},
        _snapshot,
    ),
)

PASSING = (".SNAPSHOT", *(f".{name}" for name in (ALERTS, AUDIT, SQL_QUERIES, STORE_COPIES, *OF_CALLERS)))
"""Ends of the names of views that change while the versions of both stores stay: with the time, with state that
has no version, and with the caller."""
