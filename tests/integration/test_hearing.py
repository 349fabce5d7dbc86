"""Events that a whole controller notices: silences, another leader of the metastore, its own lead, new
limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from rebalance.controllers.clock import Clocks
from rebalance.controllers.controller_leadership import Contact
from rebalance.controllers.runtime import ControllerRules, ControllerRuntime, OptionalDuties
from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.core.operations.operation import Operation, OperationKind
from rebalance.core.topology.node_presence import NO_HOLD, HoldRule
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.ports.metastore import Snapshot
from tests.fixtures.etcd_server import CALL_S, Etcd, EtcdServer
from tests.fixtures.local_engine import LocalPlacementEngine
from tests.fixtures.recovery_world import ZONE, RecoveryWorld
from tests.fixtures.timer_world import StillClock

PATIENCE_S = 120.0
LEASE_S = 15
"""Renewed in time on a busy machine: who lost the lead again would begin again, and the clock stands still."""
RESYNC_S = 25.0
"""Less than controllers take to look at everything again."""


class CountingStore(EtcdMetastore):
    """``looks``: how often one task has read all fences, and then all nodes, which is when a loss is noted."""

    looks = 0
    _looking: asyncio.Task[object] | None = None

    async def range(self, prefix: str) -> Snapshot:
        snapshot = await super().range(prefix)
        if prefix.endswith("fences/"):
            self._looking = asyncio.current_task()
        elif prefix.endswith("nodes/") and self._looking is asyncio.current_task():
            self._looking = None
            self.looks += 1
        return snapshot


async def until(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(patience_s):
        while not condition():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running(contact: Contact) -> AsyncIterator[None]:
    task = asyncio.create_task(contact.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.row("H1")
async def test_a_new_leader_of_the_metastore_and_a_silence_begin_again(
    own_etcd: EtcdServer, keyspace: Keyspace
) -> None:
    """H1: begin counting again with a new leader of the metastore, which renews all leases, also for a process
    that misses no answer. The steady clock measures a silence, that of this process included; the wall clock
    only dates it."""
    store = EtcdMetastore([own_etcd.endpoint], CALL_S)
    wall, steady = StillClock(), StillClock()
    contact = Contact(store, keyspace, Clocks(wall, steady), HoldRule(400, 800))
    assert contact.heard_since_ms() is None
    steady.set(1_000)
    async with running(contact):
        await until(lambda: contact.heard_since_ms() == 1_000)
        steady.set(1_100)
        own_etcd.kill()
        own_etcd.restart()
        await until(lambda: contact.heard_since_ms() == 1_100)
        assert contact.silent_ms() is None
        wall.set(7_000)
        steady.set(1_301)
        await until(lambda: contact.heard_since_ms() == 1_301)
        assert contact.silent_ms() == 7_000
    steady.set(1_502)
    assert contact.heard_since_ms() is None
    await store.close()


@asynccontextmanager
async def controlled(
    etcd: EtcdServer, keyspace: Keyspace, reset_s: int
) -> AsyncIterator[tuple[RecoveryWorld, StillClock, CountingStore]]:
    """A partition on three nodes, of which two have left; a whole controller has seen it at 0."""
    store, steady = CountingStore([etcd.endpoint], CALL_S), StillClock()
    world = RecoveryWorld(store, keyspace)
    runtime = ControllerRuntime(
        *(store, keyspace, LocalPlacementEngine()),
        ControllerRules("one", LEASE_S, NO_HOLD),
        OptionalDuties(probe=world.probe),
        Clocks(steady=steady),
    )
    await store.commit(Txn((), (Put(keyspace.limits, Limits(ha_reset_s=reset_s).encode()),)))
    task = asyncio.create_task(runtime.run())
    try:
        yield await lost(world), steady, store
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()


async def lost(world: RecoveryWorld) -> RecoveryWorld:
    for name in "abc":
        await world.join(name)
    await world.publish(ZONE)
    async with asyncio.timeout(PATIENCE_S):
        while await world.stable() != "a,b,c":
            await world.carry_out()
            await asyncio.sleep(0.05)
    # Stable may have come after the last time: without its group there is nothing to reset.
    await world.carry_out()
    await world.leave("b", "c")
    assert isinstance(world.store, CountingStore)
    store = world.store
    await until(lambda: store.looks)
    return world


async def reset_of(world: RecoveryWorld, patience_s: float = PATIENCE_S) -> str:
    """The reason of its operation, once the partition was reset."""
    async with asyncio.timeout(patience_s):
        while not (pending := await world.assigned("pending")) or not pending.forced:
            await asyncio.sleep(0.05)
        assert pending == Assignments(("a",), forced=pending.forced)
        while True:
            for item in (await world.store.range(world.keyspace.operations)).items:
                operation = Operation.decode(item.value)
                if operation.kind is OperationKind.RESET:
                    return operation.reason
            await asyncio.sleep(0.05)


@pytest.mark.row("H1")
async def test_who_leads_again_begins_again(etcd_server: Etcd, keyspace: Keyspace) -> None:
    """H1: the time before it lost the lead does not count."""
    async with controlled(etcd_server, keyspace, 10) as (world, steady, store):
        steady.set(9_000)
        leader = await store.get(keyspace.controller_leader)
        assert leader is not None
        await store.revoke_lease(leader.lease)
        async with asyncio.timeout(PATIENCE_S):
            while (again := await store.get(keyspace.controller_leader)) is None or again.lease == leader.lease:
                await asyncio.sleep(0.05)
        # The look before may have been the last one of its first time as leader. Limits are a reason to look.
        looks = store.looks
        await store.commit(Txn((), (Put(keyspace.limits, Limits(ha_reset_s=10).encode()),)))
        await until(lambda: store.looks > looks)
        steady.set(19_000)
        assert await reset_of(world) == "no majority for 10 s"


@pytest.mark.row("H2")
async def test_a_shorter_time_counts_at_once(etcd_server: Etcd, keyspace: Keyspace) -> None:
    """H2: apply a shorter time at once, without waiting for the next round over all partitions."""
    async with controlled(etcd_server, keyspace, 60) as (world, steady, store):
        steady.set(12_000)
        await store.commit(Txn((), (Put(keyspace.limits, Limits(ha_reset_s=11).encode()),)))
        assert await reset_of(world, RESYNC_S) == "no majority for 12 s"
