"""A process's key in the metastore, for every server's /readyz: what it is, and its troubles.

A process that registers, with the address of its metrics, has a lease of its own for it; any other one writes
its troubles alone, under a lease that it has.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import structlog

from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import DISK_FULL_SHARE, ProcessRecord
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.hosting.background import Background
from rebalance.hosting.tls import LoadedCertificate
from rebalance.ports.metastore import LeaseLostError, Metastore, MetastoreError

log = structlog.get_logger(__name__)

LOOK_S = 2.0
LEASE_S = 15
LEAVES_S = 1.0


class ProcessReport:
    """Registers one process, with what goes wrong in it. It takes the place of ``TroubleReport``: whoever runs
    it sets ``Background.is_registered``."""

    def __init__(
        self,
        metastore: Metastore,
        keyspace: Keyspace,
        name: str,
        identity: ProcessRecord,
        background: Background,
        directory: Path | None = None,
        needed_bytes: int = 0,
        certificates: Sequence[LoadedCertificate] = (),
    ) -> None:
        """``identity``: the record as long as nothing goes wrong. ``directory``: the one whose disk is
        watched; None: the process keeps nothing. ``needed_bytes``: with less than that free it is full, however
        small a part of the disk that is. ``certificates``: all that the process shows."""
        self._needed_bytes = needed_bytes
        self._directory = directory
        self._certificates = certificates
        self._metastore = metastore
        self._key = keyspace.process(name)
        self._identity = identity
        self._background = background
        self._lease = 0
        self._written = b""
        background.is_registered = True

    async def run(self) -> None:
        """Run until cancelled; the key goes then, where the metastore answers."""
        try:
            while True:
                try:
                    await self._round()
                except LeaseLostError:
                    self._lease, self._written = 0, b""
                    continue
                except MetastoreError as error:
                    log.info("process not registered", error=str(error))
                await asyncio.sleep(LOOK_S)
        finally:
            with suppress(MetastoreError, TimeoutError):
                if self._lease:
                    # A metastore that is away must not hold the end up: the lease ends by itself.
                    async with asyncio.timeout(LEAVES_S):
                        await self._metastore.revoke_lease(self._lease)

    async def _round(self) -> None:
        if self._lease:
            await self._metastore.keep_lease(self._lease, LEASE_S)
        else:
            self._lease = await self._metastore.grant_lease(LEASE_S)
        value = self._record().encode()
        if value != self._written:
            await self._metastore.commit(Txn((), (Put(self._key, value, self._lease),)))
            self._written = value

    def _record(self) -> ProcessRecord:
        background = self._background
        ends = [end for certificate in self._certificates for end in certificate.ends()]
        soonest = min(ends, key=lambda end: end.ends_s, default=None)
        return replace(
            self._identity,
            troubles=background.troubles(),
            defects=background.defects,
            last_defect=background.last_defect,
            disk_full=self._directory is not None and _is_full(self._directory, self._needed_bytes),
            certificate="" if soonest is None else str(soonest.file),
            certificate_end_s=0 if soonest is None else int(soonest.ends_s),
        )


def _is_full(directory: Path, needed_bytes: int) -> bool:
    usage = shutil.disk_usage(directory)
    return usage.free < max(needed_bytes, DISK_FULL_SHARE * usage.total)


class LeasedReport:
    """Key that is written under a lease when its value changes. ``lease``: 0 or None while the process holds
    none; ``value``: empty while there is nothing to write."""

    def __init__(
        self, metastore: Metastore, key: str, lease: Callable[[], int | None], value: Callable[[], bytes]
    ) -> None:
        self._metastore = metastore
        self._key = key
        self._lease = lease
        self._value = value
        self._written: tuple[int, bytes] | None = None

    async def run(self, period_s: float = LOOK_S) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self.write_if_changed()
            except MetastoreError as error:
                log.info("report not written", key=self._key, error=str(error))
            await asyncio.sleep(period_s)

    async def write_if_changed(self) -> bool:
        """Write the value if it has changed; True if it was written. Raises MetastoreError."""
        lease, value = self._lease(), self._value()
        if not lease or not value or (lease, value) == self._written:
            return False
        await self._metastore.commit(Txn((), (Put(self._key, value, lease),)))
        self._written = lease, value
        return True


class TroubleReport(LeasedReport):
    """Troubles of a process; none of one in which nothing ever went wrong."""

    def __init__(
        self, metastore: Metastore, key: str, role: str, lease: Callable[[], int | None], background: Background
    ) -> None:
        def troubles() -> bytes:
            told = ProcessRecord(role, background.troubles(), background.defects, background.last_defect)
            is_news = told.troubles or told.defects or self._written
            return told.encode() if is_news and not background.is_registered else b""

        super().__init__(metastore, key, lease, troubles)
