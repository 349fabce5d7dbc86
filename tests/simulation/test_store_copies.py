"""Copies of store servers from a join to the last row of the old one: states, requests, notifications, the
switch."""

from __future__ import annotations

import pytest

from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.exchange.core.exchange_messages import FullMessage, SingleMessage
from rebalance.store.core.store_limits import StoreLimits
from rebalance.store.core.store_messages import SupplyBatch, SupplyRequest
from tests.fixtures.store_scene import ZONE, StoreScene

LISTS = ("ab", "bc", "ca", "bc")
TARGET = ("ab", "bc", "ca", "db")
"""Partition 3 moves from c to d, and d shall lead it."""
KEYS = {"k0", "k1", "k2", "k3", "k4"}
SMALL = StoreLimits(ttl_ms=60_000, batch_bytes=4, bulk_bytes=4)


def loaded(*, limits: StoreLimits | None = None) -> StoreScene:
    """Four servers, five keys in every partition; d has no copy."""
    scene = StoreScene("abcd", LISTS, limits=limits or StoreLimits(ttl_ms=60_000))
    scene.fill()
    return scene


def moved(scene: StoreScene, lists: tuple[str, ...] = TARGET) -> None:
    """The exchange of the new lists is over, nothing was copied."""
    scene.holds(SupplyRequest)
    scene.set_targets(lists)
    scene.exchange()


def filled(scene: StoreScene, partition: int = 3) -> None:
    """Fill all of d's copy without a message about it; no time has passed."""
    scene.release()
    scene.holds(SingleMessage)
    scene.exchange()
    assert scene.own("d", partition) is CopyState.OWNING


@pytest.mark.row("PME-090", "PME-113", "PME-115", "PME-131", "PME-133", "PME-135")
def test_a_joining_server_begins_as_a_backup() -> None:
    """PME-113: its copy is MOVING, the old owners keep data and state. PME-115: the exchange completes
    before data are loaded; PME-090: nothing is asked for before it is over. PME-131, PME-133, PME-135: the
    primary stays, and the joining server is a backup where it shall lead."""
    scene = StoreScene("abc", ("ab", "bc", "ca", "dbc"))
    scene.fill()
    before = scene.primaries("a")
    scene.holds(SupplyRequest)
    scene.announce("d")
    scene.hear()
    while scene.version("d") != "4.0":
        assert not scene.messages(SupplyRequest)
        scene.deliver()
    scene.exchange()
    assert scene.version("a") == "4.0"
    assert scene.own("d", 3) is CopyState.MOVING
    assert scene.own("c", 3) is scene.own("b", 3) is CopyState.OWNING
    assert scene.keys("c", 3) == KEYS
    assert not scene.keys("d", 3)
    assert scene.states("a", 3) == {"b": CopyState.OWNING, "c": CopyState.OWNING, "d": CopyState.MOVING}
    assert scene.primaries("a") == before
    assert scene.effective("a", 3) == scene.effective("d", 3) == "bdc"
    assert scene.ideal("d", 3) == "dbc"
    assert "d" not in scene.primaries("d")
    assert [flight.to for flight in scene.messages(SupplyRequest, "d")] == ["b"]
    scene.release()
    scene.settle()
    assert scene.version("a") == "4.1"
    assert scene.primaries("a") == ["a", "b", "c", "d"]


@pytest.mark.row("PME-114")
def test_whom_a_copy_asks() -> None:
    """PME-114: for each copy one owner, also one that is in no list any more; when it does not answer,
    another one."""
    scene = loaded()
    moved(scene)
    assert [flight.to for flight in scene.messages(SupplyRequest, "d")] == ["b"]
    scene.kill("b")
    scene.release()
    scene.exchange()
    scene.run(600)
    assert [flight.to for flight in scene.messages(SupplyRequest, "d")] == ["b", "c"]
    assert "c" not in scene.ideal("d", 3)
    scene.exchange()
    assert scene.own("d", 3) is CopyState.OWNING
    assert scene.keys("d", 3) == KEYS


@pytest.mark.row("PME-109", "PME-116", "PME-117", "PME-118", "PME-122")
def test_when_it_is_filled_the_server_owns_locally_first() -> None:
    """PME-116, PME-109: others still see MOVING. PME-117: after its delay it sends a single message without an
    exchange id. PME-118: the coordinator sends the full map, and all see OWNING. PME-122."""
    scene = loaded()
    moved(scene)
    filled(scene)
    before = len(scene.sent_messages)
    for name in "abcd":
        assert scene.states(name, 3)["d"] is CopyState.MOVING
    assert not scene.singles(None)
    scene.run(scene.limits.notify_ms + 20)
    (flight,) = [flight for flight in scene.sent_messages[before:] if isinstance(flight.message, SingleMessage)]
    assert (flight.sender.name, flight.to, flight.message) == ("d", "a", scene.singles(None, "d")[0])
    before = len(scene.sent_messages)
    scene.arrive(flight)
    updates = [each for each in scene.sent_messages[before:] if isinstance(each.message, FullMessage)]
    assert [(each.to, each.message.exchange) for each in updates] == [("b", None), ("c", None), ("d", None)]  # type: ignore[union-attr]  # full messages
    for each in updates:
        scene.network.remove(each)
        scene.arrive(each)
    for name in "abcd":
        assert scene.states(name, 3)["d"] is CopyState.OWNING


