"""Old results of exchanges as the leading controller folds them, over each metastore."""

from __future__ import annotations

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.partition_maps.topology_version import TopologyVersion
from rebalance.exchange.core.exchange_messages import ResultRecord
from rebalance.ports.metastore import MetastoreHistory
from rebalance.store.shell.store_ring import RingGapError, StoreRing
from tests.fixtures.ring_world import ZONE, RingWorld, owned

LISTS = {0: ("n1", "n2"), 1: ("n2", "n3"), 2: ("n3", "n1")}


@pytest.fixture
def world(store: MetastoreHistory, keyspace: Keyspace) -> RingWorld:
    return RingWorld(store, keyspace)


async def test_two_thousand_results_leave_a_bounded_number_of_keys(world: RingWorld) -> None:
    """And what they say: to the controller that folds them, to one that begins anew, and to a server that
    starts."""
    await world.publish()
    await world.assign("stable", LISTS)
    async with world.control(results_kept=20) as control:
        await world.join("n1", "n2", "n3")
        await world.until(lambda state: bool(state.cluster.zones))
        await world.conclude({number: owned(*nodes) for number, nodes in LISTS.items()})
        for number in range(2_000):
            nodes = ("n1", "n2") if number % 2 else ("n2", "n1")
            await world.conclude({0: owned(*nodes)})
        await world.until_few(world.keyspace.exchange, 60)
        await world.until_owners(control, 0, ("n1", "n2"))
    assert await world.store.get(world.keyspace.folded_results) is not None
    async with world.control() as control:
        await world.until_owners(control, 0, ("n1", "n2"))
        await world.until_owners(control, 2, LISTS[2])
    start = await StoreRing(world.store, world.keyspace, "n4", "i1", ("127.0.0.1", 1)).start()
    outcomes = start.results.outcomes[ZONE.zone_id]
    assert [outcome.in_sync for outcome in outcomes] == list(LISTS.values())


async def test_a_coordinator_whose_results_are_folded_ends(world: RingWorld) -> None:
    """The coordinator must not take its own result for committed, as nothing follows the one that it knows."""
    ring = StoreRing(world.store, world.keyspace, "n1", "i1", ("127.0.0.1", 1))
    async with world.control(results_kept=2):
        await world.join("n1")
        for _ in range(20):
            await world.conclude({0: owned("n1")})
        await world.until_few(world.keyspace.exchange_results, 4)
    first = TopologyVersion(1)
    record = ResultRecord(TopologyVersion(30), TopologyVersion(30), first, {ZONE.zone_id: {0: owned("n2")}})
    with pytest.raises(RingGapError, match=r"results after that of 1\.0 are folded"):
        await ring.commit_result(record)


async def test_a_zone_that_the_ring_has_no_more_is_not_folded(world: RingWorld) -> None:
    async with world.control(results_kept=2):
        await world.join("n1")
        for _ in range(20):
            await world.conclude({0: owned("n1")}, ZoneId(77))
        await world.until_few(world.keyspace.exchange_results, 4)
    assert await world.store.get(world.keyspace.folded_results) is not None
    assert (await world.store.range(world.keyspace.folded_result_parts(""))).items == ()
