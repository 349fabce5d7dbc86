"""Copies from a join to the last row of the old one: states, demands, history, notifications, the switch."""

from __future__ import annotations

import pytest

from rebalance.core.affinity import CopyState
from rebalance.core.store_positions import NO_RECORD
from rebalance.core.topology_version import Trigger
from rebalance.exchange.core.exchange_messages import CopyId
from rebalance.exchange.simulation.exchange_copies import WriteAheadLog
from tests.simulation.exchange_rig import ZONE, Rig

LISTS = {
    "a": ("a", "a", "a", "a"),
    "ab": ("ab", "ba", "ab", "ab"),
    "abc": ("ab", "bc", "ca", "bc"),
    "abcd": ("ab", "bc", "ca", "db"),
    "abd": ("ab", "bd", "da", "db"),
}
"""Partition 3: with d there it moves from c to d, and d shall lead it."""
KEY = (ZONE, 3)


def loaded(*, persistent: bool = False) -> Rig:
    """Three nodes, five updates in every partition."""
    rig = Rig("abc", lists=LISTS, persistent=persistent)
    for partition in range(4):
        for _ in range(5):
            rig.finish(rig.update("a", partition))
    return rig


def joined(rig: Rig) -> None:
    """The exchange of d's join is over, nothing was copied."""
    rig.announce("d")
    rig.exchange()


def fill(rig: Rig, name: str = "d") -> None:
    for _ in range(50):
        if not rig.world.fill(name):
            return


@pytest.mark.row("PME-090", "PME-113", "PME-114", "PME-115", shows="model")
def test_a_new_copy_begins_as_moving() -> None:
    """PME-113: on the new node it is MOVING, the old owner keeps data and state. PME-115: the exchange
    completes before data are loaded. PME-114: before that nobody demands anything (PME-090)."""
    rig = loaded()
    joined(rig)
    assert rig.version("d") == "4.0"
    assert rig.own("d", 3) is CopyState.MOVING
    assert rig.own("c", 3) is CopyState.OWNING
    assert rig.node("c").store.copies[KEY].rows == {1, 2, 3, 4, 5}
    assert rig.states("a", 3) == {"b": CopyState.OWNING, "c": CopyState.OWNING, "d": CopyState.MOVING}
    assert not rig.traced("Demand", "d")


@pytest.mark.row("PME-114", shows="model")
def test_demands() -> None:
    """PME-114: for each copy one owner is asked, also one that is in no list any more; when it dies, another
    one."""
    rig = loaded()
    joined(rig)
    node = rig.node("d")
    assert node.supplier(KEY) == "b"
    rig.world.fill("d")
    assert [each.detail.split(" ")[2] for each in rig.traced("Demand", "d")] == ["b"]
    rig.world.kill("b")
    rig.world.fill("d")
    assert node.supplier(KEY) == "c"
    assert "c" not in rig.ideal("d", 3)
    fill(rig)
    assert rig.own("d", 3) is CopyState.OWNING
    assert node.store.copies[KEY].rows == {1, 2, 3, 4, 5}


@pytest.mark.row("PME-116", "PME-117", "PME-118", "PME-122", shows="model")
def test_when_loaded_the_node_owns_locally_first() -> None:
    """PME-116: others still see MOVING. PME-117: after its delay it sends a single message without an exchange
    id. PME-118: the coordinator sends the full map, and all see OWNING. PME-122."""
    rig = loaded()
    joined(rig)
    fill(rig)
    before = len(rig.world.sent)
    assert rig.own("d", 3) is CopyState.OWNING
    for name in "abc":
        assert rig.states(name, 3)["d"] is CopyState.MOVING
    assert len(rig.world.sent) == before
    rig.world.notify("d")
    assert [each.exchange for each in rig.singles(None, "d")] == [None]
    rig.world.deliver(0)
    assert [each.to for each in rig.world.sent[before + 1 :]] == ["b", "c", "d"]
    while rig.world.network:
        rig.world.deliver(0)
    for name in "abcd":
        assert rig.states(name, 3)["d"] is CopyState.OWNING


