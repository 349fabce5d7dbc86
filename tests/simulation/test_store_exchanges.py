"""Exchanges of store servers from event to full map: who takes part, in which order, what everybody holds
then."""

from __future__ import annotations

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.core.partition_maps.topology_version import Trigger, ZoneSpec
from rebalance.exchange.core.exchange_messages import FullMessage, LatchCount, SingleMessage
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.core.late_affinity import ZoneAffinity
from rebalance.store.core.store_messages import SupplyRequest
from tests.fixtures.scene_surroundings import FINISHED
from tests.fixtures.store_scene import ZONE, StoreScene

OTHER = ZoneId(2)
PHASES = ["INIT", "TOPOLOGY", "RELEASE", "LATCH", "COMMITS", "PREPARE"]


@pytest.mark.row("PME-001")
def test_all_servers_hold_one_map_after_each_exchange() -> None:
    """PME-001."""
    scene = StoreScene()
    scene.all_equal()
    scene.crash("b")
    scene.settle()
    scene.all_equal()
    scene.join("d")
    scene.all_equal()
    assert {*scene.worker("a").held.maps[ZONE].nodes} == {"a", "c", "d"}


@pytest.mark.row("PME-002")
def test_a_join_begins_when_the_server_is_in_the_ring() -> None:
    """PME-002: it beats and may be reached before; the exchange begins with the event, on each server that
    hears of it."""
    scene = StoreScene("ab", ("ab", "ba"))
    scene.start("c")
    scene.settle()
    assert ("c", scene.processes["c"].incarnation) in scene.metastore.heartbeats
    assert scene.phase("a") is scene.phase("b") is None
    assert scene.version("a") == "2.1"
    scene.kill("c")
    scene.announce("c")
    scene.hear("a")
    assert scene.phase("a") is Phase.LATCH
    assert scene.phase("b") is None
    scene.settle()
    assert {scene.version(name) for name in "abc"} == {"3.0"}


@pytest.mark.row("PME-003", "PME-025", "PME-027")
def test_a_client_joins_the_ring() -> None:
    """PME-003, PME-027: on servers the version changes and nothing else, and puts go on. PME-025: the
    exchange is of the type NONE, which is determined in its beginning; those of servers are ALL throughout."""
    scene = StoreScene()
    scene.fill(1)
    before, sent = scene.worker("a").held, len(scene.sent_messages)
    version = scene.client_joins("k")
    scene.hear()
    assert len(scene.sent_messages) == sent
    for name in "abc":
        assert [
            (step.kind, step.type) for step in scene.steps if (step.server, step.version) == (name, version)
        ] == [
            ("INIT", "NONE"),
            (FINISHED, ""),
        ]
    assert scene.version("b") == version == "4.0"
    assert scene.worker("a").held.maps is before.maps
    assert scene.done("a", 0, "after").code.label == "DONE"
    scene.custom(Trigger.AFFINITY_CHANGE)
    scene.settle()
    of_servers = [step for step in scene.steps if step.version != version and step.kind != FINISHED]
    assert {step.type for step in of_servers} == {"ALL"}


@pytest.mark.row("PME-004")
def test_a_server_that_leaves_starts_an_exchange() -> None:
    """PME-004."""
    scene = StoreScene()
    scene.leave("c")
    scene.settle()
    assert Trigger.NODE_LEFT in scene.triggers()
    assert len(scene.singles("4.0", "b")) == 1
    assert scene.fulls("4.0", "b")
    assert {*scene.worker("b").held.maps[ZONE].nodes} == {"a", "b"}


@pytest.mark.row("PME-006")
def test_a_killed_server() -> None:
    """PME-006: nothing until it was detected, an exchange afterwards."""
    scene = StoreScene()
    scene.kill("c")
    scene.settle()
    assert scene.version("a") == "3.1"
    scene.fail("c")
    scene.settle()
    assert scene.version("a") == scene.version("b") == "4.0"
    assert scene.singles("4.0", "b")


