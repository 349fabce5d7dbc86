"""One transaction at a time: what waits goes together, writes first."""

from __future__ import annotations

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import StorePosition
from rebalance.store.core.disk_changes import ClearBatch, DropCopy, KeepMark, KeepRows
from rebalance.store.core.disk_queue import DiskQueue, LogStored, StepStored

KEY = (ZoneId(1), 0)
OTHER = (ZoneId(1), 1)
STORED = LogStored(KEY, StorePosition(1, 1))


def mark(name: str) -> KeepMark:
    return KeepMark(name, b"")


def clear(size: int, partition: tuple[ZoneId, int] = KEY) -> ClearBatch:
    return ClearBatch(partition, StorePosition(1, 1), size)


def test_what_comes_meanwhile_waits_for_the_next_transaction() -> None:
    queue = DiskQueue(100)
    assert queue.take() is None
    queue.add(mark("a"), stored=STORED)
    first = queue.take()
    assert first is not None
    queue.add(mark("b"))
    queue.add(mark("c"))
    assert queue.take() is None
    assert queue.done(first.ticket + 1) == []
    assert queue.done(first.ticket) == [STORED]
    second = queue.take()
    assert second is not None
    assert second.changes == (mark("b"), mark("c"))
    assert not queue.is_settled
    assert queue.done(second.ticket) == []
    assert queue.is_settled


def test_bulk_goes_after_writes_and_as_far_as_it_fits() -> None:
    queue = DiskQueue(100)
    queue.add_bulk(clear(60), stored=StepStored(KEY, 1))
    queue.add_bulk(clear(40))
    queue.add_bulk(clear(1))
    queue.add(mark("a"))
    first = queue.take()
    assert first is not None
    assert first.changes == (mark("a"), clear(60), clear(40))
    assert queue.done(first.ticket) == [StepStored(KEY, 1)]
    queue.holds_bulk = True
    assert queue.take() is None
    queue.holds_bulk = False
    second = queue.take()
    assert second is not None
    assert second.changes == (clear(1),)


def test_bulk_of_a_copy_that_goes_is_dropped() -> None:
    queue = DiskQueue(100)
    queue.add_bulk(clear(1))
    queue.add_bulk(clear(2, OTHER))
    queue.add(DropCopy(KEY))
    transaction = queue.take()
    assert transaction is not None
    assert transaction.changes == (DropCopy(KEY), clear(2, OTHER))


def test_without_room_the_writes_go_alone() -> None:
    queue = DiskQueue(100)
    queue.add(mark("a"), stored=STORED)
    queue.add_bulk(clear(1))
    first = queue.take()
    assert first is not None
    assert queue.without_bulk(first.ticket)
    again = queue.take()
    assert again is not None
    assert again.changes == (mark("a"),)
    # Alone they must have room.
    assert not queue.without_bulk(again.ticket)


def test_bulk_waits_for_room() -> None:
    queue = DiskQueue(100)
    queue.add_bulk(clear(1))
    first = queue.take()
    assert first is not None
    assert queue.without_bulk(first.ticket)
    assert queue.take() is None
    queue.has_room = True
    again = queue.take()
    assert again is not None
    assert again.changes == (clear(1),)


def test_without_room_what_clears_is_tried_again_by_itself() -> None:
    queue = DiskQueue(100)
    queue.add_bulk(rows := KeepRows(OTHER, ()))
    first = queue.take()
    queue.add_bulk(clear(100))
    assert first is not None
    assert queue.without_bulk(first.ticket)
    assert queue.take() is None
    queue.try_clearing()
    again = queue.take()
    assert again is not None
    assert again.changes == (clear(100),)
    queue.done(again.ticket)
    assert queue.take() is None
    queue.has_room = True
    last = queue.take()
    assert last is not None
    assert last.changes == (rows,)


def test_writes_that_waited_for_bulk_go_alone_and_bulk_goes_again_after_them() -> None:
    queue = DiskQueue(100)
    for _ in range(3):
        queue.add_bulk(clear(100))
    queue.add(mark("a"))
    taken = []
    for name in ("b", "c", "d", "e"):
        transaction = queue.take()
        assert transaction is not None
        taken.append(transaction.changes)
        queue.add(mark(name))
        queue.done(transaction.ticket)
    assert taken == [(mark("a"), clear(100)), (mark("b"),), (mark("c"), clear(100)), (mark("d"),)]


def test_bulk_follows_bulk_while_nothing_is_written() -> None:
    queue = DiskQueue(100)
    queue.add_bulk(clear(100))
    queue.add_bulk(clear(99))
    for size in (100, 99):
        transaction = queue.take()
        assert transaction is not None
        assert transaction.changes == (clear(size),)
        queue.done(transaction.ticket)


def test_bulk_of_a_copy_that_went_while_it_was_written_is_not_tried_again() -> None:
    """There was no room for it."""
    queue = DiskQueue(100)
    rows = KeepRows(KEY, ())
    queue.add_bulk(rows, stored=StepStored(KEY, 1))
    queue.add_bulk(KeepRows(OTHER, ()))
    first = queue.take()
    assert first is not None
    queue.add(DropCopy(KEY))
    queue.add_bulk(KeepRows(OTHER, ()))
    assert queue.without_bulk(first.ticket)
    second = queue.take()
    assert second is not None
    assert second.changes == (DropCopy(KEY),)
    assert queue.done(second.ticket) == []
    queue.has_room = True
    third = queue.take()
    assert third is not None
    assert third.changes == (KeepRows(OTHER, ()), KeepRows(OTHER, ()))
