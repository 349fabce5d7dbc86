"""Forgetting what the catalog has kept for long enough, a little at a time."""

from __future__ import annotations

import asyncio

import structlog

from app.sql.engine.executor import CatalogExecutor
from catalog.core.errors import StoreError
from catalog.core.retention import Retention, Trimmed

LOOK_EVERY_S = 600.0
BETWEEN_ROUNDS_S = 1.0

log = structlog.get_logger(__name__)


async def trim_catalog(
    catalog: CatalogExecutor,
    keep: Retention,
    *,
    look_every_s: float = LOOK_EVERY_S,
    between_rounds_s: float = BETWEEN_ROUNDS_S,
) -> None:
    """Until cancelled. Several servers may do so side by side: what one has deleted, the other one does not
    find."""
    while True:
        trimmed = Trimmed()
        try:
            trimmed = await catalog.trim(keep)
        except StoreError as error:
            log.warning("nothing is forgotten while the catalog does not answer", error=str(error))
        if trimmed != Trimmed():
            log.info("forgotten", versions=trimmed.versions, audit_records=trimmed.audit_records)
        await asyncio.sleep(look_every_s if trimmed == Trimmed() else between_rounds_s)
