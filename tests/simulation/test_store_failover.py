"""Coordinators of store servers that die: in each phase, alone or one after the other, and what comes of it."""

from __future__ import annotations

import pytest

from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.exchange.core.exchange_effects import Effect
from rebalance.exchange.core.exchange_messages import FullMessage, LatchCount, LatchOpen, SingleMessage
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.core.exchange_worker import ExchangeWorker
from rebalance.exchange.core.running_exchange import RunningExchange
from rebalance.store.core.store_inputs import RoomChanged
from rebalance.store.core.store_messages import RecordsStored, SupplyRequest
from tests.fixtures.scene_surroundings import FINISHED
from tests.fixtures.store_scene import ZONE, StoreScene

LISTS = ("abc", "bcd", "cda", "dab")
PHASES = (Phase.RELEASE, Phase.LATCH, Phase.PREPARE, Phase.COLLECT, Phase.COMMIT)


def held_in(scene: StoreScene, phase: Phase) -> None:
    """The coordinator a is in ``phase`` of an exchange."""
    match phase:
        case Phase.RELEASE:
            scene.holds(RecordsStored)
            scene.put("a", 0, "open")
        case Phase.LATCH:
            scene.holds(LatchCount, sender="d")
        case Phase.PREPARE:
            # What it keeps of the exchange before is on the way to its disk.
            scene.processes["a"].disk_ms = (5_000, 5_000)
            scene.custom(Trigger.AFFINITY_CHANGE)
            scene.exchange()
        case Phase.COLLECT:
            scene.holds(SingleMessage, sender="d")
        case _:
            scene.metastore.takes_results = False
    scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    assert scene.phase("a") is phase


@pytest.mark.row("PME-110")
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.value)
@pytest.mark.parametrize("deaths", ["a", "ab"])
def test_the_next_oldest_finishes(phase: Phase, deaths: str) -> None:
    """PME-110: the coordinator dies in each of its phases, and its successor too: the next oldest completes the
    exchange, all end with one map, and every write that was acknowledged is there."""
    scene = StoreScene("abcd", LISTS)
    scene.fill(2)
    held_in(scene, phase)
    for name in deaths:
        assert scene.metastore.ring.cluster.coordinator == name
        scene.crash(name)
    scene.release()
    scene.metastore.take_results()
    scene.settle()
    scene.all_equal()
    left = set("abcd") - set(deaths)
    assert {*scene.worker("d").held.maps[ZONE].nodes} == left
    assert scene.worker(min(left)).is_coordinator
    for number, nodes in enumerate(LISTS):
        assert scene.effective("d", number)[0] in left
        for name in left & set(nodes):
            assert scene.keys(name, number) >= {"k0", "k1"}


@pytest.mark.row("PME-110")
def test_a_result_that_was_committed_stands() -> None:
    """PME-110: the coordinator dies between the commit and its first full message: its successor comes upon the
    record, and ends the exchange as that says."""
    scene = StoreScene("abcd", LISTS)
    scene.fill(1)
    scene.unanswered.add("a")
    version = scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    stands = scene.metastore.results[-1]
    assert str(stands.exchange) == version
    assert not scene.fulls(version)
    scene.crash("a")
    scene.settle()
    scene.all_equal()
    records = [record for record in scene.metastore.results if str(record.exchange) == version]
    assert records in ([stands], [])
    assert scene.fulls(version, "c")
    assert scene.kinds("c", version).count(FINISHED) == 1


@pytest.mark.row("PME-001", "PME-110")
@pytest.mark.parametrize("reached", ["", "b", "c", "d", "cd", "bcd"])
def test_full_messages_that_reached_some(reached: str) -> None:
    """PME-110, PME-001: the coordinator died with its full messages on their way. If one has finished, all
    finish with that one: none takes back what it finished."""
    scene = StoreScene("abcd", LISTS)
    scene.holds(FullMessage)
    version = scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    for flight in [flight for flight in scene.held if flight.to in reached]:
        scene.arrive(flight)
    assert [name for name in "bcd" if scene.version(name) == version] == list(reached)
    scene.held.clear()
    scene.release()
    scene.crash("a")
    scene.settle()
    scene.all_equal()
    assert scene.version("d") == "5.0"
    for name in "bcd":
        finished = [step.version for step in scene.steps if (step.server, step.kind) == (name, FINISHED)]
        assert finished[-2:] == [version, "5.0"]


