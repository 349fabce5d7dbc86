"""The system views: names, columns, and rows from a snapshot. Their names and columns are reserved and stable.

The first six are those of Ignite (``facts`` of its zones); the others show things for which it has no view:
learners, nodes, assignments, rebalances under way, the history of the catalog and the snapshot itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from app.alerts.shown_alerts import alert_facts
from app.contract.audit import AuditBody
from app.contract.columns import Facts
from app.contract.health import AlertBody
from app.contract.logins import GrantRow, RoleRow, UserRow
from app.contract.nodes import NodeBody
from app.contract.operations import RememberedOperation, RunningChange
from app.contract.system_rows import (
    EventRow,
    ExchangeRow,
    ProfileRow,
    QueryRow,
    SnapshotRow,
    StoreCopyRow,
    TableRow,
)
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
from app.sql.views.view_registry import (
    ALERTS,
    AUDIT,
    EVENTS,
    EXCHANGES,
    SQL_QUERIES,
    STORE_COPIES,
    TABLES_SCHEMA,
    Block,
    column_view,
    large_view,
    view_of,
)
from app.sql.views.view_rows import (
    GRANTS,
    OF_CALLERS,
    ROLES,
    USERS,
    affinity,
    assignments,
    exchanges,
    failures,
    grants,
    learners,
    local_copies,
    mapped_copies,
    partition_states,
    remembered_operations,
    roles,
    store_copies,
    users,
    zone_changes,
)
from app.sql.views.view_snapshot import SystemSnapshot


def _profiles(snapshot: SystemSnapshot) -> Iterator[ProfileRow]:
    for zone in snapshot.catalog.zones:
        for index, profile in enumerate(zone.storage_profiles):
            yield {"zone_id": zone.zone_id, "zone": zone.name, "profile": profile, "is_default": index == 0}


def _tables(snapshot: SystemSnapshot) -> Iterator[Facts]:
    for table in snapshot.catalog.tables:
        yield Facts(table, {"schema": TABLES_SCHEMA, "zone": snapshot.catalog.zone_of(table).name})


def _events(snapshot: SystemSnapshot) -> Iterator[Block]:
    events = snapshot.events
    yield {
        "version": [event.version for event in events],
        "at": [event.committed_at_us // 1000 for event in events],
        "statement_id": [event.statement_id for event in events],
        "statement": [event.statement for event in events],
        "by": [event.by or None for event in events],
        "reason": [event.reason for event in events],
    }


def _queries(snapshot: SystemSnapshot) -> Iterator[Facts]:
    for query in snapshot.queries:
        state = "WAITING" if query.position else "RUNNING"
        yield Facts(query, {"state": state, "position": query.position or None})


SYSTEM_VIEWS = (
    view_of("ZONES", ZoneBody, lambda snapshot: map(snapshot.zone_facts, snapshot.catalog.zones)),
    large_view("ZONE_STORAGE_PROFILES", ProfileRow, _profiles),
    view_of("TABLES", TableRow, _tables),
    large_view("GLOBAL_ZONE_PARTITION_STATES", PartitionState, partition_states),
    large_view("LOCAL_ZONE_PARTITION_STATES", LocalCopy, local_copies),
    large_view("LEARNERS", LearnerRow, learners),
    view_of("NODES", NodeBody, lambda snapshot: snapshot.views.node_facts()),
    large_view("ASSIGNMENTS", AssignmentRow, assignments),
    large_view("AFFINITY", AffinityRow, affinity),
    column_view("PARTITION_MAP", MappedCopyRow, mapped_copies),
    view_of("FAILURES", FailureRow, failures),
    view_of("OPERATIONS", RunningChange, zone_changes),
    view_of("OPERATION_HISTORY", RememberedOperation, remembered_operations),
    view_of(EXCHANGES, ExchangeRow, exchanges),
    column_view(STORE_COPIES, StoreCopyRow, store_copies),
    column_view(EVENTS, EventRow, _events),
    view_of(AUDIT, AuditBody, lambda snapshot: map(audit_facts, snapshot.audit)),
    view_of(SQL_QUERIES, QueryRow, _queries),
    view_of(ALERTS, AlertBody, lambda snapshot: map(alert_facts, snapshot.alerts)),
    view_of(USERS, UserRow, users),
    view_of(ROLES, RoleRow, roles),
    view_of(GRANTS, GrantRow, grants),
    view_of("SNAPSHOT", SnapshotRow, lambda snapshot: [Facts(snapshot)]),
)

PASSING = (".SNAPSHOT", *(f".{name}" for name in (ALERTS, AUDIT, SQL_QUERIES, STORE_COPIES, *OF_CALLERS)))
"""Ends of the names of views that change while the versions of both stores stay: with the time, with state that
has no version, and with the caller."""
