"""Requests while partitions move: who answers, who is asked, and how clients learn where to go."""

from __future__ import annotations

import asyncio

import pytest

from rebalance.groups.calls.key_hash import partition_of
from simulator.stealing.core.steal_checks import RebalanceOptions
from simulator.stealing.core.steal_cluster import ClusterMetadata, StoreDefinition
from simulator.stealing.core.vector_clock import ObsoleteVersionError, VectorClock, Versioned
from simulator.stealing.simulation.controller import StealOutcome
from simulator.stealing.simulation.steal_client import RoutingServer, StealClient
from simulator.stealing.simulation.steal_errors import InvalidMetadataError
from simulator.stealing.simulation.steal_workload import History, Visitor
from tests.simulation.stealing_rig import CARTS, KEYS, START, USERS, Rig, keys_of, virtually

SLOW = 2.0
"""Keys a second: a copy is under way as long as a test looks at it."""


async def stealing(rig: Rig) -> asyncio.Task[object]:
    """Node 3 owns partitions 1 and 5, and has copied next to nothing of them."""
    running = rig.begin()
    await rig.until("StoreBegan", "users")
    return running


async def stop(running: asyncio.Task[object]) -> None:
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.row("VOL-042", "VOL-043", "VOL-066", "VOL-068", "VOL-069")
@virtually
async def test_a_read_of_what_was_not_copied() -> None:
    """VOL-042, VOL-043, VOL-068, VOL-069: it reaches the stealer and is answered with what the donor has, by
    one proxy call. VOL-066: the stealer is the owner by the metadata of all nodes."""
    rig = await Rig.loaded((USERS,), copy_rate=SLOW)
    running = await stealing(rig)
    key = keys_of(1)[-1]
    assert {each.metadata.cluster.owners[1] for each in rig.world.servers.values()} == {3}
    before = rig.server(1).requests["proxy get"]
    assert await rig.values(3, "users", key) == ["first"]
    assert rig.server(3).redirected["users"] == 1
    assert rig.server(1).requests["proxy get"] == before + 1
    await stop(running)


@pytest.mark.row("VOL-070")
@virtually
async def test_only_moving_partitions_are_redirected() -> None:
    """VOL-070: node 0 steals partition 4 and keeps 0 and 3; a key of 0 is its own business. A key that was
    taken once is not asked for again."""
    rig = await Rig.loaded((USERS,), target=START.with_owners({4: 0}), copy_rate=SLOW)
    running = await stealing(rig)
    await rig.values(0, "users", keys_of(0)[-1])
    assert rig.server(0).redirected["users"] == 0
    for _ in range(2):
        await rig.values(0, "users", keys_of(4)[-1])
    assert rig.server(0).redirected["users"] == 1
    await stop(running)


@pytest.mark.row("VOL-071", "VOL-072", "VOL-073")
@virtually
async def test_every_version_of_the_donor_comes() -> None:
    """VOL-071: two versions that have not seen each other both come, with their clocks. VOL-072: older ones,
    and the same ones again, change nothing. VOL-073: then gets, puts and getAll work on what is there."""
    rig = await Rig.loaded((USERS,), copy_rate=SLOW)
    key, other = keys_of(1)[-2:]
    first = (await rig.server(1).get("users", key))[0]
    siblings = [Versioned(first.clock.incremented(node), f"by {node}") for node in (7, 8)]
    for each in siblings:
        await rig.server(1).put_unchecked("users", key, (each,))
    running = await stealing(rig)
    await rig.server(3).put_unchecked("users", key, (first,))
    assert set(await rig.server(3).get("users", key)) == set(siblings)
    found = await rig.server(3).get_all("users", [key, other])
    assert {name: sorted(each.value for each in versions) for name, versions in found.items()} == {
        key: ["by 7", "by 8"],
        other: ["first"],
    }
    await rig.client.put("users", key, "merged")
    assert await rig.values(3, "users", key) == ["merged"]
    await stop(running)


