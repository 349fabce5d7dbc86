"""Zones, tables and versions as rows, and back; their SQL transactions, and the outbox that these leave.

A version is written with its zones, tables, outbox rows and audit records, or not at all. Intents are published
in the order of their versions. Functions work inside the transaction of their caller.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, Table, func, insert, select, tuple_, update
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from catalog.core import table as core
from catalog.core.audit import Action, AuditEntry
from catalog.core.authorisation import NO_GRANTS
from catalog.core.codec import UNKNOWN
from catalog.core.errors import ErrorKind, StoreError
from catalog.core.snapshot import PLACED, TIMERS
from catalog.core.statement_batch import NewVersion, StatementStamp
from catalog.core.versions import (
    CatalogSnapshot,
    EntryKind,
    GrantEntry,
    PrincipalEntry,
    RoleEntry,
    TableEntry,
    UserEntry,
    ZoneEntry,
)
from catalog.core.zone import (
    ConsistencyMode,
    DistributionAlgorithm,
    LossPolicy,
    Origin,
    Strategy,
    Zone,
    ZoneId,
    ZoneIntent,
)
from catalog.ports import CommitOutcome, OutboxRow, VersionRecord
from catalog.store.audit import insert_audit
from catalog.store.connections import WRITES, available, reading, writing
from catalog.store.principal_rows import read_grants, write_principal
from catalog.store.tables import AUDIT_LOG, CATALOG_VERSIONS, OUTBOX, TABLE_VERSIONS, ZONE_VERSIONS

_COMMENT = re.compile(r"--[^\n]*|//[^\n]*|/\*.*?\*/", re.DOTALL)
_ZONE_FIELDS = tuple(column.name for column in fields(Zone) if column.name != UNKNOWN)
_ZONE_ENUMS = {
    "consistency_mode": ConsistencyMode,
    "algorithm": DistributionAlgorithm,
    "strategy": Strategy,
    "loss_policy": LossPolicy,
}
_TABLE_FIELDS = tuple(column.name for column in fields(core.Table))
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

    Queries without a common lock are consistent: all but the first read only rows that never change. Grants may
    be those of a later version: no commit on the one that was read succeeds then.
    """
    versions = CATALOG_VERSIONS
    query = select(
        versions.c.version,
        versions.c.statement_id,
        versions.c.next_zone_id,
        versions.c.next_table_id,
        versions.c.default_zone_id,
    ).where(versions.c.kept)
    if version is None:
        query = query.order_by(versions.c.version.desc()).limit(1)
    else:
        query = query.where(versions.c.version == version)
    row = connection.execute(query).one_or_none()
    if row is None:
        if version:
            message = f"the catalog has no version {version}"
            oldest = connection.execute(select(func.min(versions.c.version)).where(versions.c.kept)).scalar()
            if oldest is not None and version < oldest:
                message += f" any more: it keeps those from {oldest} on"
            raise StoreError(ErrorKind.INVALID_REQUEST, message)
        return KnownSnapshot(CatalogSnapshot(grants=read_grants(connection, 0)), "")
    if known and (known.snapshot.version, known.statement_id) == (row.version, row.statement_id):
        return known
    snapshot = CatalogSnapshot(
        version=row.version,
        zones=tuple(map(_zone, _newest(connection, ZONE_VERSIONS, "zone_id", row.version))),
        next_zone_id=ZoneId(row.next_zone_id),
        tables=tuple(map(_table, _newest(connection, TABLE_VERSIONS, "table_id", row.version))),
        next_table_id=core.TableId(row.next_table_id),
        default_zone_id=None if row.default_zone_id is None else ZoneId(row.default_zone_id),
        grants=read_grants(connection, row.version) if version is None else NO_GRANTS,
    )
    return KnownSnapshot(snapshot, row.statement_id)


def read_version_of(connection: Connection, statement_id: str) -> int | None:
    query = select(CATALOG_VERSIONS.c.version).where(CATALOG_VERSIONS.c.statement_id == statement_id)
    return connection.execute(query).scalar_one_or_none()