@pytest.mark.row("PME-007", "PME-008")
def test_activation_and_deactivation() -> None:
    """PME-008, PME-007: an exchange of all servers each; while inactive no zone has a map, and nothing is
    served."""
    scene = StoreScene("ab", ("ab", "ba"))
    scene.fill(1)
    off = scene.custom(Trigger.DEACTIVATE)
    scene.settle()
    assert scene.fulls(off, "b")
    assert not scene.worker("b").held.maps
    assert scene.code(scene.get("a")) == "RESTING"
    on = scene.custom(Trigger.ACTIVATE)
    scene.settle()
    assert scene.fulls(on, "b")
    assert scene.states("b") == {"a": CopyState.OWNING, "b": CopyState.OWNING}
    assert scene.code(scene.get("a", 0, "k0")) == "DONE"


@pytest.mark.row("PME-009", "PME-136")
def test_other_nodes_shall_keep_the_data() -> None:
    """PME-009: a change of a zone's nodes starts an exchange. PME-136: every partition has the same primary
    when it ends, and those that have puts open, or get some meanwhile, go on with them; the primary of the new
    lists comes later."""
    lists = ("ca", "cb", "ba", "ba", "c")
    scene = StoreScene("abc", ("ab", "ba", "ab", "ba", "ab"))
    scene.fill()
    before = scene.primaries("a")
    assert before == ["a", "b", "a", "b", "a"]
    scene.holds(SupplyRequest)
    open_puts = [scene.put(name, number, "open") for number, name in enumerate("ababa")]
    scene.set_targets(lists)
    scene.hear()
    more = [scene.put(name, number, "more") for number, name in enumerate("ababa")]
    scene.exchange()
    (first,) = scene.fulls("3.2", "b")
    scene.all_equal()
    when_it_ends = ZoneAffinity.from_diff(tuple(map(tuple, lists)), first.affinity_diff[ZONE])
    assert [when_it_ends.primary(number) for number in range(5)] == before
    for puts, version in ((open_puts, "3.1"), (more, "3.2")):
        assert [(scene.code(number), str(scene.answers[number].version)) for number in puts] == [
            ("DONE", version)
        ] * 5
    scene.release()
    scene.settle()
    assert scene.primaries("a") == ["c", "c", "b", "b", "c"]


@pytest.mark.row("PME-010", "PME-011", "PME-020", "PME-030")
def test_a_zone_starts_and_stops() -> None:
    """PME-010, PME-011, PME-020: minor versions. PME-030: while it stops, new requests for it fail at once;
    those for others only wait."""
    scene = StoreScene()
    scene.start_zone(("ab", "bc", "ca"), OTHER)
    scene.settle()
    assert scene.version("c") == "3.2"
    held = scene.worker("c").held
    assert all(len(held.maps[OTHER].owners(number)) == 2 for number in range(3))
    assert scene.custom(Trigger.ZONE_STOP, OTHER) == "3.3"
    scene.hear("a")
    assert scene.phase("a") is Phase.LATCH
    refused, waiting = scene.put("a", zone=OTHER), scene.put("a")
    assert scene.code(refused) == "NO_ZONE"
    assert scene.code(waiting) == ""
    scene.settle()
    assert OTHER not in scene.worker("b").held.maps
    assert not [key for key in scene.processes["b"].server.shared.copies if key[0] == OTHER]
    assert scene.code(waiting) == "DONE"


@pytest.mark.row("PME-015")
@pytest.mark.parametrize(
    "trigger",
    [Trigger.SNAPSHOT_CREATE, Trigger.SNAPSHOT_RESTORE, Trigger.LOG_SWITCH, Trigger.AFFINITY_CHANGE],
    ids=lambda trigger: trigger.value,
)
def test_custom_events_run_to_the_end(trigger: Trigger) -> None:
    """PME-015: a full exchange with the next minor version; snapshots and log switches, which nothing asks
    for yet, would be the same."""
    scene = StoreScene()
    version = scene.custom(trigger)
    scene.exchange()
    assert version == "3.2"
    assert {scene.version(name) for name in "abc"} == {version}
    assert [len(scene.singles(version, name)) for name in "abc"] == [0, 1, 1]
    scene.all_equal()


