"""The cycle of a rebalancing without faults: what is checked first, what each step changes, and in which
order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from simulator.stealing.core.steal_checks import RebalanceOptions, RefusalCode, ServerState
from simulator.stealing.core.steal_cluster import ClusterMetadata, StoreDefinition
from simulator.stealing.simulation.controller import Controller, StealOutcome
from simulator.stealing.simulation.steal_errors import InvalidMetadataError
from simulator.stealing.simulation.steal_metadata import CLUSTER_KEY, STATE_KEY, STEAL_INFO_KEY
from simulator.stealing.simulation.steal_rules import check_keys, save_keys
from tests.simulation.stealing_rig import (
    BOTH,
    CARTS,
    GROWN,
    KEYS,
    START,
    STATIC,
    USERS,
    Rig,
    keys_of,
    virtually,
)

NORMAL, STEALING = ServerState.NORMAL_SERVER, ServerState.REBALANCING_MASTER


@pytest.mark.row("VOL-002", "VOL-013", "VOL-014", "VOL-020", "VOL-088")
@virtually
async def test_a_rebalancing_returns_when_it_is_done() -> None:
    """VOL-013, VOL-020, VOL-088: a controller is given a target; it returns after the last batch, and every
    node has the target. VOL-014: it is none of the nodes, and only calls them. VOL-002: from three nodes to
    four."""
    rig = await Rig.loaded()
    result = await rig.rebalance()
    assert (result.outcome, result.batches) == (StealOutcome.COMPLETED, 1)
    assert {each.metadata.cluster for each in rig.world.servers.values()} == {GROWN}
    assert {each.metadata.state for each in rig.world.servers.values()} == {NORMAL}


@pytest.mark.row("VOL-003")
@virtually
async def test_a_node_is_emptied() -> None:
    """VOL-003: empty node 2, so that it has no key afterwards, and find every key."""
    target = ClusterMetadata.of({0: (0, 3, 2), 1: (1, 4, 5), 2: ()})
    rig = await Rig.loaded(target=target, options=RebalanceOptions(2, delete=True))
    assert (await rig.rebalance()).outcome is StealOutcome.COMPLETED
    for store in (rig.server(2).read_write["users"], rig.server(2).read_only["static"]):
        assert [key for partition in range(6) for key in store.keys(partition)] == []
    assert [(await rig.client.get("users", key))[0].value for key in KEYS] == ["first"] * len(KEYS)


@pytest.mark.row("VOL-004")
@virtually
async def test_load_is_balanced_among_the_nodes_there_are() -> None:
    """VOL-004."""
    target = ClusterMetadata.of({0: (0, 3, 4), 1: (1,), 2: (2, 5)})
    rig = await Rig.loaded(target=target)
    assert (await rig.rebalance()).outcome is StealOutcome.COMPLETED
    assert rig.server(0).metadata.cluster == target


@pytest.mark.row("VOL-022", "VOL-025", "VOL-026")
@virtually
async def test_the_cluster_is_asked_and_told() -> None:
    """VOL-022: all that is given is where the cluster is, and a target. VOL-025: metadata that changed since
    the controller was made count. VOL-026: the new node is known to all, with nothing, before anything
    moves."""
    rig = await Rig.loaded()
    moved = START.with_owners({0: 1})
    for server in rig.world.servers.values():
        server.metadata.cluster = moved
    result = await rig.rebalance()
    assert result.start == moved
    before = rig.seen.at("Batch")
    assert all(each.cluster == moved.with_nodes([3]) for each in before.values())
    assert before[3].cluster.partitions_of(3) == ()


@pytest.mark.row("VOL-087")
@virtually
async def test_the_plan_is_shown_and_nothing_is_done() -> None:
    """VOL-087."""
    rig = await Rig.loaded()
    (batch,) = await rig.controller.show_plan(GROWN)
    assert [each.describe() for each in batch.units] == [
        "stealer 3 <- donor 1: static [1], users [1]",
        "stealer 3 <- donor 2: static [5], users [5]",
    ]
    assert rig.server(0).metadata.cluster == START
    assert not rig.world.trace


@pytest.mark.row("VOL-010", "VOL-027", "VOL-028", "VOL-080", "VOL-081", "VOL-107")
@virtually
async def test_a_second_rebalancing_is_refused() -> None:
    """VOL-010, VOL-027, VOL-028: while one runs, with the reasons. VOL-080, VOL-081, VOL-107: both are to be
    seen on each node."""
    rig = await Rig.loaded(copy_rate=20.0)
    first = rig.begin()
    await rig.until("UnitBegan", "users")
    assert rig.server(3).metadata.get(STATE_KEY) == "REBALANCING_MASTER"
    assert '"donor": 1' in rig.server(3).metadata.get(STEAL_INFO_KEY)
    second = await Controller(rig.world, "second").rebalance(START.with_nodes([3]))
    assert second.outcome is StealOutcome.REFUSED
    codes = {each.code for each in second.refusals}
    assert {RefusalCode.NOT_NORMAL, RefusalCode.STEAL_INFO_NOT_EMPTY, RefusalCode.BATCH_UNFINISHED} <= codes
    assert (await first).outcome is StealOutcome.COMPLETED
    assert rig.server(3).metadata.get(STATE_KEY) == "NORMAL_SERVER"
    assert rig.server(3).metadata.get(STEAL_INFO_KEY) == "[]"
    assert ClusterMetadata.decode(rig.server(3).metadata.get(CLUSTER_KEY)) == GROWN


@pytest.mark.row("VOL-010")
@virtually
async def test_two_that_begin_at_once() -> None:
    """VOL-010: both found nothing that runs. Nodes take part in one batch at a time, so at most one goes on; no
    node is left between them."""
    rig = await Rig.loaded()
    other = Controller(rig.world, "other", RebalanceOptions(batch_size=9))
    results = await asyncio.gather(rig.controller.rebalance(GROWN), other.rebalance(GROWN))
    outcomes = sorted(each.outcome.value for each in results)
    assert outcomes in (["COMPLETED", "ROLLED_BACK"], ["COMPLETED", "REFUSED"], ["ROLLED_BACK", "ROLLED_BACK"])
    wanted = {GROWN.owners if "COMPLETED" in outcomes else START.owners}
    assert {each.metadata.cluster.owners for each in rig.world.servers.values()} == wanted
    assert all(each.metadata.record is None for each in rig.world.servers.values())


@pytest.mark.row("VOL-029")
@virtually
async def test_read_only_stores_need_the_newest_format() -> None:
    """VOL-029."""
    rig = await Rig.loaded()
    rig.server(1).read_only["static"].format = "ro1"
    result = await rig.rebalance()
    assert [each.code for each in result.refusals] == [RefusalCode.OLD_STORAGE_FORMAT]
    assert not rig.world.trace


@pytest.mark.row("VOL-097")
@virtually
async def test_rebalancing_may_be_disabled() -> None:
    """VOL-097: on one node is enough."""
    rig = await Rig.loaded()
    rig.set_option(2, enable_rebalancing=False)
    result = await rig.rebalance()
    assert [each.code for each in result.refusals] == [RefusalCode.REBALANCING_DISABLED]
    assert rig.server(0).metadata.cluster == START


@pytest.mark.row("VOL-033", "VOL-039", "VOL-090")
@virtually
async def test_read_only_and_read_write_stores() -> None:
    """VOL-033: before the first read-only copy the stealer rebalances with those stores only, and metadata are
    old. VOL-039: then metadata, swap and read-write stores in one step, on all nodes; only the stealer has
    entries. VOL-090: steps in the document's order."""
    rig = await Rig.loaded(BOTH)
    await rig.rebalance()
    begun = rig.seen.at("UnitBegan", "static")
    assert begun[3].state is STEALING
    assert {name for unit in begun[3].steal_info for name in unit.names} == {"static"}
    assert {each.cluster.owners for each in begun.values()} == {START.owners}
    assert [begun[node].state for node in (0, 1, 2)] == [NORMAL] * 3
    changed = rig.seen.at("Step", "migration (RW)")
    assert {each.cluster.owners for each in changed.values()} == {GROWN.owners}
    assert {each.static_version for each in changed.values()} == {1}
    assert {name for unit in changed[3].steal_info for name in unit.names} == {"users"}
    assert [changed[node].steal_info for node in (0, 1, 2)] == [(), (), ()]
    assert rig.seen.lines("Step") == [
        "Step state change (RO)",
        "Step migration (RO)",
        "Step state change (RW)",
        "Step migration (RW)",
    ]