def read_history(connection: Connection, after: int, limit: int) -> tuple[VersionRecord, ...]:
    """Versions above ``after``, oldest first, at most ``limit``; who asked for each and why is in the audit."""
    table, audit = CATALOG_VERSIONS, AUDIT_LOG
    columns = table.c.version, table.c.statement_id, table.c.statement, table.c.committed_at_us
    query = select(*columns).where(table.c.version > after, table.c.kept).order_by(table.c.version).limit(limit)
    rows = connection.execute(query).mappings().all()
    if not rows:
        return ()
    made = select(audit.c.version_after, audit.c.actor, audit.c.reason).where(
        audit.c.version_after.between(rows[0]["version"], rows[-1]["version"]),
        audit.c.version_before < audit.c.version_after,
    )
    actors = {row.version_after: (row.actor, row.reason) for row in connection.execute(made)}
    records = ((row, *actors.get(row["version"], ("", ""))) for row in rows)
    return tuple(VersionRecord(**row, by=by, reason=reason) for row, by, reason in records)


def insert_versions(
    connection: Connection, base: CatalogSnapshot, versions: Sequence[NewVersion], committed_at_us: int
) -> None:
    """Adds ``versions``, which follow ``base`` one by one, with their outbox rows and audit records.

    Raises IntegrityError when a version or a statement id is taken.
    """
    connection.execute(
        insert(CATALOG_VERSIONS), [_version_row(version, committed_at_us) for version in versions]
    )
    zones: list[dict[str, Any]] = []
    tables: list[dict[str, Any]] = []
    outbox: list[dict[str, Any]] = []
    origins: dict[ZoneId, Origin] = {}
    for version in versions:
        number = version.after.version
        for entry in version.entries:
            write_principal(connection, entry)
            if isinstance(entry, ZoneEntry):
                zone_id = entry.zone.zone_id
                origins[zone_id] = _origin(connection, entry, version.stamp, base, origins.get(zone_id))
                zones.append(_zone_row(number, entry))
                outbox.append(_outbox_row(number, entry, origins[zone_id]))
            elif isinstance(entry, TableEntry):
                tables.append(_table_row(number, entry))
        base = version.after
    for table, rows in ((ZONE_VERSIONS, zones), (TABLE_VERSIONS, tables), (OUTBOX, outbox)):
        if rows:
            connection.execute(insert(table), rows)
    insert_audit(connection, map(_audit_entry, versions), committed_at_us)


def _version_row(version: NewVersion, committed_at_us: int) -> dict[str, Any]:
    return {
        "version": version.after.version,
        "statement_id": version.stamp.statement_id,
        "statement": version.stamp.text,
        "next_zone_id": version.after.next_zone_id,
        "committed_at_us": committed_at_us,
        "next_table_id": version.after.next_table_id,
        "default_zone_id": version.after.default_zone_id,
    }


def _audit_entry(version: NewVersion) -> AuditEntry:
    """Return the audit entry of a version: the action is the statement's first words, without its comments."""
    stamp, entries, number = version.stamp, version.entries, version.after.version
    words = _COMMENT.sub(" ", stamp.text).upper().split()[:2] or [Action.ADOPT_METASTORE.value]
    words = words[:1] if words[0] in ("GRANT", "REVOKE") else words
    names = [entry.zone.name for entry in entries if isinstance(entry, ZoneEntry)]
    names += [entry.table.name for entry in entries if isinstance(entry, TableEntry)]
    names += dict.fromkeys(_principal_of(entry) for entry in entries if isinstance(entry, PrincipalEntry))
    return AuditEntry(
        action=" ".join(words),
        subject=", ".join(names),
        actor=stamp.actor,
        reason=stamp.origin.reason if stamp.origin is not None else stamp.actor.reason,
        details=stamp.text,
        version_before=number - 1,
        version_after=number,
    )