@pytest.mark.row("PME-016", "PME-018", "PME-061", "PME-099")
def test_one_single_message_from_each_and_one_full_message_to_each() -> None:
    """PME-016, PME-018, PME-061: send single messages from server to server to the coordinator.

    PME-099: one full message goes to every server that took part; one that failed meanwhile gets none, and is
    not waited for.
    """
    scene = StoreScene("abcd")
    version = scene.custom(Trigger.AFFINITY_CHANGE)
    scene.hear()
    scene.crash("d")
    scene.exchange()
    for name in "bc":
        assert len(scene.singles(version, name)) == 1
        assert len(scene.fulls(version, name)) == 1
        assert {flight.to for flight in scene.messages(SingleMessage, name)} == {"a"}
    assert not scene.singles(version, "a")
    assert not scene.fulls(version, "d")
    assert {scene.version(name) for name in "abc"} == {"5.0"}


@pytest.mark.row("PME-017", "PME-018", "PME-064", "PME-066", "PME-098")
def test_nobody_finishes_before_the_full_message() -> None:
    """PME-018, PME-066: one withheld single message keeps all of them waiting; the list of those that are
    waited for is visible and shrinks (PME-064). PME-017, PME-098: then the full map is the union of the
    single maps and of the coordinator's own."""
    scene = StoreScene()
    scene.fill(2)
    version = scene.custom(Trigger.AFFINITY_CHANGE)
    scene.holds(SingleMessage, sender="c")
    scene.exchange()
    assert scene.phase("a") is Phase.COLLECT
    assert scene.awaited("a") == "c"
    assert scene.phase("b") is scene.phase("c") is Phase.SENT
    assert not scene.fulls(version)
    lists = [
        step.awaited
        for step in scene.steps
        if (step.server, step.version, step.kind) == ("a", version, "COLLECT")
    ]
    assert lists == [{"b", "c"}, {"c"}]
    scene.release()
    scene.exchange()
    scene.all_equal()
    (message,) = scene.fulls(version, "b")
    union = {single.sender: single.maps[ZONE].copies for single in scene.singles(version)}
    assert {"a": scene.worker("a").held.maps[ZONE].nodes["a"], **union} == message.maps[ZONE].nodes


@pytest.mark.row("PME-066")
def test_a_failed_server_is_not_waited_for() -> None:
    """PME-066: it leaves the list."""
    scene = StoreScene()
    scene.custom(Trigger.AFFINITY_CHANGE)
    scene.kill("c")
    scene.exchange()
    assert scene.phase("a") is Phase.LATCH
    scene.fail("c")
    scene.exchange()
    assert scene.version("a") == scene.version("b") == "4.0"
    scene.all_equal()


@pytest.mark.row("PME-021", "PME-022", "PME-023", "PME-024", "PME-127")
def test_queue_and_order() -> None:
    """PME-021: each server has a queue, and its length is visible, from its first event to its last. PME-022,
    PME-127: its order is that of the ring, on all servers. PME-023: one exchange at a time. PME-024:
    initialised first, distributed afterwards."""
    scene = StoreScene()
    for _ in range(3):
        scene.custom(Trigger.AFFINITY_CHANGE)
    scene.holds(FullMessage)
    for heard, name in enumerate("abc", 1):
        scene.hear(name)
        assert [len(scene.worker(each).queue) for each in "abc"] == [2] * heard + [0] * (3 - heard)
        assert [str(event.version) for event, _ in scene.worker(name).queue] == ["3.3", "3.4"]
    for waiting in (1, 0):
        scene.exchange()
        # The coordinator has finished, and begun the next one; the others wait for its full message.
        assert [len(scene.worker(name).queue) for name in "abc"] == [waiting, waiting + 1, waiting + 1]
        held, scene.held = scene.held, []
        for flight in held:
            scene.arrive(flight)
        assert [len(scene.worker(name).queue) for name in "abc"] == [waiting] * 3
    scene.release()
    scene.settle()
    assert not any(scene.worker(name).queue for name in "abc")
    for name in "abc":
        mine = [step for step in scene.steps if step.server == name and step.version >= "3.2"]
        assert [step.version for step in mine if step.kind == "INIT"] == ["3.2", "3.3", "3.4"]
        assert [step.version for step in mine if step.kind == FINISHED] == ["3.2", "3.3", "3.4"]
        for version in ("3.2", "3.3", "3.4"):
            assert scene.kinds(name, version)[:6] == PHASES
        running = 0
        for step in mine:
            running += (step.kind == "INIT") - (step.kind == FINISHED)
            assert running in (0, 1)


