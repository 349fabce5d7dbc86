"""Several events in one exchange."""

from __future__ import annotations

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.affinity import CopyState
from rebalance.core.topology_version import Trigger, ZoneSpec
from rebalance.exchange.core.exchange_messages import SingleMessage
from rebalance.exchange.core.exchange_states import Phase
from tests.simulation.exchange_rig import ZONE, Rig

OTHER = ZoneSpec(ZoneId(2), 3, 2)


def held_back(rig: Rig, *senders: str) -> list[int]:
    """Where single messages of these nodes wait in the network."""
    return [
        index
        for index, each in enumerate(rig.world.network)
        if each.sender in senders and isinstance(each.message, SingleMessage)
    ]


def deliver_all_but(rig: Rig, *senders: str) -> None:
    """Until nothing but their single messages is left."""
    for _ in range(500):
        rig.discover()
        waiting = held_back(rig, *senders)
        index = next((i for i in range(len(rig.world.network)) if i not in waiting), None)
        if index is None:
            return
        rig.world.deliver(index)


def with_three_joins(rig: Rig) -> None:
    """While the first join is being collected two more have come; nothing of them has been sent."""
    for name in "def":
        rig.announce(name)


@pytest.mark.row("PME-067", "PME-073", "PME-075", shows="model")
def test_three_quick_joins() -> None:
    """PME-067: one full map with the newest version. PME-073: the version of the last merged event. PME-075:
    merged exchanges are removed from the queue of all nodes and never run."""
    rig = Rig("abc")
    with_three_joins(rig)
    rig.exchange()
    assert {rig.version(name) for name in "abcdef"} == {"6.0"}
    rig.all_equal()
    (message,) = rig.fulls("4.0", "b")
    assert str(message.version) == "6.0"
    assert {*message.maps[ZONE].nodes} == set("abcdef")
    for name in "abc":
        began = [str(each.version) for each in rig.traced("Entered", name) if "INIT" in each.detail]
        assert "5.0" not in began
        assert "6.0" not in began
        assert not rig.node(name).worker.queue
    (finished,) = rig.traced("Finished", "b", "6.0")
    assert finished.detail == "ALL 5.0,6.0"
    assert not rig.fulls("5.0")
    assert not rig.fulls("6.0")


@pytest.mark.row("PME-068", "PME-069", "PME-072", shows="model")
def test_when_the_queue_is_scanned() -> None:
    """PME-068: when all single messages of the running exchange are in, in queue order. PME-069: from then on
    the merged joiners are waited for, and before they are not. PME-072: the count of missing messages goes up
    with the merge and down with each message, and the exchange ends when it is zero, once."""
    rig = Rig("abc")
    with_three_joins(rig)
    deliver_all_but(rig, "c", "e", "f")
    assert rig.node("a").worker.awaited == {"c"}
    (index,) = held_back(rig, "c")
    rig.world.deliver(index)
    assert rig.node("a").worker.awaited == {"e", "f"}
    for name, left in (("f", {"e"}), ("e", set())):
        (index,) = held_back(rig, name)
        rig.world.deliver(index)
        assert rig.node("a").worker.awaited == left
    lists = [
        each.detail.split(" ", 2)[2:] for each in rig.traced("Entered", "a", "4.0") if "COLLECT" in each.detail
    ]
    counts = [len(each[0].split(",")) if each else 0 for each in lists]
    assert counts[-4:] == [0, 2, 1, 0]
    assert len(rig.traced("Finished", "a", "6.0")) == 1


@pytest.mark.row("PME-071", shows="model")
def test_early_messages_of_merged_joiners() -> None:
    """PME-071: they came before the merge, and are not asked for again."""
    rig = Rig("abc")
    with_three_joins(rig)
    deliver_all_but(rig, "c")
    assert rig.node("a").worker.awaited == {"c"}
    (index,) = held_back(rig, "c")
    rig.world.deliver(index)
    assert rig.version("a") == "6.0"
    assert len(rig.singles("5.0", "e")) == len(rig.singles("6.0", "f")) == 1


