"""Changes of log levels: servers write them, and every process follows them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import structlog

from app.core.log_levels import CHANGES_MAX, LineLevel, LogLevel, levels_now, next_end_ms
from catalog.core.errors import ErrorKind, RefusedError
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read, readable
from rebalance.core.keyspace.txn import Delete, KeyValue, Put, Txn, as_read
from rebalance.metastore.guarded_update import commit_decided
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore

log = structlog.get_logger(__name__)

SetLevels = Callable[[Mapping[str, LineLevel]], None]


def utc_now_ms() -> int:
    return time.time_ns() // 1_000_000


class LogLevelKeeper:
    """The ``logging/`` keys, for servers. All of it raises MetastoreError, and RecordNotReadableError where
    nobody can tell what a key says."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace) -> None:
        self._metastore = metastore
        self._keyspace = keyspace

    async def read(self) -> dict[str, LogLevel]:
        """Those that hold, by module."""
        snapshot = await self._metastore.range(self._keyspace.log_levels)
        now_ms = utc_now_ms()
        changes = {self._module(item): readable(item, LogLevel.decode) for item in snapshot.items}
        return {module: change for module, change in sorted(changes.items()) if change.holds(now_ms)}

    async def change(self, module: str, change: LogLevel) -> None:
        """In place of an earlier one. Raises RefusedError where too many hold already."""
        changes = await self.read()
        if module not in changes and len(changes) >= CHANGES_MAX:
            message = f"{CHANGES_MAX} modules have a changed level already: reset one of them"
            raise RefusedError(ErrorKind.INVALID_REQUEST, message)
        key = self._keyspace.log_level(module)
        lease = await self._metastore.grant_lease(max(1, (change.until_ms - change.since_ms) // 1_000))

        async def decide() -> tuple[None, Txn | None]:
            item = await self._metastore.get(key)
            readable(item, LogLevel.decode)
            return None, Txn((as_read(key, item),), (Put(key, change.encode(), lease),))

        await commit_decided(self._metastore, decide)

    async def reset(self, module: str) -> bool:
        """False: it had no changed level."""
        key = self._keyspace.log_level(module)

        async def decide() -> tuple[bool, Txn | None]:
            item = await self._metastore.get(key)
            if readable(item, LogLevel.decode) is None:
                return False, None
            return True, Txn((as_read(key, item),), (Delete(key),))

        return (await commit_decided(self._metastore, decide))[0]

    def _module(self, item: KeyValue) -> str:
        return item.key.removeprefix(self._keyspace.log_levels)


class LogLevelFollower:
    """Sets the levels of this process to what the keys in ``mirror`` say, for as long as that runs. Without a
    metastore the levels stay what they were, to their end."""

    def __init__(self, mirror: KeyspaceMirror, keyspace: Keyspace, set_levels: SetLevels) -> None:
        self._mirror = mirror
        self._prefix = keyspace.log_levels
        self._set_levels = set_levels
        self._changes: dict[str, LogLevel] = {}
        self._levels: dict[str, LineLevel] = {}
        self._timer: asyncio.TimerHandle | None = None
        mirror.listen(self._on_keys)

    def _on_keys(self, changed: frozenset[str]) -> None:
        keys = [key for key in changed if key.startswith(self._prefix)]
        for key in keys:
            change = read(self._mirror.get(key), LogLevel.decode)
            if isinstance(change, Unreadable):
                # What was known of the module holds, to its end.
                log.warning("log level not readable", key=change.key, reason=change.reason)
            elif change is None:
                self._changes.pop(key, None)
            else:
                self._changes[key] = change
        if keys:
            self._apply()

    def _apply(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = utc_now_ms()
        named = ((key.removeprefix(self._prefix), change) for key, change in self._changes.items())
        levels = levels_now(named, now_ms)
        if levels != self._levels:
            self._set_levels(levels)
            self._levels = levels
            log.info("log levels", changed={module: level.value for module, level in sorted(levels.items())})
        end_ms = next_end_ms(self._changes.values(), now_ms)
        if end_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later((end_ms - now_ms) / 1_000 + 0.001, self._apply)
