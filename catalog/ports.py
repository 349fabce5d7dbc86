"""What the catalog's service needs of its store: one transaction per version, and an outbox beside it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from catalog.core.audit import NOBODY, Actor
from catalog.core.snapshot import CatalogEntry, CatalogSnapshot
from catalog.core.zone import Origin, ZoneId


class CommitOutcome(Enum):
    """How a commit ended. Expected races are outcomes, not exceptions."""

    COMMITTED = "committed"
    """The version, its zones and its outbox rows are durable."""

    CONFLICT = "conflict"
    """Another statement has taken this version; nothing of ours is stored by this attempt."""

    UNKNOWN = "unknown"
    """The store went away while committing: all or nothing is stored. Ask ``version_of`` before repeating."""


@dataclass(frozen=True, slots=True)
class StatementStamp:
    """A statement as history keeps it. The id is unique for ever: it tells an unknown outcome afterwards.

    ``actor`` asked for it. ``origin`` goes along with the zones' intents; None: what follows from the actor."""

    statement_id: str
    text: str
    actor: Actor = NOBODY
    origin: Origin | None = None


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
    """Reads the catalog, and adds one version to it. Raises StoreError when the store does not answer."""

    def snapshot(self, version: int | None = None) -> CatalogSnapshot:
        """The catalog at a version that exists; the newest when None."""
        ...

    def commit(
        self, base: CatalogSnapshot, entries: tuple[CatalogEntry, ...], stamp: StatementStamp
    ) -> CommitOutcome:
        """Makes ``base.after(entries)`` durable, with one outbox row per zone entry, in one transaction.

        At most one commit ever succeeds for a base version and for a statement id; so repeating a commit whose
        outcome is unknown with the same id cannot act twice.
        """
        ...

    def version_of(self, statement_id: str) -> int | None:
        """The version that this statement made; None if it has made none (yet)."""
        ...


class Outbox(Protocol):
    """Intents on their way to the metastore. Any number of relays may read and mark at once.

    Publishing is idempotent (an intent only ever moves to a higher version), so two relays that list the same
    row do no harm; marking says how many rows this call was the first to mark.
    """

    def unsent(self, limit: int = 100) -> tuple[OutboxRow, ...]:
        """The oldest rows not marked yet, in the order of their versions, without gaps."""
        ...

    def mark_sent(self, rows: tuple[OutboxRow, ...]) -> int: ...