@pytest.mark.row("PME-110")
def test_a_message_of_the_coordinator_before_is_refused() -> None:
    """PME-110: it comes late, when the server has sent its map to the successor already."""
    scene = StoreScene("abcd", LISTS)
    scene.holds(FullMessage)
    version = scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    late = list(scene.held)
    scene.held.clear()
    scene.crash("a")
    scene.hear()
    for flight in late:
        scene.arrive(flight)
    assert {scene.phase(name) for name in "bcd"} == {Phase.SENT, Phase.COLLECT}
    assert version not in {scene.version(name) for name in "bcd"}
    scene.release()
    scene.settle()
    scene.all_equal()
    assert {*scene.worker("b").held.maps[ZONE].nodes} == set("bcd")


def latch_that_was_opened_for_some() -> None:
    """The successor's latch counts those that have passed."""
    scene = StoreScene("abcd", LISTS)
    scene.holds(LatchOpen)
    scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    for flight in [flight for flight in scene.held if flight.to == "c"]:
        scene.arrive(flight)
    assert scene.phase("c") is Phase.SENT
    assert scene.phase("b") is scene.phase("d") is Phase.LATCH
    scene.held.clear()
    scene.release()
    scene.crash("a")
    # Whatever c sends to its new coordinator is lost the first time.
    scene.hear("c")
    scene.network.clear()
    scene.settle()
    scene.all_equal()
    assert scene.version("d") == "5.0"


@pytest.mark.row("PME-048", "PME-110")
def test_a_latch_that_was_opened_for_some() -> None:
    """PME-110, PME-048."""
    latch_that_was_opened_for_some()


def server_that_comes_back_during_the_latch() -> None:
    """Fail one of two awaited servers and let it join again under its name: it is another server, which the
    latch does not await once the other one has counted."""
    scene = StoreScene("abcd", LISTS)
    scene.fill(1)
    scene.holds(LatchCount, to="a")
    scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    assert scene.phase("a") is Phase.LATCH
    scene.crash("d")
    scene.announce("d")
    scene.hear()
    assert scene.phase("a") is Phase.LATCH
    scene.release()
    scene.settle()
    scene.all_equal()
    assert scene.metastore.ring.cluster.version == scene.worker("a").held.version
    assert scene.version("d") == scene.version("a")


@pytest.mark.row("PME-066")
def test_a_server_that_comes_back_during_the_latch() -> None:
    """PME-066."""
    server_that_comes_back_during_the_latch()


@pytest.mark.row("PME-110")
def test_a_count_for_the_server_that_had_the_name_before() -> None:
    """The coordinator dies and comes back under its name as the youngest: what was sent to the one before
    does not reach it."""
    scene = StoreScene("abcd", LISTS)
    scene.holds(LatchCount)
    scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    assert scene.messages(LatchCount, to="a")
    scene.crash("a")
    scene.announce("a")
    scene.release()
    scene.settle()
    scene.all_equal()
    assert scene.worker("b").is_coordinator
    assert scene.version("a") == scene.version("d")


@pytest.mark.row("PME-138")
def test_the_wait_list_of_a_new_coordinator() -> None:
    """PME-138: it follows from what every server holds: after the coordinator died the switch is asked for all
    the same, by its successor, when the last late primary is ready."""
    scene = StoreScene("abcd", ("ab", "bc", "cb", "bc"))
    scene.fill()
    scene.holds(SupplyRequest)
    scene.set_targets(("ab", "bc", "cb", "db"))
    scene.exchange()
    waiting = scene.worker("a").held.late
    assert waiting == {(ZONE, 3): "d"}
    assert scene.worker("b").held.late == waiting
    scene.crash("a")
    scene.exchange()
    assert scene.worker("b").held.late == waiting
    scene.release()
    before = len(scene.metastore.events)
    scene.settle()
    assert Trigger.AFFINITY_CHANGE in scene.triggers(before)
    assert scene.primaries("b")[3] == "d"


