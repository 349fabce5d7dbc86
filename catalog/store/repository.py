"""Zones, tables and versions as rows, and back. Every function works inside the caller's transaction."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, Table, func, insert, select

from catalog.core import table as core
from catalog.core.audit import Action, AuditEntry
from catalog.core.errors import ErrorKind, StoreError
from catalog.core.rebalancing import PLACED, TIMERS
from catalog.core.snapshot import CatalogEntry, CatalogSnapshot, EntryKind, TableEntry, ZoneEntry
from catalog.core.zone import (
    ConsistencyMode,
    DistributionAlgorithm,
    Origin,
    Strategy,
    Zone,
    ZoneId,
    ZoneIntent,
)
from catalog.ports import StatementStamp, VersionRecord
from catalog.store.audit import insert_audit
from catalog.store.audit_table import AUDIT_LOG
from catalog.store.tables import CATALOG_VERSIONS, OUTBOX, TABLE_VERSIONS, ZONE_VERSIONS

_COMMENT = re.compile(r"--[^\n]*|//[^\n]*|/\*.*?\*/", re.DOTALL)
ZONE_COLUMNS = (
    *("zone_id", "name", "partitions", "replicas", "quorum_size"),
    *("auto_scale_up", "auto_scale_down", "nodes_filter"),
)
TABLE_COLUMNS = ("table_id", "name", "zone_id", "storage_profile")
"""Stored as they are."""
STATEMENT_MAX = 2_000
"""Characters of a statement that go along with the zones that it changes."""


@dataclass(frozen=True, slots=True)
class KnownSnapshot:
    """A snapshot that is at hand, with the statement that made its version: both together name one content."""

    snapshot: CatalogSnapshot
    statement_id: str


def read_snapshot(
    connection: Connection, version: int | None, known: KnownSnapshot | None = None
) -> KnownSnapshot:
    """The catalog at a version, the newest when None; ``known`` again when that is the one asked for.

    Queries without a common lock are consistent: all but the first read only rows that never change.
    """
    versions = CATALOG_VERSIONS
    query = select(
        versions.c.version,
        versions.c.statement_id,
        versions.c.next_zone_id,
        versions.c.next_table_id,
        versions.c.default_zone_id,
    )
    if version is None:
        query = query.order_by(versions.c.version.desc()).limit(1)
    else:
        query = query.where(versions.c.version == version)
    row = connection.execute(query).one_or_none()
    if row is None:
        if version:
            raise StoreError(ErrorKind.INVALID_REQUEST, f"the catalog has no version {version}")
        return KnownSnapshot(CatalogSnapshot(), "")
    if known and (known.snapshot.version, known.statement_id) == (row.version, row.statement_id):
        return known
    snapshot = CatalogSnapshot(
        version=row.version,
        zones=_zones_at(connection, row.version),
        next_zone_id=ZoneId(row.next_zone_id),
        tables=_tables_at(connection, row.version),
        next_table_id=core.TableId(row.next_table_id),
        default_zone_id=None if row.default_zone_id is None else ZoneId(row.default_zone_id),
    )
    return KnownSnapshot(snapshot, row.statement_id)


def read_version_of(connection: Connection, statement_id: str) -> int | None:
    query = select(CATALOG_VERSIONS.c.version).where(CATALOG_VERSIONS.c.statement_id == statement_id)
    return connection.execute(query).scalar_one_or_none()


def read_history(connection: Connection, after: int, limit: int) -> tuple[VersionRecord, ...]:
    """Versions above ``after``, oldest first, at most ``limit``; who asked for each and why is in the audit."""
    table, audit = CATALOG_VERSIONS, AUDIT_LOG
    columns = table.c.version, table.c.statement_id, table.c.statement, table.c.committed_at_us
    query = select(*columns).where(table.c.version > after).order_by(table.c.version).limit(limit)
    rows = connection.execute(query).mappings().all()
    if not rows:
        return ()
    made = select(audit.c.version_after, audit.c.actor, audit.c.reason).where(
        audit.c.version_after.between(rows[0]["version"], rows[-1]["version"]),
        audit.c.version_before < audit.c.version_after,
    )
    asked = {row.version_after: (row.actor, row.reason) for row in connection.execute(made)}
    found = ((row, *asked.get(row["version"], ("", ""))) for row in rows)
    return tuple(VersionRecord(**row, by=by, reason=reason) for row, by, reason in found)


def insert_version(
    connection: Connection,
    snapshot: CatalogSnapshot,
    entries: tuple[CatalogEntry, ...],
    stamp: StatementStamp,
    committed_at_us: int,
) -> None:
    """Adds the version ``snapshot``, which ``entries`` led to, with its outbox rows.

    Raises IntegrityError when the version or the statement id is taken.
    """
    version = {
        "version": snapshot.version,
        "statement_id": stamp.statement_id,
        "statement": stamp.text,
        "next_zone_id": snapshot.next_zone_id,
        "committed_at_us": committed_at_us,
        "next_table_id": snapshot.next_table_id,
        "default_zone_id": snapshot.default_zone_id,
    }
    connection.execute(insert(CATALOG_VERSIONS), version)
    zones = [entry for entry in entries if isinstance(entry, ZoneEntry)]
    origins = [_origin(connection, entry, stamp) for entry in zones]
    tables = [entry for entry in entries if isinstance(entry, TableEntry)]
    rows = (
        (ZONE_VERSIONS, [_zone_row(snapshot.version, entry) for entry in zones]),
        (TABLE_VERSIONS, [_table_row(snapshot.version, entry) for entry in tables]),
        (OUTBOX, [_outbox_row(snapshot.version, *each) for each in zip(zones, origins, strict=True)]),
    )
    for table, added in rows:
        if added:
            connection.execute(insert(table), added)
    insert_audit(connection, _audit_entry(snapshot.version, entries, stamp), committed_at_us)


def _audit_entry(version: int, entries: tuple[CatalogEntry, ...], stamp: StatementStamp) -> AuditEntry:
    """What was done is the statement's first words, without its comments."""
    words = _COMMENT.sub(" ", stamp.text).split()[:2] or [Action.ADOPT_METASTORE.value]
    names = [entry.zone.name for entry in entries if isinstance(entry, ZoneEntry)]
    names += [entry.table.name for entry in entries if isinstance(entry, TableEntry)]
    return AuditEntry(
        action=" ".join(words).upper(),
        subject=", ".join(names),
        actor=stamp.actor,
        reason=stamp.origin.reason if stamp.origin is not None else stamp.actor.reason,
        details=stamp.text,
        version_before=version - 1,
        version_after=version,
    )


