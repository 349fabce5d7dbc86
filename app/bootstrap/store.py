"""The store server of one node: all copies of its zones on the engine ``store``, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from app.bootstrap.store_obstacles import StoreObstacles
from app.bootstrap.stores import entry_of, open_metastore
from app.configuration.node_settings import node_of
from app.configuration.settings import Settings
from app.process.level_changes import LogLevelFollower
from app.process.stderr_lines import configure, set_levels
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.self_reports import ProcessRole, store_name
from rebalance.hosting.background import Background, kept
from rebalance.hosting.tls import loaded
from rebalance.metastore.held_start import HeldStart
from rebalance.metastore.level_gate import within_level
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.registered_process import ProcessReport
from rebalance.nodes.store_partitions import STORE_DIRECTORY
from rebalance.store.core.store_limits import StoreLimits
from rebalance.store.shell.damaged_store import note_damage
from rebalance.store.shell.store_errors import StoreDamagedError
from rebalance.store.shell.store_runtime import StorePlace, StoreRuntime

log = structlog.get_logger(__name__)

LEAVE_LIMIT_S = 5.5
"""More than a server takes to leave, or to give it up; less than its agent waits for it."""


async def run_store(
    settings: Settings, port: int, listening: Callable[[int], None], incarnation: str = ""
) -> None:
    """Until cancelled, which makes the server leave in order, or until it has to go; then a new one joins as
    another incarnation. Raises
    ValueError for settings that name no node, StoreDiskError, OSError for a port that is taken, RingError,
    MetastoreError and BelowLevelError."""
    node = node_of(settings)
    configure(store_name(node.name))
    async with AsyncExitStack() as stack:
        metastore, keyspace = open_metastore(settings, stack), Keyspace(settings.metastore_prefix)
        store = settings.data_dir / STORE_DIRECTORY
        held = HeldStart(metastore, keyspace, store_name(node.name), entry_of(ProcessRole.NODE, ""))
        await held.until_free(StoreObstacles(node.name, store, metastore, keyspace).why)
        levels = KeyspaceMirror(metastore, keyspace.log_levels)
        LogLevelFollower(levels, keyspace, set_levels)
        await stack.enter_async_context(kept(Background(), "log levels", levels.run))
        if settings.tls is not None:
            name, entry = store_name(node.name), entry_of(ProcessRole.NODE, "")
            shown = (loaded(settings.tls),)
            report = ProcessReport(metastore, keyspace, name, entry, Background(), certificates=shown)
            await stack.enter_async_context(kept(Background(), "process", report.run))
        runtime = StoreRuntime(
            StorePlace(node.name, store, settings.node_host, port),
            metastore,
            keyspace,
            limits=StoreLimits(ttl_ms=1_000 * settings.store_ttl_s),
            tls=settings.tls,
            incarnation=incarnation,
        )
        await within_level(
            metastore, keyspace, f"the store server of {node.name}", _run(runtime, store, listening)
        )


async def _run(runtime: StoreRuntime, store: Path, listening: Callable[[int], None]) -> None:
    running = asyncio.create_task(runtime.run(listening))
    try:
        reason = await asyncio.shield(running)
    except asyncio.CancelledError:
        runtime.leave()
        _, unfinished = await asyncio.wait([running], timeout=LEAVE_LIMIT_S)
        if unfinished:
            running.cancel()
        log.info("the store server ends", reason="it does not answer" if unfinished else await running)
        raise
    except StoreDamagedError as error:
        # The next start decides what becomes of it, after this incarnation is out of the ring.
        await asyncio.to_thread(note_damage, store, str(error))
        reason = str(error)
    log.warning("the store server ends", reason=reason, incarnation=runtime.incarnation)
