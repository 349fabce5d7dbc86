"""Coordinators that die: in each phase, alone or one after the other, and what their successors make of it."""

from __future__ import annotations

import pytest

from rebalance.core.affinity import CopyState
from rebalance.core.topology_version import Trigger
from rebalance.exchange.core.exchange_messages import FullMessage, LatchOpen, SingleMessage
from rebalance.exchange.core.exchange_states import Phase
from tests.simulation.exchange_rig import ZONE, Rig

PHASES = (
    Phase.TOPOLOGY,
    Phase.RELEASE,
    Phase.LATCH,
    Phase.COMMITS,
    Phase.COLLECT,
)


def until(rig: Rig, name: str, phase: Phase) -> None:
    """Messages and events in turn, until the node is in the phase; updates hold it in those it would run
    through."""
    for _ in range(500):
        if rig.phase(name) is phase:
            return
        for each in sorted(rig.world.nodes):
            rig.world.discover(each)
        if rig.world.network and rig.phase(name) is not phase:
            rig.world.deliver(0)
    raise AssertionError(f"{name} is never in {phase}")


def held_in(rig: Rig, phase: Phase) -> None:
    """The coordinator a is in ``phase`` of an exchange."""
    update = rig.world.workload.begin("a", (ZONE, 0))
    if phase is Phase.TOPOLOGY:
        rig.world.advance(update)
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    if phase is Phase.RELEASE:
        for _ in range(3):
            rig.world.advance(update)
    if phase is Phase.COMMITS:
        until(rig, "a", Phase.LATCH)
        update.stage, update.versions = type(update.stage).COMMITTING, [rig.node("a").worker.held.version]
        update.commits = {"a"}
        # Nobody is told of it: it stands for a commit that is on its way, and has no row.
        update.losses = -1
    until(rig, "a", phase)


@pytest.mark.row("PME-110", shows="model")
@pytest.mark.parametrize("phase", PHASES, ids=lambda each: each.value)
@pytest.mark.parametrize("deaths", ["a", "ab"])
def test_the_next_oldest_finishes(phase: Phase, deaths: str) -> None:
    """PME-110: the coordinator dies in each of its phases, and its successor too: the next oldest completes the
    exchange, and all end with one map."""
    rig = Rig("abcd", copies=3)
    held_in(rig, phase)
    for name in deaths:
        assert rig.world.ring.cluster.coordinator == name
        rig.crash(name)
    rig.settle()
    rig.all_equal()
    left = set("abcd") - set(deaths)
    assert {*rig.node("d").worker.held.maps[ZONE].nodes} == left
    assert rig.node(min(left)).worker.is_coordinator
    for number in range(4):
        assert rig.effective("d", number)[0] in left


def collected(rig: Rig) -> None:
    """All single messages are in, and the coordinator's full messages are all on their way."""
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    for _ in range(200):
        rig.discover()
        if rig.fulls(str(rig.world.ring.cluster.version)):
            return
        rig.world.deliver(0)


@pytest.mark.row("PME-001", "PME-110", shows="model")
@pytest.mark.parametrize("reached", ["", "b", "c", "d", "cd", "bcd"])
def test_full_messages_that_reached_some(reached: str) -> None:
    """PME-110, PME-001: the coordinator died with its full messages on their way. If one has finished, all
    finish with that one: the successor asks before it concludes anything by itself."""
    rig = Rig("abcd")
    collected(rig)
    for name in reached:
        index = next(i for i, each in enumerate(rig.world.network) if each.to == name)
        rig.world.deliver(index)
    built = {name: rig.node(name).worker.held for name in reached}
    for index in reversed(range(len(rig.world.network))):
        if isinstance(rig.world.network[index].message, FullMessage):
            rig.world.drop(index)
    rig.crash("a")
    finished: dict[str, str] = {}
    for name in "bcd":
        rig.node(name).listeners.append(lambda version, name=name: finished.setdefault(name, str(version)))
    rig.settle()
    rig.all_equal()
    for name in reached:
        assert str(built[name].version) == "4.2"
        # It never has to take back what it finished.
        assert finished[name] == "5.0"