@pytest.mark.row("PME-015", "PME-081", "PME-131", "PME-133", "PME-134")
def test_the_primary_switches_once_its_successor_is_ready() -> None:
    """PME-131: the primary map is unchanged when the exchange of the new lists ends, and changes in a later
    one with a higher minor version. PME-133: until then the old primary stays, the new one is a backup.
    PME-081: also when the copy is there. PME-134: the switch is an exchange of its own. PME-015."""
    scene = loaded()
    before = scene.primaries("a")
    moved(scene)
    assert scene.version("a") == "4.2"
    assert scene.primaries("a") == before == ["a", "b", "c", "b"]
    assert scene.effective("a", 3) == "bd"
    assert scene.worker("a").held.late == {(ZONE, 3): "d"}
    filled(scene)
    assert scene.effective("d", 3) == "bd"
    assert Trigger.AFFINITY_CHANGE not in scene.triggers()
    scene.release()
    scene.settle()
    assert scene.triggers()[-1] is Trigger.AFFINITY_CHANGE
    assert scene.version("a") == "4.3"
    assert scene.primaries("a") == ["a", "b", "c", "d"]
    assert scene.effective("a", 3) == scene.ideal("a", 3) == "db"
    assert not scene.worker("a").held.late


@pytest.mark.row("PME-015", "PME-134")
def test_a_target_that_puts_owners_into_another_order() -> None:
    """PME-134, PME-015: nothing is copied, the switch comes next, and after it the new first ones lead."""
    scene = StoreScene("abc", ("abc", "bca", "ca"))
    scene.fill(1)
    scene.set_targets(("bac", "bac", "ac"))
    scene.settle()
    assert scene.triggers()[-2:] == [Trigger.TARGET_SET, Trigger.AFFINITY_CHANGE]
    assert not scene.messages(SupplyRequest)
    for name in "abc":
        assert [scene.effective(name, number) for number in range(3)] == ["bac", "bac", "ac"]
    outcomes = scene.metastore.result_state.outcomes[ZONE]
    assert ["".join(outcome.effective) for outcome in outcomes] == ["bac", "bac", "ac"]


@pytest.mark.row("PME-132")
@pytest.mark.parametrize("lists", [("ca", "cb", "ac"), ("c", "c", "c"), ("cab", "cba", "abc")])
def test_late_affinity_is_always_on(lists: tuple[str, ...]) -> None:
    """PME-132: there is no switch for it; nothing that can be set lets a joining server lead at once where
    another one owns a copy."""
    scene = StoreScene("ab", ("ab", "ba", "ab"))
    scene.fill(1)
    scene.announce("c")
    scene.set_targets(lists)
    scene.holds(SupplyRequest)
    scene.exchange()
    assert "c" not in scene.primaries("a")
    assert any(scene.ideal("a", number)[0] == "c" for number in range(3))


@pytest.mark.row("PME-134", "PME-138")
def test_the_switch_waits_for_every_new_primary() -> None:
    """PME-134, PME-138: the wait list is visible and gets shorter; the message goes out when it is empty."""
    scene = loaded()
    moved(scene, ("ab", "dc", "ca", "db"))
    assert scene.worker("a").held.late == {(ZONE, 1): "d", (ZONE, 3): "d"}
    scene.holds_where(
        lambda flight: isinstance(flight.message, SupplyRequest) and flight.message.partition[1] == 3
    )
    first = next(flight for flight in scene.held if getattr(flight.message, "partition", (0, 0))[1] == 1)
    scene.held.remove(first)
    scene.arrive(first)
    scene.exchange()
    scene.run(200)
    scene.exchange()
    assert scene.worker("a").held.late == {(ZONE, 3): "d"}
    assert scene.version("a") == "4.2"
    assert scene.primaries("a") == ["a", "b", "c", "b"]
    scene.release()
    scene.settle()
    assert scene.version("a") == "4.3"
    assert scene.primaries("a") == ["a", "d", "c", "d"]


