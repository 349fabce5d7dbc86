"""Says once, and not each round, that a record cannot be read, and once that it can be again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import structlog

from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read
from rebalance.core.keyspace.txn import KeyValue

T = TypeVar("T")

log = structlog.get_logger(__name__)

NOTED_MAX = 10_000


class UnreadableLog:
    """``scope`` is what waits: a zone, a partition, a part of the process."""

    def __init__(self) -> None:
        self._noted: dict[Hashable, tuple[str, str]] = {}

    def waits(self, scope: Hashable, record: Unreadable | RecordNotReadableError) -> None:
        cause = record.key, record.reason
        if self._noted.get(scope) == cause:
            return
        if len(self._noted) >= NOTED_MAX:
            self._noted.clear()
        self._noted[scope] = cause
        log.error("a record cannot be read", waits=str(scope), key=record.key, reason=record.reason)

    def read(
        self, scope: Hashable, item: KeyValue | None, decode: Callable[[bytes], T]
    ) -> T | Unreadable | None:
        """``readable.read``; ``scope`` waits where the record cannot be read, and else goes on."""
        record = read(item, decode)
        if isinstance(record, Unreadable):
            self.waits(scope, record)
        else:
            self.goes_on(scope)
        return record

    def goes_on(self, scope: Hashable) -> None:
        cause = self._noted.pop(scope, None)
        if cause is not None:
            log.warning("a record can be read again", waited=str(scope), key=cause[0])
