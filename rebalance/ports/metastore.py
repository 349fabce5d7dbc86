"""The metastore as the rest of Zonekeeper sees it: revisions, guarded transactions, leases, watches.

One contract suite (``tests/contract/test_metastore.py``) runs over every implementation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from rebalance.core.keyspace.readable import Unreadable
from rebalance.core.keyspace.txn import KeyValue, Txn, TxnResult


class MetastoreError(Exception):
    """Base of what a metastore raises.

    MetastoreError
    ├── MetastoreUnavailableError   nothing was done, or (``outcome_unknown``) perhaps something was
    ├── LeaseLostError              the lease ended; its keys are gone
    ├── ContendedError              others wrote what was read, again and again: nothing was done
    ├── HistoryGoneError            a revision is asked for that the store has compacted
    └── KeysUnreadableError         it answered with what this build cannot read: nothing is known
    """


class MetastoreUnavailableError(MetastoreError):
    """Error of a metastore that did not answer in time. After ``commit`` the outcome may be unknown: read back,
    never repeat blindly."""

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown


class LeaseLostError(MetastoreError):
    """The lease expired or was revoked."""


class ContendedError(MetastoreError):
    """Error where others changed what was read during each attempt; the same again may succeed."""


class HistoryGoneError(MetastoreError):
    """The revision is older than what the store keeps."""


class KeysUnreadableError(MetastoreError):
    """Error of unreadable keys, for work that goes on without the metastore: as if it had not answered about
    these keys."""

    def __init__(self, unreadable: Unreadable) -> None:
        super().__init__(unreadable.cause)
        self.unreadable = unreadable


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Keys of a range, all read at ``revision``, in key order."""

    revision: int
    items: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class Newest:
    """Number of ``keys`` in a range and the highest ``mod_revision`` among them, 0 where there is none. What is
    put or deleted in the range makes another one of it."""

    keys: int
    mod_revision: int


@dataclass(frozen=True, slots=True)
class KeyEvent:
    """One change: ``current`` is None when the key was deleted."""

    key: str
    current: KeyValue | None
    mod_revision: int


@dataclass(frozen=True, slots=True)
class WatchReset:
    """The history has a gap (compaction, a restored store): forget what you held, take this snapshot."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """Changes of whole revisions, in order; ``revision`` is the last one that they bring you to."""

    revision: int
    events: tuple[KeyEvent, ...]


class Metastore(Protocol):
    """Every call has a time limit of the implementation's and raises MetastoreUnavailableError past it."""

    async def get(self, key: str) -> KeyValue | None: ...

    async def range(self, prefix: str) -> Snapshot:
        """All keys below ``prefix`` at one revision, paged where a reply would grow too large."""
        ...

    async def newest(self, prefix: str) -> Newest:
        """Tells whether anything below ``prefix`` has changed, without sending it."""
        ...

    async def commit(self, txn: Txn) -> TxnResult:
        """One atomic request. Raises ValueError above ``OPERATIONS_MAX`` operations."""
        ...

    def watch(self, prefix: str) -> AsyncIterator[WatchReset | WatchBatch]:
        """Begins with a WatchReset that holds what is there, then every later change, through lost
        connections and restarts of the store, until the caller stops iterating."""
        ...

    async def grant_lease(self, ttl_s: int) -> int:
        """A new lease's id; it ends ``ttl_s`` after the last ``keep_lease``."""
        ...

    async def keep_lease(self, lease: int, within_s: float) -> None:
        """Renew once; gives up after ``within_s``, which is no longer than the lease goes on by itself. Raises
        LeaseLostError when the lease is no more."""
        ...

    async def revoke_lease(self, lease: int) -> None: ...

    async def close(self) -> None: ...


class MetastoreHistory(Metastore, Protocol):
    """A store that can be read as it was."""

    async def range_at(self, prefix: str, revision: int) -> Snapshot:
        """All keys below ``prefix`` as of ``revision``. Raises HistoryGoneError."""
        ...


@dataclass(frozen=True, slots=True)
class Condition:
    """``cluster_id`` is the store's own name, which a restored one usually changes. ``full`` is the alarm that
    refuses writes, in the store's words; empty when there is room. ``revision``: the newest of the member that
    answered; 0: it does not say."""

    cluster_id: str
    full: str = ""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class MemberHealth:
    """One member of the metastore, by its own words. ``name``: where it listens. Sizes are bytes. ``alarms``:
    those that it has raised."""

    name: str
    is_up: bool
    has_leader: bool = False
    in_use: int = 0
    allocated: int = 0
    alarms: tuple[str, ...] = ()


class MetastoreCondition(Protocol):
    """Condition of a store besides its keys."""

    async def condition(self) -> Condition: ...
