"""Outcomes of statements and requests, in the words of the labels: the table of errors says who is at fault."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from catalog.core.errors import ErrorKind, StatementError
from rebalance.ports.metric_rows import Measures, Metric

SERVER_ERROR = 500


class AnswerOutcome(Enum):
    """REFUSED: the statement, the request or its sender is at fault, and not the installation."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"


def outcome_of(error: BaseException | None) -> tuple[AnswerOutcome, str]:
    """The outcome and the error's name, which is empty of what succeeded."""
    if error is None:
        return AnswerOutcome.OK, ""
    kind = error.kind if isinstance(error, StatementError) else ErrorKind.INTERNAL_ERROR
    return (AnswerOutcome.FAILED if kind.http_status >= SERVER_ERROR else AnswerOutcome.REFUSED), kind.name


@contextmanager
def measured_put(measures: Measures) -> Iterator[None]:
    """Measure the write of one value. A cancelled one, whose client has gone, is no outcome."""
    begun = time.perf_counter()
    try:
        yield
    except Exception as error:
        _ended(measures, time.perf_counter() - begun, error)
        raise
    _ended(measures, time.perf_counter() - begun, None)


def _ended(measures: Measures, seconds: float, error: Exception | None) -> None:
    outcome, code = outcome_of(error)
    measures.count(Metric.PUTS, outcome.value, code)
    measures.observe(Metric.PUT_SECONDS, seconds, outcome.value)
