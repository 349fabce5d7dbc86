"""Store servers under faults, from seeds; and what the rules see when a rule of the protocol is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rebalance.core.partition_maps.partition_map import NO_RECORD, CopyState
from rebalance.exchange.core import partition_analysis
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.core.exchange_worker import ExchangeWorker
from rebalance.exchange.core.late_affinity import surplus_partitions
from rebalance.store.core import copy_moves, fill_work
from rebalance.store.core.disk_changes import CutLog
from rebalance.store.core.filling import supply
from rebalance.store.core.log_records import KeyChange, WriteId
from rebalance.store.core.replication import Replication
from rebalance.store.core.ring_keeper import FailServer
from rebalance.store.core.shared_state import ServerLife
from rebalance.store.core.store_copy import Leading
from rebalance.store.core.store_inputs import RoomChanged
from rebalance.store.core.store_messages import AnswerCode, ReadRequest, StoreAnswer, SupplyBatch, WriteRequest
from simulator.store import store_disk
from simulator.store.store_metastore import StoreMetastore
from simulator.store.store_run import ZONE, StoreRun, StoreShape
from simulator.store.store_world import StoreProcess, StoreRuleBrokenError, StoreWorld
from tests.fixtures.simulated_judgement import judged
from tests.fixtures.simulated_trio import tail_of, trio
from tests.fixtures.store_scene import StoreScene

Patch = pytest.MonkeyPatch


def test_a_seed_happens_again() -> None:
    one, other = StoreRun(3), StoreRun(3)
    one.run()
    other.run()
    assert one.world.trace == other.world.trace
    assert one.world.steps == other.world.steps


@pytest.mark.row("PME-001", "PME-123", "PME-128")
@pytest.mark.parametrize("seed", range(8))
def test_seeds(seed: int) -> None:
    """Servers killed, paused and cut off, the metastore silent, targets changed: no acknowledged write is lost,
    one order of writes explains all answers, never two primaries, no write twice, and rest in the end."""
    run = StoreRun(seed)
    run.run()
    assert len(run.clients.history.acknowledged) > 20
    assert not judged(run.clients.history)


@pytest.mark.soak
def test_many_seeds() -> None:
    for seed in range(1_000):
        run = StoreRun(seed)
        run.run()
        assert not judged(run.clients.history)


def _no_clock_check_after_sync(patch: Patch) -> None:
    """Nor anywhere else once a heartbeat was confirmed: a server that was stopped goes on as if nothing was."""
    patch.setattr(
        StoreProcess,
        "_to_socket",
        lambda self, reply: self._around.answered(self, reply.client, reply.answer) if self.is_alive else None,
    )
    patch.setattr(ServerLife, "serves", lambda self, now_ms: self.until_ms > 0)
    patch.setattr(ServerLife, "is_over", lambda self, now_ms: False)


def _wait_for_owning_only(patch: Patch) -> None:
    patch.setattr(copy_moves, "waited_for", lambda outcome: frozenset(outcome.in_sync))


def _bare_counters(patch: Patch) -> None:
    """Let an owner that comes back own if it has as many records as the others, whichever server wrote them."""

    def untrusted(reports: Any, outcome: Any, joined: Any) -> Any:
        owners = partition_analysis.owners_of(reports)
        highest = max((reports[node].counter for node in owners), default=0)
        return frozenset(node for node in owners if reports[node].counter < highest)

    patch.setattr(partition_analysis, "untrusted", untrusted)


def _result_sent_before_its_commit(patch: Patch) -> None:
    collected = ExchangeWorker._collected

    def told_at_once(self: ExchangeWorker, running: Any) -> Any:
        effects = collected(self, running)
        return effects + self._concluded(running) if running.phase is Phase.COMMIT else effects

    patch.setattr(ExchangeWorker, "_collected", told_at_once)


def _node_failed_unguarded(patch: Patch) -> None:
    act = StoreMetastore.act

    def unguarded(self: StoreMetastore, action: Any) -> bool:
        if not isinstance(action, FailServer) or action.name not in self.ring.incarnations:
            return act(self, action)
        incarnation = self.ring.incarnations[action.name]
        revision = self.heartbeats.get((action.name, incarnation), 0)
        return act(self, FailServer(self.ring.number, action.name, incarnation, revision))

    patch.setattr(StoreMetastore, "act", unguarded)


def _same_incarnation_again(patch: Patch) -> None:
    patch.setattr(StoreWorld, "incarnation_of", lambda self, name: name)


def _tail_cut(patch: Patch) -> None:
    """The log is cut where this copy has it on its disk, whatever the others have."""

    def cut(self: Replication, copy: Any) -> None:
        if copy.state is CopyState.OWNING and copy.stored > copy.log_start:
            copy.log_start = copy.stored
            self._shared.disk.add(CutLog(copy.partition, copy.stored, 0))
            self._shared.keep_head(copy)

    patch.setattr(Replication, "_cut", cut)


def _tombstone_missing(patch: Patch) -> None:
    keep = store_disk._keep
    patch.setattr(store_disk, "_keep", lambda stored, row, tombstones: keep(stored, row, False))


def _ids_not_supplied(patch: Patch) -> None:
    def without_ids(*arguments: Any) -> Any:
        batch = supply(*arguments)
        return replace(batch, ids=(), next_after=None) if batch is not None and batch.ids else batch

    patch.setattr(fill_work, "supply", without_ids)


def _read_of_a_pending_write(patch: Patch) -> None:
    add = Leading.add

    def forgetful(self: Leading, *arguments: Any) -> None:
        add(self, *arguments)
        self.by_key.clear()

    patch.setattr(Leading, "add", forgetful)


def _rented_before_the_commit(patch: Patch) -> None:
    patch.setattr(
        copy_moves,
        "surplus_partitions",
        lambda full, affinity, node, own, outcomes: surplus_partitions(
            full, replace(affinity, effective=affinity.ideal), node, own
        ),
    )


def _whoever_owned_may_own(patch: Patch) -> None:
    patch.setattr(partition_analysis, "untrusted", lambda reports, outcome, joined: frozenset())


def _ids_not_looked_up(patch: Patch) -> None:
    patch.setattr(store_disk.SimulatedDisk, "write_id", lambda self, partition, write: None)


SLOW = StoreShape(
    servers=4,
    partitions=1,
    copies=2,
    clients=8,
    keys=60,
    deletes=True,
    moves_only=True,
    fault_every_ms=(400, 2_500),
)
"""Copies are filled all the time, by slow disks, while keys are deleted."""


def seed_of(number: int, shape: StoreShape | None = None) -> Callable[[], None]:
    def run() -> None:
        one = StoreRun(number, shape)
        one.run()
        unexplained = judged(one.clients.history)
        if unexplained:
            raise StoreRuleBrokenError(str(unexplained[0]))

    return run


def some_seed(number: int, start: int = 0) -> None:
    """The first that breaks a rule, of as many as are quickly run."""
    for seed in range(start, start + number):
        seed_of(seed)()


def primary_dies_with_one_backup_behind() -> None:
    """The primary is cut from one of its backups, writes go on, and it dies."""
    run, (primary, ahead, behind) = trio(seed=4)
    run.world.cut(primary.name, behind.name)
    run.world.time.run_until(run.world.time.now + 1_200)
    assert tail_of(ahead) > tail_of(behind)
    run.world.kill(primary.name)
    run.rest()
    run.check()


def primary_dies_and_its_successor_is_behind() -> None:
    """Kill the primary as above, with the one that is behind as its successor: it fetches what the other one
    has."""
    run, (primary, successor, ahead) = trio(seed=4)
    run.world.cut(primary.name, successor.name)
    run.world.time.run_until(run.world.time.now + 1_200)
    assert tail_of(ahead) > tail_of(successor)
    successor.disk_ms = (600, 700)
    run.world.kill(primary.name)
    run.world.time.run_until(run.world.time.now + 8_000)
    run.rest()
    run.check()


def primary_dies_with_writes_that_nobody_has() -> None:
    """The primary is cut from both backups, clients write and read, and it dies."""
    run, (primary, *backups) = trio(seed=4)
    for backup in backups:
        run.world.cut(primary.name, backup.name)
    run.world.time.run_until(run.world.time.now + 1_200)
    assert all(tail_of(primary) > tail_of(backup) for backup in backups)
    run.world.kill(primary.name)
    run.rest()
    run.check()


def primary_is_failed_by_a_late_controller() -> None:
    """A controller acts on what it saw before the primary's heartbeat was there."""
    run, (primary, *_) = trio(seed=4)
    number = run.world.metastore.ring.number
    late = FailServer(number, primary.name, primary.incarnation, 1)
    primary.pause()
    run.world.metastore.act(late)
    run.world.time.run_until(run.world.time.now + 1_800)
    primary.resume()
    run.rest()
    run.check()


