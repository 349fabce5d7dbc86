"""The loss policy of a zone, from its intent to the ring, over each metastore."""

from __future__ import annotations

from dataclasses import replace

from catalog.core.zone import LossPolicy
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.partition_maps.topology_version import Trigger
from rebalance.ports.metastore import MetastoreHistory
from tests.fixtures.ring_world import ZONE, RingWorld

LISTS = {0: ("n1", "n2"), 1: ("n2", "n3"), 2: ("n3", "n1")}


async def test_a_loss_policy_reaches_the_servers_with_the_zone_and_when_it_is_altered(
    store: MetastoreHistory, keyspace: Keyspace
) -> None:
    """The policy is sent once: the lists are unchanged."""
    world = RingWorld(store, keyspace)
    await world.publish(replace(ZONE, loss_policy=LossPolicy.READ_ONLY_SAFE))
    await world.assign("stable", LISTS)
    async with world.control():
        await world.join("n1")
        state = await world.until(lambda state: bool(state.cluster.zones))
        assert state.cluster.zones[ZONE.zone_id].policy is LossPolicy.READ_ONLY_SAFE
        await world.publish(ZONE)
        world.clock.set(1_000)
        await world.beat("n1")
        await world.until(lambda state: state.cluster.zones[ZONE.zone_id].policy is LossPolicy.READ_WRITE_SAFE)
        world.clock.set(3_000)
        await world.join("n2")
    assert await world.count(Trigger.TARGET_SET) == 1
