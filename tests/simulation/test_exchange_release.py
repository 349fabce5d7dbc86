"""Updates and transactions around an exchange: on which version they run, and who waits for whom."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalance.core.affinity import CopyState
from rebalance.core.topology_version import Trigger
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.simulation.exchange_node import TopologyLock
from rebalance.exchange.simulation.exchange_workload import ExchangeOperation, ExchangeStage, SyncMode
from tests.simulation.exchange_rig import ZONE, Rig

LISTS = {"abc": ("ab", "bc", "ca", "ab")}


def rig_of_three() -> Rig:
    return Rig("abc", lists=LISTS)


def at(rig: Rig, near: str, partition: int, stage: ExchangeStage, **more: Any) -> ExchangeOperation:
    operation = rig.world.workload.begin(near, (ZONE, partition), **more)
    rig.lead(operation, stage)
    assert operation.stage is stage
    return operation


@pytest.mark.row("PME-038", "PME-039", shows="model")
def test_an_update_records_the_version_that_it_used() -> None:
    """PME-038. PME-039: with the topology future done it does not wait; the read lock is taken before the
    future is read, and released after."""
    rig = rig_of_three()
    update = rig.update("b")
    rig.finish(update)
    assert [str(each) for each in update.versions] == ["3.1"]
    read = ("ReadLock", "ReadFuture", "ReadUnlock")
    assert tuple(each.kind for each in rig.world.trace if each.node == "b" and each.kind in read) == read


@pytest.mark.row("PME-040", "PME-042", shows="model")
def test_an_update_that_comes_during_an_exchange() -> None:
    """PME-040: it waits without holding anything, and is mapped on the new version. PME-042: it goes on without
    being asked again."""
    rig = rig_of_three()
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    rig.discover("b")
    update = rig.update("b")
    assert update.stage is ExchangeStage.WAITING
    assert not rig.node("b").lock.readers
    rig.settle()
    assert update.stage is ExchangeStage.DONE
    assert [str(each) for each in update.versions] == ["3.2"]


@pytest.mark.row("PME-041", "PME-043", shows="model")
def test_updates_of_the_version_before_end_first() -> None:
    """PME-041: none of them completes after the full map was sent. PME-043: an update that is held delays the
    exchange on every server."""
    rig = rig_of_three()
    update = at(rig, "b", 0, ExchangeStage.ENLISTED, held_open=True)
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    rig.exchange()
    assert [rig.phase(name) for name in "abc"] == [
        Phase.RELEASE,
        Phase.RELEASE,
        Phase.LATCH,
    ]
    assert not rig.fulls("3.2")
    update.held_open = False
    rig.finish(update)
    assert update.stage is ExchangeStage.DONE
    assert not rig.fulls("3.2")
    rig.exchange()
    assert rig.fulls("3.2")
    assert {rig.version(name) for name in "abc"} == {"3.2"}


@pytest.mark.row("PME-047", "PME-048", shows="model")
def test_the_latch() -> None:
    """PME-047: a node with an open update does not count down until that ended, one without counts down at
    once. PME-048: the latch opens when all servers have."""
    rig = rig_of_three()
    update = at(rig, "b", 1, ExchangeStage.ENLISTED, held_open=True)
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    rig.exchange()
    assert [rig.phase(name) for name in "abc"] == [
        Phase.LATCH,
        Phase.RELEASE,
        Phase.LATCH,
    ]
    running = rig.node("a").worker.running
    assert running is not None
    assert running.counted == {"a", "c"}
    assert not running.latch_open
    update.held_open = False
    rig.finish(update)
    assert running.counted == {"a", "c"}
    rig.exchange()
    assert running.latch_open


@pytest.mark.row("PME-044", shows="model")
def test_a_transaction_that_a_client_began() -> None:
    """PME-044: clients release nothing, so the primary's part of it is waited for; after the primary has
    released, it takes nothing more from clients."""
    rig = rig_of_three()
    rig.world.start("k", client=True)
    rig.settle()
    enlisted = at(rig, "k", 0, ExchangeStage.ENLISTED, held_open=True)
    mapped = at(rig, "k", 1, ExchangeStage.MAPPED)
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    rig.exchange()
    assert rig.phase("a") is Phase.RELEASE
    assert rig.phase("b") is Phase.LATCH
    rig.lead(mapped, ExchangeStage.WAITING)
    assert mapped.stage is ExchangeStage.WAITING
    enlisted.held_open = False
    rig.finish(enlisted)
    rig.settle()
    assert str(enlisted.version) == "4.0"
    assert [str(each) for each in mapped.versions] == ["4.0", "4.1"]
    assert mapped.stage is ExchangeStage.DONE


@pytest.mark.row("PME-045", shows="model")
@pytest.mark.parametrize("mode", SyncMode, ids=lambda each: each.value)
def test_commits_to_backups_are_waited_for(mode: SyncMode) -> None:
    """PME-045: also where the update was acknowledged before (PRIMARY_SYNC)."""
    rig = rig_of_three()
    update = at(rig, "a", 0, ExchangeStage.COMMITTING, mode=mode)
    assert update.commits == {"b"}
    acknowledged = rig.world.workload.acknowledged.get((ZONE, 0))
    assert bool(acknowledged) is (mode is SyncMode.PRIMARY_SYNC)
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    rig.exchange()
    assert rig.phase("b") is Phase.RELEASE
    assert rig.world.commit(update, "b")
    rig.exchange()
    assert rig.version("b") == "3.2"


@pytest.mark.row("PME-046", "PME-051", shows="model")
def test_an_idle_transaction_is_rolled_back() -> None:
    """PME-046: it does not block the exchange for ever. PME-051: the one that is too old is rolled back while
    updates are released, and the client is told why."""
    rig = rig_of_three()
    idle = at(rig, "b", 0, ExchangeStage.ENLISTED, held_open=True)
    assert not rig.world.time_out("a")
    assert idle.stage is ExchangeStage.ENLISTED
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    rig.exchange()
    assert rig.phase("a") is Phase.RELEASE
    assert rig.world.time_out("a") == [idle]
    assert idle.stage is ExchangeStage.ROLLED_BACK
    assert "rolled back by a" in idle.reason
    rig.exchange()
    assert rig.version("a") == "3.2"
    assert not rig.node("a").store.copies[ZONE, 0].rows


@pytest.mark.row("PME-050", shows="model")
def test_a_commit_that_appears_after_the_latch() -> None:
    """PME-050: the second phase waits for it, there is no second latch, and the single message follows."""
    rig = rig_of_three()
    # An acknowledged update is nowhere for a while, which no rule would let pass.
    rig.rules_off()
    update = at(rig, "a", 0, ExchangeStage.COMMITTING, mode=SyncMode.PRIMARY_SYNC)
    (backup,) = update.commits
    update.commits.clear()
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    rig.discover()
    for _ in range(50):
        running = rig.node("a").worker.running
        if running is not None and running.latch_open:
            break
        rig.world.deliver(0)
    update.commits.add(backup)
    rig.exchange()
    assert rig.phase("b") is Phase.COMMITS
    assert not rig.singles("3.2", "b")
    latches = [each for each in rig.traced("Entered", "b", "3.2") if "LATCH" in each.detail]
    assert rig.world.commit(update, "b")
    rig.exchange()
    assert latches == [each for each in rig.traced("Entered", "b", "3.2") if "LATCH" in each.detail]
    assert len(latches) == 1
    kinds = [
        each.kind for each in rig.world.trace if each.node == "b" and each.kind in ("Commit", "UpdatesEnded")
    ]
    assert kinds[-2:] == ["Commit", "UpdatesEnded"]
    assert rig.singles("3.2", "b")


@pytest.mark.row("PME-049", shows="model")
@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_after_the_latch_only_commits_appear(seed: int) -> None:
    """PME-049: in any order of steps, once the latch is open no server gets an open update of an earlier
    version but commits from a primary to a backup."""
    rng = random.Random(seed)
    rig = rig_of_three()
    rig.world.start("k", client=True)
    rig.settle()
    for _ in range(6):
        at(
            rig,
            rng.choice("abck"),
            rng.randrange(4),
            rng.choice((ExchangeStage.MAPPED, ExchangeStage.ENLISTED, ExchangeStage.COMMITTING)),
        )
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    version = rig.world.ring.cluster.version
    for _ in range(120):
        draw = rng.random()
        open_updates = rig.world.workload.open
        if draw < 0.3:
            rig.world.discover(rng.choice("abck"))
        elif draw < 0.6 and rig.world.network:
            rig.world.deliver(rng.randrange(len(rig.world.network)))
        elif draw < 0.9 and open_updates:
            operation = rng.choice(open_updates)
            if operation.commits and rng.random() < 0.5:
                rig.world.commit(operation, min(operation.commits))
            else:
                rig.world.advance(operation)
        for name in "abc":
            running = rig.node(name).worker.running
            if running is None or not running.latch_open or running.version != version:
                continue
            for each in rig.world.workload.operations:
                if (
                    each.version is not None
                    and each.version < version
                    and each.is_open_on(name, is_server=True)
                ):
                    assert each.stage is ExchangeStage.COMMITTING
                    assert name in each.commits or each.commits


@pytest.mark.row("PME-129", "PME-130", shows="model")
def test_the_lock_has_many_readers_or_one_writer() -> None:
    """PME-129: several read at the same time, the writer waits for all of them. PME-130: and then for nobody;
    while it has the lock nobody reads."""
    lock = TopologyLock()
    assert lock.read(1)
    assert lock.read(2)
    assert not lock.write("x")
    lock.end_read(1)
    assert not lock.write("x")
    # Nobody overtakes a writer that waits.
    assert not lock.read(3)
    lock.end_read(2)
    assert lock.write("x")
    assert not lock.read(3)
    assert not lock.write("y")
    lock.end_write("y")
    assert lock.writer == "x"
    lock.end_write("x")
    assert lock.read(3)


@pytest.mark.row("PME-129", "PME-130", shows="model")
def test_an_exchange_waits_for_readers_of_the_lock() -> None:
    """PME-129, PME-130: two operations hold the lock for reading: the exchange gets it for writing after
    both."""
    rig = rig_of_three()
    readers = [at(rig, "b", number, ExchangeStage.LOCKED) for number in (0, 1)]
    rig.world.custom(Trigger.SNAPSHOT_CREATE)
    rig.discover("b")
    for reader in readers:
        assert rig.phase("b") is Phase.TOPOLOGY
        assert not rig.traced("TopologyFuture", "b", "3.2")
        rig.world.advance(reader)
    assert rig.traced("TopologyFuture", "b", "3.2")
    # They read the future before this exchange was it.
    assert all(str(each.version) == "3.1" for each in readers)


@pytest.mark.row("PME-122", "PME-125", "PME-126", shows="model")
@pytest.mark.parametrize("kind", ["join", "leave", "custom"])
def test_exchanges_that_wait_and_notifications_that_do_not(kind: str) -> None:
    """PME-125: join, leave and custom events do not finish while an update of the version before is open;
    PME-126: a notification of states does, and blocks nobody. PME-122: the one has an exchange id, the other
    has not."""
    rig = rig_of_three()
    held_open = at(rig, "b", 0, ExchangeStage.ENLISTED, held_open=True)
    sent = len(rig.singles(None, "c"))
    rig.node("c").store.set_state((ZONE, 0), CopyState.LOST)
    rig.world.notify("c")
    assert [each.exchange for each in rig.singles(None, "c")[sent:]] == [None]
    rig.exchange()
    assert rig.states("b")["c"] is CopyState.LOST
    other = rig.update("b", 1)
    rig.finish(other)
    assert other.stage is ExchangeStage.DONE
    if kind == "join":
        rig.announce("d")
    elif kind == "leave":
        rig.world.stop("c")
    else:
        rig.world.custom(Trigger.LOG_SWITCH)
    version = str(rig.world.ring.cluster.version)
    rig.exchange()
    assert not rig.fulls(version)
    assert rig.phase("a") is Phase.RELEASE
    held_open.held_open = False
    rig.finish(held_open)
    rig.exchange()
    assert rig.version("a") == version
    assert rig.fulls(version)
