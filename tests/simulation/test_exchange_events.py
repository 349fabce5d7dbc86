"""Exchanges from event to full map: who takes part, in which order, and what everybody holds afterwards."""

from __future__ import annotations

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.affinity import CopyState
from rebalance.core.topology_version import Trigger, ZoneSpec
from rebalance.exchange.core.exchange_messages import SingleMessage
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.simulation.exchange_workload import ExchangeStage
from tests.simulation.exchange_rig import ZONE, Rig

OTHER = ZoneSpec(ZoneId(2), 3, 2)


@pytest.mark.row("PME-001", shows="model")
def test_all_servers_hold_one_map_after_each_exchange() -> None:
    """PME-001."""
    rig = Rig("abc")
    rig.all_equal()
    rig.crash("b")
    rig.settle()
    rig.all_equal()
    rig.join("d")
    rig.all_equal()
    assert {*rig.node("a").worker.held.maps[ZONE].nodes} == {"a", "c", "d"}


@pytest.mark.row("PME-002", shows="model")
def test_a_join_waits_until_all_know_the_node() -> None:
    """PME-002."""
    rig = Rig("ab")
    rig.world.start("c")
    rig.world.discover("a")
    assert rig.world.ring.events[-1].node != "c"
    assert rig.phase("a") is None
    rig.world.discover("b")
    assert rig.world.ring.events[-1].node == "c"
    rig.settle()
    assert {rig.version(name) for name in "abc"} == {"3.1"}


@pytest.mark.row("PME-003", "PME-026", "PME-027", "PME-028", shows="model")
def test_a_client_joins() -> None:
    """PME-003, PME-027: on servers and on other clients the version changes and nothing else; updates go on.
    PME-026: servers do not wait for it. PME-028: on the client it is CLIENT: one single message, one full
    one."""
    rig = Rig("ab")
    rig.world.start("k", client=True)
    rig.settle()
    before = rig.node("a").worker.held
    sent = len(rig.world.sent)
    rig.world.start("m", client=True)
    rig.discover("a", "b", "k")
    rig.discover("a", "b", "k")
    update = rig.update("a")
    rig.finish(update)
    assert update.stage is ExchangeStage.DONE
    assert rig.node("a").worker.held.maps is before.maps
    assert {rig.version(name) for name in "abk"} == {"4.0"}
    for name in "abk":
        entered = [each.detail for each in rig.traced("Entered", name, "4.0")]
        assert entered == ["NONE INIT"]
    assert len(rig.world.sent) == sent
    rig.settle()
    assert [each.detail for each in rig.traced("Entered", "m", "4.0")] == ["CLIENT INIT", "CLIENT SENT"]
    assert [each.sender for each in rig.singles("4.0")] == ["m"]
    answers = [each for each in rig.world.sent[sent:] if each.to == "m"]
    assert len(answers) == 1
    assert rig.node("m").worker.held.maps == before.maps
    assert rig.node("m").worker.held.basis == before.basis


@pytest.mark.row("PME-026", shows="model")
def test_a_client_follows_the_exchanges_of_servers() -> None:
    """PME-026: it asks the coordinator and gets the full map when that has finished."""
    rig = Rig("ab")
    rig.world.start("k", client=True)
    rig.settle()
    rig.announce("c")
    rig.discover("k")
    rig.world.deliver(next(i for i, each in enumerate(rig.world.network) if each.sender == "k"))
    assert rig.phase("k") is Phase.SENT
    assert not [each for each in rig.world.network if each.to == "k"]
    rig.settle()
    assert rig.node("k").worker.held.affinities == rig.node("a").worker.held.affinities
    update = rig.update("k")
    rig.finish(update)
    assert update.stage is ExchangeStage.DONE


@pytest.mark.row("PME-005", shows="model")
def test_a_node_of_the_baseline_leaves_in_order() -> None:
    """PME-005: no message, no waiting: an open update goes on, and the next owner leads at once."""
    rig = Rig("abc", baseline="abc", lists={"abc": ("ab", "bc", "ca", "cb")})
    open_update = rig.update("b", 1)
    rig.lead(open_update, ExchangeStage.ENLISTED)
    assert rig.primaries("b") == ["a", "b", "c", "c"]
    rig.world.stop("c")
    sent = len(rig.world.sent)
    rig.discover("b")
    assert len(rig.world.sent) == sent
    assert rig.primaries("b") == ["a", "b", "a", "b"]
    assert rig.phase("b") is None
    assert rig.version("b") == "4.0"
    rig.finish(open_update)
    rig.settle()
    rig.all_equal()
    assert not rig.singles("4.0")
    assert open_update.stage is ExchangeStage.DONE