@pytest.mark.row("PME-110", shows="model")
def test_a_message_of_the_coordinator_before_is_refused() -> None:
    """PME-110: it comes late, when the node has sent its map to the successor already: two results of one
    exchange must not be held by two servers."""
    rig = Rig("abcd")
    collected(rig)
    late = [each for each in rig.world.network if isinstance(each.message, FullMessage)]
    rig.world.network.clear()
    rig.crash("a")
    rig.discover()
    rig.world.network.extend(late)
    for _ in late:
        rig.world.deliver(len(rig.world.network) - 1)
    assert {rig.phase(name) for name in "bcd"} == {Phase.SENT, Phase.COLLECT}
    rig.settle()
    rig.all_equal()
    assert {*rig.node("b").worker.held.maps[ZONE].nodes} == set("bcd")


@pytest.mark.row("PME-048", "PME-110", shows="model")
def test_a_latch_that_was_opened_for_some() -> None:
    """PME-110, PME-048: the successor's latch counts those that have passed."""
    rig = Rig("abcd")
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    until(rig, "a", Phase.COLLECT)
    opens = [index for index, each in enumerate(rig.world.network) if isinstance(each.message, LatchOpen)]
    for index in reversed(opens):
        if rig.world.network[index].to == "c":
            rig.world.deliver(index)
        else:
            rig.world.drop(index)
    assert rig.phase("c") is Phase.SENT
    assert rig.phase("b") is rig.phase("d") is Phase.LATCH
    rig.crash("a")
    # Whatever c sends to its new coordinator is lost the first time.
    rig.discover("c")
    rig.world.network.clear()
    rig.settle()
    rig.all_equal()


@pytest.mark.row("PME-138", shows="model")
def test_the_wait_list_of_a_new_coordinator() -> None:
    """PME-138: it follows from what every server holds: after the coordinator died the switch is asked for all
    the same, by its successor, when the last late primary is ready."""
    lists = {
        "abc": ("ab", "bc", "ca", "bc"),
        "abcd": ("ab", "bc", "ca", "db"),
        "bcd": ("bc", "bc", "cb", "db"),
    }
    rig = Rig("abc", lists=lists)
    rig.announce("d")
    rig.exchange()
    waiting = rig.node("a").worker.held.late
    assert waiting == {(ZONE, 3): "d"}
    assert rig.node("b").worker.held.late == waiting
    rig.crash("a")
    rig.exchange()
    assert rig.node("b").worker.held.late == waiting
    rig.settle()
    assert [each.node for each in rig.traced("AskSwitch")][-1] == "b"
    assert rig.primaries("b")[3] == "d"


@pytest.mark.row("PME-001", "PME-016", shows="model")
def test_lost_and_repeated_messages() -> None:
    """PME-001, PME-016: whatever is lost is sent again until it has arrived, what comes twice counts once."""
    rig = Rig("abcd")
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    lost: set[tuple[str, str, str]] = set()
    for _ in range(60):
        rig.discover()
        while rig.world.network:
            each = rig.world.network[0]
            kind = (each.sender, each.to, type(each.message).__name__)
            if kind not in lost:
                lost.add(kind)
                rig.world.drop(0)
                continue
            rig.world.network.insert(0, each)
            rig.world.deliver(0)
            rig.world.deliver(0)
        for name in "abcd":
            rig.world.tick(name)
    rig.settle()
    rig.all_equal()
    assert rig.version("d") == "4.2"
    assert len(rig.traced("Finished", "d", "4.2")) == 1
    assert ("b", "a", SingleMessage.__name__) in lost
    assert rig.states("c") == dict.fromkeys(rig.ideal("c"), CopyState.OWNING) | {
        name: state for name, state in rig.states("c").items() if state is CopyState.EVICTED
    }


@pytest.mark.row("PME-122", shows="model")
def test_an_old_answer_of_an_earlier_exchange() -> None:
    """PME-122: a state update that speaks of an earlier exchange changes nothing; a single map that comes after
    its exchange is answered with how that ended."""
    rig = Rig("abc")
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    until(rig, "b", Phase.SENT)
    copies = [
        each for each in rig.world.network if isinstance(each.message, SingleMessage) and each.sender == "b"
    ]
    rig.world.network.append(copies[0])
    rig.settle()
    before = rig.node("a").worker.held
    rig.world.network.append(copies[0])
    rig.world.deliver(0)
    assert rig.node("a").worker.held is before
    (answer,) = rig.world.network
    assert answer.to == "b"
    assert isinstance(answer.message, FullMessage)
    held = rig.node("b").worker.held
    rig.world.deliver(0)
    assert rig.node("b").worker.held is held
