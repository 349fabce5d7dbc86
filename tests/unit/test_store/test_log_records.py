"""Positions, epoch tables, and what a copy's head says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyState, StorePosition, epoch_of
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.store.core.log_records import (
    CopyHead,
    EpochStart,
    EpochTable,
    KeyChange,
    LogRecord,
    WriteId,
    last_common,
    position_at,
)


def record(epoch: int, counter: int, previous: StorePosition) -> LogRecord:
    change = KeyChange(b"k", b"v")
    return LogRecord(WriteId(f"w{counter}"), StorePosition(epoch, counter), previous, 0, (change,))


def log(epochs: list[int]) -> list[StorePosition]:
    """One record each, in these epochs."""
    return [StorePosition(epoch, number) for number, epoch in enumerate(epochs, 1)]


def head_of(positions: list[StorePosition]) -> CopyHead:
    records = [
        record(item.epoch, item.counter, positions[index - 1] if index else NO_RECORD)
        for index, item in enumerate(positions)
    ]
    return CopyHead(CopyState.OWNING).appended(records)


def test_epochs_keep_the_order_of_versions() -> None:
    versions = [TopologyVersion(*item) for item in ((0, 0), (1, 0), (1, 7), (2, 0), (2**31 - 1, 2**32 - 1))]
    epochs = [epoch_of(item) for item in versions]
    assert epochs == sorted(epochs)
    assert epochs[-1] < 2**63
    assert str(StorePosition(epoch_of(TopologyVersion(6, 1)), 42)) == "6.1:42"
    with pytest.raises(ValueError, match="beyond"):
        epoch_of(TopologyVersion(2**31))


def test_a_record_that_does_not_follow_is_refused() -> None:
    head = head_of(log([1, 1, 3]))
    assert head.tail == StorePosition(3, 3)
    assert head.epochs == (EpochStart(1, 0), EpochStart(3, 2))
    for wrong in (
        record(3, 5, StorePosition(3, 4)),
        record(3, 4, StorePosition(2, 3)),
        record(3, 5, StorePosition(3, 3)),
    ):
        with pytest.raises(ValueError, match="follows"):
            head.appended([wrong])


EPOCHS = st.lists(st.integers(1, 3), max_size=6).map(sorted)


@given(EPOCHS, st.integers(0, 7))
def test_a_head_knows_every_position_of_its_log(epochs: list[int], counter: int) -> None:
    positions = log(epochs)
    head = head_of(positions)
    assert [position_at(head.epochs, item.counter) for item in positions] == positions
    for epoch in range(5):
        position = StorePosition(epoch, counter)
        assert head.holds(position) is (position in positions or position == NO_RECORD)


@given(EPOCHS, EPOCHS, st.integers(0, 6))
def test_where_two_logs_part(one: list[int], other: list[int], shared: int) -> None:
    """Against the dumb way. Both have the same first records; what each primary wrote later, the other has not:
    two logs never have a record of the same epoch and another counter."""
    first = sorted(one)[:shared]
    own, theirs = one[shared:], [epoch + 10 for epoch in other]
    own = [epoch + 20 for epoch in own]
    logs = log([*first, *sorted(own)]), log([*first, *sorted(theirs)])
    expected = [mine for mine, their in zip(*logs, strict=False) if mine == their]
    heads = [head_of(item) for item in logs]
    arguments = [(head.epochs, head.tail) for head in heads]
    common = last_common(*arguments[0], *arguments[1])
    assert common == (expected[-1] if expected else NO_RECORD)
    assert common == last_common(*arguments[1], *arguments[0])


def test_a_tail_of_a_dead_primary_is_not_common() -> None:
    """Epoch 5 wrote up to 11 there; here it ended at 10, and epoch 7 wrote one more."""
    there: EpochTable = (EpochStart(5, 0),)
    here: EpochTable = (EpochStart(5, 0), EpochStart(7, 10))
    assert last_common(there, StorePosition(5, 11), here, StorePosition(7, 11)) == StorePosition(5, 10)
    assert StorePosition(7, 11) > StorePosition(5, 11)
