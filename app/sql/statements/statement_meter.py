"""Statements as they are counted: of which kind each is, how it ended, and how long its script took."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.metrics.outcomes import AnswerOutcome, outcome_of
from app.sql.statements.results import ScriptError
from catalog.core.messages import Command
from parser.queries import (
    Call,
    Ddl,
    DescribeTable,
    DescribeZone,
    ExplainDdl,
    ExplainPartition,
    Query,
    Show,
    Statement,
)
from rebalance.ports.metric_rows import NO_MEASURES, OTHER, Measures, Metric

SCRIPT = "SCRIPT"
"""The kind of several statements together that are not all of one kind."""


_WORDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (Query, "SELECT"),
    (Show, "SHOW"),
    ((DescribeZone, DescribeTable), "DESCRIBE"),
    ((ExplainDdl, ExplainPartition), "EXPLAIN"),
    (Call, "CALL"),
)


def kind_of(statement: Statement) -> str:
    """Kind of a statement as people call it: its first words."""
    if isinstance(statement, Ddl):
        return kind_of_type(type(statement.command))
    return next((word for types, word in _WORDS if isinstance(statement, types)), OTHER)


def kind_of_type(kind: type[Command]) -> str:
    """``CreateZone`` -> CREATE_ZONE."""
    name = kind.__name__
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in name).upper().lstrip("_")


@dataclass(slots=True)
class Measured:
    """``kinds``: of the statements, once they are read."""

    kinds: Sequence[str] = ()


class StatementMeter:
    """Counts each statement of a script, and takes the time of the script as a whole."""

    def __init__(self, measures: Measures = NO_MEASURES) -> None:
        self._measures = measures

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Measured]:
        """Measure one statement. A cancelled one, whose client has gone, is no outcome."""
        begun, measured = time.perf_counter(), Measured()
        try:
            yield measured
        except Exception as error:
            self._ended(measured, time.perf_counter() - begun, error)
            raise
        self._ended(measured, time.perf_counter() - begun, None)

    def _ended(self, measured: Measured, seconds: float, error: Exception | None) -> None:
        kinds = measured.kinds or (OTHER,)
        outcome, code = outcome_of(error)
        done = len(kinds) if error is None else 0
        if isinstance(error, ScriptError):
            done = min(len(error.results), len(kinds) - 1)
        for kind in kinds[:done]:
            self._measures.count(Metric.STATEMENTS, kind, AnswerOutcome.OK.value, "")
        if error is not None:
            at = getattr(error, "statement", None) or done + 1
            self._measures.count(Metric.STATEMENTS, kinds[min(at, len(kinds)) - 1], outcome.value, code)
        one = kinds[0] if len(set(kinds)) == 1 else SCRIPT
        self._measures.observe(Metric.STATEMENT_SECONDS, seconds, one, outcome.value)