def _principal_of(entry: PrincipalEntry) -> str:
    """The user or role that the entry is about."""
    if isinstance(entry, UserEntry):
        return entry.user.name
    if isinstance(entry, RoleEntry):
        return entry.role.name
    return (entry.grant.grantee if isinstance(entry, GrantEntry) else entry.membership.user).name


def _newest(connection: Connection, table: Table, key: str, version: int) -> Iterable[RowMapping]:
    """Read for each key its newest row up to the version, without the dropped."""
    newest = (
        select(table.c[key], func.max(table.c.version).label("version"))
        .where(table.c.version <= version)
        .group_by(table.c[key])
        .subquery()
    )
    query = (
        select(table)
        .join(newest, (table.c[key] == newest.c[key]) & (table.c.version == newest.c.version))
        .where(table.c.dropped.is_(False))
        .order_by(table.c[key])
    )
    return connection.execute(query).mappings()


def _zone(row: RowMapping) -> Zone:
    values = {name: row[name] for name in _ZONE_FIELDS}
    values["life"] = row["life"] or ""
    values["storage_profiles"] = tuple(json.loads(row["storage_profiles"]))
    values |= {name: kind(row[name]) for name, kind in _ZONE_ENUMS.items() if row[name] is not None}
    return Zone(**values)


def _zone_row(version: int, entry: ZoneEntry) -> dict[str, Any]:
    values = {name: getattr(entry.zone, name) for name in _ZONE_FIELDS}
    values["storage_profiles"] = _json(entry.zone.storage_profiles)
    values |= {name: values[name].value for name in _ZONE_ENUMS if values[name] is not None}
    return {"version": version, "dropped": entry.kind is EntryKind.DROPPED, **values}


def _table(row: RowMapping) -> core.Table:
    values = {name: row[name] for name in _TABLE_FIELDS}
    values |= {name: tuple(json.loads(row[name])) for name in ("primary_key", "colocation")}
    values["columns"] = tuple(core.Column(*column) for column in json.loads(row["columns"]))
    return core.Table(**values)


def _table_row(version: int, entry: TableEntry) -> dict[str, Any]:
    table = entry.table
    values = {name: getattr(table, name) for name in _TABLE_FIELDS}
    values |= {name: _json(values[name]) for name in ("primary_key", "colocation")}
    values["columns"] = _json([astuple(column) for column in table.columns])
    return {"version": version, "dropped": entry.kind is EntryKind.DROPPED, **values}


