"""Intents that wait to be published, in the order of their versions."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Engine, select, tuple_, update

from catalog.core.zone import ZoneId
from catalog.ports import OutboxRow
from catalog.store.connections import reading, writing
from catalog.store.tables import OUTBOX


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
            marked = connection.execute(statement).rowcount
            connection.commit()
        return marked