@pytest.mark.row("PME-004", shows="model")
@pytest.mark.parametrize(("baseline", "reason"), [(None, "no baseline"), ("ab", "not in it")])
def test_any_other_node_that_leaves_starts_an_exchange(baseline: str | None, reason: str) -> None:
    """PME-004."""
    rig = Rig("abc", baseline=baseline)
    version = str(rig.world.ring.cluster.version.next_major)
    rig.world.stop("c")
    rig.settle()
    assert len(rig.singles(version, "b")) == 1, reason
    assert rig.fulls(version, "b")


@pytest.mark.row("PME-005", shows="model")
def test_the_last_owner_of_the_baseline_leaves_in_order() -> None:
    """PME-005: somebody has to say that a partition is lost: an exchange."""
    rig = Rig("abc", baseline="abc", lists={"abc": ("a", "b", "c", "c")}, copies=1)
    rig.world.stop("c")
    rig.settle()
    assert rig.singles("4.0", "b")
    assert rig.node("b").worker.held.lost == {ZONE: {2, 3}}


@pytest.mark.row("PME-006", shows="model")
def test_a_killed_node() -> None:
    """PME-006: nothing until it was detected, an exchange afterwards."""
    rig = Rig("abc", baseline="abc")
    rig.world.kill("c")
    rig.settle()
    assert rig.version("a") == "3.1"
    rig.world.detect("c")
    rig.settle()
    assert rig.version("a") == rig.version("b") == "4.0"
    assert rig.singles("4.0", "b")


@pytest.mark.row("PME-012", "PME-013", "PME-014", "PME-015", shows="model")
@pytest.mark.parametrize(
    "trigger",
    [Trigger.SNAPSHOT_CREATE, Trigger.SNAPSHOT_RESTORE, Trigger.LOG_SWITCH, Trigger.AFFINITY_CHANGE],
    ids=lambda each: each.value,
)
def test_custom_events_run_to_the_end(trigger: Trigger) -> None:
    """PME-012, PME-013, PME-014, PME-015: a full exchange with the next minor version."""
    rig = Rig("abc")
    before = rig.node("a").worker.held
    rig.world.custom(trigger, (rig.zone,))
    rig.settle()
    version = str(before.version.next_minor)
    assert {rig.version(name) for name in "abc"} == {version}
    assert [len(rig.singles(version, name)) for name in "abc"] == [0, 1, 1]
    rig.all_equal()


@pytest.mark.row("PME-007", "PME-008", "PME-029", shows="model")
def test_activation_and_deactivation() -> None:
    """PME-007, PME-008: while inactive no zone has a map; activation opens them before the affinity is used
    (PME-029)."""
    rig = Rig("ab", active=False)
    assert not rig.node("a").worker.held.maps
    rig.world.custom(Trigger.ACTIVATE)
    rig.settle()
    for name in "ab":
        order = [each.kind for each in rig.world.trace if each.node == name and str(each.version) == "2.1"]
        assert order.index("OpenZones") < order.index("TopologyFuture")
    assert rig.states("b") == {"a": CopyState.OWNING, "b": CopyState.OWNING}
    rig.world.custom(Trigger.DEACTIVATE)
    rig.settle()
    assert not rig.node("b").worker.held.maps
    assert rig.update("a").stage is ExchangeStage.REFUSED


@pytest.mark.row("PME-009", "PME-136", shows="model")
def test_a_new_baseline() -> None:
    """PME-009, PME-136: an exchange; on the loaded cluster every primary keeps its place when it ends, and the
    ones that the new baseline wants lead after the switch."""
    lists = {"ab": ("ab", "ba", "ab", "ba"), "abc": ("ca", "cb", "ac", "ba")}
    rig = Rig("abc", baseline="ab", lists=lists)
    for partition in range(4):
        rig.finish(rig.update("a", partition))
    before = rig.primaries("a")
    rig.world.custom(Trigger.BASELINE_SET, baseline=frozenset("abc"))
    rig.exchange()
    assert rig.version("a") == "3.2"
    assert rig.primaries("a") == before == ["a", "b", "a", "b"]
    assert rig.states("b")["c"] is CopyState.MOVING
    rig.settle()
    assert rig.primaries("a") == ["c", "c", "a", "b"]


