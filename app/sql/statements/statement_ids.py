"""Ids under which the DDL of a logged statement goes into the catalog's history.

A context variable, because between the log (outermost) and the commit (innermost, in the worker thread) lie
engines that need not know of it: statements that run inside ``numbered`` commit under ids that the log can find
again after its server has died.
"""

from __future__ import annotations

import uuid
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass

from app.requests.context import holding
from catalog.store.statement_log import part_id


@dataclass
class _Parts:
    statement_id: str
    given: int = 0


_CURRENT: ContextVar[_Parts | None] = ContextVar("logged_statement", default=None)


def numbered(statement_id: str) -> AbstractContextManager[None]:
    """DDL inside the block, in the order of its execution, is ``part_id(statement_id, 1)``, 2, ..."""
    return holding(_CURRENT, _Parts(statement_id))


def next_statement_id() -> str:
    """The id of the DDL statement that is about to run; outside ``numbered`` a new one."""
    parts = _CURRENT.get()
    if parts is None:
        return uuid.uuid4().hex
    parts.given += 1
    return part_id(parts.statement_id, parts.given)


def current_statement_id() -> str:
    """Id of the logged statement that runs; empty outside of ``numbered``."""
    parts = _CURRENT.get()
    return parts.statement_id if parts is not None else ""
