"""Logs on stderr, one line an event, JSON unless a person is watching; and changes of their levels, which
servers write and every process follows.

Lines of libraries, of warnings and of what ends a process unexpectedly have the same form as ours. A line's
``module`` is the name of its logger, and levels are those of ``logging``: a module has the level of its nearest
ancestor that has one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.types import EventDict, Processor, WrappedLogger

from app.core.log_levels import (
    CHANGES_MAX,
    DEFAULTS,
    OTHERS,
    LineLevel,
    LogLevel,
    levels_now,
    next_end_ms,
    root_of,
)
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.visible import visible, visible_json
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read, readable
from rebalance.core.keyspace.txn import Delete, Put, Txn, as_read
from rebalance.metastore.guarded_update import commit_decided
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore

ENDED = "process ended by an exception"


def configure(process: str) -> None:
    """Call once, at the start of a process; ``process`` is in every line."""
    is_watched = sys.stderr.isatty()

    def name_process(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        # No context variable: threads that no request began have a context of their own.
        event["process"] = process
        return event

    shared: tuple[Processor, ...] = (
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        name_process,
        _name_module,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    )
    renderer: Processor = (
        structlog.dev.ConsoleRenderer() if is_watched else structlog.processors.JSONRenderer(json_text)
    )
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[ProcessorFormatter.remove_processors_meta, _on_one_line, renderer],
        )
    )
    logging.getLogger().handlers = [handler]
    set_levels({})
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_end
    threading.excepthook = _log_end_of_thread


def set_levels(changes: Mapping[str, LineLevel]) -> None:
    """``changes`` by module, on top of the defaults, and instead of what was set before."""
    levels = {**DEFAULTS, **changes}
    logging.getLogger().setLevel(OTHERS.name)
    for name, logger in tuple(logging.Logger.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and root_of(name) is not None:
            logger.setLevel(logging.NOTSET)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level.name)


def json_text(event: Any, **options: Any) -> str:
    return visible_json(json.dumps(event, ensure_ascii=False, **options))


def _name_module(logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    record = event.get("_record")
    event["module"] = logger.name if record is None else record.name
    return event


def _on_one_line(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Make control characters visible: libraries put received bytes into their messages, and terminals would
    obey them."""
    event["event"] = visible(str(event.get("event", "")))
    return event


def _log_end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        logging.getLogger(__name__).critical(ENDED, exc_info=(kind, error, trace))


def _log_end_of_thread(end: threading.ExceptHookArgs) -> None:
    if end.exc_value is not None and not isinstance(end.exc_value, SystemExit):
        trace = (end.exc_type, end.exc_value, end.exc_traceback)
        thread = None if end.thread is None else end.thread.name
        logging.getLogger(__name__).critical("thread ended by an exception: %s", thread, exc_info=trace)


log = structlog.get_logger(__name__)

SetLevels = Callable[[Mapping[str, LineLevel]], None]


def utc_now_ms() -> int:
    return time.time_ns() // 1_000_000


class LogLevelKeeper:
    """The ``logging/`` keys, for servers. All of it raises MetastoreError, and RecordNotReadableError where
    a key cannot be read."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace) -> None:
        self._metastore = metastore
        self._keyspace = keyspace

    async def read(self) -> dict[str, LogLevel]:
        """Read the changes that hold, by module."""
        snapshot = await self._metastore.range(self._keyspace.log_levels)
        now_ms = utc_now_ms()
        changes = {
            item.key.removeprefix(self._keyspace.log_levels): readable(item, LogLevel.decode)
            for item in snapshot.items
        }
        return {module: change for module, change in sorted(changes.items()) if change.holds(now_ms)}

    async def change(self, module: str, change: LogLevel) -> None:
        """Change the level of a module, in place of an earlier change. Raises RefusedError if too many hold
        already."""
        changes = await self.read()
        if module not in changes and len(changes) >= CHANGES_MAX:
            message = f"{CHANGES_MAX} modules have a changed level already: reset one of them"
            raise RefusedError(ErrorKind.INVALID_REQUEST, message)
        key = self._keyspace.log_level(module)
        lease = 0

        async def decide() -> tuple[None, Txn | None]:
            nonlocal lease
            item = await self._metastore.get(key)
            readable(item, LogLevel.decode)
            # Not before: a record that cannot be read leaves none behind.
            lasts_s = max(1, (change.until_ms - change.since_ms) // 1_000)
            lease = lease or await self._metastore.grant_lease(lasts_s)
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


class LogLevelFollower:
    """Follower that sets the levels of this process as the keys in ``mirror`` say, while the mirror runs.
    Without a metastore the levels stay as they were, until they end."""

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
