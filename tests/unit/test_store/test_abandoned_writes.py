"""Writes that a client has given up, on store servers: each is applied before the one that abandons it, or
never; and a request whose client waits no more is dropped."""

from __future__ import annotations

import pytest

from rebalance.core.partition_maps.partition_map import NO_RECORD
from rebalance.store.core.store_check import check_copy
from rebalance.store.core.store_messages import KeyRead
from tests.fixtures.store_scene import ZONE, StoreScene


def value(scene: StoreScene, name: str) -> bytes | None:
    row = scene.disks[name].row((ZONE, 0), b"k")
    return row.value if row is not None else None


def test_a_late_write_finds_its_id_taken() -> None:
    scene = StoreScene("ab", ["ab"])
    later = scene.put("a", value="B", write="b", abandons=("a",))
    scene.exchange()
    late = scene.put("a", value="A", write="a")
    scene.exchange()
    assert [scene.code(later), scene.code(late)] == ["DONE", "CONFLICT"]
    assert scene.answers[late].abandoned
    assert value(scene, "a") == b"B"


def test_so_it_does_at_the_next_primary() -> None:
    """The copy that takes over has the ids with the write; its log, rows and ids belong together."""
    scene = StoreScene("ab", ["ab"])
    later = scene.put("a", value="B", write="b", abandons=("a", "a", "b"))
    scene.exchange()
    assert scene.code(later) == "DONE"
    scene.crash("a")
    scene.settle()
    late = scene.put("b", value="A", write="a")
    scene.exchange()
    assert scene.answers[late].abandoned
    assert value(scene, "b") == b"B"
    heads = scene.disks["b"].heads()
    assert [check_copy(scene.disks["b"], (ZONE, 0), heads[ZONE, 0]).defects] == [()]


def test_one_that_was_applied_before_is_not_abandoned() -> None:
    """A repetition is answered as done before, which is true: the later one has overwritten it."""
    scene = StoreScene("ab", ["ab"])
    early = scene.put("a", value="A", write="a")
    scene.exchange()
    scene.put("a", value="B", write="b", abandons=("a",))
    scene.exchange()
    again = scene.put("a", value="A", write="a")
    scene.exchange()
    assert scene.answers[again].repeated
    assert scene.answers[again].position == scene.answers[early].position
    assert value(scene, "a") == b"B"


def test_a_refused_write_abandons_nothing() -> None:
    scene = StoreScene("ab", ["ab"])
    scene.done("a", value="before")
    refused = scene.put("a", value="B", write="b", abandons=("a",), reads=[KeyRead(b"k", NO_RECORD)])
    scene.exchange()
    late = scene.put("a", value="A", write="a")
    scene.exchange()
    assert [scene.code(refused), scene.code(late)] == ["CONFLICT", "DONE"]
    assert value(scene, "a") == b"A"


def test_while_it_is_not_settled_that_a_write_is_abandoned_nobody_is_told_so() -> None:
    scene = StoreScene("ab", ["ab"])
    scene.put("a", value="B", write="b", abandons=("a",))
    late = scene.put("a", value="A", write="a")
    assert scene.code(late) == "UNKNOWN"


@pytest.mark.parametrize(("left_ms", "code"), [(500, ""), (60_000, "DONE"), (0, "DONE")])
def test_a_request_that_waits_is_dropped_when_its_client_has_given_up(left_ms: int, code: str) -> None:
    """An exchange lets it wait, for longer than the client does."""
    scene = StoreScene("ab", ["ab"])
    scene.announce("c")
    scene.hear()
    number = scene.put("a", left_ms=left_ms)
    assert scene.code(number) == ""
    scene.run(1_000)
    scene.settle()
    assert scene.code(number) == code
