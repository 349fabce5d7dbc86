"""Several events of the ring in one exchange of store servers."""

from __future__ import annotations

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.core.partition_maps.topology_version import ZoneSpec
from rebalance.exchange.core.exchange_messages import SingleMessage
from rebalance.exchange.core.exchange_states import Phase
from rebalance.store.core.store_messages import SupplyRequest
from tests.fixtures.scene_surroundings import FINISHED, Flight
from tests.fixtures.store_scene import ZONE, StoreScene

OTHER = ZoneId(2)


def three_joins(lists: tuple[str, ...] = ("ab", "bc", "ca", "ab")) -> StoreScene:
    """Scene with three joins in the ring, of which no server has heard: while the first is collected two more
    are there."""
    scene = StoreScene("abc", lists)
    scene.fill(1)
    for name in "def":
        scene.announce(name)
    return scene


def hold_singles(scene: StoreScene, *senders: str) -> None:
    """Their single messages wait."""
    scene.holds_where(
        lambda flight: isinstance(flight.message, SingleMessage) and flight.sender.name in senders
    )


def let_go(scene: StoreScene, sender: str) -> None:
    """That server's single message arrives."""

    def is_its(flight: Flight) -> bool:
        return flight.sender.name == sender

    (flight,) = filter(is_its, scene.held)
    scene.held.remove(flight)
    scene.arrive(flight)


@pytest.mark.row("PME-067", "PME-073", "PME-075")
def test_three_quick_joins() -> None:
    """PME-067: one full map with the newest version. PME-073: the version of the last merged event. PME-075:
    merged exchanges are removed from the queue of all servers and never run."""
    scene = three_joins()
    scene.exchange()
    assert {scene.version(name) for name in "abcdef"} == {"6.0"}
    scene.all_equal()
    (message,) = scene.fulls("4.0", "b")
    assert str(message.version) == "6.0"
    assert {*message.maps[ZONE].nodes} == set("abcdef")
    for name in "abc":
        begun = [step.version for step in scene.steps if (step.server, step.kind) == (name, "INIT")]
        assert begun[-1] == "4.0"
        assert not scene.worker(name).queue
        assert scene.kinds(name, "6.0") == [FINISHED]
    assert not scene.fulls("5.0")
    assert not scene.fulls("6.0")


@pytest.mark.row("PME-068", "PME-069", "PME-072")
def test_when_the_queue_is_scanned() -> None:
    """PME-068: when all single messages of the running exchange are in, in queue order. PME-069: from then on
    the merged joiners are waited for, and before they are not. PME-072: the count of missing messages goes up
    with the merge and down with each message, and the exchange ends when it is zero, once."""
    scene = three_joins()
    hold_singles(scene, "c", "e", "f")
    scene.exchange()
    assert scene.awaited("a") == "c"
    let_go(scene, "c")
    assert scene.awaited("a") == "ef"
    let_go(scene, "f")
    assert scene.awaited("a") == "e"
    assert scene.version("a") == "3.1"
    let_go(scene, "e")
    counts = [len(step.awaited) for step in scene.steps if (step.server, step.kind) == ("a", "COLLECT")]
    assert counts[-4:] == [0, 2, 1, 0]
    assert scene.kinds("a", "6.0") == [FINISHED]


@pytest.mark.row("PME-071")
def test_early_messages_of_merged_joiners() -> None:
    """PME-071: they came before the merge, and are not asked for again."""
    scene = three_joins()
    hold_singles(scene, "c")
    scene.exchange()
    assert scene.awaited("a") == "c"
    let_go(scene, "c")
    assert scene.version("a") == "6.0"
    assert len(scene.singles("5.0", "e")) == len(scene.singles("6.0", "f")) == 1


@pytest.mark.row("PME-070")
def test_what_stops_the_scan() -> None:
    """PME-070: join, zone start, join: only the first joins are in the first exchange."""
    scene = StoreScene()
    scene.announce("d")
    scene.announce("e")
    scene.start_zone(("ab", "bc"), OTHER)
    scene.announce("f")
    scene.exchange()
    assert [str(message.version) for message in scene.fulls("4.0", "b")] == ["5.0"]
    assert [str(message.version) for message in scene.fulls("5.1", "b")] == ["6.0"]
    scene.all_equal()


@pytest.mark.row("PME-070")
def test_a_join_with_a_new_zone_stops_the_scan() -> None:
    """PME-070."""
    scene = StoreScene()
    scene.announce("d")
    revision = scene.metastore.set_targets({OTHER: (("e", "a"),)})
    scene.bring("e", ZoneSpec(OTHER, 1, 2, targets=revision))
    scene.exchange()
    assert [str(message.version) for message in scene.fulls("4.0", "b")] == ["4.0"]
    assert "5.0" in [step.version for step in scene.steps if (step.server, step.kind) == ("e", FINISHED)]
    assert OTHER in scene.worker("b").held.maps


@pytest.mark.row("PME-074", "PME-094")
def test_a_merged_failure() -> None:
    """PME-074: the server that failed is absent in the result, and lost partitions are looked for (PME-094)."""
    scene = StoreScene("abcd", ("ed", "a", "b", "c"))
    scene.fill(1)
    scene.announce("e")
    scene.crash("d")
    scene.exchange()
    assert scene.version("a") == "6.0"
    (message,) = scene.fulls("5.0", "b")
    assert str(message.version) == "6.0"
    assert {*message.maps[ZONE].nodes} == set("abce")
    assert message.lost == {ZONE: {0}}
    assert scene.own("e", 0) is CopyState.LOST


@pytest.mark.row("PME-066", "PME-069")
def test_a_merged_joiner_that_dies() -> None:
    """PME-069, PME-066: wait no more for a merged joiner that died."""
    scene = StoreScene()
    scene.announce("d")
    scene.announce("e")
    hold_singles(scene, "e")
    scene.exchange()
    assert scene.awaited("a") == "e"
    assert scene.phase("b") is Phase.SENT
    scene.crash("e")
    scene.exchange()
    assert {scene.version(name) for name in "abcd"} == {"6.0"}
    scene.settle()
    scene.all_equal()


@pytest.mark.row("PME-086", "PME-087", "PME-104", "PME-135")
def test_each_merged_joiner_is_a_backup() -> None:
    """PME-086: make each joiner a backup where the ideal list names it first, in the full message's affinity of
    joined servers.

    PME-087: which is what the joining server holds. PME-104: of all zones, in the message, and only when a
    server joined. PME-135: a joiner leads nothing.
    """
    scene = StoreScene("abc", ("dab", "ebc", "ca", "ab"))
    scene.fill(1)
    scene.holds(SupplyRequest)
    scene.announce("d")
    scene.announce("e")
    scene.exchange()
    (message,) = scene.fulls("4.0", "d")
    joined = ["".join(nodes) for nodes in message.joined_affinity[ZONE]]
    assert joined == ["adb", "bec", "ca", "ab"]
    assert [scene.effective("e", number) for number in range(4)] == joined
    assert [scene.effective("a", number) for number in range(4)] == joined
    assert not {"d", "e"} & set(scene.primaries("b"))
    scene.release()
    scene.settle()
    assert scene.primaries("b") == ["d", "e", "c", "a"]
    assert not any(message.joined_affinity for message in scene.fulls(scene.version("b")))