@pytest.mark.row("PME-029", "PME-031", "PME-032", "PME-086")
def test_a_joining_server_brings_a_zone() -> None:
    """PME-031: have a joining server's zone on all others after the exchange.

    PME-032: on the joining server all zones are there when its exchange ends, and none before its beginning.
    PME-029: copies of them are made before its map is sent. PME-086: it is a backup at first where the ideal
    list says primary, although the partition had no primary before.
    """
    scene = StoreScene("ab", ("ab", "ba"))
    revision = scene.metastore.set_targets({OTHER: (("c", "a"), ("b", "c"))})
    scene.bring("c", ZoneSpec(OTHER, 2, 2, targets=revision))
    assert not scene.processes["c"].server.shared.copies
    assert scene.code(scene.get("a", zone=OTHER)) == "NO_ZONE"
    scene.exchange()
    for name in "abc":
        assert {*scene.worker(name).held.maps} == {ZONE, OTHER}
    (single,) = scene.singles("3.0", "c")
    assert {*single.maps} == {ZONE, OTHER}
    assert {*single.maps[OTHER].copies} == {0, 1}
    assert scene.fulls("3.0", "c")[0].joined_affinity[OTHER] == (("a", "c"), ("b", "c"))
    assert scene.code(scene.get("c", zone=OTHER)) == "DONE"
    assert scene.answers[scene.get("c")].primary == "a"


@pytest.mark.row("PME-029")
@pytest.mark.parametrize("trigger", [Trigger.ZONE_START, Trigger.ACTIVATE], ids=lambda trigger: trigger.value)
def test_copies_are_there_before_anybody_has_lists(trigger: Trigger) -> None:
    """PME-029: on each server, when a zone starts and when it is activated; lists come with the full map."""
    lists = ("ab", "bc", "ca")
    scene = StoreScene("abc", lists)
    if trigger is Trigger.ZONE_START:
        zone = scene.start_zone(lists, OTHER).zone_id
    else:
        zone = ZONE
        scene.custom(Trigger.DEACTIVATE)
        scene.settle()
        scene.custom(trigger)
    scene.holds(SingleMessage)
    scene.exchange()
    assert [scene.phase(name) for name in "abc"] == [Phase.COLLECT, Phase.SENT, Phase.SENT]
    for name in "abc":
        assert zone not in scene.worker(name).held.affinities
        copies = [scene.own(name, number, zone) for number in range(3)]
        assert [copy is not None for copy in copies] == [name in nodes for nodes in lists]
    scene.release()
    scene.exchange()
    assert [scene.effective("c", number, zone) for number in range(3)] == list(lists)


@pytest.mark.row("PME-034", "PME-035", "PME-112")
def test_ideal_lists_are_there_before_the_second_phase() -> None:
    """PME-034, PME-035: on the coordinator and on the others, before anything is sent: no event is handed to
    the exchange without its lists. PME-112: at 3.1 -> 4.0 the ideal lists change by the partitions of the
    joining server."""
    scene = StoreScene("abc", ("dab", "bcd", "ca", "ab"))
    scene.fill(1)
    scene.holds(SupplyRequest)
    before = [scene.ideal("a", number) for number in range(4)]
    assert before == ["ab", "bc", "ca", "ab"]
    sent = len(scene.sent_messages)
    scene.announce("d")
    scene.hear("a")
    assert scene.phase("a") is Phase.LATCH
    assert len(scene.sent_messages) == sent
    scene.exchange()
    assert {scene.version(name) for name in "abcd"} == {"4.0"}
    for name in "abcd":
        assert [scene.ideal(name, number) for number in range(4)] == ["dab", "bcd", "ca", "ab"]


