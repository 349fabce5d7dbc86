"""SHOW and DESCRIBE: answers made of a snapshot, without a query engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from app.contract.columns import RowColumn, body_of, columns_of
from app.contract.zones import ZoneBody
from app.sql.statements.results import (
    INTEGER,
    TIMESTAMP,
    VARCHAR,
    AnswerColumn,
    ResultSet,
    ResultType,
    timestamp_text,
)
from app.sql.views.view_registry import CATALOG, SCHEMA, TABLES_SCHEMA, ViewRegistry, check_place
from app.sql.views.view_rows import whole_state
from app.sql.views.view_snapshot import SystemSnapshot
from app.sql.views.visible_rows import visible_rows
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.table import Column as TableColumn
from catalog.core.table import Table
from catalog.core.zone import DEFAULT_LOSS_POLICY, EVERY_NODE, STORE_ENGINE, Zone
from parser.queries import QueryName, Show, ShowKind
from parser.render import render_zone
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.moves.move_status import partition_status

Row = tuple[Any, ...]
LOSS_POLICY_NOTE = f"{DEFAULT_LOSS_POLICY.value} in a zone of the engine {STORE_ENGINE}"


def show(statement: Show, snapshot: SystemSnapshot, registry: ViewRegistry) -> ResultSet:
    """Raises RefusedError for a name that does not exist."""
    if statement.kind is ShowKind.CREATE_ZONE:
        assert statement.name is not None
        zone = find_zone(snapshot, statement.name)
        return result({"ZONE_NAME": VARCHAR, "STATEMENT": VARCHAR}, [(zone.name, render_zone(zone))])
    if statement.kind is ShowKind.COLUMNS:
        assert statement.name is not None
        return _like(statement, describe_table(statement.name, snapshot, registry))
    if statement.kind in (ShowKind.NODES, ShowKind.USERS, ShowKind.ROLES):
        return _like(statement, _view(statement.kind.value, snapshot, registry))
    answers: dict[ShowKind, Callable[[], ResultSet]] = {
        ShowKind.ZONES: lambda: _zones(snapshot),
        ShowKind.GRANTS: lambda: _grants(statement, snapshot, registry),
        ShowKind.TABLES: lambda: _tables(statement, snapshot, registry),
        ShowKind.PARTITIONS: lambda: _partitions(statement, snapshot),
        ShowKind.SCHEMAS: lambda: result(
            {"SCHEMA": VARCHAR}, [(name,) for name in (*registry.schemas, TABLES_SCHEMA)]
        ),
        ShowKind.CATALOGS: lambda: result({"CATALOG": VARCHAR}, [(CATALOG,)]),
    }
    return _like(statement, answers[statement.kind]())


def result(columns: dict[str, ResultType], rows: Iterable[Row]) -> ResultSet:
    return ResultSet(columns=tuple(AnswerColumn(name, kind) for name, kind in columns.items()), rows=list(rows))


def find_zone(snapshot: SystemSnapshot, name: QueryName) -> Zone:
    """Raises RefusedError (ZONE_NOT_FOUND) with the name's place."""
    zone = snapshot.catalog.zone(name.last)
    if zone is None:
        raise RefusedError(ErrorKind.ZONE_NOT_FOUND, f"zone {name.last} does not exist", name.position)
    return zone


def like_pattern(pattern: str, escape: str | None) -> re.Pattern[str]:
    """A LIKE pattern, as it is compared with whole names, without case."""
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(next(characters, character)))
        else:
            parts.append({"%": ".*", "_": "."}.get(character, re.escape(character)))
    return re.compile("".join(parts), re.DOTALL | re.IGNORECASE)


def _like(statement: Show, answer: ResultSet) -> ResultSet:
    """LIKE looks at the first column, the name."""
    if statement.like is None:
        return answer
    pattern = like_pattern(statement.like, statement.escape)
    return replace(answer, rows=[row for row in answer.rows if pattern.fullmatch(str(row[0]))])