@pytest.mark.row("VOL-072", "VOL-073")
@virtually
async def test_a_put_sees_the_donors_versions() -> None:
    """VOL-072, VOL-073: a put with a clock that the donor is ahead of is refused as obsolete, although the
    stealer had nothing of the key itself."""
    rig = await Rig.loaded((USERS,), copy_rate=SLOW)
    running = await stealing(rig)
    key = keys_of(1)[-1]
    stale = Versioned(VectorClock().incremented(1), "stale")
    with pytest.raises(ObsoleteVersionError):
        await rig.server(3).put("users", key, stale)
    assert await rig.values(3, "users", key) == ["first"]
    await stop(running)


@pytest.mark.row("VOL-007", "VOL-093")
@virtually
async def test_puts_reach_the_donor_until_the_batch_is_committed() -> None:
    """VOL-007, VOL-093: a put at the stealer is at the donor before the client is told; after the commit no
    more."""
    rig = await Rig.loaded((USERS,), copy_rate=SLOW)
    running = await stealing(rig)
    key = keys_of(1)[-1]
    await rig.client.put("users", key, "second")
    assert [each.value for each in await rig.server(1).get_unchecked("users", key)] == ["second"]
    rig.set_option(3, copy_rate=1_000.0)
    await running
    await rig.client.put("users", key, "third")
    assert [each.value for each in await rig.server(1).get_unchecked("users", key)] == ["second"]
    assert await rig.values(3, "users", key) == ["third"]


@pytest.mark.row("VOL-067")
@virtually
async def test_clients_talk_to_the_stealer() -> None:
    """VOL-067: once a client has new metadata its requests go to the stealer; the donor gets proxy requests
    only."""
    rig = await Rig.loaded((USERS,), copy_rate=SLOW)
    running = await stealing(rig)
    moving = keys_of(1)
    await rig.client.get("users", moving[0])
    direct = rig.server(1).requests["get"], rig.server(1).requests["put"]
    rig.client.calls.clear()
    for key in moving:
        await rig.client.get("users", key)
        await rig.client.put("users", key, "new")
    assert set(rig.client.calls) == {3}
    assert (rig.server(1).requests["get"], rig.server(1).requests["put"]) == direct
    await stop(running)


@pytest.mark.row("VOL-044", "VOL-064")
@virtually
async def test_redirects_end_store_by_store() -> None:
    """VOL-064: the store that is done is not redirected any more, the other one of the same unit is. VOL-044:
    after the last unit nothing is, and the node is normal."""
    rig = await Rig.loaded((USERS, CARTS), copy_rate=20.0, max_parallel_stores=1)
    running = rig.begin()
    await rig.until("StoreDone", "carts from 1")
    redirected = dict(rig.server(3).redirected)
    await rig.values(3, "carts", keys_of(1)[-1])
    await rig.values(3, "users", keys_of(1)[-1])
    assert rig.server(3).redirected["carts"] == redirected.get("carts", 0)
    assert rig.server(3).redirected["users"] == redirected.get("users", 0) + 1
    await running
    redirected = dict(rig.server(3).redirected)
    for store in ("carts", "users"):
        for key in keys_of(1) + keys_of(5):
            assert await rig.values(3, store, key) == ["first"]
    assert dict(rig.server(3).redirected) == redirected
    assert rig.server(3).metadata.state.value == "NORMAL_SERVER"
    assert rig.server(3).metadata.steal_info == ()


@pytest.mark.row("VOL-019", "VOL-065")
@virtually
async def test_the_donor_notices_nothing() -> None:
    """VOL-019, VOL-065: it is normal at every moment, has no entry, and serves its other partitions."""
    rig = await Rig.loaded((USERS,), copy_rate=50.0)
    running = await stealing(rig)
    key = keys_of(4)[0]
    assert await rig.values(1, "users", key) == ["first"]
    await running
    for _, nodes in rig.seen.taken:
        assert nodes[1].state.value == "NORMAL_SERVER"
        assert nodes[1].steal_info == ()