@pytest.mark.row("PME-034")
def test_an_event_waits_for_its_ideal_lists() -> None:
    """PME-034: a server whose request to the metastore gets lost does not begin, and begins when it has
    them."""
    scene = StoreScene()
    scene.set_targets(("ba", "bc", "ca", "ab"))
    scene.watch_only("a")
    assert scene.phase("a") is None
    scene.hear()
    scene.exchange()
    assert scene.phase("b") is Phase.LATCH
    assert scene.messages(LatchCount, "b")
    scene.settle()
    scene.all_equal()
    assert scene.ideal("a") == "ba"


@pytest.mark.row("PME-036")
def test_a_server_with_other_lists_fetches_those_of_the_coordinator() -> None:
    """PME-036: the joining server reads others, as the metastore has forgotten those of the event: the
    digest in the full message shows it, it asks, and gets them."""
    scene = StoreScene("ab", ("ab", "ba"))
    scene.fill(1)
    revision = max(scene.metastore.targets)
    scene.announce("c")
    scene.hear("a", "b")
    scene.metastore.targets[revision] = {ZONE: (("b", "a"), ("b", "a"))}
    scene.exchange()
    assert [single.wants_affinity for single in scene.singles("3.0", "c")] == [False, True]
    assert [bool(full.ideal) for full in scene.fulls("3.0", "c")] == [False, True]
    scene.settle()
    scene.all_equal()
    assert scene.ideal("c", 0) == "ab"


@pytest.mark.row("PME-037")
def test_the_exchange_becomes_the_topology_future() -> None:
    """PME-037: from that step on, new requests see it and wait for it."""
    scene = StoreScene()
    scene.holds(LatchCount, sender="c")
    before = scene.put("b", 1, "before")
    scene.exchange()
    scene.custom(Trigger.AFFINITY_CHANGE)
    scene.hear("b")
    after = scene.put("b", 1, "after")
    assert scene.code(after) == ""
    scene.exchange()
    assert scene.code(after) == ""
    scene.release()
    scene.exchange()
    assert str(scene.answers[before].version) == "3.1"
    assert str(scene.answers[after].version) == "3.2"


@pytest.mark.row("PME-059", "PME-060")
def test_the_map_before_and_after_preparation() -> None:
    """PME-060: empty on a joining server until the exchange; then one entry for each copy, of its version.
    PME-059: no assigned partition is missing."""
    scene = StoreScene("ab", ("ab", "cb", "bac", "a"))
    scene.announce("c")
    assert scene.processes["c"].server.worker is None
    scene.hear("c")
    assert not scene.worker("c").held.maps
    (single,) = scene.singles("3.0", "c")
    assert {*single.maps[ZONE].copies} == {1, 2}
    scene.exchange()
    full = scene.fulls("3.0", "c")[0].maps[ZONE]
    assert str(full.version) == "3.0"
    assert full.entries == sum(len(process.server.shared.copies) for process in scene.alive)
    assert {*full.nodes["c"]} == {1, 2}


@pytest.mark.row("PME-108")
def test_all_that_wait_for_an_exchange_go_on_once() -> None:
    """PME-108: in whatever order."""
    scene = StoreScene()
    version = scene.custom(Trigger.AFFINITY_CHANGE)
    scene.hear()
    waiting = [scene.put("a", 0, f"k{number}") for number in range(3)]
    waiting += [scene.put("a", 3, "k"), scene.get("a", 0)]
    assert not any(map(scene.code, waiting))
    scene.settle()
    assert [scene.code(number) for number in waiting] == ["DONE"] * 5
    assert [scene.answer_counts[number] for number in waiting] == [1] * 5
    assert [scene.kinds(name, version).count(FINISHED) for name in "abc"] == [1, 1, 1]


@pytest.mark.row("PME-098")
def test_a_coordinator_alone() -> None:
    """PME-098: it builds the map without any single message."""
    scene = StoreScene("a", ("a", "a"))
    assert scene.version("a") == "1.1"
    assert not scene.messages(SingleMessage)
    assert not scene.messages(FullMessage)
    assert scene.states("a") == {"a": CopyState.OWNING}
