"""The opened catalog: what the composition root holds."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from filelock import FileLock
from sqlalchemy import Engine

from catalog.ports import VersionRecord
from catalog.store.audit import SqlAudit
from catalog.store.connections import open_engine, parse_url, reading, writer_lock
from catalog.store.credential_rows import SqlSessions, SqlTokens
from catalog.store.metastore_mark import SqlMetastoreMarks
from catalog.store.migrate import require_current
from catalog.store.repository import SqlOutbox, SqlUnitOfWork, read_history
from catalog.store.retention import SqlRetention
from catalog.store.statement_log import SqlStatementLog

log = structlog.get_logger(__name__)


def utc_now_us() -> int:
    return time.time_ns() // 1000


class CatalogStore:
    """A catalog database that this process may write to.

    All calls block. Commits and the statement log are one worker thread's at a time; snapshots, tokens and
    sessions may be read and written by others meanwhile, each with a connection of its own.
    """

    def __init__(self, engine: Engine, lock: FileLock | None, now_us: Callable[[], int] = utc_now_us) -> None:
        self._engine = engine
        self._lock = lock
        self._listeners: list[Callable[[int], None]] = []
        self.unit_of_work = SqlUnitOfWork(engine, now_us, self._tell)
        self.outbox = SqlOutbox(engine, now_us)
        self.statements = SqlStatementLog(engine, now_us)
        self.audit = SqlAudit(engine, now_us)
        self.retention = SqlRetention(engine, now_us)
        self.tokens = SqlTokens(engine)
        self.sessions = SqlSessions(engine)
        self.metastore_marks = SqlMetastoreMarks(engine, now_us)

    @classmethod
    def open(cls, url: str, now_us: Callable[[], int] = utc_now_us) -> CatalogStore:
        """Opens a migrated catalog. Raises StoreError: no answer, not migrated, another SQLite writer."""
        parsed = parse_url(url)
        lock = writer_lock(parsed)
        engine = open_engine(parsed)
        try:
            require_current(engine)
        except BaseException:
            engine.dispose()
            if lock:
                lock.release()
            raise
        return cls(engine, lock, now_us)

    def close(self) -> None:
        """Gives back connections and the writer's lock. Calling it again does nothing."""
        self._engine.dispose()
        if self._lock:
            self._lock.release()

    def on_commit(self, listener: Callable[[int], None]) -> Callable[[], None]:
        """Calls the listener with each version committed *through this store*; returns how to stop that.

        It is called in the thread that committed, so it must be quick and safe there, as
        ``loop.call_soon_threadsafe`` is. It is a hint to look into the outbox: versions of other processes are
        not notified, so a relay also looks from time to time.
        """
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def history(self, after: int = 0, limit: int = 1000) -> tuple[VersionRecord, ...]:
        """The statements that made the versions above ``after``, oldest first."""
        with reading(self._engine) as connection:
            return read_history(connection, after, limit)

    def _tell(self, version: int) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(version)
            except Exception as error:
                # The version is durable: a listener's trouble must not look like the statement's.
                log.warning("listener of commits failed", version=version, error=str(error))
