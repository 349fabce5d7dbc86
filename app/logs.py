"""Structured logs on stderr: one line an event, JSON unless a person is watching."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import structlog

from catalog.core.visible import visible_json


def configure(process: str) -> None:
    """Call once, at the start of a process; ``process`` is in every line."""
    person = sys.stderr.isatty()
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if person else structlog.processors.JSONRenderer(json_text)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")


def json_text(event: Any, **options: Any) -> str:
    return visible_json(json.dumps(event, ensure_ascii=False, **options))