@pytest.mark.row("PME-139")
def test_a_joiner_that_has_everything() -> None:
    """PME-139: the wait list is empty after the join exchange, the next exchange is the switch, nothing was
    copied."""
    scene = StoreScene("abc", ("ab", "bc", "ca", "cb"))
    scene.fill()
    scene.crash("c")
    scene.settle()
    assert scene.primaries("a") == ["a", "b", "a", "b"]
    requests, events = len(scene.messages(SupplyRequest)), len(scene.metastore.events)
    scene.announce("c")
    scene.exchange()
    assert scene.triggers(events) == [Trigger.NODE_JOINED, Trigger.AFFINITY_CHANGE]
    assert len(scene.messages(SupplyRequest)) == requests
    assert scene.primaries("a") == ["a", "b", "c", "c"]
    scene.settle()
    scene.all_equal()


@pytest.mark.row("PME-082", "PME-119")
def test_when_the_old_owner_gives_up() -> None:
    """PME-119: when there are more owners than the lists need and it is in none of them, not before.
    PME-082: after the switch the temporary list has become the ideal one, and the extra owner goes OWNING ->
    RENTING."""
    scene = loaded()
    moved(scene)
    scene.run(300)
    assert scene.own("c", 3) is CopyState.OWNING
    filled(scene)
    scene.run(300)
    assert scene.own("c", 3) is CopyState.OWNING
    # The result of the switch, which has c in no set any more, is not taken yet.
    scene.metastore.takes_results = False
    scene.release()
    scene.exchange()
    scene.run(300)
    assert scene.states("a", 3)["d"] is CopyState.OWNING
    assert scene.own("c", 3) is CopyState.OWNING
    assert scene.members(3) == "bc"
    scene.metastore.take_results()
    scene.run(600)
    scene.exchange()
    assert scene.members(3) == "bd"
    assert scene.effective("c", 3) == "db"
    scene.processes["c"].disk_ms = (500, 500)
    scene.run(200)
    assert scene.own("c", 3) is CopyState.RENTING
    assert scene.states("a", 3)["c"] is CopyState.OWNING


@pytest.mark.row("PME-082", "PME-119")
def test_no_owner_gives_up_before_a_result_says_so() -> None:
    """PME-119, PME-082: a backup is replaced, so the lists are the ideal ones at once, and all their
    servers own in the end; until a result is committed without the old one, it is in the in-sync set."""
    scene = loaded()
    moved(scene, ("ab", "bc", "ca", "bd"))
    assert scene.effective("c", 3) == scene.ideal("c", 3) == "bd"
    filled(scene)
    scene.release()
    scene.deaf.add("a")
    scene.run(300)
    scene.exchange()
    scene.run(300)
    assert scene.states("c", 3)["d"] is CopyState.OWNING
    assert scene.worker("c").is_idle
    assert (scene.members(3), scene.own("c", 3)) == ("bc", CopyState.OWNING)
    scene.deaf.clear()
    scene.settle()
    assert (scene.members(3), scene.own("c", 3)) == ("bd", CopyState.EVICTED)


@pytest.mark.row("PME-120", "PME-121")
def test_notifications_of_the_old_owner() -> None:
    """PME-120: one single message without exchange id after the delay, also for two changes within it. PME-121:
    after the next full map all see RENTING, and its sequence has grown."""
    scene = loaded()
    moved(scene, ("ab", "db", "ca", "db"))
    scene.processes["c"].disk_ms = (3_000, 3_000)
    scene.release()
    before = len(scene.singles(None, "c"))
    stamp = scene.worker("a").held.maps[ZONE].stamp
    for _ in range(50):
        scene.exchange()
        if len(scene.singles(None, "c")) > before:
            break
        stamp = scene.worker("a").held.maps[ZONE].stamp
        scene.run(20)
    assert scene.own("c", 1) is scene.own("c", 3) is CopyState.RENTING
    assert len(scene.singles(None, "c")) == before + 1
    scene.exchange()
    for name in "abcd":
        assert scene.states(name, 3)["c"] is scene.states(name, 1)["c"] is CopyState.RENTING
        assert scene.worker(name).held.maps[ZONE].stamp > stamp


@pytest.mark.row("PME-121")
def test_a_lost_notification_is_sent_again() -> None:
    """PME-121: within one resend period, and so is what the coordinator tells the others."""
    scene = loaded()
    moved(scene)
    scene.processes["c"].disk_ms = (9_000, 9_000)
    scene.holds_where(lambda flight: isinstance(flight.message, SingleMessage) and flight.sender.name == "c")
    scene.network += [flight for flight in scene.held if isinstance(flight.message, SupplyRequest)]
    while scene.own("c", 3) is not CopyState.RENTING:
        scene.exchange()
        for flight in [
            flight for flight in scene.held if getattr(flight.message, "exchange", None) is not None
        ]:
            scene.held.remove(flight)
            scene.arrive(flight)
        scene.run(20)
    scene.run(150)
    assert scene.singles(None, "c")
    # It gets lost, and so does what the coordinator tells b after the next one.
    scene.held.clear()
    scene.holds(FullMessage, to="b")
    scene.run(scene.limits.resend_ms + 100)
    scene.exchange()
    assert scene.states("d", 3)["c"] is CopyState.RENTING
    assert scene.states("b", 3)["c"] is CopyState.OWNING
    scene.held.clear()
    scene.release()
    scene.run(scene.limits.resend_ms + 100)
    scene.exchange()
    for name in "abcd":
        assert scene.states(name, 3)["c"] is CopyState.RENTING