def to_the_switch(rig: Rig) -> None:
    joined(rig)
    fill(rig)
    rig.world.notify("d")
    rig.exchange()


@pytest.mark.row("PME-015", "PME-081", "PME-131", "PME-133", "PME-134", shows="model")
def test_the_primary_switches_once_its_successor_is_ready() -> None:
    """PME-131: the primary map is unchanged when the join exchange ends, and changes in a later one with a
    higher minor version. PME-133: until then the old primary stays, the new one is a backup. PME-081: also when
    the copy is there. PME-134: the switch is an exchange of its own. PME-015."""
    rig = loaded()
    before = rig.primaries("a")
    joined(rig)
    assert rig.primaries("a") == before == ["a", "b", "c", "b"]
    assert rig.effective("a", 3) == "bd"
    assert rig.node("a").worker.held.late == {KEY: "d"}
    fill(rig)
    assert rig.effective("d", 3) == "bd"
    rig.world.notify("d")
    rig.exchange()
    assert rig.world.ring.events[-1].trigger is Trigger.AFFINITY_CHANGE
    assert rig.version("a") == "4.1"
    assert rig.primaries("a") == ["a", "b", "c", "d"]
    assert rig.effective("a", 3) == rig.ideal("a", 3) == "db"
    assert not rig.node("a").worker.held.late


@pytest.mark.row("PME-132", shows="model")
def test_late_affinity_is_always_on() -> None:
    """PME-132: there is no switch for it; nothing that can be set lets a joining node lead at once."""
    for copies in (1, 2, 3):
        rig = Rig("ab", copies=copies, partitions=8)
        rig.announce("c")
        rig.exchange()
        assert "c" not in rig.primaries("a")
        assert any(rig.ideal("a", number)[0] == "c" for number in range(8))


@pytest.mark.row("PME-135", shows="model")
def test_the_joiner_leads_nothing_at_first() -> None:
    """PME-135."""
    rig = loaded()
    joined(rig)
    assert rig.primaries("d").count("d") == 0
    assert rig.ideal("d", 3)[0] == "d"


@pytest.mark.row("PME-134", "PME-138", shows="model")
def test_the_switch_waits_for_every_new_primary() -> None:
    """PME-134, PME-138: the wait list is visible and gets shorter; the message goes out when it is empty."""
    lists = {**LISTS, "abcd": ("ab", "dc", "ca", "db")}
    rig = Rig("abc", lists=lists)
    joined(rig)
    assert rig.node("a").worker.held.late == {(ZONE, 1): "d", (ZONE, 3): "d"}
    node = rig.node("d")
    node.fill((ZONE, 1), rig.node("b"), 10)
    assert rig.own("d", 1) is CopyState.OWNING
    rig.world.notify("d")
    rig.exchange()
    assert rig.node("a").worker.held.late == {KEY: "d"}
    assert rig.version("a") == "4.0"
    fill(rig)
    rig.world.notify("d")
    rig.exchange()
    assert rig.version("a") == "4.1"


@pytest.mark.row("PME-139", shows="model")
def test_a_joiner_that_has_everything() -> None:
    """PME-139: the wait list is empty after the join exchange, the next exchange is the switch, nothing was
    copied."""
    rig = loaded(persistent=True)
    rig.join("d")
    rig.world.stop("d")
    rig.settle()
    demands = len(rig.traced("Demand"))
    versions = len(rig.world.ring.events)
    joined(rig)
    rig.exchange()
    triggers = [each.trigger for each in rig.world.ring.events[versions:]]
    assert triggers[:2] == [Trigger.NODE_JOINED, Trigger.AFFINITY_CHANGE]
    assert len(rig.traced("Demand")) == demands
    assert rig.primaries("a")[3] == "d"


