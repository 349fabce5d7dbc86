"""Copies of store servers that were away: what their disks say counts for, history or snapshot,
reservations."""

from __future__ import annotations

import pytest

from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyState
from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.exchange.core.exchange_messages import CopyId
from rebalance.store.core.store_limits import StoreLimits
from rebalance.store.core.store_messages import SupplyBatch, SupplyRequest, SupplyStage
from tests.fixtures.store_scene import ZONE, StoreScene

SHORT = StoreLimits(ttl_ms=60_000, log_keep=2, log_reserved=40)
"""The last two to four records of a log stay."""


def batches(scene: StoreScene, to: str) -> list[SupplyBatch]:
    return [
        flight.message
        for flight in scene.messages(SupplyBatch, to=to)
        if isinstance(flight.message, SupplyBatch)
    ]


@pytest.mark.row("PME-090", "PME-092", "PME-101", "PME-137")
def test_a_server_that_was_away() -> None:
    """PME-092: it comes back after updates that it missed. PME-090: its copies are MOVING in the full map,
    and filled after the exchange. PME-101: they take part in puts from now on, from the actual position.
    PME-137: those that missed nothing own, and it may lead them."""
    scene = StoreScene("abc", ("ab", "bc", "ca", "bc"))
    scene.fill()
    scene.crash("c")
    scene.settle()
    for number in range(3):
        scene.done("b", 1, f"late{number}")
    scene.holds(SupplyRequest)
    scene.announce("c")
    scene.exchange()
    (full,) = scene.fulls("4.0", "c") or scene.fulls("5.0", "c")
    assert full.maps[ZONE].states(1) == {"b": CopyState.OWNING, "c": CopyState.MOVING}
    assert full.maps[ZONE].states(2)["c"] is CopyState.OWNING
    assert full.positions[ZONE, 1].counter == 8
    assert full.maps[ZONE].reports(1)["c"].counter == 8
    assert scene.copy("c", 1).stream.counter == 8
    assert len(scene.keys("c", 1)) == 5
    put = scene.put("b", 1, "now")
    scene.exchange()
    assert scene.code(put) == "DONE"
    assert scene.copy("c", 1).stream.counter == 9
    scene.release()
    scene.settle()
    assert scene.primaries("a")[2] == "c"
    assert scene.keys("c", 1) == scene.keys("b", 1)
    assert len(scene.keys("c", 1)) == 9


@pytest.mark.row("PME-137")
def test_a_primary_is_found_among_fresh_copies_at_activation() -> None:
    """PME-137: a server comes back while the zones are at rest, with partition 1 outdated and 2 current: after
    activation copy 1 is MOVING there, its primary elsewhere, and it may lead 2."""
    scene = StoreScene("ab", ("ab", "ab", "ab"))
    for partition in (1, 2):
        scene.done("a", partition)
    scene.crash("a")
    scene.settle()
    scene.done("b", 1, "late")
    scene.custom(Trigger.DEACTIVATE)
    scene.settle()
    scene.join("a")
    scene.holds(SupplyRequest)
    scene.custom(Trigger.ACTIVATE)
    scene.exchange()
    assert scene.states("a", 1) == {"a": CopyState.MOVING, "b": CopyState.OWNING}
    assert scene.states("a", 2) == {"a": CopyState.OWNING, "b": CopyState.OWNING}
    assert scene.primaries("a")[1:] == ["b", "a"]


@pytest.mark.row("PME-137")
def test_a_tail_that_nobody_acknowledged_goes_at_activation() -> None:
    """PME-137: the server that comes back while the zone is at rest has as many records as the owner, and
    another last one: its copy is filled, and the zone is served."""
    scene = StoreScene("ab", ("ab",))
    scene.fill(2)
    scene.put("a", 0, "tail")
    scene.network.clear()
    scene.crash("a")
    scene.settle()
    scene.done("b", 0, "other")
    scene.custom(Trigger.DEACTIVATE)
    scene.settle()
    scene.join("a")
    scene.custom(Trigger.ACTIVATE)
    scene.settle()
    assert scene.primaries("b") == ["a"]
    assert scene.code(scene.get("a", 0, "other")) == "DONE"
    assert scene.keys("a") == scene.keys("b") == {"k0", "k1", "other"}


