"""A process that must not begin before somebody has removed the reason waits, and every server tells why."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import structlog

from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import ProcessRecord
from rebalance.hosting.background import Background, kept
from rebalance.metastore.registered_process import ProcessReport
from rebalance.ports.metastore import Metastore

log = structlog.get_logger(__name__)

LOOK_S = 1.0


async def hold_start(
    metastore: Metastore,
    keyspace: Keyspace,
    name: str,
    record: ProcessRecord,
    *whys: Callable[[], Awaitable[str]],
) -> None:
    """Returns once each of ``whys``, a text whose first word is a cause, is empty. ``record``: what the
    process, ``name``, says of itself meanwhile. Each reason is one line in the log: a process that starts over
    and over for it writes thousands."""

    async def why() -> str:
        for ask in whys:
            if reason := await ask():
                return reason
        return ""

    reason = told = await why()
    if not reason:
        return
    background = Background()
    report = ProcessReport(metastore, keyspace, name, record, background)
    async with AsyncExitStack() as stack:
        background.hold("start", reason)
        log.error("the process waits", cause=reason)
        await stack.enter_async_context(kept(background, "process", report.run))
        while reason:
            await asyncio.sleep(LOOK_S)
            reason = await why()
            if reason and reason != told:
                log.error("the process waits", cause=reason)
                told = reason
            background.hold("start", reason)
    log.info("the process goes on")