@pytest.mark.row("PME-082", "PME-119", shows="model")
def test_when_the_old_owner_gives_up() -> None:
    """PME-119: when there are more owners than the affinity needs and it is none of its nodes, not before.
    PME-082: after the switch the temporary list has become the ideal one, and the extra owner goes OWNING ->
    RENTING."""
    rig = loaded()
    joined(rig)
    assert not rig.world.rent("c")
    fill(rig)
    rig.world.notify("d")
    while rig.world.network:
        rig.world.deliver(0)
    assert rig.states("c", 3)["d"] is CopyState.OWNING
    assert not rig.world.rent("b")
    rig.exchange()
    assert rig.effective("c", 3) == "db"
    assert rig.world.rent("c")
    assert rig.own("c", 3) is CopyState.RENTING
    assert rig.states("a", 3)["c"] is CopyState.OWNING


@pytest.mark.row("PME-120", "PME-121", shows="model")
def test_notifications_of_the_old_owner() -> None:
    """PME-120: one single message without exchange id after the delay, also for two changes within it. PME-121:
    after the next full map all see RENTING, and its sequence has grown."""
    lists = {**LISTS, "abcd": ("ab", "db", "ca", "db")}
    rig = Rig("abc", lists=lists)
    to_the_switch(rig)
    assert rig.world.rent("c")
    assert rig.own("c", 1) is rig.own("c", 3) is CopyState.RENTING
    before = rig.node("a").worker.held.maps[ZONE].stamp
    sent = len(rig.singles(None, "c"))
    rig.world.notify("c")
    assert len(rig.singles(None, "c")) == sent + 1
    while rig.world.network:
        rig.world.deliver(0)
    for name in "abcd":
        assert rig.states(name, 3)["c"] is rig.states(name, 1)["c"] is CopyState.RENTING
        assert rig.node(name).worker.held.maps[ZONE].stamp > before


@pytest.mark.row("PME-121", shows="model")
def test_a_lost_notification_is_sent_again() -> None:
    """PME-121: within one resend period."""
    rig = loaded()
    to_the_switch(rig)
    rig.world.rent("c")
    rig.world.notify("c")
    while rig.world.network:
        rig.world.drop(0)
    rig.world.tick("c")
    rig.world.deliver(0)
    # The coordinator's answer to b is lost too.
    rig.world.drop(next(i for i, each in enumerate(rig.world.network) if each.to == "b"))
    rig.exchange()
    assert rig.states("b", 3)["c"] is CopyState.OWNING
    rig.world.tick("a")
    rig.exchange()
    for name in "abcd":
        assert rig.states(name, 3)["c"] is CopyState.RENTING


@pytest.mark.row("PME-124", shows="model")
def test_rows_go_one_by_one() -> None:
    """PME-124: RENTING until the last row is gone, then EVICTED; the index over all copies never has a row that
    was removed, and all of the others."""
    rig = loaded()
    to_the_switch(rig)
    rig.world.rent("c")
    store = rig.node("c").store
    left = 5
    while rig.own("c", 3) is CopyState.RENTING:
        rows = {(zone, number, row) for (zone, number), copy in store.copies.items() for row in copy.rows}
        assert store.index == rows
        assert len(store.copies[KEY].rows) == left
        assert rig.world.clear("c")
        left -= 1
    assert rig.own("c", 3) is CopyState.EVICTED
    assert not rig.world.clear("c")
    assert not [row for row in store.index if row[:2] == KEY]


@pytest.mark.row("PME-123", shows="model")
def test_several_changes_at_once() -> None:
    """PME-123: for a while more nodes than needed have a copy; nothing is lost."""
    rig = loaded()
    joined(rig)
    rig.world.stop("a")
    rig.exchange()
    rig.world.start("e")
    rig.exchange()
    assert sum(len(rig.states("b", number)) for number in range(4)) > 8
    rig.settle()
    rig.all_equal()
    for number in range(4):
        owners = [name for name in rig.world.nodes if rig.own(name, number) is CopyState.OWNING]
        assert len(owners) == 2
        for name in owners:
            assert rig.node(name).store.copies[ZONE, number].rows == {1, 2, 3, 4, 5}


