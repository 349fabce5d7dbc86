"""Troubles inside a process, for every server's /readyz: a key of its own, under the process's lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from rebalance.core.keyspace.self_reports import ProcessRecord
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.hosting.background import Background
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

LOOK_S = 2.0


class TroubleReport:
    """Written when it changes, and not at all by a process in which nothing ever went wrong. ``lease``: 0 or
    None while the process holds none."""

    def __init__(
        self, metastore: Metastore, key: str, role: str, lease: Callable[[], int | None], background: Background
    ) -> None:
        self._metastore = metastore
        self._key = key
        self._role = role
        self._lease = lease
        self._background = background
        self._written: tuple[int, bytes] | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self.write_if_changed()
            except MetastoreError as error:
                log.info("process not reported", error=str(error))
            await asyncio.sleep(LOOK_S)

    async def write_if_changed(self) -> bool:
        """Write the troubles if they have changed; True if they were written. Raises MetastoreError."""
        lease, background = self._lease(), self._background
        troubles = background.troubles()
        if background.is_registered or not lease:
            return False
        if not (troubles or background.defects or self._written):
            return False
        value = ProcessRecord(self._role, troubles, background.defects, background.last_defect).encode()
        if (lease, value) == self._written:
            return False
        await self._metastore.commit(Txn((), (Put(self._key, value, lease),)))
        self._written = lease, value
        return True
