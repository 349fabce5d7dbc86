"""Keeping what requests have changed outside of the catalog's own statements, and showing all of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import structlog

from app.contract.columns import Facts
from app.requests.context import current_actor
from catalog.core.audit import Action, AuditEntry, AuditFilter, AuditRecord
from catalog.core.errors import StoreError
from catalog.core.snapshot import CatalogSnapshot

log = structlog.get_logger(__name__)


class AuditStore(Protocol):
    """The catalog's database, off the event loop."""

    async def record(self, entry: AuditEntry) -> None: ...

    async def audit(self, criteria: AuditFilter, limit: int, below: int | None) -> tuple[AuditRecord, ...]: ...

    @property
    def requires_reason(self) -> bool: ...

    def require_reason(self, stated: str = "") -> None: ...


class Audit:
    """Audit of changes, written after they have happened. If that fails the change stays, and what would have
    been written is in the log as an error."""

    def __init__(self, store: AuditStore, snapshot: Callable[[], Awaitable[CatalogSnapshot]]) -> None:
        self._store = store
        self._snapshot = snapshot

    @property
    def requires_reason(self) -> bool:
        """True if a change without a reason is refused."""
        return self._store.requires_reason

    def require_reason(self, stated: str = "") -> None:
        """Check before a change that a reason is given, if one is required. Raises RefusedError
        (REASON_REQUIRED)."""
        self._store.require_reason(stated)

    async def record(
        self,
        action: Action,
        subject: str,
        details: Mapping[str, Any],
        *,
        by: str | None = None,
        reason: str = "",
    ) -> None:
        """``by`` is a name that the request states; a verified one goes before it. Without a ``reason`` it is
        the one that came with the request."""
        actor = current_actor().named(by)
        reason = reason or actor.reason
        body = json.dumps(details, ensure_ascii=False, separators=(",", ":"), default=str)
        try:
            version = (await self._snapshot()).version
            await self._store.record(AuditEntry(action.value, subject, actor, reason, body, version, version))
        except StoreError as error:
            log.error(
                "audit not written",
                action=action.value,
                subject=subject,
                by=actor.name,
                reason=reason,
                details=body,
                error=str(error),
            )

    async def read(self, criteria: AuditFilter, limit: int, below: int | None) -> tuple[AuditRecord, ...]:
        """The newest first. Raises StoreError."""
        return await self._store.audit(criteria, limit, below)


def audit_facts(record: AuditRecord) -> Facts:
    return Facts(record, {"at": record.at_us // 1000})
