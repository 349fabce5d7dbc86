"""Reading a key: its record, or that it cannot be read. The third state is a type, so that nobody forgets it.

What is unreadable is neither absent nor empty: nobody founds, destroys, resets, switches, admits or overwrites
on it (``rebalance/tech-notes/keyspace.md`` has the table of keys).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar, overload

from catalog.core.codec import RecordNotReadableError
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.txn import KeyValue

__all__ = ["RecordNotReadableError", "RecordReader", "Unreadable", "read", "readable", "unreadable_among"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A key that is there, and whose value this build cannot read."""

    key: str
    reason: str

    @property
    def cause(self) -> str:
        """Cause as progress, partitions and limits show it; the first word is stable."""
        return Cause.RECORD_NOT_READABLE.text(f"{self.key}: {self.reason}")

    @property
    def error(self) -> RecordNotReadableError:
        return RecordNotReadableError(self.reason, self.key)


@overload
def read(item: KeyValue, decode: Callable[[bytes], T]) -> T | Unreadable: ...
@overload
def read(item: KeyValue | None, decode: Callable[[bytes], T]) -> T | Unreadable | None: ...
def read(item: KeyValue | None, decode: Callable[[bytes], T]) -> T | Unreadable | None:
    """The record under ``item``; None where the key is absent."""
    if item is None:
        return None
    try:
        return decode(item.value)
    except RecordNotReadableError as error:
        return Unreadable(item.key, error.reason)


@overload
def readable(item: KeyValue, decode: Callable[[bytes], T]) -> T: ...
@overload
def readable(item: KeyValue | None, decode: Callable[[bytes], T]) -> T | None: ...
def readable(item: KeyValue | None, decode: Callable[[bytes], T]) -> T | None:
    """The record under ``item``. Raises RecordNotReadableError, which names the key: for work that belongs to
    one zone or one partition and ends with it."""
    if item is None:
        return None
    try:
        return decode(item.value)
    except RecordNotReadableError as error:
        raise RecordNotReadableError(error.reason, item.key) from error


@dataclass(frozen=True, slots=True)
class RecordReader:
    """Adds to ``unreadable`` what cannot be read, and leaves it out."""

    unreadable: list[Unreadable]

    def record(self, item: KeyValue | None, decode: Callable[[bytes], T]) -> T | None:
        record = read(item, decode)
        if isinstance(record, Unreadable):
            self.unreadable.append(record)
            return None
        return record


def unreadable_among(records: Iterable[object]) -> Unreadable | None:
    """The first of ``records`` that cannot be read."""
    return next((record for record in records if isinstance(record, Unreadable)), None)