def test_a_first_write_that_nobody_acknowledged_goes() -> None:
    """The primary comes back with the only record that there ever was of the partition: its copy gives it up
    before it owns again."""
    scene = StoreScene("ab", ("ab",))
    scene.put("a", 0, "tail")
    scene.network.clear()
    scene.crash("a")
    scene.announce("a")
    scene.settle()
    assert scene.primaries("b") == ["a"]
    assert scene.done("a", 0, "new").code.label == "DONE"
    assert scene.keys("a") == scene.keys("b") == {"new"}


@pytest.mark.row("PME-052", "PME-053", "PME-055..057", "PME-091", "PME-102", "PME-103")
@pytest.mark.parametrize(("missed", "historical"), [(2, True), (9, False)])
def test_updates_are_replayed_or_the_copy_is_loaded(missed: int, historical: bool) -> None:
    """PME-052, PME-055: each server says in its single message from where its log can replay. PME-053: and
    where each copy is. PME-056, PME-103: a supplier whose log reaches back far enough. PME-057: only the
    missing updates are transferred. PME-091, PME-102: else the copy is cleared and loaded from the start."""
    scene = StoreScene("ab", ("ab",), limits=SHORT)
    scene.fill()
    scene.crash("b")
    scene.settle()
    for number in range(missed):
        scene.done("a", 0, f"late{number}")
    before, reach = len(scene.sent_messages), scene.disks["b"].heads()[ZONE, 0].log_start
    scene.announce("b")
    scene.holds(SupplyRequest)
    scene.exchange()
    version = scene.version("a")
    (message,) = scene.fulls(version, "b")
    (single,) = scene.singles(version, "b")
    copy = CopyId(ZONE, 0, "b")
    start = scene.copy("a").log_start
    assert single.maps[ZONE].copies[0].counter == 5
    assert single.history[ZONE, 0] == reach
    assert (start.counter <= 5) is historical
    assert (copy in message.suppliers) is historical
    assert (copy in message.reload) is not historical
    if historical:
        assert message.suppliers[copy].position.counter == 5
    scene.release()
    scene.settle()
    sent = [
        flight.message for flight in scene.sent_messages[before:] if isinstance(flight.message, SupplyBatch)
    ]
    records = [record.position.counter for batch in sent for record in batch.records]
    rows = [row for batch in sent for row in batch.rows]
    assert records == ([6, 7] if historical else [])
    assert len(rows) == (0 if historical else 14)
    assert {batch.stage for batch in sent} == (
        {SupplyStage.LOG} if historical else {SupplyStage.ROWS, SupplyStage.IDS}
    )
    assert scene.keys("b") == scene.keys("a")
    assert scene.own("b") is CopyState.OWNING


@pytest.mark.row("PME-054")
def test_a_log_is_reserved_while_a_copy_is_filled() -> None:
    """PME-054: it is cut again when the copy owns."""
    scene = StoreScene("ab", ("ab",), limits=SHORT)
    scene.fill()
    scene.crash("b")
    scene.settle()
    scene.done("a", 0, "late")
    start = scene.copy("a").log_start
    scene.announce("b")
    scene.holds(SupplyRequest)
    scene.exchange()
    for number in range(12):
        assert scene.done("a", 0, f"more{number}").code.label == "DONE"
    assert scene.copy("a").log_start == start
    assert len(scene.disks["a"].records((ZONE, 0), start, 1 << 30)) > 12
    scene.release()
    scene.settle()
    assert scene.own("b") is CopyState.OWNING
    for number in range(3):
        scene.done("a", 0, f"end{number}")
    assert scene.copy("a").log_start > start
    assert len(scene.disks["a"].records((ZONE, 0), NO_RECORD, 1 << 30)) <= 4
    assert scene.keys("b") == scene.keys("a")


@pytest.mark.row("PME-058", "PME-059")
def test_copies_are_what_their_disks_say_after_a_total_restart() -> None:
    """PME-058: each server finds the states of its copies on its disk, as often as it is started. PME-059:
    those that are missing are created."""
    scene = StoreScene("abc", ("ab", "bc", "ca", "bc"))
    scene.fill()
    for _ in range(2):
        for name in "abc":
            scene.crash(name)
        for name in "bca":
            scene.join(name)
        for number, nodes in enumerate(("ab", "bc", "ca", "bc")):
            owners = {name for name in "abc" if scene.own(name, number) is CopyState.OWNING}
            assert owners == set(nodes)
            for name in nodes:
                assert len(scene.keys(name, number)) == 5
    scene.set_targets(("abc", "bc", "ca", "bc"))
    scene.settle()
    assert len(scene.keys("c", 0)) == 5
