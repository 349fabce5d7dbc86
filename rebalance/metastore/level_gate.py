"""A process that is below the level in force ends, and says so: starting it again would change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from catalog.core.level import LEVEL, below_level
from rebalance.core.keyspace.epoch import level_in
from rebalance.core.keyspace.keys import Keyspace
from rebalance.ports.metastore import Metastore, MetastoreError

LOOK_S = 5.0


class BelowLevelError(Exception):
    """The message names both levels, and what to start instead."""


async def within_level(
    metastore: Metastore, keyspace: Keyspace, what: str, service: Coroutine[Any, Any, None]
) -> None:
    """Runs ``service``, of ``what``, for as long as the level in force is not above this build's. A metastore
    that is away says nothing, and the service goes on. Raises BelowLevelError, and what ``service`` raises."""

    async def look() -> None:
        while True:
            with suppress(MetastoreError):
                item = await metastore.get(keyspace.epoch)
                in_force = level_in(item.value if item is not None else None)
                if in_force > LEVEL:
                    raise BelowLevelError(below_level(in_force, what))
            await asyncio.sleep(LOOK_S)

    tasks = running, looking = asyncio.ensure_future(service), asyncio.ensure_future(look())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        is_below = looking.done()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await (looking if is_below else running)
