"""Puts, reads and transactions of store servers around an exchange: on which version they run, who waits for
whom."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyState
from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.exchange.core.exchange_messages import LatchOpen
from rebalance.exchange.core.exchange_states import Phase
from rebalance.store.core.log_records import KeyChange, LogRecord, WriteId
from rebalance.store.core.store_effects import SendServer
from rebalance.store.core.store_messages import AppendRecords, KeyRead, RecordsStored, SupplyRequest
from tests.fixtures.examples import examples
from tests.fixtures.scene_surroundings import Flight
from tests.fixtures.store_scene import ZONE, StoreScene


def held_open(scene: StoreScene, partition: int = 0, key: str = "open") -> int:
    """A put that no backup acknowledges until messages are released."""
    primary = scene.primaries("a")[partition]
    assert primary is not None
    scene.holds(RecordsStored)
    number = scene.put(primary, partition, key)
    scene.exchange()
    assert scene.code(number) == ""
    return number


def _partition(flight: Flight) -> int:
    """That the message is about; -1 for messages of exchanges."""
    partition: tuple[int, int] = getattr(flight.message, "partition", (0, -1))
    return partition[1]


def phases(scene: StoreScene, names: str = "abc") -> list[Phase | None]:
    return [scene.phase(name) for name in names]


@pytest.mark.row("PME-038", "PME-039")
def test_an_operation_records_the_version_that_it_used() -> None:
    """PME-038. PME-039: with the topology future done it does not wait: it is carried out in the step that
    takes it, so nothing changes between its look at the future and its end; that step is the read lock."""
    scene = StoreScene()
    put = scene.done("b", 1)
    read = scene.answers[scene.get("b", 1)]
    assert [str(put.version), str(read.version)] == ["3.1", "3.1"]
    assert scene.phase("b") is None


@pytest.mark.row("PME-040", "PME-042")
def test_an_operation_that_comes_during_an_exchange() -> None:
    """PME-040: it waits without holding anything, and runs on the new version. PME-042: it goes on without
    being asked again."""
    scene = StoreScene()
    scene.custom(Trigger.AFFINITY_CHANGE)
    scene.hear("b")
    put = scene.put("b", 1)
    assert scene.code(put) == ""
    assert not scene.processes["b"].server.shared.pending
    scene.exchange()
    assert scene.code(put) == "DONE"
    assert str(scene.answers[put].version) == "3.2"


@pytest.mark.row("PME-041", "PME-043")
def test_updates_of_the_version_before_end_first() -> None:
    """PME-041: none of them completes after the full map was sent. PME-043: a put that is held delays the
    exchange on every server."""
    scene = StoreScene()
    put = held_open(scene)
    version = scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    assert phases(scene) == [Phase.RELEASE, Phase.LATCH, Phase.LATCH]
    scene.run(600)
    scene.exchange()
    assert phases(scene) == [Phase.RELEASE, Phase.LATCH, Phase.LATCH]
    assert not scene.fulls(version)
    scene.release()
    while not scene.code(put):
        assert not scene.fulls(version)
        scene.deliver()
    assert str(scene.answers[put].version) == "3.1"
    scene.exchange()
    assert {scene.version(name) for name in "abc"} == {version}


@pytest.mark.row("PME-047", "PME-048")
def test_the_latch() -> None:
    """PME-047: a server with an open update does not count down until that ended, one without counts down at
    once. PME-048: the latch opens when all servers have."""
    scene = StoreScene()
    put = held_open(scene, 1)
    scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    assert phases(scene) == [Phase.LATCH, Phase.RELEASE, Phase.LATCH]
    running = scene.worker("a").running
    assert running is not None
    assert running.counted == {"a", "c"}
    assert not running.latch_open
    scene.release()
    while not scene.code(put):
        assert running.counted == {"a", "c"}
        scene.deliver()
    scene.exchange()
    assert running.counted == {"a", "b", "c"}
    assert running.latch_open


@pytest.mark.row("PME-044")
def test_a_transaction_that_a_client_began() -> None:
    """PME-044: what it read lies with the client; its commit is at the primary, and is waited for there. A
    commit that comes later runs on the new version, where what it read is looked at again."""
    scene = StoreScene()
    row = scene.done("a", 0, "read").position
    assert row is not None
    scene.holds(RecordsStored)
    commit = scene.put("a", 0, "written", reads=[KeyRead(b"read", row)])
    scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    later = scene.put("a", 0, "other", reads=[KeyRead(b"written", NO_RECORD)])
    assert scene.phase("a") is Phase.RELEASE
    assert scene.code(commit) == scene.code(later) == ""
    scene.release()
    scene.exchange()
    assert scene.code(commit) == "DONE"
    assert str(scene.answers[commit].version) == "3.1"
    assert scene.code(later) == "CONFLICT"
    assert str(scene.answers[later].version) == "3.2"


@pytest.mark.row("PME-046", "PME-051")
def test_an_idle_transaction_is_rolled_back() -> None:
    """PME-046: it read something, does nothing, and blocks no exchange. PME-051: its commit is refused once
    it is too old, and the client is told why; one in time is done."""
    scene = StoreScene()
    row = scene.done("a", 0, "read").position
    assert row is not None
    scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    assert {scene.version(name) for name in "abc"} == {"3.2"}
    limit = scene.limits.transaction_age_ms
    old = scene.put("a", 0, "x", reads=[KeyRead(b"read", row)], age_ms=limit + 1)
    assert scene.code(old) == "TOO_OLD"
    assert scene.answers[old].detail == "a transaction ends within 60000 ms"
    young = scene.put("a", 0, "x", reads=[KeyRead(b"read", row)], age_ms=limit)
    scene.exchange()
    assert scene.code(young) == "DONE"


@pytest.mark.row("PME-050")
def test_a_commit_that_appears_after_the_latch() -> None:
    """PME-050: it is on the way to a backup's disk when the latch opens there: the second wait is for it,
    there is no second latch, and the single message follows, with it."""
    scene = StoreScene()
    scene.fill(1)
    version = scene.custom(Trigger.AFFINITY_CHANGE)
    scene.holds(LatchOpen, to="b")
    scene.exchange()
    assert scene.phase("b") is Phase.LATCH
    scene.processes["b"].disk_ms = (300, 300)
    tail = scene.copy("b").tail
    record = LogRecord(
        WriteId("late"), type(tail)(tail.epoch, tail.counter + 1), tail, 0, (KeyChange(b"late", b"v"),)
    )
    append = AppendRecords((ZONE, 0), scene.worker("b").held.basis, (record,), tail)
    scene.sent(scene.processes["a"], SendServer("b", scene.worker("b").order, append))
    scene.exchange()
    scene.release()
    scene.exchange()
    assert scene.phase("b") is Phase.PREPARE
    assert not scene.singles(version, "b")
    scene.run(300)
    (single,) = scene.singles(version, "b")
    assert single.maps[ZONE].copies[0].counter == tail.counter + 1
    assert scene.kinds("b", version).count("LATCH") == 1
    scene.settle()
    scene.all_equal()


@pytest.mark.row("PME-049")
@settings(deadline=None, max_examples=examples(120))
@given(st.integers(0, 2**32))
def test_after_the_latch_only_commits_appear(seed: int) -> None:
    """PME-049: in any order of steps, once the latch is open no server has an open update of an earlier
    version at its primary; backups may still be writing what they were sent."""
    rng = random.Random(seed)
    scene = StoreScene()
    puts = [scene.put(rng.choice("abc"), rng.randrange(4), f"k{number}") for number in range(5)]
    version = scene.custom(Trigger.AFFINITY_CHANGE)
    for process in scene.alive:
        process.disk_ms = rng.choice(((0, 0), (20, 90)))
    for _ in range(80):
        draw = rng.random()
        if draw < 0.2:
            scene.hear(rng.choice("abc"))
        elif draw < 0.7 and scene.network:
            flight = scene.network[rng.randrange(len(scene.network))]
            # Of two servers the first message arrives first.
            first = next(each for each in scene.network if (each.sender, each.to) == (flight.sender, flight.to))
            scene.deliver(scene.network.index(first))
        elif draw < 0.8:
            scene.run(rng.choice((5, 40)))
        else:
            puts.append(scene.put(rng.choice("abc"), rng.randrange(4), f"k{len(puts)}"))
        for process in scene.alive:
            running = process.server.worker.running if process.server.worker is not None else None
            if running is not None and running.latch_open and str(running.version) == version:
                behind = [each for each in scene.alive if scene.version(each.name) != version]
                assert not any(each.server.shared.pending for each in behind)
    scene.settle()
    scene.all_equal()
    assert all(scene.code(number) in ("DONE", "NOT_PRIMARY") for number in puts)


@pytest.mark.row("PME-129", "PME-130")
def test_an_exchange_waits_for_all_operations_that_were_let_in() -> None:
    """PME-129: several puts are open at once, and the exchange waits for each of them. PME-130: from then on
    it is alone: what comes waits until it has ended."""
    scene = StoreScene()
    first, second = held_open(scene, 0, "one"), held_open(scene, 3, "two")
    scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    third = scene.put("a", 0, "three")
    stored = [flight for flight in scene.held if flight.to == "a"]
    assert len(stored) == 2
    for flight, put in zip(stored, (first, second), strict=True):
        assert scene.phase("a") is Phase.RELEASE
        scene.held.remove(flight)
        scene.arrive(flight)
        assert scene.code(put) == "DONE"
    assert scene.phase("a") is not Phase.RELEASE
    assert scene.code(third) == ""
    scene.release()
    scene.exchange()
    assert scene.code(third) == "DONE"
    assert [str(scene.answers[number].version) for number in (first, second, third)] == ["3.1", "3.1", "3.2"]


@pytest.mark.row("PME-122", "PME-125", "PME-126")
@pytest.mark.parametrize("kind", ["join", "leave", "custom"])
def test_exchanges_that_wait_and_notifications_that_do_not(kind: str) -> None:
    """PME-125: hold join, leave and custom events until updates of the version before are over.

    PME-126: a notification of states finishes meanwhile, and blocks no put. PME-122: the one has an exchange
    id, the other has not.
    """
    scene = StoreScene("abcd", ("ab", "bc", "ca", "ab"))
    scene.fill(1)
    scene.holds(SupplyRequest)
    # The copy of partition 2 is filled at the end only, so that no switch is due.
    scene.set_targets(("ab", "bcd", "cad", "ab"))
    scene.exchange()
    (request,) = [flight for flight in scene.held if _partition(flight) == 1]
    number = held_open(scene)
    scene.holds_where(lambda flight: isinstance(flight.message, SupplyRequest) or _partition(flight) == 0)
    scene.arrive(request)
    while scene.own("d", 1) is not CopyState.OWNING:
        scene.exchange()
        for flight in [flight for flight in scene.held if _partition(flight) == 1]:
            scene.held.remove(flight)
            scene.arrive(flight)
    assert scene.states("c", 1)["d"] is CopyState.MOVING
    scene.run(200)
    assert len(scene.singles(None, "d")) == 1
    other = scene.put("b", 1, "other")
    scene.exchange()
    assert scene.states("c", 1)["d"] is CopyState.OWNING
    assert scene.code(other) == "DONE"
    assert scene.code(number) == ""
    if kind == "join":
        scene.announce("e")
    elif kind == "leave":
        scene.leave("d")
    else:
        scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    assert scene.phase("a") is Phase.RELEASE
    version = str(scene.worker("a").running.version)  # type: ignore[union-attr]  # it is in a phase
    assert not scene.fulls(version)
    scene.release()
    scene.settle()
    assert scene.code(number) == "DONE"
    assert scene.fulls(version)
