"""Rebalancings under faults: seeds that are drawn, and rules that are taken out to see that it is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from simulator.stealing.simulation import controller
from simulator.stealing.simulation.gate import Gate
from simulator.stealing.simulation.steal_metadata import ServerMetadata
from simulator.stealing.simulation.steal_rules import StealRuleBrokenError
from simulator.stealing.simulation.steal_run import StealRun
from simulator.stealing.simulation.steal_server import Server
from simulator.stealing.simulation.steal_stores import ReadOnlyStore
from simulator.stealing.simulation.steal_workload import HistoryError
from simulator.stealing.simulation.unit_job import UnitJob

BLOCKS = 4
SEEDS = 60
"""The first of the thousands of ``make soak``."""
MUTANT_SEEDS = 600


@pytest.mark.row(
    "VOL-001",
    "VOL-005",
    "VOL-007",
    "VOL-011",
    "VOL-024",
    "VOL-046",
    "VOL-063",
    "VOL-065",
    "VOL-088",
    "VOL-104",
)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_seeds(block: int) -> None:
    """VOL-001, VOL-005, VOL-007, VOL-011, VOL-024, VOL-046, VOL-063, VOL-065, VOL-088, VOL-104: nodes crash in
    any step, steps fail, controllers die: no acknowledged write is lost or hidden, never more units or stores
    at once than allowed, donors stay normal, progress never goes back; what fails is taken back, and the next
    run ends at the target."""
    for seed in range(block, SEEDS, BLOCKS):
        StealRun(seed).run()


@pytest.mark.row("VOL-007", "VOL-046")
@pytest.mark.soak
def test_many_seeds() -> None:
    """VOL-007, VOL-046."""
    for seed in range(5_000):
        StealRun(seed).run()


def test_a_seed_happens_again() -> None:
    one, other = StealRun(7), StealRun(7)
    one.run()
    other.run()
    assert one.world.trace == other.world.trace
    assert one.history.requests == other.history.requests


def first_broken(first: int) -> None:
    for seed in range(first, first + MUTANT_SEEDS):
        StealRun(seed).run()


def _puts_do_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes of the time of the migration are at the stealer only."""
    monkeypatch.setattr(ServerMetadata, "returns_to", lambda self, store, partition: None)


def _no_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerMetadata, "donor_of", lambda self, store, partition: None)


def _entry_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store stops redirecting when its copy begins."""
    copy = UnitJob._copy_partitions

    async def forgetful(self, store):
        self._stealer.store_done(self.unit, store.name)
        await copy(self, store)

    monkeypatch.setattr(UnitJob, "_copy_partitions", forgetful)


def _taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is not asked for again although its donor may still serve clients."""
    change = Server.change_state

    async def hasty(self, order):
        await change(self, order)
        self._taking = {each.donor for each in order.units}

    monkeypatch.setattr(Server, "change_state", hasty)


def _takes_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback begins without redirecting everything again."""

    async def nothing(self, batch):
        self.stop_all()

    monkeypatch.setattr(Server, "redirect_again", nothing)


def _believes_its_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stealer that comes back answers from what it had copied."""
    monkeypatch.setattr(ServerMetadata, "redirect_again", lambda self: None)


def _requests_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are served while a state change is half-way."""

    @asynccontextmanager
    async def open_gate(self) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(Gate, "request", open_gate)


def _any_list_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node takes puts of clients with metadata of two batches ago, if only it owns the partition."""
    put = Server.put

    async def trusting(self, store, key, version, replicas=None):
        await put(self, store, key, version)

    monkeypatch.setattr(Server, "put", trusting)


def _half_a_change_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed state change leaves what it had done."""
    monkeypatch.setattr(Server, "_take_back", lambda self, parts: None)


def _no_parallel_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "next_units", lambda waiting, running, limit: tuple(waiting))


def _no_swap_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadOnlyStore, "swap_back", lambda self: None)
    monkeypatch.setattr(ReadOnlyStore, "drop_fetched", lambda self: None)


def _no_store_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Server._begin_afresh

    def unlimited(self) -> None:
        begin(self)
        self.store_places = asyncio.Semaphore(99)

    monkeypatch.setattr(Server, "_begin_afresh", unlimited)


def _obsolete_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put what was taken from a donor like anything else."""

    def strict(self, partition, key, versions):
        for each in versions:
            self.put(partition, key, each)

    monkeypatch.setattr("simulator.stealing.simulation.steal_stores.ReadWriteStore.put_all", strict)


MUTANTS = (
    (_puts_do_not_return, 11),
    (_no_redirect, 0),
    (_entry_goes_first, 0),
    (_taken_at_once, 41),
    (_takes_back_at_once, 2998),
    (_believes_its_disk, 225),
    (_requests_pass, 135),
    (_any_list_will_do, 1591),
    (_half_a_change_stays, 0),
    (_no_parallel_limit, 0),
    (_no_swap_back, 0),
    (_no_store_limit, 0),
    (_obsolete_is_an_error, 0),
)
"""Each with a seed that finds it, to be quick; when that seed does so no more, one of the next ones will."""


@pytest.mark.thorough("the seeds hold above; this is of what they would find")
@pytest.mark.row("VOL-042", "VOL-048", "VOL-063", "VOL-064", "VOL-072")
@pytest.mark.parametrize(("mutant", "first"), MUTANTS, ids=[each.__name__.strip("_") for each, _ in MUTANTS])
def test_a_broken_protocol_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VOL-042, VOL-048, VOL-063, VOL-064, VOL-072: a rule of the protocol that is taken out is missed: a write
    is hidden or lost, or a limit is passed, within a few hundred seeds."""
    mutant(monkeypatch)
    with pytest.raises((StealRuleBrokenError, HistoryError)):
        first_broken(first)
