"""The catalog's memory of the metastore: one row, and the version by which a metastore is adopted."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    String,
    Table,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from catalog.core.audit import NOBODY, Actor
from catalog.core.errors import ErrorKind, StoreError
from catalog.core.level import level_of, schema_of
from catalog.core.metastore_mark import AdoptedVersion, CatalogTruth, MetastoreMark, SentIntent, adopt_intents
from catalog.core.statement_batch import NewVersion, StatementStamp
from catalog.core.zone import NO_ZONE, ZoneId, ZoneIntent
from catalog.store.connections import reading, writing
from catalog.store.repository import insert_versions, read_snapshot
from catalog.store.tables import CATALOG_VERSIONS, METADATA, OUTBOX, SCHEMA_WRITERS, raise_oldest_writer

METASTORE_MARK = Table(
    "metastore_mark",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False, comment="1: there is one row"),
    Column("epoch", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False, comment="where the nonce was written"),
    Column("nonce", String(64), nullable=False),
    Column("cluster_id", String(64), nullable=False),
)
ADOPT_STATEMENT = "-- zonectl metastore adopt"
_ROW = 1


class SqlMetastoreMarks:
    """Marks only move forward. Raises StoreError when the database does not answer."""

    def __init__(self, engine: Engine, now_us: Callable[[], int]) -> None:
        self._engine = engine
        self._now_us = now_us

    def truth(self, newest: ZoneIntent | None) -> CatalogTruth:
        """``newest``: the metastore's newest intent, which the catalog should know."""
        with reading(self._engine) as connection:
            query = select(CATALOG_VERSIONS.c.version).order_by(CATALOG_VERSIONS.c.version.desc()).limit(1)
            version = connection.execute(query).scalar_one_or_none() or 0
            known = newest is None or _knows(connection, newest)
            sent = (
                select(OUTBOX.c.zone_id, OUTBOX.c.version)
                .where(OUTBOX.c.sent_at_us.is_not(None))
                .order_by(OUTBOX.c.version.desc())
                .limit(1)
            )
            row = connection.execute(sent).mappings().one_or_none()
            newest_sent = None if row is None else SentIntent(**row)
            level = level_of(connection.execute(select(SCHEMA_WRITERS.c.oldest)).scalar_one_or_none() or "")
            return CatalogTruth(_read(connection), version, known, newest_sent, level)

    def raise_level(self, level: int) -> None:
        """Builds of lower release levels never write this catalog again."""
        with writing(self._engine) as connection:
            raise_oldest_writer(connection, schema_of(level))

    def record(self, mark: MetastoreMark) -> None:
        """Stores ``mark`` unless a newer one of the same epoch, or one of another epoch, is there."""
        table = METASTORE_MARK
        newer = (
            update(table)
            .where(table.c.id == _ROW, table.c.epoch == mark.epoch, table.c.revision < mark.revision)
            .values(asdict(mark))
        )
        with writing(self._engine) as connection:
            if _read(connection) is not None:
                connection.execute(newer)
            else:
                try:
                    connection.execute(insert(table), {"id": _ROW, **asdict(mark)})
                except IntegrityError:
                    # Another server was faster: its mark is as good.
                    connection.rollback()
                    return

    def adopt(
        self,
        intents: Sequence[ZoneIntent],
        mark: MetastoreMark,
        held: ZoneId = NO_ZONE,
        actor: Actor = NOBODY,
    ) -> AdoptedVersion:
        """One transaction: the version that stands above ``intents``, its outbox rows, and the new epoch.

        Raises StoreError (CATALOG_VERSION_CONFLICT) when somebody else took that version.
        """
        with writing(self._engine) as connection:
            base = read_snapshot(connection, None).snapshot
            adopted = adopt_intents(base, intents, held)
            stamp = StatementStamp(uuid.uuid4().hex, ADOPT_STATEMENT, actor)
            version = NewVersion(adopted.snapshot, adopted.entries, stamp)
            try:
                insert_versions(connection, base, [version], self._now_us())
            except IntegrityError as error:
                message = "another statement changed the catalog while the metastore was adopted: try again"
                raise StoreError(ErrorKind.CATALOG_VERSION_CONFLICT, message) from error
            connection.execute(delete(METASTORE_MARK))
            connection.execute(insert(METASTORE_MARK), {"id": _ROW, **asdict(mark)})
        return adopted


def _read(connection: Connection) -> MetastoreMark | None:
    table = METASTORE_MARK
    query = select(table.c.epoch, table.c.revision, table.c.nonce, table.c.cluster_id).where(table.c.id == _ROW)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else MetastoreMark(**row)


def _knows(connection: Connection, intent: ZoneIntent) -> bool:
    query = select(OUTBOX.c.payload).where(
        OUTBOX.c.version == intent.version, OUTBOX.c.zone_id == intent.zone.zone_id
    )
    payload = connection.execute(query).scalar_one_or_none()
    return payload is not None and ZoneIntent.decode(bytes(payload)) == intent