def key_is_deleted_while_its_copy_is_filled() -> None:
    """The snapshot's row is on its way when the key's tombstone arrives."""
    scene = StoreScene("abc", ("ab",))
    scene.fill()
    scene.holds(SupplyBatch)
    scene.set_targets(("cb",))
    scene.exchange()
    delete = scene.put("a", 0, "k3", None)
    scene.exchange()
    assert scene.code(delete) == "DONE"
    scene.release()
    scene.settle()
    if scene.keys("c") != scene.keys("b"):
        raise StoreRuleBrokenError(f"copies of 0 differ: {scene.keys('c')} {scene.keys('b')}")


def write_is_repeated_at_the_next_primary() -> None:
    """The one that did it died before the client heard of it."""
    scene = StoreScene("abc", ("abc",))
    scene.put("a", write="once")
    scene.exchange()
    scene.crash("a")
    scene.settle()
    again = scene.put("b", write="once")
    scene.exchange()
    log = scene.disks["b"].records((ZONE, 0), NO_RECORD, 1 << 30)
    if not scene.answers[again].repeated or len(log) != 1:
        raise StoreRuleBrokenError(f"the write was done twice: {log}")


@pytest.mark.row("PME-128")
@pytest.mark.parametrize(
    "scenario",
    [
        primary_dies_with_one_backup_behind,
        primary_dies_and_its_successor_is_behind,
        primary_dies_with_writes_that_nobody_has,
        primary_is_failed_by_a_late_controller,
        write_is_repeated_at_the_next_primary,
    ],
)
def test_what_happens_to_a_primary(scenario: Callable[[], None]) -> None:
    """PME-128. The backup that is behind is levelled before anybody serves; the late controller is refused."""
    scenario()