@pytest.mark.row("PME-090", "PME-092", "PME-101", "PME-137", shows="model")
def test_a_node_that_was_away() -> None:
    """PME-092: it comes back after updates that it missed. PME-090: its copies are MOVING, and filled after the
    exchange. PME-137: those that missed nothing own, and it may lead them."""
    rig = loaded(persistent=True)
    rig.join("d")
    rig.world.stop("c")
    rig.settle()
    for _ in range(3):
        rig.finish(rig.update("a", 1))
    rig.announce("c")
    rig.exchange()
    assert rig.states("a", 1)["c"] is CopyState.MOVING
    assert rig.states("a", 2)["c"] is CopyState.OWNING
    assert rig.node("a").worker.held.positions[ZONE, 1].counter == 8
    # It takes part in updates from now on, as if it had all of them (PME-101).
    assert rig.node("c").store.copies[ZONE, 1].counter == 8
    assert rig.node("c").store.copies[ZONE, 1].doomed == {1, 2, 3, 4, 5}
    rig.settle()
    assert rig.primaries("a")[2] == "c"
    assert rig.node("c").store.copies[ZONE, 1].rows == {1, 2, 3, 4, 5, 6, 7, 8}


@pytest.mark.row("PME-137", shows="model")
def test_a_primary_is_found_among_fresh_copies_at_activation() -> None:
    """PME-137: two nodes restart, one with partition 1 outdated and 2 current: after activation copy 1 is
    MOVING there, its primary elsewhere, and the node may lead 2."""
    lists = {"ab": ("ab", "ab", "ab", "ab")}
    rig = Rig("ab", lists=lists, persistent=True, baseline="ab")
    for partition in (1, 2):
        rig.finish(rig.update("a", partition))
    rig.world.kill("a")
    rig.world.detect("a")
    rig.settle()
    rig.finish(rig.update("b", 1))
    rig.world.custom(Trigger.DEACTIVATE)
    rig.settle()
    rig.join("a")
    rig.world.custom(Trigger.ACTIVATE)
    rig.exchange()
    assert rig.states("a", 1) == {"a": CopyState.MOVING, "b": CopyState.OWNING}
    assert rig.states("a", 2) == {"a": CopyState.OWNING, "b": CopyState.OWNING}
    assert rig.primaries("a")[1:3] == ["b", "a"]
    assert rig.node("a").store.copies[ZONE, 1].counter == 2


@pytest.mark.row("PME-052", "PME-053", "PME-054", shows="model")
def test_history_of_a_log() -> None:
    """PME-052: the earliest checkpoint whose record is still in the log. PME-053: it has a counter for every
    partition. PME-054: what is reserved is not truncated until it is released."""
    log = WriteAheadLog()
    assert log.reserve() == {}
    for update in range(1, 7):
        if update % 2:
            log.checkpoint({KEY: update - 1, (ZONE, 0): 9})
        log.append(KEY, update)
    assert log.truncate(3) == 3
    assert log.reserve() == {KEY: 4, (ZONE, 0): 9}
    assert log.truncate(log.end) == 4
    assert log.updates_after(KEY, 4) == {5, 6}
    log.release()
    assert log.truncate(log.end) == 6
    assert log.reserve() == {}