@pytest.mark.row("VOL-074")
@virtually
async def test_metadata_are_read_once() -> None:
    """VOL-074: at the start; requests do not read them."""
    rig = await Rig.loaded((USERS,))
    client = StealClient(rig.world, [0])
    for key in KEYS:
        await client.get("users", key)
    assert client.bootstraps == 1


@pytest.mark.row("VOL-076")
@virtually
async def test_a_node_that_does_not_own_the_partition() -> None:
    """VOL-076: it says so, and stores nothing."""
    rig = await Rig.loaded((USERS,))
    key = keys_of(1)[0]
    version = Versioned(VectorClock().incremented(0), "astray")
    with pytest.raises(InvalidMetadataError, match="node 0 has no replica of partition 1 of users"):
        await rig.server(0).put("users", key, version)
    with pytest.raises(InvalidMetadataError):
        await rig.server(0).get("users", key)
    assert await rig.server(0).get_unchecked("users", key) == ()


@pytest.mark.row("VOL-006", "VOL-075", "VOL-077")
@virtually
async def test_a_client_with_old_metadata() -> None:
    """VOL-006, VOL-075, VOL-077: one marked error, a bootstrap, and the same call of the program succeeds."""
    rig = await Rig.loaded((USERS,))
    client = StealClient(rig.world, [0])
    key = keys_of(1)[0]
    await client.get("users", key)
    await rig.rebalance()
    client.calls.clear()
    version = await client.put("users", key, "second")
    assert client.calls == [1, 3, 3]
    assert (client.bootstraps, client.retries) == (2, 1)
    assert await rig.server(3).get("users", key) == (version,)


@pytest.mark.row("VOL-078", "VOL-079")
@virtually
async def test_a_server_that_routes() -> None:
    """VOL-078: a request to a node that does not own the key is answered with one hop more. VOL-079: after a
    rebalancing its next request goes to the new owner, and it was not started again."""
    rig = await Rig.loaded((USERS,))
    routing = RoutingServer(rig.world, 0)
    key = keys_of(1)[0]
    assert [each.value for each in await routing.get("users", key)] == ["first"]
    assert routing.inner.calls == [1]
    await rig.rebalance()
    await routing.put("users", key, "second")
    routing.inner.calls.clear()
    assert [each.value for each in await routing.get("users", key)] == ["second"]
    assert routing.inner.calls == [3]
    assert rig.server(0).incarnation == 1


@pytest.mark.row("VOL-011")
@virtually
async def test_keys_keep_their_partition() -> None:
    """VOL-011: before and after, every key is in the partition of its hash, and in no other."""
    rig = await Rig.loaded((USERS,), options=RebalanceOptions(9, delete=True))
    before = {key: rig.server(0).partition(key) for key in KEYS}
    await rig.rebalance()
    for server in rig.world.servers.values():
        for partition in range(6):
            for key in server.read_write["users"].keys(partition):
                assert partition == before[key] == partition_of(key, 6)
    assert {key: rig.server(3).partition(key) for key in KEYS} == before


async def measured(rig: Rig, visitors: int = 4) -> tuple[History, float, float]:
    """A rebalancing under load: what clients saw, and when it began and ended."""
    history = History()
    visiting = [Visitor(rig.world, f"v{each}", history, rig.world.servers, KEYS) for each in range(visitors)]
    tasks = [asyncio.create_task(each.visit()) for each in visiting]
    await asyncio.sleep(2.0)
    began_s = rig.world.now_s
    result = await rig.rebalance()
    ended_s = rig.world.now_s
    assert result.outcome is StealOutcome.COMPLETED
    for each in visiting:
        each.stop()
    await asyncio.gather(*tasks)
    rig.world.check()
    return history, began_s, ended_s


def mean_ms(latencies_s: list[float]) -> float:
    return 1_000 * sum(latencies_s) / len(latencies_s)


