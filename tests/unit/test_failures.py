"""Failures that a node reports: which, for how long, and which of them are shown. Values alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import (
    ALL_MAX,
    CAUSE_MAX,
    NODE_MAX,
    Failing,
    Failure,
    FailureRecord,
    failure_after,
    newest,
    outdated,
)

P0 = PartitionId(ZoneId(1), 0)
REFUSED = Failing("REFUSED", "REFUSED: no", 3)


def at(ms: int, partition: int = 0, code: str = "REFUSED") -> Failure:
    failing = Failing(code, f"{code}: no", 3)
    return failure_after(None, PartitionId(ZoneId(1), partition), 5, failing, ms)


def lives(_: PartitionId) -> bool:
    return True


def test_what_is_told_is_the_failure() -> None:
    first = failure_after(None, P0, 5, REFUSED, 1_000)
    assert first == Failure(ZoneId(1), 0, "REFUSED", "REFUSED: no", 5, 3, 1_000, 1_000)
    again = failure_after(first, P0, 6, replace(REFUSED, attempt=6), 2_000)
    assert (again.since_ms, again.at_ms, again.attempt, again.term) == (1_000, 2_000, 6, 6)


def test_two_thousand_attempts_are_told_ten_times() -> None:
    told: list[Failure] = []
    for attempt in range(3, 2_001):
        failing = replace(REFUSED, attempt=attempt)
        if not told or told[-1].is_news(failing):
            told.append(failure_after(told[-1] if told else None, P0, 5, failing, attempt))
    assert [each.attempt for each in told] == [3 << doubled for doubled in range(10)]


@pytest.mark.parametrize(
    ("failing", "is_news"),
    [
        (REFUSED, False),
        (replace(REFUSED, attempt=5), False),
        (replace(REFUSED, attempt=6), True),
        (replace(REFUSED, cause="REFUSED: still no"), True),
        (replace(REFUSED, attempt=0), False),
    ],
)
def test_another_cause_is_news(failing: Failing, is_news: bool) -> None:
    assert failure_after(None, P0, 5, REFUSED, 1_000).is_news(failing) is is_news


def test_what_could_not_begin_is_told_once() -> None:
    blocked = Failing("NODE_DOWN", "NODE_DOWN: n2")
    assert not failure_after(None, P0, 5, blocked, 1_000).is_news(blocked)


def test_a_long_cause_is_cut_and_no_news_each_time() -> None:
    failing = replace(REFUSED, cause="x" * 10_000)
    told = failure_after(None, P0, 5, failing, 1_000)
    assert len(told.cause) == CAUSE_MAX
    assert not told.is_news(failing)


def test_the_same_failure_takes_one_place_and_another_one_a_further() -> None:
    first = at(1_000)
    later = replace(first, at_ms=9_000, attempt=12)
    other, anew = at(2_000, code="TIMED_OUT"), at(8_000)
    record = FailureRecord((other, first)).with_news((later, anew), lives)
    assert record.failures == (later, anew, other)


def test_a_node_tells_its_newest() -> None:
    record = FailureRecord()
    for number in range(3 * NODE_MAX):
        record = record.with_news((at(number, partition=number),), lives)
    assert [each.at_ms for each in record.failures] == list(range(3 * NODE_MAX - 1, 2 * NODE_MAX - 1, -1))


def test_partitions_that_are_no_more_are_not_told_of() -> None:
    record = FailureRecord((at(2_000, 1), at(1_000, 0)))
    assert record.with_news((at(3_000, 1),), lambda each: each == P0).failures == (at(1_000, 0),)


def test_what_is_shown_is_bounded_and_what_is_not_may_go() -> None:
    """However many nodes there ever were, records of no more than ``ALL_MAX`` of them stay."""
    records = {f"n{number:03d}": FailureRecord((at(number), at(1, 1))) for number in range(2 * ALL_MAX)}
    shown = newest(records)
    assert [each.at_ms for _, each in shown] == list(range(2 * ALL_MAX - 1, ALL_MAX - 1, -1))
    assert outdated(records) == [f"n{number:03d}" for number in range(ALL_MAX)]
    assert outdated({"n1": FailureRecord()}) == ["n1"]


def test_a_record_is_small() -> None:
    """A node's record stays far below what one value in etcd may have."""
    full = FailureRecord(
        tuple(
            failure_after(None, PartitionId(ZoneId(1), number), 5, Failing("REFUSED", "\0" * 10_000, 3), 1_000)
            for number in range(NODE_MAX)
        )
    )
    assert len(full.encode()) < 64 << 10
    assert FailureRecord.decode(full.encode()) == full
