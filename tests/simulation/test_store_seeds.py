"""Store servers under faults, from seeds; and what the rules see when a rule of the protocol is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rebalance.exchange.core import partition_analysis
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.core.exchange_worker import ExchangeWorker
from rebalance.exchange.core.late_affinity import surplus_partitions
from rebalance.store.core import copy_moves, fill_work, server_books
from rebalance.store.core.disk_changes import CutLog
from rebalance.store.core.filling import supply
from rebalance.store.core.leading import Leading
from rebalance.store.core.replication import Replication
from rebalance.store.core.ring_keeper import FailServer
from rebalance.store.core.server_life import ServerLife
from rebalance.store.simulation import store_disk
from rebalance.store.simulation.store_history import StoreHistory
from rebalance.store.simulation.store_metastore import StoreMetastore
from rebalance.store.simulation.store_process import StoreProcess
from rebalance.store.simulation.store_run import StoreRun
from rebalance.store.simulation.store_world import StoreWorld
from tests.linearizability.checker import violations
from tests.linearizability.history import Action, Operation

Patch = pytest.MonkeyPatch


def judged(history: StoreHistory) -> list[Any]:
    """By the checker that judges histories of real clients, which knows nothing of positions."""
    operations = []
    for each in history.operations:
        value = each.value.decode() if each.value is not None else None
        action = Action.GET if each.write is None else Action.PUT if value is not None else Action.DELETE
        if action is Action.GET and each.returned_ms is None:
            continue
        key = f"{each.partition[1]}/{each.key.decode()}"
        operations.append(Operation(each.client, key, action, value, each.invoked_ms, each.returned_ms))
    return violations(operations)


def test_a_seed_happens_again() -> None:
    one, other = StoreRun(3), StoreRun(3)
    one.run()
    other.run()
    assert one.world.trace == other.world.trace
    assert one.world.steps == other.world.steps


@pytest.mark.row("PME-001", "PME-123", "PME-128", shows="core")
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
    """An owner that comes back may own if it has as many records as the others, whoever wrote them."""

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
        if copy.leading is not None and copy.stored > copy.log_start:
            copy.log_start = copy.stored
            self._books.disk.add(CutLog(copy.partition, copy.stored, 0))
            self._books.keep_head(copy)

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


def _records_after_prepare(patch: Patch) -> None:
    patch.setattr(server_books, "TAKES_RECORDS", tuple(Phase))


MUTANTS = {
    "no clock check after fsync": _no_clock_check_after_sync,
    "wait for OWNING only": _wait_for_owning_only,
    "bare counters": _bare_counters,
    "result sent before its commit": _result_sent_before_its_commit,
    "NODE_FAILED unguarded": _node_failed_unguarded,
    "the same incarnation again": _same_incarnation_again,
    "tail cut": _tail_cut,
    "tombstone missing": _tombstone_missing,
    "ids not supplied": _ids_not_supplied,
    "read of a pending write": _read_of_a_pending_write,
    "rented before the commit": _rented_before_the_commit,
}
SEEDS: dict[str, int] = {}
