"""Two builds side by side, for servers: who runs, and how the older level is ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.level import LEVEL
from rebalance.controllers.store_guard import StoreGuard
from rebalance.core.keyspace.epoch import level_in
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.txn import KeyValue, Put, Txn
from rebalance.core.keyspace.upgrade import OLDER_S, OlderBuild, RunningProcess, below, hindrances, running
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import LeaseLostError, Metastore, MetastoreError

log = structlog.get_logger(__name__)

LOOK_S = 2.0
NOTE_AGAIN_S = 60.0
IN_FORCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Upgrade:
    """``in_force``: the release level that formats are written at. ``level``: the one that finalising brings.
    ``hindrances``: why it cannot come yet, in words."""

    in_force: int
    level: int
    processes: tuple[RunningProcess, ...]
    hindrances: tuple[str, ...]

    @property
    def is_finalised(self) -> bool:
        return self.in_force >= self.level

    @property
    def refused(self) -> tuple[RunningProcess, ...]:
        """Processes that run, and may not any more."""
        return below(self.processes, self.in_force)


@dataclass(eq=False)
class UpgradeKeeper:
    """``raise_level`` makes the catalog one that older servers cannot write. ``mirror`` is one of the whole
    keyspace. ``level``: of this build."""

    metastore: Metastore
    keyspace: Keyspace
    mirror: KeyspaceMirror
    guard: StoreGuard
    raise_level: Callable[[int], Awaitable[None]]
    level: int = LEVEL

    def __post_init__(self) -> None:
        self._lease = 0
        self._noted = ""
        self._noted_s = 0.0

    @property
    def upgrade(self) -> Upgrade:
        """Return the upgrade as this server's mirror has it."""
        keys, mirror = self.keyspace, self.mirror
        shown = tuple(mirror.below(keys.nodes)), tuple(mirror.below(keys.processes))
        return self._of(mirror.get(keys.epoch), *shown, mirror.get(keys.older_build))

    async def run(self) -> None:
        """Notes older builds, until cancelled."""
        await self.mirror.loaded()
        while True:
            with suppress(MetastoreError):
                await self._note()
            await asyncio.sleep(LOOK_S)

    async def finalise(self) -> bool:
        """Brings the level of this build into force; False: it was. Done again after an interruption, it ends
        what it began: the catalog's part comes first, and every server takes the metastore's over from it.

        Raises RefusedError (UPGRADE_NOT_READY), StoreError while nothing may be written or the catalog does not
        answer, and MetastoreError."""
        self.guard.require_writable()
        keys = self.keyspace
        nodes = (await self.metastore.range(keys.nodes)).items
        processes = (await self.metastore.range(keys.processes)).items
        epoch, older = await self.metastore.get(keys.epoch), await self.metastore.get(keys.older_build)
        upgrade = self._of(epoch, nodes, processes, older)
        if upgrade.is_finalised:
            return False
        if upgrade.hindrances:
            message = f"level {self.level} is not finalised: {'; '.join(upgrade.hindrances)}"
            raise RefusedError(ErrorKind.UPGRADE_NOT_READY, message)
        await self.raise_level(self.level)
        await self.guard.check()
        log.warning("the upgrade is finalised", level=self.level)
        await self.mirror.wait_until(lambda: self.upgrade.is_finalised, IN_FORCE_S)
        return True

    def _of(
        self,
        epoch: KeyValue | None,
        nodes: Sequence[KeyValue],
        processes: Sequence[KeyValue],
        older: KeyValue | None,
    ) -> Upgrade:
        in_force = level_in(epoch.value if epoch is not None else None)
        known = running(nodes, processes, self.keyspace)
        reasons = (
            () if in_force >= self.level else hindrances(known, read(older, OlderBuild.decode), self.level)
        )
        return Upgrade(in_force, self.level, known, tuple(reasons))

    async def _note(self) -> None:
        """An older build that stops is remembered for a while: what restarts it may do so again. Raises
        MetastoreError."""
        upgrade = self.upgrade
        lower = below(upgrade.processes, self.level)
        if upgrade.is_finalised or not lower:
            return
        now_s = asyncio.get_running_loop().time()
        if str(lower[0]) == self._noted and now_s - self._noted_s < NOTE_AGAIN_S:
            return
        seen = OlderBuild(str(lower[0]), time.time_ns() // 1_000_000)
        before = read(self.mirror.get(self.keyspace.older_build), OlderBuild.decode)
        if isinstance(before, Unreadable):
            return
        await self._renew()
        await self.metastore.commit(Txn((), (Put(self.keyspace.older_build, seen.encode(), self._lease),)))
        self._noted, self._noted_s = str(lower[0]), now_s

    async def _renew(self) -> None:
        if self._lease:
            with suppress(LeaseLostError):
                await self.metastore.keep_lease(self._lease, OLDER_S)
                return
        self._lease = await self.metastore.grant_lease(OLDER_S)