@pytest.mark.row("PME-010", "PME-011", "PME-020", "PME-030", shows="model")
def test_a_zone_starts_and_stops() -> None:
    """PME-010, PME-011, PME-020: minor versions. PME-030: while it stops, new updates of it fail at once; those
    of others only wait."""
    rig = Rig("abc")
    major = str(rig.world.ring.cluster.version)
    rig.world.custom(Trigger.ZONE_START, (OTHER,))
    rig.settle()
    assert rig.version("c").split(".")[0] == major.split(".")[0]
    held = rig.node("c").worker.held
    assert all(len(held.maps[OTHER.zone_id].owners(number)) == 2 for number in range(3))
    rig.world.custom(Trigger.ZONE_STOP, (OTHER,))
    rig.discover("a")
    refused = rig.world.workload.begin("a", (OTHER.zone_id, 0))
    rig.lead(refused)
    waiting = rig.update("a")
    assert refused.stage is ExchangeStage.REFUSED
    assert "zone 2 is not open" in refused.reason
    assert waiting.stage is ExchangeStage.WAITING
    rig.settle()
    assert OTHER.zone_id not in rig.node("b").worker.held.maps
    assert waiting.stage is ExchangeStage.DONE


@pytest.mark.row("PME-016", "PME-018", "PME-061", "PME-099", shows="model")
def test_one_single_message_from_each_and_one_full_message_to_each() -> None:
    """PME-016, PME-018, PME-061: single messages go from node to node to the coordinator; PME-099: one full
    message to every server that took part; a server that left meanwhile gets none, and nobody waits for it."""
    rig = Rig("abcd")
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    version = str(rig.world.ring.cluster.version)
    rig.discover()
    rig.crash("d")
    rig.settle()
    for name in "bc":
        assert len(rig.singles(version, name)) == 1
        assert len(rig.fulls(version, name)) == 1
    assert not rig.singles(version, "a")
    assert not rig.fulls(version, "d")
    sent = [each for each in rig.world.sent if isinstance(each.message, SingleMessage)]
    assert {each.to for each in sent if str(each.message.exchange) == version} == {"a"}
    done = rig.traced("Finished", version="4.0") + rig.traced("Finished", version="5.0")
    assert {each.node for each in done} >= {"a", "b", "c"}


@pytest.mark.row("PME-017", "PME-018", "PME-064", "PME-066", shows="model")
def test_nobody_finishes_before_the_full_message() -> None:
    """PME-018, PME-066: one withheld single message keeps all of them waiting; the list of those that are
    waited for is visible and shrinks (PME-064). PME-017: only then the map is built."""
    rig = Rig("abc")
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    version = str(rig.world.ring.cluster.version)
    rig.discover()
    withheld = []
    while rig.world.network:
        index = next(
            (
                i
                for i, each in enumerate(rig.world.network)
                if not (each.sender == "c" and isinstance(each.message, SingleMessage))
            ),
            None,
        )
        if index is None:
            withheld.append(rig.world.network.pop(0))
            continue
        rig.world.deliver(index)
    assert rig.phase("a") is Phase.COLLECT
    assert rig.node("a").worker.awaited == {"c"}
    assert rig.phase("b") is Phase.SENT
    lists = [each.detail for each in rig.traced("Entered", "a", version) if "COLLECT" in each.detail]
    assert lists == ["ALL COLLECT b,c", "ALL COLLECT c"]
    rig.world.network.extend(withheld)
    rig.settle()
    rig.all_equal()


@pytest.mark.row("PME-066", shows="model")
def test_a_failed_node_is_not_waited_for() -> None:
    """PME-066: it leaves the list."""
    rig = Rig("abc")
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    rig.discover("a", "b")
    rig.world.kill("c")
    rig.exchange()
    assert rig.phase("a") is Phase.LATCH
    rig.world.detect("c")
    rig.settle()
    assert rig.version("a") == rig.version("b")
    rig.all_equal()


@pytest.mark.row("PME-021", "PME-022", "PME-023", "PME-024", "PME-127", shows="model")
def test_queue_and_order() -> None:
    """PME-021: each node has a queue, and its length is visible. PME-022, PME-127: its order is that of the
    ring, on all nodes. PME-023: one exchange at a time. PME-024: initialised first, distributed afterwards."""
    rig = Rig("abc")
    for trigger in (Trigger.SNAPSHOT_CREATE, Trigger.LOG_SWITCH, Trigger.SNAPSHOT_CREATE):
        rig.world.custom(trigger)
    rig.discover("b")
    assert len(rig.node("b").worker.queue) == 2
    queued = [str(event.version) for event, _ in rig.node("b").worker.queue]
    assert queued == ["3.3", "3.4"]
    rig.settle()
    for name in "abc":
        mine = [each for each in rig.world.trace if each.node == name]
        discovered = [str(each.version) for each in mine if each.kind == "Discovered"]
        began = [str(each.version) for each in mine if each.kind == "Entered" and each.detail.endswith("INIT")]
        ended = [str(each.version) for each in mine if each.kind == "Finished"]
        assert began == ended
        assert [each for each in discovered if each in began] == began
        for one in ("3.2", "3.3", "3.4"):
            phases = [
                each.detail.split()[1] for each in mine if each.kind == "Entered" and str(each.version) == one
            ]
            assert phases[:6] == ["INIT", "TOPOLOGY", "RELEASE", "LATCH", "COMMITS", "PREPARE"]
        running = 0
        for each in mine:
            running += (each.kind == "Entered" and each.detail.endswith("INIT")) - (each.kind == "Finished")
            assert running in (0, 1)