@pytest.mark.row("PME-070", shows="model")
def test_what_stops_the_scan() -> None:
    """PME-070: join, zone start, join: only the first join is in the first exchange."""
    rig = Rig("abc")
    rig.announce("d")
    rig.announce("e")
    rig.world.custom(Trigger.ZONE_START, (OTHER,))
    rig.announce("f")
    rig.exchange()
    assert [str(each.version) for each in rig.fulls("4.0", "b")] == ["5.0"]
    assert [str(each.version) for each in rig.fulls("5.1", "b")] == ["6.0"]
    assert {rig.version(name) for name in "abcdef"} == {"6.0"}
    rig.all_equal()


@pytest.mark.row("PME-070", shows="model")
def test_a_join_with_a_new_zone_stops_the_scan() -> None:
    """PME-070."""
    rig = Rig("abc")
    rig.announce("d")
    rig.world.start("e", zones=(OTHER,))
    rig.discover()
    rig.exchange()
    assert [str(each.version) for each in rig.fulls("4.0", "b")] == ["4.0"]
    assert rig.version("e") == "5.0"
    assert OTHER.zone_id in rig.node("b").worker.held.maps


@pytest.mark.row("PME-074", "PME-094", shows="model")
def test_a_merged_leave() -> None:
    """PME-074: the node that left is absent in the result, and lost partitions are looked for (PME-094)."""
    rig = Rig(
        "abcd",
        lists={"abcd": ("d", "a", "b", "c"), "abcde": ("e", "a", "b", "c"), "abce": ("e", "a", "b", "c")},
    )
    rig.announce("e")
    rig.crash("d")
    rig.exchange()
    assert rig.version("a") == "6.0"
    (message,) = rig.fulls("5.0", "b")
    assert str(message.version) == "6.0"
    assert {*message.maps[ZONE].nodes} == set("abce")
    assert message.lost == {ZONE: {0}}
    assert rig.own("e", 0) is CopyState.LOST


@pytest.mark.row("PME-066", "PME-069", shows="model")
def test_a_merged_joiner_that_dies() -> None:
    """PME-069, PME-066: nobody waits for it any more."""
    rig = Rig("abc")
    rig.announce("d")
    rig.announce("e")
    deliver_all_but(rig, "e")
    assert rig.node("a").worker.awaited == {"e"}
    assert rig.phase("b") is Phase.SENT
    rig.world.kill("e")
    rig.world.detect("e")
    rig.exchange()
    assert {rig.version(name) for name in "abcd"} == {"6.0"}
    rig.settle()
    rig.all_equal()


@pytest.mark.row("PME-086", "PME-087", "PME-104", "PME-135", shows="model")
def test_each_merged_joiner_is_a_backup() -> None:
    """PME-086: where the ideal list names it first, in the full message's affinity of joined nodes. PME-087:
    which is what the joining node holds. PME-104: of all zones, in the message, and only when somebody joined.
    PME-135: a joiner leads nothing."""
    lists = {
        "abc": ("ab", "bc", "ca", "ab"),
        "abcd": ("da", "bc", "ca", "ab"),
        "abcde": ("da", "eb", "ca", "ab"),
    }
    rig = Rig("abc", lists=lists)
    rig.announce("d")
    rig.announce("e")
    rig.exchange()
    (message,) = rig.fulls("4.0", "d")
    joined = ["".join(each) for each in message.joined_affinity[ZONE]]
    assert joined == ["ad", "be", "ca", "ab"]
    assert [rig.effective("e", number) for number in range(4)] == joined
    assert [rig.effective("a", number) for number in range(4)] == joined
    assert not {"d", "e"} & set(rig.primaries("b"))
    rig.settle()
    assert rig.primaries("b") == ["d", "e", "c", "a"]
    assert not any(each.joined_affinity for each in rig.fulls(rig.version("b")))