def _zones_at(connection: Connection, version: int) -> tuple[Zone, ...]:
    rows = connection.execute(_newest(ZONE_VERSIONS, "zone_id", version)).mappings()
    return tuple(_zone(row) for row in rows)


def _tables_at(connection: Connection, version: int) -> tuple[core.Table, ...]:
    rows = connection.execute(_newest(TABLE_VERSIONS, "table_id", version)).mappings()
    return tuple(_table(row) for row in rows)


def _newest(table: Table, key: str, version: int) -> Select[Any]:
    """For each key its newest row up to the version, without the dropped."""
    newest = (
        select(table.c[key], func.max(table.c.version).label("version"))
        .where(table.c.version <= version)
        .group_by(table.c[key])
        .subquery()
    )
    return (
        select(table)
        .join(newest, (table.c[key] == newest.c[key]) & (table.c.version == newest.c.version))
        .where(table.c.dropped.is_(False))
        .order_by(table.c[key])
    )


def _zone(row: RowMapping) -> Zone:
    return Zone(
        **{name: row[name] for name in ZONE_COLUMNS},
        storage_profiles=tuple(json.loads(row["storage_profiles"])),
        consistency_mode=ConsistencyMode(row["consistency_mode"]),
        algorithm=DistributionAlgorithm(row["algorithm"]),
        strategy=None if row["strategy"] is None else Strategy(row["strategy"]),
    )


def _zone_row(version: int, entry: ZoneEntry) -> dict[str, Any]:
    zone = entry.zone
    return {
        **{name: getattr(zone, name) for name in ZONE_COLUMNS},
        "version": version,
        "dropped": entry.kind is EntryKind.DROPPED,
        "storage_profiles": json.dumps(zone.storage_profiles, ensure_ascii=False),
        "consistency_mode": zone.consistency_mode.value,
        "algorithm": zone.algorithm.value,
        "strategy": zone.strategy.value if zone.strategy else None,
    }


def _table(row: RowMapping) -> core.Table:
    return core.Table(
        **{name: row[name] for name in TABLE_COLUMNS},
        columns=tuple(core.Column(*fields) for fields in json.loads(row["columns"])),
        primary_key=tuple(json.loads(row["primary_key"])),
        colocation=tuple(json.loads(row["colocation"])),
    )


def _table_row(version: int, entry: TableEntry) -> dict[str, Any]:
    table = entry.table
    columns = [[each.name, each.type, each.nullable, each.default] for each in table.columns]
    return {
        **{name: getattr(table, name) for name in TABLE_COLUMNS},
        "version": version,
        "dropped": entry.kind is EntryKind.DROPPED,
        "columns": json.dumps(columns, ensure_ascii=False),
        "primary_key": json.dumps(table.primary_key, ensure_ascii=False),
        "colocation": json.dumps(table.colocation, ensure_ascii=False),
    }


def _origin(connection: Connection, entry: ZoneEntry, stamp: StatementStamp) -> Origin:
    """Who asked for what the zone's data does by this version: of one that changes nothing about that (a new
    name, say) whoever asked for the version before, which may not have been taken up yet."""
    origin = stamp.origin or Origin(stamp.actor.name, stamp.actor.verified, stamp.actor.reason)
    origin = replace(origin, statement=stamp.text[:STATEMENT_MAX])
    if entry.kind is EntryKind.DROPPED or origin.restores:
        return origin
    table = ZONE_VERSIONS
    newest = select(table).where(table.c.zone_id == entry.zone.zone_id)
    row = connection.execute(newest.order_by(table.c.version.desc()).limit(1)).mappings().one_or_none()
    if row is None or any(
        getattr(_zone(row), each) != getattr(entry.zone, each) for each in (*PLACED, *TIMERS)
    ):
        return origin
    sent = select(OUTBOX.c.payload).where(
        OUTBOX.c.version == row["version"], OUTBOX.c.zone_id == entry.zone.zone_id
    )
    payload = connection.execute(sent).scalar_one_or_none()
    before = ZoneIntent.decode(payload).origin if payload is not None else None
    return origin if before is None else replace(before, restores=0, reverses="")


def _outbox_row(version: int, entry: ZoneEntry, origin: Origin) -> dict[str, Any]:
    intent = ZoneIntent(version, entry.zone, dropped=entry.kind is EntryKind.DROPPED, origin=origin)
    return {
        "version": version,
        "zone_id": entry.zone.zone_id,
        "payload": intent.encode(),
        "sent_at_us": None,
    }
