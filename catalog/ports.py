"""Ports of the catalog's service to its store: versions in transactions, and an outbox beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from catalog.core.snapshot import CatalogSnapshot
from catalog.core.statement_batch import NewVersion
from catalog.core.zone import ZoneId

HashPassword = Callable[[str], str]
"""Makes of a password what is kept of it: text that names its algorithm, too. Slow on purpose."""


class CommitOutcome(Enum):
    """Outcome of a commit. Expected races are outcomes, not exceptions."""

    COMMITTED = "committed"
    """The versions, their zones and their outbox rows are durable."""

    CONFLICT = "conflict"
    """Another statement has taken one of the versions; nothing of ours is stored by this attempt."""

    UNKNOWN = "unknown"
    """The store went away while committing: all or nothing is stored. Ask ``version_of`` before repeating."""


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """One row of the catalog's history; ``by`` and ``reason`` are empty where nobody gave one."""

    version: int
    statement_id: str
    statement: str
    committed_at_us: int
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A zone's intent that is to be published; ``payload`` is ``ZoneIntent.encode()`` as of ``version``."""

    version: int
    zone_id: ZoneId
    payload: bytes


class UnitOfWork(Protocol):
    """Reads the catalog, and adds versions to it. Raises StoreError when the store does not answer."""

    def snapshot(self, version: int | None = None) -> CatalogSnapshot:
        """The catalog at a version that exists; the newest when None."""
        ...

    def commit(self, base: CatalogSnapshot, versions: Sequence[NewVersion]) -> CommitOutcome:
        """Makes ``versions``, which follow ``base`` one by one, durable in one transaction, with one outbox row
        for each zone entry and one audit record for each version: all of them or none.

        At most one commit ever succeeds for a base version and for a statement id; so repeating a commit whose
        outcome is unknown with the same ids cannot act twice.
        """
        ...

    def version_of(self, statement_id: str) -> int | None:
        """The version that this statement made; None if it has made none (yet)."""
        ...