def _json(value: Sequence[Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _origin(
    connection: Connection, entry: ZoneEntry, stamp: StatementStamp, base: CatalogSnapshot, last: Origin | None
) -> Origin:
    """Return the origin of what the zone's data does by this version: where that changes nothing (a new name,
    say) the origin of the version before, which may not have been taken up yet.

    ``base`` is the catalog before this version; ``last`` the zone's origin by a version of the same
    transaction."""
    origin = stamp.origin or Origin(stamp.actor.name, stamp.actor.verified, stamp.actor.reason)
    origin = replace(origin, statement=stamp.text[:STATEMENT_MAX])
    before = base.zone_with_id(entry.zone.zone_id)
    if entry.kind is EntryKind.DROPPED or origin.restores or before is None:
        return origin
    if any(getattr(before, name) != getattr(entry.zone, name) for name in (*PLACED, *TIMERS)):
        return origin
    last = last or _last_origin(connection, entry.zone.zone_id)
    return origin if last is None else replace(last, restores=0, reverses="")


def _last_origin(connection: Connection, zone_id: ZoneId) -> Origin | None:
    """Return the origin that the zone's newest version was published with."""
    newest = select(func.max(ZONE_VERSIONS.c.version)).where(ZONE_VERSIONS.c.zone_id == zone_id)
    sent = select(OUTBOX.c.payload).where(
        OUTBOX.c.version == newest.scalar_subquery(), OUTBOX.c.zone_id == zone_id
    )
    payload = connection.execute(sent).scalar_one_or_none()
    return ZoneIntent.decode(payload).origin if payload is not None else None


def _outbox_row(version: int, entry: ZoneEntry, origin: Origin) -> dict[str, Any]:
    intent = ZoneIntent(version, entry.zone, dropped=entry.kind is EntryKind.DROPPED, origin=origin)
    return {
        "version": version,
        "zone_id": entry.zone.zone_id,
        "payload": intent.encode(),
        "sent_at_us": None,
    }


LOCK_NOT_AVAILABLE = "55P03"


class SqlUnitOfWork:
    """``catalog.ports.UnitOfWork`` over SQLAlchemy Core.

    ``now_us`` is the time for the history, in microseconds; ``committed`` is called with each new version, in
    the calling thread, behind the commit. Any thread may read.
    """

    def __init__(self, engine: Engine, now_us: Callable[[], int], committed: Callable[[int], None]) -> None:
        self._engine = engine
        self._now_us = now_us
        self._committed = committed
        self._newest: KnownSnapshot | None = None

    def snapshot(self, version: int | None = None) -> CatalogSnapshot:
        """Reads the zones only when another writer was faster: a statement costs the same with many zones."""
        newest = self._newest
        with reading(self._engine) as connection:
            known = read_snapshot(connection, version, newest)
        # What another thread has read or committed meanwhile may be newer.
        if version is None and self._newest is newest:
            self._newest = known
        return known.snapshot

    def version_of(self, statement_id: str) -> int | None:
        with reading(self._engine) as connection:
            return read_version_of(connection, statement_id)

    def commit(self, base: CatalogSnapshot, versions: Sequence[NewVersion]) -> CommitOutcome:
        if not versions or not all(version.entries for version in versions):
            raise ValueError("a version has at least one entry")
        with available(), self._engine.connect() as plain:
            connection = plain.execution_options(**{WRITES: True})
            try:
                insert_versions(connection, base, versions, self._now_us())
            except (IntegrityError, OperationalError) as error:
                # Another coordinator has this version, or holds it uncommitted: so far it was faster.
                held = getattr(error.orig, "sqlstate", None) == LOCK_NOT_AVAILABLE
                if not held and not isinstance(error, IntegrityError):
                    raise
                connection.rollback()
                return CommitOutcome.CONFLICT
            try:
                connection.commit()
            except DBAPIError:
                # The answer to COMMIT never came: it may have happened.
                with suppress(SQLAlchemyError):
                    connection.invalidate()
                return CommitOutcome.UNKNOWN
        self._newest = KnownSnapshot(versions[-1].after, versions[-1].stamp.statement_id)
        for version in versions:
            self._committed(version.after.version)
        return CommitOutcome.COMMITTED


class SqlOutbox:
    """Intents on their way to the metastore. Any number of relays may read and mark at once: nothing is
    claimed, because publishing twice does no harm (an intent only ever moves to a higher version) and losing
    would."""

    def __init__(self, engine: Engine, now_us: Callable[[], int]) -> None:
        self._engine = engine
        self._now_us = now_us

    def unsent(self, limit: int = 100) -> tuple[OutboxRow, ...]:
        query = (
            select(OUTBOX.c.version, OUTBOX.c.zone_id, OUTBOX.c.payload)
            .where(OUTBOX.c.sent_at_us.is_(None))
            .order_by(OUTBOX.c.version, OUTBOX.c.zone_id)
            .limit(limit)
        )
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
        return tuple(OutboxRow(row.version, ZoneId(row.zone_id), bytes(row.payload)) for row in rows)

    def mark_sent(self, rows: tuple[OutboxRow, ...]) -> int:
        """Mark rows as sent; returns how many were not marked before: a second relay's call counts none."""
        if not rows:
            return 0
        keys = [(row.version, row.zone_id) for row in rows]
        statement = (
            update(OUTBOX)
            .where(tuple_(OUTBOX.c.version, OUTBOX.c.zone_id).in_(keys), OUTBOX.c.sent_at_us.is_(None))
            .values(sent_at_us=self._now_us())
        )
        with writing(self._engine) as connection:
            return connection.execute(statement).rowcount
