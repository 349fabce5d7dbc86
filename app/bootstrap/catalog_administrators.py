"""Composition of what makes administrators beside a server, with the catalog's credentials."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from app.security.administrator import SHOWN_US, keep_local_token, recover_administrator, recovery_line
from app.security.login_check import utc_now_us
from app.security.passwords import hash_password
from app.sql.engine.executor import CatalogExecutor
from app.sql.plan.member_counts import MemberCounts
from catalog.core.audit import Actor, Channel
from catalog.core.messages import Secret
from catalog.core.snapshot import ZoneDefaults

log = structlog.get_logger(__name__)

RENEWAL_LOOK_S = 3_600.0
OF_UP = Actor("zonectl up", channel=Channel.SYSTEM)


async def provide_token(catalog_url: str, file: Path) -> str:
    """``keep_local_token``, while no server has the catalog open."""
    async with _opened(catalog_url) as catalog:
        return await keep_local_token(catalog, file, utc_now_us(), OF_UP)


async def renew_token(catalog: CatalogExecutor, file: Path) -> None:
    """Keep the token of ``up`` valid until cancelled: ``up`` may run for longer than a token is valid."""
    while True:
        await asyncio.sleep(RENEWAL_LOOK_S)
        reason = await keep_local_token(catalog, file, utc_now_us(), OF_UP)
        if reason:
            log.warning("token not renewed", reason=reason)


async def recovery_lines(catalog: CatalogExecutor) -> list[str]:
    """Lines about administrators that were recovered in the last days, for readiness. Raises StoreError."""
    return [recovery_line(record) for record in await catalog.recoveries(utc_now_us() - SHOWN_US)]


async def recover(catalog_url: str, name: str, password: str) -> bool:
    """Make ``name`` an administrator with this password, and return True if the user is new."""
    actor = Actor(_own_name(), channel=Channel.CLI, reason="zonectl admin recover")
    async with _opened(catalog_url) as catalog:
        return await recover_administrator(catalog, name, Secret(password), actor)


@asynccontextmanager
async def _opened(catalog_url: str) -> AsyncIterator[CatalogExecutor]:
    """Raises StoreError."""
    counts = MemberCounts(lambda _: ())
    catalog = CatalogExecutor(catalog_url, ZoneDefaults(), counts, hash_password)
    await catalog.open(lambda: None)
    try:
        yield catalog
    finally:
        await catalog.close()


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