def _zones(snapshot: SystemSnapshot) -> ResultSet:
    """The columns of SYSTEM.ZONES by shorter names, with words for numbers; data nodes are counted."""
    fields = {name: field for name, field in columns_of(ZoneBody).items() if field.about.sql}
    titles = {name: name.upper() for name in fields} | {"name": "ZONE_NAME", "zone_id": "ZONE_ID"}
    counted = [name for name, field in fields.items() if field.is_number and not field.about.words]
    order = ["name", *(name for name in fields if name != "name")]

    def row(zone: Zone) -> Row:
        body: Mapping[str, Any] = body_of(ZoneBody, snapshot.zone_facts(zone))
        cells = {name: body[name] if name in counted else field.text(body) for name, field in fields.items()}
        cells["data_nodes"] = len(body["data_nodes"])
        return tuple(cells[name] for name in order)

    kinds = {titles[name]: INTEGER if name in (*counted, "data_nodes") else VARCHAR for name in order}
    return result(kinds, map(row, snapshot.catalog.zones))


def _grants(statement: Show, snapshot: SystemSnapshot, registry: ViewRegistry) -> ResultSet:
    """FOR names a user or role; with what a user has by its roles."""
    answer = _view("GRANTS", snapshot, registry)
    if statement.name is None:
        return answer
    grants = snapshot.catalog.grants
    name = statement.name.last.lower()
    principal = grants.named(name)
    if principal is None:
        message = f"there is no user and no role {name}"
        raise RefusedError(ErrorKind.USER_NOT_FOUND, message, statement.name.position)
    subjects = {(one.name, one.source) for one in (principal, *grants.roles_of.get(principal, ()))}
    return replace(answer, rows=[row for row in answer.rows if (row[0], row[1]) in subjects])


def _view(name: str, snapshot: SystemSnapshot, registry: ViewRegistry) -> ResultSet:
    view = next(candidate for candidate in registry if (candidate.schema, candidate.name) == (SCHEMA, name))
    return ResultSet(columns=view.columns, rows=list(visible_rows(view, snapshot)))


def _tables(statement: Show, snapshot: SystemSnapshot, registry: ViewRegistry) -> ResultSet:
    """The views of a schema and the tables of the catalog; FROM names a schema."""
    zones = {zone.zone_id: zone.name for zone in snapshot.catalog.zones}
    rows: list[Row] = [(view.name, view.schema, "VIEW", None) for view in registry]
    rows += [(table.name, "PUBLIC", "TABLE", zones.get(table.zone_id)) for table in snapshot.catalog.tables]
    if statement.name is not None:
        schema = statement.name.last.upper()
        check_place(CATALOG, statement.name.last, statement.name.position)
        rows = [row for row in rows if row[1] == schema]
    columns = dict.fromkeys(("TABLE_NAME", "SCHEMA_NAME", "TABLE_TYPE", "ZONE_NAME"), VARCHAR)
    return result(columns, rows)


def _partitions(statement: Show, snapshot: SystemSnapshot) -> ResultSet:
    zones = snapshot.catalog.zones if statement.name is None else (find_zone(snapshot, statement.name),)
    columns = {
        "ZONE_NAME": VARCHAR,
        "PARTITION_ID": INTEGER,
        **dict.fromkeys(("STATE", "MOVE", "CAUSE", "LEADER", "STABLE", "PENDING", "PLANNED"), VARCHAR),
        "SINCE": TIMESTAMP,
    }
    return result(columns, _partition_rows(zones, snapshot))


def _partition_rows(zones: Iterable[Zone], snapshot: SystemSnapshot) -> Iterator[Row]:
    for zone in zones:
        for number, seen in snapshot.partitions(zone):
            status = partition_status(seen, snapshot.alive)
            state, since_ms = whole_state(PartitionId(zone.zone_id, number), seen, snapshot)
            yield (
                zone.name,
                number,
                state,
                status.state.value,
                status.cause or None,
                seen.leader(snapshot.alive) or None,
                *(assignments_text(assignments) for assignments in (seen.stable, seen.pending, seen.planned)),
                timestamp_text(since_ms) if since_ms is not None else None,
            )