@pytest.mark.row("VOL-001", "VOL-005", "VOL-006", "VOL-007")
@virtually
async def test_clients_under_load() -> None:
    """VOL-001, VOL-005, VOL-006: no request fails while nodes are added, and the slowest one takes less than a
    tenth of a second; what it costs is reported. VOL-007: the history of all clients is one that can be."""
    rig = await Rig.loaded((StoreDefinition("users", 2),), copy_rate=50.0)
    history, began_s, ended_s = await measured(rig)
    before, during = history.latencies_s(0.0, began_s), history.latencies_s(began_s, ended_s)
    assert not history.failed
    assert len(during) > 100
    assert mean_ms(before) < mean_ms(during) < 3 * mean_ms(before)
    assert during[-1] < 0.1


WIDE = ClusterMetadata.of({0: (0, 3, 6), 1: (1, 4, 7), 2: (2, 5, 8)})
WIDE_GROWN = ClusterMetadata.of({0: (0, 3), 1: (1, 4), 2: (2, 5), 3: (6, 7, 8)})


async def cost(**changed: float) -> tuple[float, float, int]:
    """Seconds that a rebalancing takes, mean latency in milliseconds meanwhile, and redirected gets."""
    options = RebalanceOptions(int(changed.pop("batch_size", 1)), int(changed.pop("max_parallel", 1)))
    rig = await Rig.loaded(
        (USERS,), start=WIDE, target=WIDE_GROWN, options=options, **{"copy_rate": 20.0, **changed}
    )
    history, began_s, ended_s = await measured(rig)
    redirected = sum(each.redirected.total() for each in rig.world.servers.values())
    return ended_s - began_s, mean_ms(history.latencies_s(began_s, ended_s)), redirected


@pytest.mark.row("VOL-008", "VOL-023")
@virtually
async def test_what_it_costs_can_be_tuned() -> None:
    """VOL-008: more units at once take less time and cost clients more; so does a higher rate. VOL-023: a
    larger batch has fewer steps, and more requests are redirected."""
    alone = await cost(batch_size=3)
    parallel = await cost(batch_size=3, max_parallel=3)
    assert parallel[0] < alone[0]
    assert parallel[1] > alone[1]
    assert (await cost(batch_size=3, copy_rate=200.0))[0] < alone[0]
    assert alone[2] > (await cost(batch_size=1))[2]


@pytest.mark.row("VOL-075")
@virtually
async def test_a_client_that_gets_metadata_too_early() -> None:
    """VOL-075: serve every request in the end while a state change goes from node to node
    and some of them have old metadata and some new ones."""
    rig = await Rig.loaded((USERS,))
    rig.world.slow_s = 0.5
    running = rig.begin()
    key, numbers = keys_of(1)[0], 0
    while not running.done():
        numbers += 1
        await rig.client.put("users", key, f"number {numbers}")
        assert [each.value for each in await rig.client.get("users", key)] == [f"number {numbers}"]
    assert numbers > 10
    assert (await running).outcome is StealOutcome.COMPLETED
    assert {each.metadata.cluster.owners[1] for each in rig.world.servers.values()} == {3}


@pytest.mark.row("VOL-007", "VOL-075")
@virtually
async def test_a_put_names_its_replicas() -> None:
    """VOL-007, VOL-075: node 2 has the partition before and after, and learns from the list that the client is
    behind; nothing is stored."""
    target = START.with_owners({1: 0})
    two = StoreDefinition("users", 2)
    rig = await Rig.loaded((two,), target=target)
    assert START.replicas(1, 2) == (1, 2)
    await rig.rebalance()
    key = keys_of(1)[0]
    version = Versioned(VectorClock().incremented(9), "astray")
    with pytest.raises(InvalidMetadataError, match=r"is on \(0, 2\) for node 2, not on \(1, 2\)"):
        await rig.server(2).put("users", key, version, (1, 2))
    assert await rig.values(2, "users", key) == ["first"]
    await rig.client.put("users", key, "second")
    assert await rig.values(0, "users", key) == await rig.values(2, "users", key) == ["second"]