@pytest.mark.row("PME-001", "PME-016")
def test_lost_and_repeated_messages() -> None:
    """PME-001, PME-016: whatever is lost is sent again until it has arrived, what comes twice counts once."""
    scene = StoreScene("abcd", LISTS)
    version = scene.custom(Trigger.AFFINITY_CHANGE)
    lost: set[tuple[str, str, str]] = set()
    for _ in range(60):
        scene.hear()
        while scene.network:
            flight = scene.network.pop(0)
            kind = (flight.sender.name, flight.to, type(flight.message).__name__)
            if kind in lost:
                scene.arrive(flight)
                scene.arrive(flight)
            lost.add(kind)
        scene.run(100)
    scene.settle()
    scene.all_equal()
    for name in "abcd":
        assert scene.kinds(name, version).count(FINISHED) == 1
    assert ("b", "a", "SingleMessage") in lost
    assert ("a", "d", "FullMessage") in lost


@pytest.mark.row("PME-122")
def test_an_old_answer_of_an_earlier_exchange() -> None:
    """PME-122: a single map that comes after its exchange is answered with how that ended, and changes
    nothing."""
    scene = StoreScene()
    version = scene.custom(Trigger.AFFINITY_CHANGE)
    scene.exchange()
    (flight,) = [
        flight for flight in scene.messages(SingleMessage, "b") if flight.message in scene.singles(version)
    ]
    before, others = scene.worker("a").held, scene.worker("b").held
    scene.arrive(flight)
    assert scene.worker("a").held is before
    (answer,) = scene.network
    assert answer.to == "b"
    assert isinstance(answer.message, FullMessage)
    assert answer.message.exchange is not None
    scene.exchange()
    assert scene.worker("b").held is others


def _latch_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open the latch at once, without waiting for any server's updates."""
    monkeypatch.setattr(RunningExchange, "counters_of_latch", lambda self, cluster: frozenset())


def _names_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that comes back under its name is taken for the one that went."""
    monkeypatch.setattr(
        RunningExchange,
        "counters_of_latch",
        lambda self, cluster: frozenset(self.before.servers.keys() & cluster.servers.keys()),
    )


def test_a_latch_that_waits_for_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _latch_for_nobody(monkeypatch)
    with pytest.raises(AssertionError):
        held_in(StoreScene("abcd", LISTS), Phase.LATCH)


def test_a_latch_that_knows_names_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _names_only(monkeypatch)
    with pytest.raises(AssertionError):
        server_that_comes_back_during_the_latch()


def _own_outcome_over_a_committed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """End an exchange whose result another server recorded with this server's own outcome."""

    def result_exists(self: ExchangeWorker, records: object) -> list[Effect]:
        running = self.running
        return self.result_kept(running.last_version) if running is not None else []

    monkeypatch.setattr(ExchangeWorker, "result_exists", result_exists)


def test_an_outcome_over_a_committed_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _own_outcome_over_a_committed_one(monkeypatch)
    with pytest.raises(AssertionError):
        test_a_result_that_was_committed_stands()


def test_a_put_that_a_full_disk_refuses_says_whose_and_what_to_do() -> None:
    """Refuse a put into a partition with a copy on a full disk, naming the disk's server and the remedy; reads
    and other partitions go on."""
    scene = StoreScene("abc", ("ab", "ca"))
    scene.processes["b"].give(RoomChanged(has_room=False))
    scene.exchange()
    answer = scene.answers[scene.put("a", 0)]
    assert answer.code.label == "NO_ROOM"
    assert answer.detail == (
        "no room on the disk of b: free space there, or drain the node with `zonectl node drain`; "
        "reads go on, and writes will by themselves"
    )
    assert scene.code(scene.get("a", 0)) == "DONE"
    assert scene.done("c", 1).code.label == "DONE"
    scene.processes["b"].give(RoomChanged(has_room=True))
    scene.exchange()
    assert scene.done("a", 0).code.label == "DONE"