@pytest.mark.row("VOL-034", "VOL-040")
@virtually
async def test_only_read_only_stores() -> None:
    """VOL-034: all stealers rebalance before the first copy, others do not. VOL-040: then metadata and swap on
    all nodes, and no entry of a read-write store anywhere."""
    rig = await Rig.loaded((STATIC,))
    assert (await rig.rebalance()).outcome is StealOutcome.COMPLETED
    begun = rig.seen.at("UnitBegan")
    assert [begun[node].state for node in range(4)] == [NORMAL, NORMAL, NORMAL, STEALING]
    done = rig.seen.at("Committed")
    assert {each.cluster.owners for each in done.values()} == {GROWN.owners}
    assert {each.static_version for each in done.values()} == {1}
    assert {each.steal_info for each in done.values()} == {()}
    assert [await rig.client.get_static("static", key) for key in KEYS] == [f"static {key}" for key in KEYS]


@pytest.mark.row("VOL-035", "VOL-041")
@virtually
async def test_only_read_write_stores() -> None:
    """VOL-035: nothing is done for read-only stores. VOL-041: metadata on all nodes, entries on the stealer, no
    swap."""
    rig = await Rig.loaded((USERS,))
    await rig.rebalance()
    assert rig.seen.lines("Step") == ["Step state change (RW)", "Step migration (RW)"]
    changed = rig.seen.at("Step", "migration (RW)")
    assert {each.cluster.owners for each in changed.values()} == {GROWN.owners}
    assert changed[3].state is STEALING
    assert not any("SWAP" in line for line in rig.seen.lines("Changed"))


