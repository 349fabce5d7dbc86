"""The store server of one node: all copies of its zones on the engine ``store``, in one process, and why it
must not begin on the directory that it has (``StoreObstacles``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from app.bootstrap.stores import entry_of, open_metastore
from app.configuration.node_settings import node_of
from app.configuration.settings import Settings
from app.process.logs import LogLevelFollower, configure, set_levels
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError
from rebalance.core.keyspace.records import ProcessRole, store_name
from rebalance.hosting.background import Background, kept
from rebalance.hosting.tls import loaded
from rebalance.metastore.held_start import hold_start
from rebalance.metastore.level_gate import within_level
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.own_directory import OwnDirectory
from rebalance.metastore.registered_process import ProcessReport
from rebalance.nodes.store_child import STORE_DIRECTORY
from rebalance.ports.metastore import MetastoreError, MetastoreHistory
from rebalance.store.core.store_limits import StoreLimits
from rebalance.store.shell.lmdb_disk import damage_of, move_aside, note_damage, why_kept
from rebalance.store.shell.lmdb_transactions import StoreDamagedError
from rebalance.store.shell.store_ring import RingError, StoreRing
from rebalance.store.shell.store_runtime import StorePlace, StoreRuntime

log = structlog.get_logger(__name__)


class StoreObstacles:
    """Obstacles to the start of the store of ``node`` in ``directory``, which is made if it is missing."""

    def __init__(self, node: str, directory: Path, metastore: MetastoreHistory, keyspace: Keyspace) -> None:
        self._node = node
        self._directory = directory
        self._own = OwnDirectory(node, lambda: (directory,), metastore, keyspace)
        self._ring = StoreRing(metastore, keyspace, node, "", ("", 0))

    async def why(self) -> str:
        """A cause; empty: the server may begin. A damaged store that others can fill again is moved aside.
        Raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        cause = await self._own.why_foreign()
        if cause:
            return cause
        damage = await asyncio.to_thread(damage_of, self._directory)
        if not damage:
            return ""
        try:
            start = await self._ring.start()
        except (MetastoreError, RingError, RecordNotReadableError) as error:
            return Cause.STORE_DAMAGED.text(f"{damage}; who else has its copies cannot be read: {error}")
        cause = why_kept(self._directory, damage, start, self._node)
        if cause:
            return cause
        aside = await asyncio.to_thread(move_aside, self._directory)
        log.error(
            "a damaged store is moved aside, and filled again from others", damage=damage, kept=str(aside)
        )
        self._directory.mkdir(mode=0o700)
        return await self._own.why_foreign()


LEAVE_LIMIT_S = 5.5
"""More than a server takes to leave, or to give it up; less than its agent waits for it."""


async def run_store(
    settings: Settings, port: int, listening: Callable[[int], None], incarnation: str = ""
) -> None:
    """Run the store server until cancelled, which makes it leave in order, or until it has to go; then a new
    one joins as another incarnation. Raises ValueError for settings that name no node, StoreDiskError, OSError
    for a port that is taken, RingError, MetastoreError and BelowLevelError."""
    node = node_of(settings)
    configure(store_name(node.name))
    async with AsyncExitStack() as stack:
        metastore, keyspace = open_metastore(settings, stack), Keyspace(settings.metastore_prefix)
        store = settings.data_dir / STORE_DIRECTORY
        name, entry = store_name(node.name), entry_of(ProcessRole.NODE, "")
        obstacles = StoreObstacles(node.name, store, metastore, keyspace)
        await hold_start(metastore, keyspace, name, entry, obstacles.why)
        levels = KeyspaceMirror(metastore, keyspace.log_levels)
        LogLevelFollower(levels, keyspace, set_levels)
        await stack.enter_async_context(kept(Background(), "log levels", levels.run))
        if settings.tls is not None:
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
    running = asyncio.create_task(_end_of(runtime, store, listening))
    try:
        reason = await asyncio.shield(running)
    except asyncio.CancelledError:
        runtime.leave()
        _, unfinished = await asyncio.wait([running], timeout=LEAVE_LIMIT_S)
        if unfinished:
            running.cancel()
        log.info("the store server ends", reason="it does not answer" if unfinished else await running)
        raise
    log.warning("the store server ends", reason=reason, incarnation=runtime.incarnation)


async def _end_of(runtime: StoreRuntime, store: Path, listening: Callable[[int], None]) -> str:
    """Run the server until it ends, and return the reason. A damage is noted: the next start decides what
    becomes of it, after this incarnation is out of the ring."""
    try:
        return await runtime.run(listening)
    except StoreDamagedError as error:
        await asyncio.to_thread(note_damage, store, str(error))
        return str(error)
