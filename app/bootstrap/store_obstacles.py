"""Why the store server of a node must not begin on the directory that it has."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError
from rebalance.metastore.own_directory import OwnDirectory
from rebalance.ports.metastore import MetastoreError, MetastoreHistory
from rebalance.store.shell.damaged_store import damage_of, move_aside, why_kept
from rebalance.store.shell.store_ring import RingError, StoreRing

log = structlog.get_logger(__name__)


class StoreObstacles:
    """Of the store of ``node`` in ``directory``, which is made where it is missing."""

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
