"""All caps together over a real etcd, looked at in every revision, while a thousand moves run."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from catalog.core.zone import Node, Zone, ZoneId
from rebalance.controllers.clock import WallClock
from rebalance.core.admission.move_admission import Limits, Pause
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace
from rebalance.metastore.etcd import EtcdMetastore
from simulator.control.invariants import Auditor
from simulator.control.moves import MovesAuditor
from simulator.control.virtual_time import Trace
from tests.fixtures.admission_world import Controllers, World, altered
from tests.fixtures.group_driver import GroupDriver
from tests.fixtures.watched_store import WatchedStore

NODES = tuple(Node(f"n{number}") for number in range(1, 7))
FULL = Limits(cluster_moves=36, zone_moves=24, donor_moves=12, receiver_moves=12, batch_size=18)
LOWERED = Limits(cluster_moves=6, zone_moves=4, donor_moves=2, receiver_moves=2, batch_size=3)
PAUSED_S = 1.0
DEADLINE_S = 300.0


class Run:
    """Two zones whose groups apply what pending asks for; every revision is looked at."""

    def __init__(self, metastore: EtcdMetastore, keyspace: Keyspace, partitions: int) -> None:
        self.world = World(metastore, keyspace)
        self.watched = WatchedStore(metastore, keyspace.prefix)
        self.auditor = Auditor(self.watched, keyspace, Trace())
        self.moves = MovesAuditor(self.watched, keyspace, self.auditor.fail, WallClock().now_ms)
        self.groups = GroupDriver(
            self.watched, metastore, keyspace, self.auditor, random.Random(1), shortest_s=0.02, longest_s=0.15
        )
        self.zones = tuple(
            Zone(ZoneId(number), f"Z{number}", partitions // 2, 1, None, ("default",)) for number in (1, 2)
        )

    @property
    def ids(self) -> list[ZoneId]:
        return [zone.zone_id for zone in self.zones]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(each) for each in (self.watched.run(), self.groups.run())]
        try:
            async with self.world.controllers() as controllers:
                controllers.nodes = NODES
                await self.until(lambda: self.watched.revision > 0)
                await self.world.publish(*self.zones)
                assert await controllers.zones.reconcile(self.ids) == {}
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def controllers(self) -> AsyncIterator[Controllers]:
        async with self.world.controllers() as made:
            made.nodes = NODES
            assert await made.zones.reconcile(self.ids) == {}
            yield made

    async def until(self, condition: Callable[[], bool]) -> None:
        """Fails with the first broken invariant."""
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                assert not self.auditor.broken.done(), self.auditor.broken.result()
                await asyncio.sleep(0.005)

    def sees(self, limits: Limits) -> bool:
        """True if every revision before these limits was looked at."""
        found = self.watched.peek(self.world.keyspace.limits)
        return found is not None and found.value == limits.encode()

    async def limit(self, limits: Limits) -> float:
        """Set limits, and return the time."""
        await self.world.limit(limits)
        return time.monotonic()


@pytest.mark.row("VOL-008", "VOL-023", "VOL-024")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("partitions", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_all_caps_hold_at_every_revision(
    metastore: EtcdMetastore, keyspace: Keyspace, partitions: int
) -> None:
    """VOL-008, VOL-023, VOL-024: caps of cluster, zone, donor and receiver and the batch size hold in each
    revision, with two controllers of which one is killed; caps that are lowered and raised on the way are
    obeyed, no move begins after a pause, and after it everything moves to the end."""
    run = Run(metastore, keyspace, partitions)
    moves = run.moves
    async with run.opened():
        await run.limit(FULL)
        await run.world.publish(*(altered(zone, 2) for zone in run.zones))
        async with run.controllers():
            async with run.controllers():
                await run.until(lambda: moves.begun > partitions // 5)
                lowered = await run.limit(LOWERED)
                await run.until(lambda: len(moves.moving) <= 6)
                begun, fell_s = moves.begun, time.monotonic() - lowered
                await run.until(lambda: moves.begun > begun + partitions // 50)
            raised = await run.limit(FULL)
            await run.until(lambda: len(moves.moving) > 6)
            rose_s = time.monotonic() - raised
            await run.until(lambda: moves.begun > partitions // 2)
            paused = replace(FULL, pause=Pause("alice", "backup", 0))
            await run.limit(paused)
            # Between two batches nothing moves either.
            await run.until(lambda: run.sees(paused) and not moves.moving)
            begun = moves.begun
            assert begun < partitions
            await asyncio.sleep(PAUSED_S)
            assert moves.begun == begun
            await run.limit(FULL)
            await run.until(lambda: moves.begun == partitions and not moves.moving)
        after = [seen.stable for seen in (await run.world.observed()).values()]
        assert {len(Assignments.decode(item.value).peers) for item in after if item} == {2}
        assert len(after) == partitions
    assert not run.auditor.broken.done()
    assert moves.peak > 6
    print(f"{moves.begun} moves, {moves.instants} instants, at most {moves.peak} at once; "
          f"lowered caps reached after {fell_s:.2f} s, raised ones used after {rose_s:.2f} s")  # fmt: skip