def assignments_text(assignments: Assignments | None) -> str | None:
    """``n1, n2 + n3``: voters, and learners behind the plus."""
    if assignments is None:
        return None
    learners = f" + {', '.join(assignments.learners)}" if assignments.learners else ""
    return ", ".join(assignments.peers) + learners


def describe_zone(name: QueryName, snapshot: SystemSnapshot) -> ResultSet:
    """Everything that is known of a zone, declared and effective (IEP-011, IEP-015)."""
    zone = find_zone(snapshot, name)
    sizes = snapshot.sizes(zone)
    version = snapshot.views.version_of(zone, snapshot.catalog.version)
    progress = snapshot.views.progress(zone.zone_id, version, zone)
    counts, fields = progress["partitions"], columns_of(ZoneBody)
    body: Mapping[str, Any] = {**body_of(ZoneBody, snapshot.zone_facts(zone)), "catalog_version": version}
    shown = {name: _with_unit(field, body) for name, field in fields.items()} | {
        "is_default": str(body["is_default"]).lower(),
        "tables": ", ".join(table.name for table in snapshot.catalog.tables_in(zone)),
        "state": progress["state"],
    }
    notes = {
        "partitions": "replication groups",
        "replicas": f"{sizes.replicas} on the data nodes there are",
        "quorum_size": "derived" if zone.quorum_size is None else "declared",
        "nodes_filter": "every node" if zone.nodes_filter == EVERY_NODE else "",
        "storage_profiles": "the first is the default of tables",
        "rebalance_strategy": "as the controllers are set" if zone.strategy is None else "",
        "partition_loss_policy": LOSS_POLICY_NOTE if zone.loss_policy is None else "",
        "voters": "replicas that vote, in each partition",
        "learners": "replicas that do not vote, in each partition",
        "data_nodes": f"{len(sizes.data_nodes)}",
        "catalog_version": fields["catalog_version"].about.text,
        "state": f"{counts['done']} of {counts['total']} partitions done",
    }
    titles = {"name": "ZONE_NAME", "zone_id": "ZONE_ID", "voters": "CONSENSUS_SIZE"}
    first, last = ("name", "zone_id"), ("tables", "catalog_version", "zone_state", "state")
    names = (*first, *(one for one in shown if one not in (*first, *last)), *last)
    columns = dict.fromkeys(("PROPERTY", "VALUE", "NOTE"), VARCHAR)
    return result(columns, ((titles.get(one, one.upper()), shown[one], notes.get(one, "")) for one in names))


def _with_unit(field: RowColumn, body: Mapping[str, Any]) -> str:
    unit = field.about.unit if isinstance(body[field.name], int) else ""
    return f"{field.text(body)} {unit}".rstrip()


def describe_table(name: QueryName, snapshot: SystemSnapshot, registry: ViewRegistry) -> ResultSet:
    """The columns of a system view, or of a table of the catalog. Raises RefusedError (VIEW_NOT_FOUND)."""
    columns = dict.fromkeys(("COLUMN", "TYPE", "EXTRA", "COMMENT"), VARCHAR)
    of_catalog = len(name.parts) == 1 or [part.upper() for part in name.parts[:-1]] == [TABLES_SCHEMA]
    table = (
        next((candidate for candidate in snapshot.catalog.tables if candidate.name == name.last), None)
        if of_catalog
        else None
    )
    if table is not None:
        return result(
            columns, ((column.name, column.type, _extra(table, column), "") for column in table.columns)
        )
    view = registry.find(name)
    return result(columns, ((column.name, column.type.value, "", column.comment) for column in view.columns))


def _extra(table: Table, column: TableColumn) -> str:
    extras = (
        ("primary key", column.name in table.primary_key),
        ("colocation", column.name in table.colocation),
        ("not null", not column.nullable and column.name not in table.primary_key),
        (f"default {column.default}", column.default is not None),
    )
    return ", ".join(text for text, holds in extras if holds)