@pytest.mark.row("PME-055", "PME-056", "PME-057", "PME-091", "PME-102", "PME-103", shows="model")
@pytest.mark.parametrize(("truncated", "historical"), [(False, True), (True, False)])
def test_updates_are_replayed_or_the_copy_is_loaded(truncated: bool, historical: bool) -> None:
    """PME-055: each node tells in its single message from where it can replay. PME-056, PME-103: a supplier
    whose log reaches back far enough. PME-057: only the missing updates are transferred. PME-091, PME-102: else
    the copy is cleared and loaded from the start."""
    rig = Rig("ab", lists={"ab": ("ab",) * 4}, persistent=True, baseline="ab")
    for node in "ab":
        rig.world.checkpoint(node)
    for _ in range(5):
        rig.finish(rig.update("a", 0))
    rig.world.stop("b")
    rig.settle()
    for _ in range(3):
        rig.finish(rig.update("a", 0))
    if truncated:
        log = rig.node("a").log
        log.truncate(log.end)
        rig.world.checkpoint("a")
    rig.announce("b")
    rig.exchange()
    version = rig.version("a")
    (message,) = rig.fulls(version, "b")
    copy = CopyId(ZONE, 0, "b")
    assert (copy in message.suppliers) is historical
    assert (copy in message.reload) is not historical
    assert rig.node("a").reserved[ZONE, 0].counter == (8 if truncated else 0)
    assert rig.singles(version, "b")[0].history == {(ZONE, number): NO_RECORD for number in range(4)}
    kept = rig.node("a").log.start
    assert rig.node("a").log.truncate(10**6) == (kept if historical else rig.node("a").log.end)
    rig.settle()
    moved = [each.detail.split(" ")[-2:] for each in rig.traced("Demand", "b", version)]
    assert moved[-1] == (["3", "history"] if historical else ["8", "full"])
    assert rig.node("b").store.copies[ZONE, 0].rows == set(range(1, 9))
    assert rig.own("b", 0) is CopyState.OWNING


@pytest.mark.row("PME-058", "PME-059", shows="model")
def test_a_restored_snapshot() -> None:
    """PME-058: copies are attached again with the states that are on disk, as often as it is asked for.
    PME-059: those that are missing are created."""
    rig = loaded()
    for _ in range(2):
        rig.world.custom(Trigger.SNAPSHOT_RESTORE, (rig.zone,))
        rig.settle()
        for number in range(4):
            assert {name for name in "abc" if rig.own(name, number) is CopyState.OWNING} == set(
                rig.ideal("a", number)
            )
            for name in rig.ideal("a", number):
                assert rig.node(name).store.copies[ZONE, number].rows == {1, 2, 3, 4, 5}


@pytest.mark.row("PME-109", shows="model")
def test_local_states_are_always_up_to_date() -> None:
    """PME-109: a node's own map is what it has; that of others may be late by the messages that are on their
    way."""
    rig = loaded()
    joined(rig)
    fill(rig)
    single = rig.node("d").single_maps()[ZONE]
    assert {number: each.state for number, each in single.copies.items()} == {
        number: copy.state for (_, number), copy in rig.node("d").store.copies.items()
    }
    assert rig.states("a", 3)["d"] is not single.copies[3].state
    rig.settle()
    assert rig.states("a", 3)["d"] is single.copies[3].state


@pytest.mark.row("PME-088", "PME-089", shows="model")
def test_copies_that_differ_are_shown() -> None:
    """PME-088, PME-089: a copy that went wrong is named in a warning on the coordinator; the exchange goes
    on."""
    rig = loaded()
    rig.rules_off()
    rig.node("b").store.remove(KEY, 2)
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    rig.exchange()
    assert rig.node("a").warnings == [
        "copies of partition 3 of zone 1 differ: b (counter 5, size 4), c (counter 5, size 5)"
    ]
    rig.all_equal()


@pytest.mark.row("PME-080", "PME-083", shows="model")
def test_primaries_are_balanced_in_the_end() -> None:
    """PME-080, PME-083: after any number of joins the lists are ideal, and each node leads its share."""
    rig = Rig("abcdef", partitions=120, copies=3)
    rig.crash("b")
    rig.settle()
    rig.join("b")
    led = rig.primaries("a")
    for name in "abcdef":
        assert rig.effective(name, 0) == rig.ideal(name, 0)
        assert 10 <= led.count(name) <= 32
    assert rig.node("a").worker.held.rebalanced
