"""Rules of the store server that faults at random seldom reach: a scene for each, which holds as it is, and
breaks once the rule is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.exchange.core import partition_analysis
from rebalance.exchange.core.partition_analysis import ZoneRules, untrusted
from rebalance.store.core.copy_moves import CopyMoves
from rebalance.store.core.disk_changes import CutLog
from rebalance.store.core.fill_work import FillWork
from rebalance.store.core.log_records import KeyChange, WriteId, position_at
from rebalance.store.core.replication import Replication
from rebalance.store.core.store_messages import RecordsStored, WriteRequest
from simulator.store import store_disk
from simulator.store.store_crashes import CrashPlace, CrashPoint, CrashRun
from simulator.store.store_run import LIMITS, ZONE, StoreRun, StoreShape
from simulator.store.store_world import StoreRuleBrokenError
from tests.fixtures.simulated_judgement import judged
from tests.fixtures.simulated_trio import tail_of, trio

Patch = pytest.MonkeyPatch
LATER_MS = 30_000


def ended(run: StoreRun) -> None:
    """Faults are over: everything comes back, and all rules are looked at."""
    run.rest()
    run.check()
    unexplained = judged(run.clients.history)
    if unexplained:
        raise StoreRuleBrokenError(str(unexplained[0]))


def later(run: StoreRun, wait_ms: int) -> None:
    run.world.time.run_until(run.world.time.now + wait_ms)


# Scenes


def all_die_while_disks_are_slow() -> None:
    """Kill all servers while the backups' disks are slow, or the primary's. The last one to go brings the
    partition back alone."""
    for seed in range(16):
        run, servers = trio(seed)
        for server in servers[1:] if seed % 2 else servers[:1]:
            server.disk_ms = (600, 700)
        later(run, 2_000)
        for server in servers:
            run.world.kill(server.name)
        for server in servers[seed % 3 :] + servers[: seed % 3]:
            later(run, 700)
            run.world.start(server.name)
        ended(run)


def many_writes_wait_for_a_backup() -> None:
    """More than a log keeps; then the primary dies, and the backup needs all of them."""
    run, (primary, ahead, behind) = trio(4, clients=60)
    run.world.cut(primary.name, behind.name)
    later(run, 1_500)
    assert tail_of(ahead).counter - tail_of(behind).counter > LIMITS.log_keep
    run.world.kill(primary.name)
    # Too many at once for the checker that knows nothing of positions.
    run.rest()
    run.check()


def primary_dies_before_its_backup_is_levelled() -> None:
    """Leave the next primary with writes that were never acknowledged, which the last copy does not have, and
    cannot fetch; then that primary dies, too, before it has reported anything."""
    for seed in (9, 29, 49):
        run, (primary, ahead, behind) = trio(seed, servers=4)
        if run.world.metastore.ring.cluster.coordinator in (primary.name, ahead.name, behind.name):
            continue
        run.world.restarts = False
        run.world.cut(primary.name, behind.name)
        later(run, 1_200)
        run.world.cut(ahead.name, behind.name)
        run.world.kill(primary.name)
        later(run, 7_000)
        run.world.kill(ahead.name)
        later(run, 10_000)
        run.world.restarts = True
        ended(run)


def members_go_one_after_the_other_without_a_result() -> None:
    """Kill both backups, so that the primary acknowledges what it has; then it goes, too, and the backups are
    back first. No exchange could commit its result meanwhile."""
    run, (primary, *backups) = trio(4)
    metastore = run.world.metastore
    metastore.takes_results = False
    for backup in backups:
        run.world.cut(primary.name, backup.name)
    later(run, 1_000)
    acknowledged = len(run.clients.history.acknowledged)
    for backup in backups:
        run.world.kill(backup.name)
    later(run, 8_000)
    assert len(run.clients.history.acknowledged) > acknowledged
    run.world.kill(primary.name)
    run.world.heal()
    for backup in backups:
        run.world.start(backup.name)
    later(run, 8_000)
    metastore.take_results()
    later(run, 5_000)
    ended(run)


def primary_comes_back_with_a_tail_that_nobody_has() -> None:
    """Writes of keys that have an older value, on the primary alone; who asked for them has given up."""
    run, (primary, *backups) = trio(4)

    def write(name: str) -> None:
        request = WriteRequest(10**6, WriteId(name), ZONE, 0, (KeyChange(b"other", name.encode()),))
        run.world.ask(99, primary.name, request)

    write("kept")
    later(run, 2_000)
    for backup in backups:
        run.world.cut(primary.name, backup.name)
    write("lost")
    later(run, 1_000)
    run.clients.goes_on = False
    assert primary.disk.write_id((ZONE, 0), WriteId("lost")) is not None
    run.world.kill(primary.name)
    run.world.heal()
    later(run, 8_000)
    run.world.start(primary.name)
    # It is filled in one exchange: after another one it would be cleared.
    later(run, 10_000)
    ended(run)


def the_only_owner_dies_when_another_copy_is_full() -> None:
    """One copy, on its way to another server, which the primary waited for; the exchange that would take it
    into the set has no result yet. The old owner stays away."""
    run = StoreRun(2, StoreShape(servers=3, partitions=1, copies=1, clients=4, keys=2, faults_ms=0))
    run.begin()
    world = run.world
    (before,) = world.metastore.targets[max(world.metastore.targets)][ZONE]
    while world.metastore.targets[max(world.metastore.targets)][ZONE] == (before,):
        run.set_targets()
    ((joiner,),) = world.metastore.targets[max(world.metastore.targets)][ZONE]

    def is_full() -> bool:
        copy = world.processes[joiner].server.shared.copies.get((ZONE, 0))
        return copy is not None and copy.state is CopyState.OWNING

    while not is_full():
        later(run, 1)
    world.metastore.takes_results = False
    later(run, 500)
    world.restarts = False
    world.kill(before[0])
    world.metastore.take_results()
    later(run, 10_000)
    begin_ms = world.time.now
    later(run, LATER_MS)
    if not any(item.invoked_ms >= begin_ms for item in run.clients.history.acknowledged):
        raise StoreRuleBrokenError("the copy that has everything does not serve")
    world.restarts = True
    ended(run)


def crash_of_n3_at_its_19th_commit() -> None:
    CrashRun(0, CrashPoint("n3", CrashPlace.COMMIT, 19, after=False)).run()


# Mutants


def _acknowledged_before_the_disk(patch: Patch) -> None:
    append = Replication.append

    def hasty(self: Replication, sender: str, message: Any) -> None:
        append(self, sender, message)
        copy = self._shared.copies.get(message.partition)
        if copy is not None and copy.leading is None:
            position = copy.stream
            self._shared.send_peer(sender, RecordsStored(copy.partition, self._shared.basis, position))

    patch.setattr(Replication, "append", hasty)


def _counted_before_the_disk(patch: Patch) -> None:
    write = Replication.write

    def hasty(self: Replication, copy: Any, records: Any, asker: Any) -> None:
        write(self, copy, records, asker)
        copy.leading.stored = records[-1].position

    patch.setattr(Replication, "write", hasty)


def _log_cut_below_what_all_have(patch: Patch) -> None:
    def cut(self: Replication, copy: Any) -> None:
        limits = self._shared.limits
        until = position_at(copy.epochs, max(copy.tail.counter - limits.log_keep, 0))
        if copy.state is CopyState.OWNING and until > copy.log_start:
            copy.log_start = until
            self._shared.disk.add(CutLog(copy.partition, until, 0))
            self._shared.keep_head(copy)

    patch.setattr(Replication, "_cut", cut)


def _served_before_levelled(patch: Patch) -> None:
    level = CopyMoves._level

    def hasty(self: CopyMoves, copy: Any, *arguments: Any) -> None:
        level(self, copy, *arguments)
        if copy.leading is not None:
            copy.leading.unlevelled.clear()

    patch.setattr(CopyMoves, "_level", hasty)


def _only_the_primary_is_levelled(patch: Patch) -> None:
    level = CopyMoves._level

    def hasty(self: CopyMoves, copy: Any, *arguments: Any) -> None:
        level(self, copy, *arguments)
        if copy.leading is not None:
            copy.leading.unlevelled &= {self._shared.name}

    patch.setattr(CopyMoves, "_level", hasty)


def _who_went_stays_a_member(patch: Patch) -> None:
    patch.setattr(ZoneRules, "outcome", lambda self, partition: self.known(partition))


def _keys_of_a_tail_not_fetched(patch: Patch) -> None:
    rewind = FillWork._rewind

    def forgetful(self: FillWork, copy: Any, filling: Any, common: Any) -> None:
        rewind(self, copy, filling, common)
        filling.keys = ()

    patch.setattr(FillWork, "_rewind", forgetful)


def _ids_of_a_tail_kept(patch: Patch) -> None:
    drop = store_disk._drop_tail

    def forgetful(stored: Any, *arguments: Any) -> None:
        ids = dict(stored.ids)
        drop(stored, *arguments)
        stored.ids = ids

    patch.setattr(store_disk, "_drop_tail", forgetful)


def _full_copies_may_not_own(patch: Patch) -> None:
    patch.setattr(
        partition_analysis,
        "untrusted",
        lambda reports, outcome, joined: untrusted(reports, replace(outcome, filling=()), joined),
    )


def _cleared_only_below_the_stream(patch: Patch) -> None:
    order = CopyMoves._order

    def timid(self: CopyMoves, copy: Any, outcome: Any, actual: Any, message: Any) -> None:
        order(self, copy, replace(outcome, epoch=actual.epoch), actual, message)

    patch.setattr(CopyMoves, "_order", timid)


SCENES: tuple[Callable[[], None], ...] = (
    all_die_while_disks_are_slow,
    many_writes_wait_for_a_backup,
    primary_dies_before_its_backup_is_levelled,
    members_go_one_after_the_other_without_a_result,
    primary_comes_back_with_a_tail_that_nobody_has,
    the_only_owner_dies_when_another_copy_is_full,
    crash_of_n3_at_its_19th_commit,
)
MUTANTS: dict[str, tuple[Callable[[Patch], None], Callable[[], None]]] = {
    "acknowledged before the disk": (_acknowledged_before_the_disk, all_die_while_disks_are_slow),
    "counted before the disk": (_counted_before_the_disk, all_die_while_disks_are_slow),
    "log cut below what all have": (_log_cut_below_what_all_have, many_writes_wait_for_a_backup),
    "served before levelled": (_served_before_levelled, primary_dies_before_its_backup_is_levelled),
    "only the primary is levelled": (_only_the_primary_is_levelled, primary_dies_before_its_backup_is_levelled),
    "who went stays a member": (_who_went_stays_a_member, members_go_one_after_the_other_without_a_result),
    "keys of a tail not fetched": (_keys_of_a_tail_not_fetched, primary_comes_back_with_a_tail_that_nobody_has),
    "ids of a tail kept": (_ids_of_a_tail_kept, primary_comes_back_with_a_tail_that_nobody_has),
    "full copies may not own": (_full_copies_may_not_own, the_only_owner_dies_when_another_copy_is_full),
    "cleared only below the stream": (_cleared_only_below_the_stream, crash_of_n3_at_its_19th_commit),
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_holds(scene: Callable[[], None]) -> None:
    scene()


@pytest.mark.thorough("each scene holds above; this is of what it would find")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_left_out_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant, scene = MUTANTS[name]
    mutant(monkeypatch)
    with pytest.raises(StoreRuleBrokenError):
        scene()
