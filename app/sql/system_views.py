"""The system views: names, columns, and rows from a snapshot. Their names and columns are reserved and stable.

The first six are those of Ignite (``facts`` of its zones); the others show what it has no view of: learners,
nodes, assignments, rebalances under way, the history of the catalog and the snapshot itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from app.sql.operation_rows import operation_history_rows, operation_rows
from app.sql.partition_views import (
    affinity_rows,
    assignment_rows,
    failure_rows,
    global_state_rows,
    learner_rows,
    local_state_rows,
    partition_map_rows,
)
from app.sql.results import AnswerColumn, ResultType
from app.sql.view_snapshot import SystemSnapshot
from app.views.view_bodies import drain_state
from catalog.core.errors import ErrorKind, RefusedError
from parser.queries import QueryName

CATALOG = "ZONEKEEPER"
CLIENTS_CATALOG = "SYSTEM"
"""Where drivers look for ``jdbc`` and ``metadata``."""
SCHEMA = "SYSTEM"
EVENTS = "EVENTS"
AUDIT = "AUDIT"
SQL_QUERIES = "SQL_QUERIES"

Row = tuple[Any, ...]

BIGINT, INTEGER, BOOLEAN = ResultType.BIGINT, ResultType.INTEGER, ResultType.BOOLEAN
VARCHAR, TIMESTAMP, JSON = ResultType.VARCHAR, ResultType.TIMESTAMP, ResultType.JSON

_ARROW = {
    BIGINT: pa.int64(),
    INTEGER: pa.int32(),
    BOOLEAN: pa.bool_(),
    ResultType.DOUBLE: pa.float64(),
    VARCHAR: pa.string(),
    JSON: pa.string(),
    TIMESTAMP: pa.timestamp("ms"),
}


@dataclass(frozen=True, slots=True)
class SystemView:
    """``rows`` is pure and may be slow: it runs in a worker thread. Timestamps are milliseconds in UTC."""

    name: str
    columns: tuple[AnswerColumn, ...]
    rows: Callable[[SystemSnapshot], Iterable[Row]]
    schema: str = SCHEMA

    @property
    def relation(self) -> str:
        """The name under which a query finds it."""
        return f"{self.schema}.{self.name}"

    @property
    def is_short(self) -> bool:
        """It has few rows however many zones there are: about the views, or the queries."""
        return self.schema != SCHEMA or self.name in (SQL_QUERIES, "SNAPSHOT")


def view(
    name: str, columns: Mapping[str, ResultType], rows: Callable[[SystemSnapshot], Iterable[Row]]
) -> SystemView:
    return SystemView(name, tuple(AnswerColumn(column, kind) for column, kind in columns.items()), rows)


def arrow_stream(columns: tuple[AnswerColumn, ...], rows: Iterable[Row]) -> bytes:
    """Rows as one Arrow IPC stream."""
    cells = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [pa.array(cell, _ARROW[column.type]) for column, cell in zip(columns, cells, strict=True)]
    table = pa.table(arrays, names=[column.name for column in columns])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


class ViewRegistry:
    """All views by schema and name; names are compared without case, as SQL clients send them either way."""

    def __init__(self, views: Iterable[SystemView]) -> None:
        self._views = {(system_view.schema, system_view.name): system_view for system_view in views}
        self._relations = {system_view.relation: system_view for system_view in self._views.values()}

    def __iter__(self) -> Iterator[SystemView]:
        return iter(self._views.values())

    @property
    def schemas(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(schema for schema, _ in self._views))

    def find(self, name: QueryName, schema: str = SCHEMA) -> SystemView:
        """``view``, ``schema.view`` or ``catalog.schema.view``; ``schema`` is the session's.

        Raises RefusedError (VIEW_NOT_FOUND).
        """
        parts = [part.upper() for part in name.parts]
        known = len(parts) <= 3 and (len(parts) < 3 or parts[0] in (CATALOG, CLIENTS_CATALOG))
        schemas = (schema.upper(), SCHEMA) if len(parts) == 1 else (parts[-2],)
        for schema_name in schemas if known else ():
            system_view = self._views.get((schema_name, parts[-1]))
            if system_view is not None:
                return system_view
        views = ", ".join(system_view.name for system_view in self if system_view.schema == SCHEMA)
        message = f"there is no view {name} to query; there are {views}"
        raise RefusedError(ErrorKind.VIEW_NOT_FOUND, message, name.position)

    def relation(self, relation: str) -> SystemView:
        return self._relations[relation]


def _zones(snapshot: SystemSnapshot) -> Iterator[Row]:
    for zone in snapshot.catalog.zones:
        yield (
            zone.zone_id,
            zone.name,
            zone.partitions,
            zone.replicas,
            snapshot.sizes(zone).quorum,
            zone.auto_scale_up,
            zone.auto_scale_down,
            zone.nodes_filter,
            zone == snapshot.default_zone,
            zone.consistency_mode.value,
            zone.strategy.value if zone.strategy else None,
            zone.loss_policy.value if zone.loss_policy else None,
        )


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


def _nodes(snapshot: SystemSnapshot) -> Iterator[Row]:
    """Living nodes, and those that are down but hold members or should."""
    members = Counter(
        parsed[1]
        for item in snapshot.keys.below(snapshot.keyspace.members)
        if (parsed := snapshot.keyspace.parse_member(item.key)) is not None
    )
    copies = snapshot.views.store_copies()
    data_nodes: set[str] = set()
    for zone in snapshot.catalog.zones:
        stored = snapshot.views.data_nodes(zone.zone_id)
        data_nodes.update(stored.nodes if stored is not None else ())
    for name in sorted({*snapshot.alive, *members, *copies, *data_nodes, *snapshot.drains}):
        record = snapshot.live.get(name)
        node = record.node if record is not None else None
        yield (
            name,
            record is not None,
            json.dumps(dict(node.attributes), ensure_ascii=False) if node else None,
            ", ".join(node.profiles) if node else None,
            node.member_limit if node else None,
            node.weight if node else None,
            node.failure_domain if node else None,
            members[name],
            record.pid if record else None,
            drain_state(members[name] + copies[name]) if name in snapshot.drains else None,
        )


def _events(snapshot: SystemSnapshot) -> Iterator[Row]:
    for event in snapshot.events:
        at_ms, by, why = event.committed_at_us // 1000, event.by or None, event.reason
        yield event.version, at_ms, event.statement_id, event.statement, by, why


def _audit(snapshot: SystemSnapshot) -> Iterator[Row]:
    for record in snapshot.audit:
        entry, actor = record.entry, record.entry.actor
        yield (
            record.number,
            record.at_us // 1000,
            entry.action,
            entry.subject,
            actor.name or None,
            actor.verified,
            actor.channel.value,
            actor.address,
            entry.reason,
            entry.details,
            entry.version_before,
            entry.version_after,
        )


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
    view(
        "ZONES",
        {
            **_ZONE,
            **dict.fromkeys(("ZONE_PARTITIONS", "ZONE_REPLICAS", "ZONE_QUORUM_SIZE"), INTEGER),
            "DATA_NODES_AUTO_ADJUST_SCALE_UP": INTEGER,
            "DATA_NODES_AUTO_ADJUST_SCALE_DOWN": INTEGER,
            "DATA_NODES_FILTER": VARCHAR,
            "IS_DEFAULT_ZONE": BOOLEAN,
            "ZONE_CONSISTENCY_MODE": VARCHAR,
            "ZONE_REBALANCE_STRATEGY": VARCHAR,
            "ZONE_PARTITION_LOSS_POLICY": VARCHAR,
        },
        _zones,
    ),
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
    view(
        "GLOBAL_ZONE_PARTITION_STATES",
        {**_ZONE, "PARTITION_ID": INTEGER, "PARTITION_STATE": VARCHAR},
        global_state_rows,
    ),
    view(
        "LOCAL_ZONE_PARTITION_STATES",
        {
            "NODE_NAME": VARCHAR,
            "ZONE_NAME": VARCHAR,
            "ZONE_ID": INTEGER,
            "PARTITION_ID": INTEGER,
            "PARTITION_STATE": VARCHAR,
            "ESTIMATED_ROWS": BIGINT,
        },
        local_state_rows,
    ),
    view(
        "LEARNERS",
        {
            "NODE_NAME": VARCHAR,
            "ZONE_NAME": VARCHAR,
            "ZONE_ID": INTEGER,
            "PARTITION_ID": INTEGER,
            **dict.fromkeys(("STATE", "CLIENT_URL"), VARCHAR),
            "SAFE_REVISION": BIGINT,
            "REASON": VARCHAR,
        },
        learner_rows,
    ),
    view(
        "NODES",
        {
            "NODE_NAME": VARCHAR,
            "IS_ALIVE": BOOLEAN,
            "ATTRIBUTES": JSON,
            "STORAGE_PROFILES": VARCHAR,
            "MEMBER_LIMIT": INTEGER,
            "WEIGHT": ResultType.DOUBLE,
            "FAILURE_DOMAIN": VARCHAR,
            "MEMBERS": INTEGER,
            "PID": INTEGER,
            "DRAIN_STATE": VARCHAR,
        },
        _nodes,
    ),
    view(
        "ASSIGNMENTS",
        {
            **_ZONE,
            "PARTITION_ID": INTEGER,
            "NODE_NAME": VARCHAR,
            "ROLE": VARCHAR,
            "POSITION": INTEGER,
            **dict.fromkeys(("IS_STABLE", "IS_PENDING", "IS_PLANNED", "IS_TARGET", "IS_LEADER"), BOOLEAN),
        },
        assignment_rows,
    ),
    view(
        "AFFINITY",
        {
            **_ZONE,
            "PARTITION_ID": INTEGER,
            **dict.fromkeys(("IDEAL", "EFFECTIVE", "PREFERRED_PRIMARY", "PRIMARY_NODE"), VARCHAR),
            "IS_IDEAL": BOOLEAN,
        },
        affinity_rows,
    ),
    view(
        "PARTITION_MAP",
        {
            **_ZONE,
            "PARTITION_ID": INTEGER,
            "NODE_NAME": VARCHAR,
            "PARTITION_STATE": VARCHAR,
            **dict.fromkeys(("UPDATE_COUNTER", "SIZE_BYTES", "TERM"), BIGINT),
            "IS_PRIMARY": BOOLEAN,
            "TOPOLOGY_VERSION": VARCHAR,
            "UPDATE_SEQUENCE": BIGINT,
        },
        partition_map_rows,
    ),
    view(
        "FAILURES",
        {
            **_ZONE,
            "PARTITION_ID": INTEGER,
            **dict.fromkeys(("NODE_NAME", "FAILURE_CODE"), VARCHAR),
            "TERM": BIGINT,
            "ATTEMPT": BIGINT,
            "CAUSE": VARCHAR,
            **dict.fromkeys(("FAILED_SINCE", "FAILED_AT"), TIMESTAMP),
        },
        failure_rows,
    ),
    view(
        "OPERATIONS",
        {
            **_ZONE,
            "CATALOG_VERSION": BIGINT,
            "EVENT_REVISION": BIGINT,
            "STATE": VARCHAR,
            **dict.fromkeys(("PARTITIONS", "DONE", "MOVING", "WAITING"), INTEGER),
            "CAUSES": JSON,
            **dict.fromkeys(("ENGINE", "OPERATION_ID", "KIND", "OPERATION_STATE", "REQUESTED_BY"), VARCHAR),
            "STARTED_AT": TIMESTAMP,
        },
        operation_rows,
    ),
    view(
        "OPERATION_HISTORY",
        {
            "OPERATION_ID": VARCHAR,
            **_ZONE,
            **dict.fromkeys(("KIND", "STATE"), VARCHAR),
            "IS_OVER": BOOLEAN,
            "REQUESTED_BY": VARCHAR,
            "IS_VERIFIED": BOOLEAN,
            **dict.fromkeys(("REASON", "STATEMENT"), VARCHAR),
            **dict.fromkeys(("CATALOG_VERSION", "EVENT_REVISION"), BIGINT),
            "REVERSES": VARCHAR,
            **dict.fromkeys(("STARTED_AT", "BEGUN_AT", "ENDED_AT"), TIMESTAMP),
            **dict.fromkeys(("PARTITIONS", "PARTITIONS_DONE"), INTEGER),
            **dict.fromkeys(("BYTES_ESTIMATED", "BYTES_COPIED"), BIGINT),
            **dict.fromkeys(("CAUSE", "HISTORY"), VARCHAR),
        },
        operation_history_rows,
    ),
    view(
        EVENTS,
        {
            "CATALOG_VERSION": BIGINT,
            "COMMITTED_AT": TIMESTAMP,
            **dict.fromkeys(("STATEMENT_ID", "STATEMENT", "ACTOR", "REASON"), VARCHAR),
        },
        _events,
    ),
    view(
        AUDIT,
        {
            "AUDIT_NUMBER": BIGINT,
            "AT": TIMESTAMP,
            **dict.fromkeys(("ACTION", "SUBJECT", "ACTOR"), VARCHAR),
            "IS_VERIFIED": BOOLEAN,
            **dict.fromkeys(("CHANNEL", "ADDRESS", "REASON", "DETAILS"), VARCHAR),
            **dict.fromkeys(("CATALOG_VERSION_BEFORE", "CATALOG_VERSION_AFTER"), BIGINT),
        },
        _audit,
    ),
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
    view(
        "SNAPSHOT",
        {"CATALOG_VERSION": BIGINT, "METASTORE_REVISION": BIGINT, "TAKEN_AT": TIMESTAMP},
        _snapshot,
    ),
)
