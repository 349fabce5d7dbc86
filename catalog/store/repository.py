"""Zones and versions as rows, and back. Every function works inside the caller's transaction."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, select

from catalog.core.errors import ErrorKind, StoreError
from catalog.core.snapshot import CatalogEntry, CatalogSnapshot, EntryKind
from catalog.core.zone import ConsistencyMode, DistributionAlgorithm, Zone, ZoneId, ZoneIntent
from catalog.ports import StatementStamp, VersionRecord
from catalog.store.tables import CATALOG_VERSIONS, OUTBOX, ZONE_VERSIONS


def read_snapshot(connection: Connection, version: int | None) -> CatalogSnapshot:
    """The catalog at a version, the newest when None.

    Two queries without a common lock are consistent: the second reads only rows that never change.
    """
    versions = CATALOG_VERSIONS
    query = select(versions.c.version, versions.c.next_zone_id)
    if version is None:
        query = query.order_by(versions.c.version.desc()).limit(1)
    else:
        query = query.where(versions.c.version == version)
    row = connection.execute(query).one_or_none()
    if row is None:
        if version:
            raise StoreError(ErrorKind.INVALID_REQUEST, f"the catalog has no version {version}")
        return CatalogSnapshot()
    return CatalogSnapshot(row.version, _zones_at(connection, row.version), ZoneId(row.next_zone_id))


def read_version_of(connection: Connection, statement_id: str) -> int | None:
    query = select(CATALOG_VERSIONS.c.version).where(CATALOG_VERSIONS.c.statement_id == statement_id)
    return connection.execute(query).scalar_one_or_none()


def read_history(connection: Connection, after: int, limit: int) -> tuple[VersionRecord, ...]:
    """Versions above ``after``, oldest first, at most ``limit``."""
    table = CATALOG_VERSIONS
    query = (
        select(table.c.version, table.c.statement_id, table.c.statement, table.c.committed_at_us)
        .where(table.c.version > after)
        .order_by(table.c.version)
        .limit(limit)
    )
    return tuple(VersionRecord(**row) for row in connection.execute(query).mappings())


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
    }
    connection.execute(insert(CATALOG_VERSIONS), version)
    connection.execute(insert(ZONE_VERSIONS), [_zone_row(snapshot.version, entry) for entry in entries])
    connection.execute(insert(OUTBOX), [_outbox_row(snapshot.version, entry) for entry in entries])


def _zones_at(connection: Connection, version: int) -> tuple[Zone, ...]:
    """For each zone its newest row up to the version, without the dropped."""
    table = ZONE_VERSIONS
    newest = (
        select(table.c.zone_id, func.max(table.c.version).label("version"))
        .where(table.c.version <= version)
        .group_by(table.c.zone_id)
        .subquery()
    )
    query = (
        select(table)
        .join(newest, (table.c.zone_id == newest.c.zone_id) & (table.c.version == newest.c.version))
        .where(table.c.dropped.is_(False))
        .order_by(table.c.zone_id)
    )
    return tuple(_zone(row) for row in connection.execute(query).mappings())


def _zone(row: RowMapping) -> Zone:
    return Zone(
        zone_id=ZoneId(row["zone_id"]),
        name=row["name"],
        partitions=row["partitions"],
        replicas=row["replicas"],
        quorum_size=row["quorum_size"],
        storage_profiles=tuple(json.loads(row["storage_profiles"])),
        auto_scale_up=row["auto_scale_up"],
        auto_scale_down=row["auto_scale_down"],
        nodes_filter=row["nodes_filter"],
        consistency_mode=ConsistencyMode(row["consistency_mode"]),
        algorithm=DistributionAlgorithm(row["algorithm"]),
    )


def _zone_row(version: int, entry: CatalogEntry) -> dict[str, Any]:
    zone = entry.zone
    return {
        "zone_id": zone.zone_id,
        "version": version,
        "dropped": entry.kind is EntryKind.DROPPED,
        "name": zone.name,
        "partitions": zone.partitions,
        "replicas": zone.replicas,
        "quorum_size": zone.quorum_size,
        "storage_profiles": json.dumps(zone.storage_profiles, ensure_ascii=False),
        "auto_scale_up": zone.auto_scale_up,
        "auto_scale_down": zone.auto_scale_down,
        "nodes_filter": zone.nodes_filter,
        "consistency_mode": zone.consistency_mode.value,
        "algorithm": zone.algorithm.value,
    }


def _outbox_row(version: int, entry: CatalogEntry) -> dict[str, Any]:
    intent = ZoneIntent(version, entry.zone, dropped=entry.kind is EntryKind.DROPPED)
    return {
        "version": version,
        "zone_id": entry.zone.zone_id,
        "payload": intent.encode(),
        "sent_at_us": None,
    }
