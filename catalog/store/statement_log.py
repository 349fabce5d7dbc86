"""The log of statements, so that results and idempotency survive a server and are shared by several.

Every function is one short transaction. Expected races (another server was first, the owner has changed) are
answers, not exceptions; StoreError means that the database does not answer.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, RowMapping, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalog.core.authorisation import LOCAL, Principal
from catalog.core.statement_log import (
    REPEAT_PREFIX,
    CommittedStatement,
    Json,
    LoggedOutcome,
    NewStatement,
    StatementProgress,
    StatementRow,
    StatementState,
    part_id,
)
from catalog.core.zone import ZoneId
from catalog.store.connections import reading, storable, writing
from catalog.store.credential_rows import require_active
from catalog.store.tables import (
    CATALOG_VERSIONS,
    STATEMENT_LOG,
    STATEMENT_PAGES,
    ZONE_VERSIONS,
    belongs_to,
    user_version,
)

US_PER_S = 1_000_000
PURGED_AT_ONCE = 500
COMMITTED_AT_MOST = 500

_SENDER = STATEMENT_LOG.c.principal_source, STATEMENT_LOG.c.principal_name
_STATEMENTS = select(STATEMENT_LOG, user_version(*_SENDER).label("principal_version"))
_NOBODY = Principal("", "")
_RUNNING = (StatementState.PENDING.value, StatementState.RUNNING.value)


def pack(value: object) -> bytes:
    """Compressed JSON."""
    return zlib.compress(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), 1)


def unpack(body: bytes) -> Any:
    return json.loads(zlib.decompress(body))


class SqlStatementLog:
    """``now_us`` is the servers' common idea of time: a lease must exceed the difference of their clocks."""

    def __init__(self, engine: Engine, now_us: Callable[[], int]) -> None:
        self._engine = engine
        self.now_us = now_us

    def submit(self, new: NewStatement, owner: str, lease_s: float, ttl_s: float) -> tuple[StatementRow, bool]:
        """The row of this statement, and whether this call made it: who made it runs the statement.

        With an idempotency key that is there already the row is the earlier one, whatever its text. Raises
        RefusedError (UNAUTHENTICATED) when at this moment a user of the catalog that sends it is no active one.
        """
        now, sender = self.now_us(), new.principal or _NOBODY
        values = {
            "statement_id": new.statement_id,
            "protocol": new.protocol,
            "idempotency_key": new.idempotency_key,
            "sql_hash": new.sql_hash,
            "sql": storable(new.sql),
            "state": StatementState.RUNNING.value,
            "owner": owner,
            "lease_until_us": now + int(lease_s * US_PER_S),
            "cancel_requested": False,
            "created_us": now,
            "expires_us": now + int(ttl_s * US_PER_S),
            "warnings": "[]",
            "token": 0,
            "principal_source": sender.source,
            "principal_name": sender.name,
            "scope": new.scope,
        }
        while True:
            with writing(self._engine) as connection:
                if sender.source == LOCAL:
                    require_active(connection, sender)
                try:
                    connection.execute(insert(STATEMENT_LOG), values)
                    query = _STATEMENTS.where(STATEMENT_LOG.c.statement_id == new.statement_id)
                    return _row(connection.execute(query).mappings().one()), True
                except IntegrityError:
                    connection.rollback()
            earlier = self._row_where(
                STATEMENT_LOG.c.protocol == new.protocol,
                STATEMENT_LOG.c.idempotency_key == new.idempotency_key,
                *belongs_to(sender, *_SENDER),
            )
            # None: it has expired between the two; then the insert has its way.
            if earlier is not None:
                return earlier, False

    def read(self, statement_id: str) -> StatementRow | None:
        return self._row_where(STATEMENT_LOG.c.statement_id == statement_id)

    def _row_where(self, *conditions: ColumnElement[bool]) -> StatementRow | None:
        """The one row of which these hold."""
        with reading(self._engine) as connection:
            row = connection.execute(_STATEMENTS.where(*conditions)).mappings().one_or_none()
        return _row(row) if row is not None else None

    def page(self, statement_id: str, result: int, page: int) -> list[list[Any]] | None:
        """The rows of one page; None when there is no such page (any more)."""
        with reading(self._engine) as connection:
            query = select(STATEMENT_PAGES.c.body).where(
                STATEMENT_PAGES.c.statement_id == statement_id,
                STATEMENT_PAGES.c.result == result,
                STATEMENT_PAGES.c.page == page,
            )
            body = connection.execute(query).scalar_one_or_none()
        rows: list[list[Any]] | None = unpack(bytes(body)) if body is not None else None
        return rows

    def renew(self, owner: str, lease_s: float) -> frozenset[str]:
        """Keeps what this server runs its own; answers which of it somebody wants to be cancelled."""
        mine = (STATEMENT_LOG.c.owner == owner, STATEMENT_LOG.c.state.in_(_RUNNING))
        until = self.now_us() + int(lease_s * US_PER_S)
        with writing(self._engine) as connection:
            connection.execute(update(STATEMENT_LOG).where(*mine).values(lease_until_us=until))
            cancelled = select(STATEMENT_LOG.c.statement_id).where(*mine, STATEMENT_LOG.c.cancel_requested)
            return frozenset(connection.execute(cancelled).scalars())

    def report(
        self,
        statement_id: str,
        owner: str,
        heads: Sequence[Json],
        warnings: Sequence[Json],
        progress: StatementProgress | None,
    ) -> None:
        """Store what is known before the end: a DDL statement has happened and its data is on the way."""
        self._update(
            *_owned(statement_id, owner),
            head=pack(list(heads)),
            warnings=json.dumps(list(warnings)),
            progress=_progress_text(progress),
        )

    def finish(self, statement_id: str, owner: str, outcome: LoggedOutcome, ttl_s: float) -> bool:
        """Store the outcome; False when the statement is not this server's any more: then its outcome is what
        the log says."""
        now = self.now_us()
        with writing(self._engine) as connection:
            ended = connection.execute(
                update(STATEMENT_LOG)
                .where(*_owned(statement_id, owner))
                .values(
                    state=outcome.state.value,
                    finished_us=now,
                    expires_us=now + int(ttl_s * US_PER_S),
                    head=pack(list(outcome.heads)),
                    error=json.dumps(outcome.error) if outcome.error is not None else None,
                    warnings=json.dumps(list(outcome.warnings)),
                    progress=_progress_text(outcome.progress),
                )
            )
            if ended.rowcount == 0:
                return False
            if outcome.state is not StatementState.SUCCEEDED:
                _give_up_repeat_key(connection, statement_id)
            pages = [
                {"statement_id": statement_id, "result": result, "page": page, "body": body}
                for result, page, body in outcome.pages
            ]
            if pages:
                connection.execute(insert(STATEMENT_PAGES), pages)
        return True

    def take_over(self, statement_id: str, owner: str, lease_s: float) -> bool:
        """Take over an abandoned statement; True when it is this server's now, to say how it ended."""
        now = self.now_us()
        abandoned = (
            STATEMENT_LOG.c.statement_id == statement_id,
            STATEMENT_LOG.c.state.in_(_RUNNING),
            STATEMENT_LOG.c.lease_until_us < now,
        )
        return self._update(*abandoned, owner=owner, lease_until_us=now + int(lease_s * US_PER_S)) == 1

    def committed(self, statement_id: str) -> tuple[CommittedStatement, ...]:
        """Return the DDL statements of a logged script that are in the catalog's history, in order."""
        numbers = {part_id(statement_id, n): n for n in range(1, COMMITTED_AT_MOST + 1)}
        query = (
            select(
                CATALOG_VERSIONS.c.statement_id,
                CATALOG_VERSIONS.c.version,
                ZONE_VERSIONS.c.zone_id,
                ZONE_VERSIONS.c.name,
            )
            .outerjoin(ZONE_VERSIONS, ZONE_VERSIONS.c.version == CATALOG_VERSIONS.c.version)
            .where(CATALOG_VERSIONS.c.statement_id.in_(numbers))
            .order_by(CATALOG_VERSIONS.c.version)
        )
        statements: dict[int, CommittedStatement] = {}
        with reading(self._engine) as connection:
            for row in connection.execute(query):
                zone_id = ZoneId(row.zone_id) if row.zone_id is not None else None
                n = numbers[row.statement_id]
                statements.setdefault(n, CommittedStatement(n, row.version, zone_id, row.name))
        return tuple(statements[n] for n in sorted(statements))

    def request_cancel(self, statement_id: str) -> None:
        """A wish: its owner sees it with the next renewal. Does nothing to a statement that is over."""
        running = STATEMENT_LOG.c.statement_id == statement_id, STATEMENT_LOG.c.state.in_(_RUNNING)
        self._update(*running, cancel_requested=True)

    def close(self, statement_id: str) -> None:
        """Gives up the results of a statement that is over; repeating it does nothing."""
        with writing(self._engine) as connection:
            closed = connection.execute(
                update(STATEMENT_LOG)
                .where(STATEMENT_LOG.c.statement_id == statement_id, STATEMENT_LOG.c.state.not_in(_RUNNING))
                .values(state=StatementState.CLOSED.value, head=None)
            )
            if closed.rowcount:
                _delete_pages(connection, [statement_id])

    def advance(self, statement_id: str, token: int, answer: Json) -> bool:
        """Remembers that ``token`` was answered with ``answer``; False when it was answered already."""
        with writing(self._engine) as connection:
            moved = connection.execute(
                update(STATEMENT_LOG)
                .where(STATEMENT_LOG.c.statement_id == statement_id, STATEMENT_LOG.c.token == token - 1)
                .values(token=token, token_answer=json.dumps(answer))
            )
            _give_up_repeat_key(connection, statement_id)
            return moved.rowcount == 1

    def release(
        self, protocol: str, idempotency_key: str, older_than_s: float, principal: Principal | None = None
    ) -> None:
        """Frees a key of a principal whose statement is older than this; the statement stays."""
        old = (
            STATEMENT_LOG.c.protocol == protocol,
            STATEMENT_LOG.c.idempotency_key == idempotency_key,
            *belongs_to(principal or _NOBODY, *_SENDER),
            STATEMENT_LOG.c.created_us < self.now_us() - int(older_than_s * US_PER_S),
        )
        self._update(*old, idempotency_key=None)

    def rewind(self, statement_id: str) -> None:
        """A client that sent the statement again reads its result from the beginning."""
        self._update(STATEMENT_LOG.c.statement_id == statement_id, token=0, token_answer=None)

    def purge(self) -> int:
        """Removes what has expired, at most ``PURGED_AT_ONCE``: how many statements it was."""
        now = self.now_us()
        expired = (
            select(STATEMENT_LOG.c.statement_id)
            .where(STATEMENT_LOG.c.expires_us < now, STATEMENT_LOG.c.lease_until_us < now)
            .order_by(STATEMENT_LOG.c.expires_us)
            .limit(PURGED_AT_ONCE)
        )
        with reading(self._engine) as connection:
            ids = list(connection.execute(expired).scalars())
        if not ids:
            return 0
        with writing(self._engine) as connection:
            _delete_pages(connection, ids)
            gone = connection.execute(delete(STATEMENT_LOG).where(STATEMENT_LOG.c.statement_id.in_(ids)))
            return gone.rowcount

    def _update(self, *conditions: ColumnElement[bool], **values: object) -> int:
        """Update, and return the number of statements of which these hold."""
        with writing(self._engine) as connection:
            return connection.execute(update(STATEMENT_LOG).where(*conditions).values(**values)).rowcount


