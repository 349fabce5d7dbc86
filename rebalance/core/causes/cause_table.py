"""Groups of causes, and what to tell people of a cause."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from rebalance.core.causes.cause import Cause, CauseRow, Normality, told_cause

PAGE = "docs/causes.md"
RESET_AFTER_S = 60.0
"""An exchange ends, and a leader is elected, in less."""

_BEGINS = {
    "The installation": Cause.CATALOG_UNAVAILABLE,
    "A move that may not begin yet": Cause.INTENT_NOT_PUBLISHED,
    "A partition": Cause.NODE_DOWN,
    "A step of a move": Cause.CATCHING_UP,
    "A partition of a store zone": Cause.PARTITION_LOST,
    "One replica, as its node tells it": Cause.WAITING,
}
CAUSES: Mapping[Cause, CauseRow] = {
    cause: cause.value for cause in Cause if cause not in (Cause.NONE, Cause.OTHER)
}
_ORDER = tuple(CAUSES)
_PLACES = [*map(_ORDER.index, _BEGINS.values()), None]
CAUSE_GROUPS = {
    title: _ORDER[begin:end] for title, begin, end in zip(_BEGINS, _PLACES, _PLACES[1:], strict=False)
}
PERMITTED = frozenset(cause for cause, row in CAUSES.items() if row.normality is Normality.ASKED)
"""Causes that hold a move back because somebody has asked for it."""


def row_of(text: str) -> CauseRow | None:
    """The row for the cause ``text``; None: this build does not know it."""
    return CAUSES.get(told_cause(text))


def advice(text: str, alive: Collection[str], held_s: float) -> str:
    """Advice on the cause ``text`` of a partition, which has held for ``held_s``; empty: the cause is not known
    to this build. A remedy that loses data is added once no node that the cause names is ``alive``, and
    an exchange or an election would have ended."""
    row = row_of(text)
    if row is None:
        return ""
    named = set(re.findall(r"[\w.-]+", text.partition(": ")[2]))
    is_over = held_s >= RESET_AFTER_S and not named & set(alive)
    return f"{row.action} {row.last_resort}" if row.last_resort and is_over else row.action


def anchor(text: str) -> str:
    """Place of the page that explains ``text``, as ``docs/causes.md#node_down``; empty: it does not."""
    row = row_of(text)
    return f"{PAGE}#{told_cause(text).name.lower()}" if row is not None else ""


def words(text: str) -> str:
    """Words for what an ordinary cause waits for; empty for one that calls for somebody."""
    row = row_of(text)
    return row.words if row is not None else ""


def in_words(text: str) -> str:
    """``text`` for people: what an ordinary cause waits for, before its name. Others stay as they are."""
    said = words(text)
    return f"{said} [{text}]" if said else text