@pytest.mark.row("PME-124")
def test_rows_go_one_by_one() -> None:
    """PME-124: RENTING until the last row is gone, then EVICTED; the index never leads to what was removed."""
    scene = loaded(limits=SMALL)
    moved(scene)
    scene.release()
    scene.processes["c"].disk_ms = (40, 40)
    seen: list[int] = []
    disk = scene.disks["c"]
    for _ in range(400):
        scene.exchange()
        scene.run(20)
        if scene.own("c", 3) is CopyState.RENTING:
            rows = scene.keys("c", 3)
            assert rows <= KEYS
            for key in KEYS - rows:
                assert disk.row((ZONE, 3), key.encode()) is None
            seen.append(len(rows) + len(disk.ids((ZONE, 3), b"", 1 << 30)))
        if scene.own("c", 3) is CopyState.EVICTED:
            break
    assert scene.own("c", 3) is CopyState.EVICTED
    assert len(set(seen)) > 4
    assert seen == sorted(seen, reverse=True)
    assert not scene.keys("c", 3)
    assert not disk.records((ZONE, 3), scene.copy("c", 3).log_start, 1 << 30)
    scene.settle()
    assert scene.states("a", 3) == {"b": CopyState.OWNING, "d": CopyState.OWNING}


@pytest.mark.row("PME-123")
def test_several_changes_at_once() -> None:
    """PME-123: for a while more servers than needed have a copy; nothing is lost."""
    scene = loaded()
    moved(scene, ("db", "bd", "ca", "db"))
    scene.crash("a")
    scene.announce("e")
    scene.set_targets(("eb", "bd", "ce", "de"))
    scene.exchange()
    assert sum(len(scene.states("b", number)) for number in range(4)) > 8
    scene.release()
    scene.settle()
    scene.all_equal()
    for number, nodes in enumerate(("eb", "bd", "ce", "de")):
        owners = [
            process.name for process in scene.alive if scene.own(process.name, number) is CopyState.OWNING
        ]
        assert sorted(owners) == sorted(nodes)
        for name in owners:
            assert scene.keys(name, number) == KEYS


@pytest.mark.row("PME-080", "PME-083")
def test_lists_are_ideal_in_the_end() -> None:
    """PME-080, PME-083: after a failure and a join the effective lists are the ideal ones, in their order,
    and all copies own."""
    scene = loaded()
    scene.crash("b")
    scene.settle()
    assert scene.primaries("a") == ["a", "c", "c", "c"]
    scene.join("b")
    for name in "abcd":
        assert [scene.effective(name, number) for number in range(4)] == list(LISTS)
    assert scene.worker("a").held.rebalanced
    assert scene.states("a", 1) == {"b": CopyState.OWNING, "c": CopyState.OWNING}


@pytest.mark.row("PME-088", "PME-089")
def test_copies_that_differ_are_shown() -> None:
    """PME-088, PME-089: the primary died while one backup was behind: a warning on the coordinator names the
    group, the partition, the servers and what they have; the exchange goes on, and they are made equal."""
    scene = StoreScene("abc", ("abc",))
    scene.fill()
    scene.put("a", 0, "more")
    (late,) = [index for index, flight in enumerate(scene.network) if flight.to == "c"]
    scene.network.pop(late)
    scene.exchange()
    scene.crash("a")
    scene.holds(SupplyBatch)
    scene.exchange()
    assert scene.warnings == [
        "copies of partition 0 of zone 1 differ: b (counter 6, size 0), c (counter 5, size 0)"
    ]
    scene.release()
    scene.settle()
    assert scene.keys("b") == scene.keys("c") == {*KEYS, "more"}


def test_bandwidth_is_shared_by_the_servers_that_are_filled() -> None:
    """Share a rate among the servers that are being filled: a single one has all of it, however many servers
    there are."""
    scene = loaded()
    moved(scene)
    receivers = {name: process.server.shared.receivers for name, process in scene.processes.items()}
    assert receivers["d"] == 1
    moved(scene, ("db", "bc", "ca", "ad"))
    assert scene.states("d")["d"] is scene.states("a", 3)["a"] is CopyState.MOVING
    assert {scene.processes[name].server.shared.receivers for name in "ad"} == {2}
    scene.release()
    scene.settle()
    scene.run(1_500)
    scene.settle()
    assert {process.server.shared.receivers for process in scene.processes.values()} == {1}