def _owned(statement_id: str, owner: str) -> tuple[Any, ...]:
    return (
        STATEMENT_LOG.c.statement_id == statement_id,
        STATEMENT_LOG.c.owner == owner,
        STATEMENT_LOG.c.state.in_(_RUNNING),
    )


def _delete_pages(connection: Connection, statement_ids: Iterable[str]) -> None:
    connection.execute(delete(STATEMENT_PAGES).where(STATEMENT_PAGES.c.statement_id.in_(list(statement_ids))))


def _give_up_repeat_key(connection: Connection, statement_id: str) -> None:
    connection.execute(
        update(STATEMENT_LOG)
        .where(
            STATEMENT_LOG.c.statement_id == statement_id,
            STATEMENT_LOG.c.idempotency_key.startswith(REPEAT_PREFIX, autoescape=True),
        )
        .values(idempotency_key=None)
    )


def _progress_text(progress: StatementProgress | None) -> str | None:
    return None if progress is None else json.dumps([progress.done, progress.total])


def _row(row: RowMapping) -> StatementRow:
    values = dict(row)
    head, progress, error, answer = (values.pop(k) for k in ("head", "progress", "error", "token_answer"))
    return StatementRow(
        **{
            **values,
            "state": StatementState(values["state"]),
            "warnings": tuple(json.loads(values["warnings"])),
            "heads": tuple(unpack(bytes(head))) if head is not None else (),
            "error": json.loads(error) if error is not None else None,
            "progress": StatementProgress(*json.loads(progress)) if progress is not None else None,
            "token_answer": json.loads(answer) if answer is not None else None,
        }
    )
