"""Logs on stderr: one line an event, JSON unless a person is watching.

Lines of libraries, of warnings and of what ends a process unexpectedly have the same form as ours. A line's
``module`` is the name of its logger, and levels are those of ``logging``: a module has the level of its nearest
ancestor that has one.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.types import EventDict, Processor, WrappedLogger

from app.core.log_levels import DEFAULTS, OTHERS, LineLevel, root_of
from catalog.core.visible import visible, visible_json

NUMBERS = {
    LineLevel.DEBUG: logging.DEBUG,
    LineLevel.INFO: logging.INFO,
    LineLevel.WARNING: logging.WARNING,
    LineLevel.ERROR: logging.ERROR,
}
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
    logging.getLogger().setLevel(NUMBERS[OTHERS])
    for name, logger in tuple(logging.Logger.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and root_of(name) is not None:
            logger.setLevel(logging.NOTSET)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(NUMBERS[level])


def json_text(event: Any, **options: Any) -> str:
    return visible_json(json.dumps(event, ensure_ascii=False, **options))


def _name_module(logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    record = event.get("_record")
    event["module"] = logger.name if record is None else record.name
    return event


def _on_one_line(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A library puts what it was sent into its messages, which a terminal would obey."""
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