@pytest.mark.row("VOL-036")
@virtually
async def test_read_only_migration_is_not_seen() -> None:
    """VOL-036: until the swap the donor serves what it served, clients keep their metadata, and the stealer
    refuses what it does not own yet."""
    rig = await Rig.loaded((STATIC,), copy_rate=5.0)
    moving = keys_of(1)
    await rig.client.get_static("static", moving[0])
    asked, running = rig.client.bootstraps, rig.begin()
    await rig.until("StoreBegan")
    for key in moving:
        assert await rig.client.get_static("static", key) == f"static {key}"
        with pytest.raises(InvalidMetadataError):
            await rig.server(3).get_static("static", key)
    assert rig.server(3).copying == 1
    assert rig.client.bootstraps == asked
    assert (await running).outcome is StealOutcome.COMPLETED
    assert [await rig.client.get_static("static", key) for key in moving] == [f"static {key}" for key in moving]


@pytest.mark.row("VOL-037")
@virtually
async def test_entries_go_unit_by_unit() -> None:
    """VOL-037: when the first read-only unit has ended its entry is gone, and the other one is still there."""
    rig = await Rig.loaded((STATIC,))
    await rig.rebalance()
    ended = rig.seen.at("UnitEnded")
    assert [unit.donor for unit in ended[3].steal_info] == [2]
    assert ended[3].state is STEALING
    last = rig.seen.at("UnitEnded", "donor 2")
    assert (last[3].steal_info, last[3].state) == ((), NORMAL)


SIX = ClusterMetadata.of({node: (node,) for node in range(6)})
ROTATED = ClusterMetadata.of({node: ((node + 1) % 6,) for node in range(6)})


@pytest.mark.row("VOL-024", "VOL-038", "VOL-043", "VOL-045", "VOL-091", "VOL-092")
@pytest.mark.parametrize(("parallel", "peak"), [(1, 1), (2, 2), (3, 3)])
@pytest.mark.parametrize("store", [STATIC, USERS], ids=["RO", "RW"])
@virtually
async def test_units_at_once(store: StoreDefinition, parallel: int, peak: int) -> None:
    """VOL-024, VOL-038, VOL-045: six units, never more at once than allowed, and all six finish. VOL-043: two
    of them overlap. VOL-091, VOL-092: one by default, more with the option."""
    options = RebalanceOptions(batch_size=6, max_parallel=parallel)
    rig = await Rig.loaded((store,), start=SIX, target=ROTATED, options=options, copy_rate=50.0)
    assert (await rig.rebalance()).outcome is StealOutcome.COMPLETED
    assert len(rig.seen.lines("UnitBegan")) == 6
    assert sum("COMPLETED" in line for line in rig.seen.lines("UnitEnded")) == 6
    assert rig.rules.peak == peak


@pytest.mark.row("VOL-091")
@virtually
async def test_one_unit_at_once_by_default() -> None:
    """VOL-091."""
    rig = await Rig.loaded((USERS,), start=SIX, target=ROTATED, options=RebalanceOptions())
    assert (await rig.rebalance()).batches == 6
    assert rig.rules.peak == 1