def test_a_copy_without_room_stops_new_writes_and_no_reads() -> None:
    """53100 at the primary while any copy that it waits for has no room; what was written before is read."""
    run, (primary, backup, _) = trio(seed=4)
    run.clients.goes_on = False
    run.world.time.run_until(run.world.time.now + 2_000)
    answers: list[StoreAnswer] = []
    run.world.listener = lambda client, answer: answers.append(answer)
    change = KeyChange(b"k0", b"late")

    def ask(number: int) -> list[AnswerCode]:
        answers.clear()
        write = WriteRequest(number, WriteId(f"late-{number}"), ZONE, 0, (change,))
        run.world.ask(9, primary.name, write)
        run.world.ask(9, primary.name, ReadRequest(number + 1, ZONE, 0, b"k0"))
        run.world.time.run_until(run.world.time.now + 1_000)
        return [answer.code for answer in sorted(answers, key=lambda answer: answer.request)]

    backup.give(RoomChanged(has_room=False))
    run.world.time.run_until(run.world.time.now + 1_000)
    assert ask(1) == [AnswerCode.NO_ROOM, AnswerCode.DONE]
    backup.give(RoomChanged(has_room=True))
    run.world.time.run_until(run.world.time.now + 1_000)
    assert ask(3) == [AnswerCode.DONE, AnswerCode.DONE]


MUTANTS: dict[str, tuple[Callable[[Patch], None], Callable[[], None]]] = {
    "no clock check after fsync": (_no_clock_check_after_sync, lambda: some_seed(30)),
    "wait for OWNING only": (_wait_for_owning_only, lambda: some_seed(30)),
    "bare counters": (_bare_counters, lambda: some_seed(30)),
    "result sent before its commit": (_result_sent_before_its_commit, lambda: some_seed(30, start=16)),
    "NODE_FAILED unguarded": (_node_failed_unguarded, primary_is_failed_by_a_late_controller),
    "the same incarnation again": (_same_incarnation_again, lambda: some_seed(30)),
    "tail cut": (_tail_cut, primary_dies_with_one_backup_behind),
    "tombstone missing": (_tombstone_missing, key_is_deleted_while_its_copy_is_filled),
    "ids not supplied": (_ids_not_supplied, lambda: some_seed(30)),
    "read of a pending write": (_read_of_a_pending_write, primary_dies_with_writes_that_nobody_has),
    "rented before the commit": (_rented_before_the_commit, lambda: some_seed(30)),
    "whoever owned may own": (_whoever_owned_may_own, primary_dies_and_its_successor_is_behind),
    "ids not looked up": (_ids_not_looked_up, write_is_repeated_at_the_next_primary),
}


@pytest.mark.thorough("the seeds hold above; this is of what they would find")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_protocol_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run holds as it is (the seeds do, above and in the soak), and breaks a rule with the mutant."""
    mutant, run = MUTANTS[name]
    mutant(monkeypatch)
    with pytest.raises(StoreRuleBrokenError):
        run()


def test_copies_are_filled_while_keys_are_deleted() -> None:
    key_is_deleted_while_its_copy_is_filled()
    seed_of(30, SLOW)()
