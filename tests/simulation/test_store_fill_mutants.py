"""Rules by which copies are filled, and what comes late is refused: a scene for each, stepped by hand, which
holds as it is, and breaks once the rule is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyState, StorePosition
from rebalance.exchange.core.exchange_states import Phase
from rebalance.store.core.copy_moves import CopyMoves
from rebalance.store.core.fill_work import FillWork
from rebalance.store.core.replication import Replication
from rebalance.store.core.ring_queue import RingQueue
from rebalance.store.core.shared_state import SharedState
from rebalance.store.core.store_messages import AppendRecords, SupplyBatch, SupplyRequest
from simulator.store import store_disk
from simulator.store.store_world import StoreRuleBrokenError, check_disk
from tests.fixtures.scene_surroundings import Flight
from tests.fixtures.store_scene import StoreScene

Patch = pytest.MonkeyPatch
EVERYTHING = StorePosition(1 << 62, 1 << 62)


def checked(scene: StoreScene) -> None:
    for name, disk in scene.disks.items():
        check_disk(name, disk)


def ended(scene: StoreScene, names: str) -> None:
    """Everything arrives, one more write is acknowledged, and the copies of partition 0 are equal and sound."""
    scene.release()
    try:
        scene.settle()
        primary = scene.primaries(names[0])[0]
        assert primary is not None
        last = scene.put(primary, 0, "last")
        scene.settle()
    except AssertionError as error:
        raise StoreRuleBrokenError(f"it never comes to rest: {error}") from error
    if scene.code(last) != "DONE":
        raise StoreRuleBrokenError(f"the last write is not acknowledged: {scene.code(last)}")
    checked(scene)
    logs = {name: scene.disks[name].records((ZoneId(1), 0), NO_RECORD, 1 << 30) for name in names}
    rows = [scene.disks[name].rows((ZoneId(1), 0), b"", 1 << 30) for name in names]
    if any(each != rows[0] for each in rows):
        raise StoreRuleBrokenError(f"copies differ: {rows} {logs}")


# Scenes


def rows_are_newer_than_the_stream_of_the_copy() -> None:
    """c is filled by a snapshot that has a write which is still on its way to c, and not acknowledged."""
    scene = StoreScene("abc", ("ab",))
    scene.fill()
    scene.holds_where(
        lambda flight: (
            (isinstance(flight.message, SupplyRequest) and flight.sender.name == "c")
            or (isinstance(flight.message, AppendRecords) and flight.to == "c")
        )
    )
    scene.set_targets(("abc",))
    scene.exchange()
    assert scene.own("c") is CopyState.MOVING
    write = scene.put("a", 0, "k0", "newer")
    scene.exchange()
    assert scene.code(write) == ""
    scene.release()
    scene.holds(AppendRecords, to="c")
    scene.exchange()
    assert "k0" in scene.keys("c")
    checked(scene)
    ended(scene, "abc")
    assert scene.code(write) == "DONE"


def history_comes_after_newer_writes_of_the_same_keys() -> None:
    """c was away for a put of k0; it has a newer one from its stream when it is sent that."""
    scene = StoreScene("abc", ("abc",))
    scene.fill()
    scene.crash("c")
    scene.settle()
    scene.done("a", 0, "k0", "missed")
    scene.holds(SupplyBatch, to="c")
    scene.announce("c")
    scene.exchange()
    assert scene.done("a", 0, "k0", "newer").code.label == "DONE"
    ended(scene, "abc")


def primary_dies_while_a_copy_has_writes_after_a_gap() -> None:
    """c, which is being filled, has the last write of a; b, which leads next, has not."""
    scene = StoreScene("abc", ("abc",))
    scene.fill()
    scene.crash("c")
    scene.settle()
    scene.done("a", 0, "missed")
    scene.holds(SupplyBatch, to="c")
    scene.announce("c")
    scene.exchange()
    scene.holds_where(lambda flight: isinstance(flight.message, SupplyBatch) or _is_append(flight, "b"))
    scene.put("a", 0, "k0", "on c alone")
    scene.exchange()
    scene.crash("a")
    scene.held.clear()
    ended(scene, "bc")


def writes_arrive_before_a_tail_is_dropped() -> None:
    """Bring a back with a write that no other server has; before it drops that, it gets a write of its
    successor."""
    scene = StoreScene("abc", ("abc",))
    scene.fill()
    scene.holds(AppendRecords, sender="a")
    scene.put("a", 0, "k0", "on a alone")
    scene.exchange()
    scene.crash("a")
    scene.release()
    scene.settle()
    scene.done("b", 0, "k1", "of b")
    scene.holds(SupplyBatch, to="a")
    scene.announce("a")
    scene.exchange()
    assert scene.own("a") is CopyState.MOVING
    assert scene.done("b", 0, "k2", "of b").code.label == "DONE"
    ended(scene, "abc")


def an_append_arrives_after_its_sender_is_gone() -> None:
    """Deliver an append at one of both backups, when the other one leads already."""
    scene, late = _with_a_late_append()
    scene.settle()
    scene.arrive(late)
    ended(scene, "bc")


def an_append_arrives_between_the_report_and_the_full_map() -> None:
    """c has said how far its log is; the append of the dead primary comes before the exchange has ended."""
    scene, late = _with_a_late_append()
    scene.until("c", Phase.SENT)
    scene.arrive(late)
    ended(scene, "bc")


def _with_a_late_append() -> tuple[StoreScene, Flight]:
    """The primary is gone, and its append to c is still on its way."""
    scene = StoreScene("abc", ("abc",))
    scene.fill()
    scene.holds_where(lambda flight: _is_append(flight, "b") or _is_append(flight, "c"))
    scene.put("a", 0, "k0", "late")
    scene.exchange()
    (late,) = [flight for flight in scene.held if flight.to == "c"]
    scene.held.clear()
    scene.crash("a")
    return scene, late


def _is_append(flight: Flight, to: str) -> bool:
    return isinstance(flight.message, AppendRecords) and flight.to == to


# Mutants


def _owns_whatever_its_stream_lacks(patch: Patch) -> None:
    reached = FillWork._reached

    def hasty(self: FillWork, copy: Any, filling: Any) -> None:
        filling.read_at = NO_RECORD
        reached(self, copy, filling)

    patch.setattr(FillWork, "_reached", hasty)


def _newer_rows_overwritten(patch: Patch) -> None:
    patch.setattr(store_disk, "later_row", lambda stored, arriving: arriving)


def _leftovers_kept(patch: Patch) -> None:
    patch.setattr(CopyMoves, "_has_leftovers", lambda self, copy: False)


def _tail_dropped_beyond_its_end(patch: Patch) -> None:
    drop = store_disk._drop_tail
    patch.setattr(
        store_disk, "_drop_tail", lambda stored, above, until, keys: drop(stored, above, EVERYTHING, keys)
    )


def _messages_of_the_dead_heard(patch: Patch) -> None:
    patch.setattr(RingQueue, "is_gone", lambda self, name, order: False)


def _appends_of_any_exchange(patch: Patch) -> None:
    """Take appends of older exchanges, too, and of a server that leads no more."""
    append = Replication.append

    def credulous(self: Replication, sender: str, message: AppendRecords) -> None:
        shared = self._shared
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SharedState, "primary", lambda self, partition: sender)
            append(self, sender, replace(message, basis=max(message.basis, shared.basis)))

    patch.setattr(Replication, "append", credulous)


def _appends_at_any_time(patch: Patch) -> None:
    patch.setattr(SharedState, "takes_records", property(lambda self: True))


def _both(*mutants: Callable[[Patch], None]) -> Callable[[Patch], None]:
    def all_of_them(patch: Patch) -> None:
        for mutant in mutants:
            mutant(patch)

    return all_of_them


SCENES: tuple[Callable[[], None], ...] = (
    rows_are_newer_than_the_stream_of_the_copy,
    history_comes_after_newer_writes_of_the_same_keys,
    primary_dies_while_a_copy_has_writes_after_a_gap,
    writes_arrive_before_a_tail_is_dropped,
    an_append_arrives_after_its_sender_is_gone,
    an_append_arrives_between_the_report_and_the_full_map,
)
LATE = _both(_messages_of_the_dead_heard, _appends_of_any_exchange)
LATE_REPORT = _both(_messages_of_the_dead_heard, _appends_at_any_time)
MUTANTS: dict[str, tuple[Callable[[Patch], None], Callable[[], None]]] = {
    "owns whatever its stream lacks": (
        _owns_whatever_its_stream_lacks,
        rows_are_newer_than_the_stream_of_the_copy,
    ),
    "newer rows overwritten": (_newer_rows_overwritten, history_comes_after_newer_writes_of_the_same_keys),
    "leftovers kept": (_leftovers_kept, primary_dies_while_a_copy_has_writes_after_a_gap),
    "tail dropped beyond its end": (_tail_dropped_beyond_its_end, writes_arrive_before_a_tail_is_dropped),
    "late append": (LATE, an_append_arrives_after_its_sender_is_gone),
    "append after the report": (LATE_REPORT, an_append_arrives_between_the_report_and_the_full_map),
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_holds(scene: Callable[[], None]) -> None:
    scene()


@pytest.mark.thorough("each scene holds above; this is of what it would find")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_left_out_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant, scene = MUTANTS[name]
    mutant(monkeypatch)
    with pytest.raises(StoreRuleBrokenError):
        scene()


@pytest.mark.parametrize(
    ("mutant", "scene"),
    [
        (_messages_of_the_dead_heard, an_append_arrives_after_its_sender_is_gone),
        (_messages_of_the_dead_heard, an_append_arrives_between_the_report_and_the_full_map),
        (_appends_of_any_exchange, an_append_arrives_after_its_sender_is_gone),
        (_appends_at_any_time, an_append_arrives_between_the_report_and_the_full_map),
    ],
)
def test_two_rules_refuse_what_comes_late(
    mutant: Callable[[Patch], None], scene: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either is enough: closed connections, and that no append is taken of or in another exchange."""
    mutant(monkeypatch)
    scene()