@pytest.mark.row("VOL-092")
@virtually
async def test_parallelism_below_one() -> None:
    """VOL-092."""
    rig = await Rig.loaded(options=RebalanceOptions(max_parallel=0))
    result = await rig.rebalance()
    assert [each.message for each in result.refusals] == ["parallelism is 0: it must be 1 or more"]


@pytest.mark.row("VOL-063", "VOL-100")
@pytest.mark.parametrize(("limit", "peak"), [(3, 3), (1, 1)])
@virtually
async def test_stores_at_once(limit: int, peak: int) -> None:
    """VOL-063, VOL-100: a unit of five stores copies at most as many at once as allowed, and all of them."""
    stores = tuple(StoreDefinition(name, 1) for name in "abcde")
    target = START.with_owners({1: 0})
    rig = await Rig.loaded(stores, target=target, copy_rate=50.0, max_parallel_stores=limit)
    running, most = rig.begin(), 0
    while not running.done():
        most = max(most, rig.server(0).copying)
        await asyncio.sleep(0.001)
    assert most == peak
    assert len(rig.seen.lines("StoreDone")) == 5


@pytest.mark.row("VOL-023", "VOL-031", "VOL-090")
@virtually
async def test_each_batch_leaves_its_metadata() -> None:
    """VOL-023, VOL-031, VOL-090: batches of one partition; between them every node has the metadata of the
    batch before. A batch of both is one step instead of two."""
    rig = await Rig.loaded((USERS,), options=RebalanceOptions(batch_size=1))
    result = await rig.rebalance()
    between = START.with_nodes([3]).with_owners({1: 3})
    assert result.transitions == [between, GROWN]
    assert {each.cluster for each in rig.seen.at("Batch", "2:").values()} == {between}
    together = await Rig.loaded((USERS,), options=RebalanceOptions(batch_size=2))
    assert (await together.rebalance()).batches == 1


@pytest.mark.row("VOL-089", "VOL-104")
@virtually
async def test_progress_is_pushed_up() -> None:
    """VOL-089: jobs have an id, a description, a status and their progress. VOL-104: stores that are done, of
    each job and in total."""
    rig = await Rig.loaded((USERS, CARTS, STATIC), copy_rate=30.0, max_parallel_stores=1)
    running = rig.begin()
    await rig.until("StoreDone", "carts from 1")
    (job,) = [each for each in await rig.server(3).list_jobs() if each.status.value == "RUNNING"]
    assert job.description == "stealer 3 <- donor 1: carts [1], users [1]"
    assert (job.number, str(job.progress)) == (3, "Number of stores completed - 1 / 2")
    await running
    assert rig.seen.lines("Progress")[-1] == "Progress Number of stores completed - 6 / 6"
    assert [each.status.value for each in await rig.server(3).list_jobs()] == ["COMPLETED"] * 4


@pytest.mark.row("VOL-101")
@pytest.mark.parametrize("optimization", [True, False])
@virtually
async def test_replicas_that_exist_are_not_copied(optimization: bool) -> None:
    """VOL-101: node 1 becomes the owner of a partition of which it had the second replica. With the option no
    key of it is copied there."""
    start = ClusterMetadata.of({0: (0,), 1: (1,), 2: (2,)})
    two = StoreDefinition("users", 2)
    target = start.with_owners({0: 1})
    rig = await Rig.loaded((two,), start=start, target=target, optimization=optimization)
    assert (await rig.rebalance()).outcome is StealOutcome.COMPLETED
    jobs = {each.description: each.copied for each in await rig.server(1).list_jobs()}
    had, new = (len([key for key in KEYS if rig.server(0).partition(key) == number]) for number in (0, 2))
    assert sum(jobs.values()) == new + (0 if optimization else had)


@pytest.mark.row("VOL-082", "VOL-083")
@virtually
async def test_saved_keys_are_found_again(tmp_path: Path) -> None:
    """VOL-082: a file of keys for each store. VOL-083: all of them are at their new places; one that is taken
    away is missed."""
    rig = await Rig.loaded()
    paths = save_keys(rig.world, tmp_path)
    assert [each.name for each in paths] == ["users.keys", "static.keys"]
    assert paths[0].read_text().splitlines() == sorted(KEYS)
    await rig.rebalance()
    found = check_keys(rig.world, tmp_path)
    assert (found.checked, found.missing) == (2 * len(KEYS), ())
    rig.server(3).read_write["users"].delete(1)
    lost = check_keys(rig.world, tmp_path).missing
    assert lost
    assert {(store, node) for store, _, node in lost} == {("users", 3)}
