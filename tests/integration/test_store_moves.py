"""Store servers under the product's controller, over a real etcd: zones begin, move, lose a server and end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rebalance.controllers.clock import SteadyClock
from rebalance.controllers.store_control import StoreControl
from rebalance.core.admission.move_admission import Limits
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.metastore.etcd import EtcdMetastore
from tests.fixtures.ring_world import ZONE, RingWorld
from tests.fixtures.store_trio import LIMITS, StoreTrio

NAMES = ("n1", "n2", "n3")
LISTS = {0: ("n1", "n2"), 1: ("n2", "n3"), 2: ("n3", "n1")}


@asynccontextmanager
async def placed(
    directory: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> AsyncIterator[tuple[RingWorld, StoreTrio, StoreControl]]:
    """Three servers that joined, and the zone with ``LISTS``."""
    world = RingWorld(metastore, keyspace)
    trio = StoreTrio(directory, metastore, keyspace)
    async with world.control(clock=SteadyClock(), ttl_ms=LIMITS.ttl_ms) as control:
        try:
            for name in NAMES:
                await trio.start(name)
            await world.until(lambda state: state.cluster.servers.keys() == set(NAMES))
            await world.publish()
            await world.assign("stable", LISTS)
            yield world, trio, control
        finally:
            await trio.close()


async def test_stable_is_switched_when_servers_have_moved_their_copies(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    async with placed(tmp_path, metastore, keyspace) as (world, trio, control):
        for number in range(12):
            answer = await trio.client.put((ZONE.zone_id, number % 3), b"key-%d" % number, b"%d" % number)
            assert answer.revision > 0
        target = {0: ("n1", "n3"), 1: ("n2", "n1"), 2: ("n2", "n3")}
        await world.assign("pending", target)
        await world.until_assigned("stable", target)
        assert await world.assigned("pending") == {}
        for number, nodes in target.items():
            await world.until_owners(control, number, tuple(sorted(nodes)))
        for number in range(12):
            assert await trio.client.get((ZONE.zone_id, number % 3), b"key-%d" % number) == b"%d" % number


async def test_a_server_that_stops_fails_and_its_next_incarnation_owns_again(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    async with placed(tmp_path, metastore, keyspace) as (world, trio, control):
        await trio.client.put((ZONE.zone_id, 0), b"key", b"1")
        await trio.stop("n1")
        await world.until(lambda state: "n1" not in state.cluster.servers)
        await trio.client.put((ZONE.zone_id, 0), b"key", b"2")
        await trio.start("n1")
        await world.until(lambda state: "n1" in state.cluster.servers)
        await world.until_owners(control, 0, ("n1", "n2"))
        assert await trio.client.get((ZONE.zone_id, 0), b"key") == b"2"
        await world.publish(dropped=True)
        await world.until(lambda state: not state.cluster.zones)


@pytest.mark.slow("eight megabytes at a megabyte a second")
async def test_copies_are_filled_within_the_limit_of_bandwidth(
    tmp_path: Path, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    """The only server that is filled gets all of it. What is put meanwhile goes on."""
    rate, size, values = 1 << 20, 128 << 10, 64
    await metastore.commit(Txn((), (Put(keyspace.limits, Limits(node_bytes_s=rate).encode()),)))
    async with placed(tmp_path, metastore, keyspace) as (world, trio, _):
        for number in range(values):
            value = bytes([number]) * size
            assert (await trio.client.put((ZONE.zone_id, 0), b"key-%d" % number, value)).revision > 0
        begun = asyncio.get_running_loop().time()
        await world.assign("pending", {0: ("n1", "n3")})
        await trio.client.put((ZONE.zone_id, 0), b"meanwhile", b"1")
        await world.until_assigned("stable", {**LISTS, 0: ("n1", "n3")})
        elapsed_s = asyncio.get_running_loop().time() - begun
        # A second's worth goes at once, and one batch is on its way.
        assert elapsed_s >= (values * size - rate - (256 << 10)) / rate - 0.5
        await trio.stop("n1")
        assert await trio.client.get((ZONE.zone_id, 0), b"key-63") == bytes([63]) * size