@pytest.mark.row("PME-031", "PME-032", shows="model")
def test_a_joining_node_brings_a_zone() -> None:
    """PME-031: it is open on all others after the exchange. PME-032: on the joining node all zones are started
    when its exchange ends, and none before its beginning."""
    rig = Rig("ab")
    rig.world.start("c", zones=(OTHER,))
    rig.world.discover("a")
    rig.world.discover("b")
    assert not rig.node("c").opened
    assert not rig.node("c").worker.held.maps
    rig.settle()
    for name in "abc":
        assert rig.node(name).opened == {ZONE, OTHER.zone_id}
        assert {*rig.node(name).worker.held.maps} == {ZONE, OTHER.zone_id}
    (opened,) = rig.traced("OpenZones", "c")
    assert opened.detail == "1,2"


@pytest.mark.row("PME-034", "PME-035", "PME-112", shows="model")
def test_affinity_is_there_before_the_second_phase() -> None:
    """PME-034: on the coordinator. PME-035: the others compute the same from the same. PME-112: at version 3.0
    -> 4.0 the ideal assignment changes by the partitions that the joining node gets."""
    rig = Rig("abc", partitions=16)
    before = [rig.ideal("a", number) for number in range(16)]
    rig.announce("d")
    rig.discover()
    for name in "abcd":
        assert rig.node(name).worker.running is not None
    rig.exchange()
    assert {rig.version(name) for name in "abcd"} == {"4.0"}
    after = [rig.ideal("d", number) for number in range(16)]
    for name in "abc":
        assert [rig.ideal(name, number) for number in range(16)] == after
    changed = [number for number in range(16) if before[number] != after[number]]
    assert changed
    assert all("d" in after[number] for number in changed)


@pytest.mark.row("PME-036", shows="model")
def test_a_node_that_cannot_compute_fetches_the_affinity() -> None:
    """PME-036."""
    rig = Rig("ab", partitions=8)
    rig.world.start("c", can_calculate=False)
    rig.settle()
    assert [each.wants_affinity for each in rig.singles("3.0", "c")] == [True]
    assert all(each.ideal for each in rig.fulls("3.0"))
    rig.all_equal()
    assert any("c" in rig.ideal("c", number) for number in range(8))
    other = Rig("ab")
    other.join("c")
    assert not any(each.ideal for each in other.fulls("3.0"))


@pytest.mark.row("PME-037", shows="model")
def test_the_exchange_becomes_the_topology_future() -> None:
    """PME-037: from that step on, new operations see it and wait for it."""
    rig = Rig("abc")
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    before = rig.update("b")
    assert before.stage is ExchangeStage.COMMITTING
    rig.discover("b")
    assert rig.traced("TopologyFuture", "b", "3.2")
    after = rig.update("b")
    assert after.stage is ExchangeStage.WAITING
    rig.settle()
    assert str(before.version) == "3.1"
    assert str(after.version) == "3.2"


@pytest.mark.row("PME-059", "PME-060", shows="model")
def test_the_map_before_and_after_preparation() -> None:
    """PME-060: empty on a joining node until the exchange; then one entry for each copy, of its version.
    PME-059: no assigned partition is missing."""
    rig = Rig("ab", partitions=8)
    rig.announce("c")
    assert not rig.node("c").worker.held.maps
    rig.discover("c")
    (single,) = rig.singles("3.0", "c")
    zone = rig.zone
    wanted = {number for number in range(8) if "c" in rig.ideal_of("abc")[number]}
    assert {*single.maps[zone.zone_id].copies} == wanted
    rig.exchange()
    full = rig.node("c").worker.held.maps[ZONE]
    assert str(full.version) == "3.0"
    assert full.entries == sum(len(rig.node(name).store.copies) for name in "abc")


@pytest.mark.row("PME-108", shows="model")
def test_listeners_are_called_once() -> None:
    """PME-108."""
    rig = Rig("abc")
    called: dict[str, list[str]] = {name: [] for name in "abc"}
    for name in "abc":
        for _ in range(2):
            rig.node(name).listeners.append(lambda version, name=name: called[name].append(str(version)))
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    rig.settle()
    assert called == {name: ["3.2", "3.2"] for name in "abc"}


@pytest.mark.row("PME-098", shows="model")
def test_a_coordinator_alone() -> None:
    """PME-098: it builds the map without any single message."""
    rig = Rig("a")
    assert rig.version("a") == "1.0"
    assert not rig.world.sent
    assert rig.states("a") == {"a": CopyState.OWNING}
