"""Failures that are taken back: state changes and migrations, attempts and time limits, controllers and nodes
that die; and the operator's commands."""

from __future__ import annotations

import asyncio

import pytest

from simulator.stealing.core.steal_checks import RebalanceOptions, RefusalCode
from simulator.stealing.core.steal_cluster import StoreDefinition
from simulator.stealing.core.steal_plan import StealUnit
from simulator.stealing.core.steal_state_change import StealStep
from simulator.stealing.simulation.controller import Controller, Result, StealOutcome
from simulator.stealing.simulation.steal_errors import OrderRefusedError
from simulator.stealing.simulation.steal_rules import check_rest
from simulator.stealing.simulation.steal_workload import History
from simulator.stealing.simulation.unit_view import JobStatus
from tests.simulation.stealing_rig import (
    BOTH,
    GROWN,
    KEYS,
    START,
    STATIC,
    USERS,
    Rig,
    keys_of,
    virtually,
)

ATTEMPTS = 3
UNIT = StealUnit(3, 1, (("users", (1,)),))


async def rolled_back(rig: Rig) -> Result:
    """The result of a rebalancing that fails; everything is as it was before, and every key is served."""
    result = await rig.rebalance()
    assert result.outcome is StealOutcome.ROLLED_BACK
    check_rest(rig.world, START, History())
    for store in rig.world.stores:
        for key in KEYS:
            if store is STATIC:
                assert await rig.client.get_static(store.name, key) == f"static {key}"
            else:
                assert [each.value for each in await rig.client.get(store.name, key)] == ["first"]
    return result


@pytest.mark.row("VOL-046", "VOL-052", "VOL-053", "VOL-055", "VOL-056", "VOL-093")
@pytest.mark.parametrize(
    ("stores", "node", "what", "step"),
    [
        (BOTH, 3, "change REBALANCE", StealStep.CHANGE_RO),
        (BOTH, 3, "copy static", StealStep.MIGRATE_RO),
        (BOTH, 0, "change CLUSTER", StealStep.CHANGE_RW),
        (BOTH, 3, "change SWAP", StealStep.CHANGE_RW),
        (BOTH, 3, "copy users", StealStep.MIGRATE_RW),
        ((STATIC,), 3, "copy static", StealStep.MIGRATE_RO),
        ((STATIC,), 2, "change SWAP", StealStep.CHANGE_RW),
        ((USERS,), 1, "change CLUSTER", StealStep.CHANGE_RW),
        ((USERS,), 3, "copy users", StealStep.MIGRATE_RW),
    ],
)
@virtually
async def test_a_step_that_fails(
    stores: tuple[StoreDefinition, ...], node: int, what: str, step: StealStep
) -> None:
    """VOL-046, VOL-052, VOL-053, VOL-055, VOL-056: whichever step fails, with whichever stores: the old state,
    everywhere. VOL-093: and the next run succeeds."""
    rig = await Rig.loaded(stores)
    rig.fail(node, what, ATTEMPTS)
    result = await rolled_back(rig)
    assert result.failed_step is step
    rig.world.faults.clear()
    assert (await rig.rebalance()).outcome is StealOutcome.COMPLETED


@pytest.mark.row("VOL-046")
@pytest.mark.parametrize("down_s", [0.3, 3.0])
@pytest.mark.parametrize(
    "what", ["change REBALANCE", "change CLUSTER", "change SWAP", "copy static", "copy users"]
)
@virtually
async def test_a_node_that_dies_in_a_step(what: str, down_s: float) -> None:
    """VOL-046: what a node had half done is undone when it is back; the others do not wait for that."""
    rig = await Rig.loaded(BOTH)
    rig.crash_at(3, what, down_s)
    result = await rig.rebalance()
    await asyncio.sleep(down_s)
    assert result.outcome is StealOutcome.ROLLED_BACK
    check_rest(rig.world, START, History())


@pytest.mark.row("VOL-047")
@virtually
async def test_who_takes_a_state_change_back() -> None:
    """VOL-047: of four nodes two had done it, the third failed. Those two take it back, the failed one has done
    nothing that is left, and the fourth was never asked."""
    rig = await Rig.loaded((USERS,))
    order = list(range(4))
    rig.world.rng.shuffle = lambda nodes: nodes.__setitem__(slice(None), order)
    rig.fail(2, "change CLUSTER")
    await rolled_back(rig)
    assert rig.seen.lines("Changed", "Undone") == [
        "Changed CLUSTER",
        "Changed CLUSTER",
        "Undone batch 1 of run run",
        "Undone batch 1 of run run",
    ]
    assert [line.node for line in rig.world.trace if line.kind in ("Changed", "ToldToUndo")] == [0, 1, 0, 1]


@pytest.mark.row("VOL-048", "VOL-049", "VOL-051")
@pytest.mark.parametrize(
    ("stores", "what", "order"),
    [
        ((USERS,), "copy users", ["REBALANCE", "CLUSTER"]),
        (BOTH, "copy static", ["REBALANCE"]),
        (BOTH, "copy users", ["REBALANCE", "CLUSTER", "SWAP"]),
    ],
    ids=["VOL-048", "VOL-049", "VOL-051"],
)
@virtually
async def test_the_order_on_a_stealer(stores: tuple[StoreDefinition, ...], what: str, order: list[str]) -> None:
    """VOL-048, VOL-049, VOL-051: parts are taken back on a node in the order of the table."""
    rig = await Rig.loaded(stores)
    rig.fail(3, what, ATTEMPTS)
    await rolled_back(rig)
    assert [line.detail for line in rig.world.trace if line.kind == "TookBack" and line.node == 3] == order


@pytest.mark.row("VOL-050", "VOL-054")
@virtually
async def test_the_order_without_read_write_stores() -> None:
    """VOL-050: cluster metadata first, then the swap. VOL-054: there is no later step that could fail."""
    rig = await Rig.loaded((STATIC,))
    rig.world.rng.shuffle = list.sort
    rig.fail(3, "change CLUSTER")
    await rolled_back(rig)
    assert [line.detail for line in rig.world.trace if line.kind == "TookBack" and line.node == 0] == [
        "CLUSTER",
        "SWAP",
    ]


@pytest.mark.row("VOL-098")
@pytest.mark.parametrize("attempts", [1, 3])
@virtually
async def test_attempts(attempts: int) -> None:
    """VOL-098: exactly so many tries of a copy, then the unit fails; one try less that fails is no failure."""
    rig = await Rig.loaded((USERS,), max_attempts=attempts)
    rig.fail(3, "copy users", attempts)
    result = await rolled_back(rig)
    assert f"attempt {attempts} of {attempts}" in result.error
    assert len(rig.seen.lines("StoreBegan")) == attempts
    rig.fail(3, "copy users", attempts - 1)
    assert (await rig.rebalance()).outcome is StealOutcome.COMPLETED


@pytest.mark.row("VOL-099")
@virtually
async def test_a_copy_that_takes_too_long() -> None:
    """VOL-099: over the time limit the unit fails, without another try."""
    rig = await Rig.loaded((USERS,), copy_rate=0.5, timeout_s=4.0)
    result = await rolled_back(rig)
    assert "not done within rebalancing.timeout.seconds, 4" in result.error
    assert len(rig.seen.lines("StoreBegan")) == 1


@pytest.mark.row("VOL-061")
@virtually
async def test_a_unit_without_a_state_change() -> None:
    """VOL-061: refused, and nothing is copied."""
    rig = await Rig.loaded((USERS,))
    with pytest.raises(OrderRefusedError, match="NOT_REBALANCING: node 3 has no steal info for stealer 3"):
        await rig.server(3).start_unit(UNIT)
    assert await rig.server(3).list_jobs() == ()


@pytest.mark.row("VOL-062")
@virtually
async def test_a_donor_is_locked() -> None:
    """VOL-062: a second unit from the same donor to the same stealer is refused, one from another donor is not;
    when the unit has ended the donor is free."""
    rig = await Rig.loaded((USERS,), copy_rate=10.0)
    running = rig.begin()
    await rig.until("StoreBegan", "from 1")
    with pytest.raises(OrderRefusedError, match="DONOR_LOCKED: node 3 is stealing from node 1 already"):
        await rig.server(3).start_unit(UNIT)
    await rig.until("UnitBegan", "donor 2")
    assert rig.server(3).locked_donors == {2}
    await running
    assert rig.server(3).locked_donors == set()


@pytest.mark.row("VOL-095")
@virtually
async def test_jobs_are_stopped() -> None:
    """VOL-095: those that are named, and no other ones; the rebalancing that waits for one is taken back."""
    options = RebalanceOptions(batch_size=9, max_parallel=2)
    rig = await Rig.loaded((USERS,), copy_rate=5.0, options=options)
    running = rig.begin()
    await rig.until("StoreBegan", "from 2")
    await rig.until("StoreBegan", "from 1")
    with pytest.raises(OrderRefusedError, match=r"NO_SUCH_JOB: node 3 has no job 9; it has \[1, 2\]"):
        await rig.server(3).stop_jobs("1, 9")
    with pytest.raises(OrderRefusedError, match="found 'x'"):
        await rig.server(3).stop_jobs("1,x")
    assert [each.status for each in await rig.server(3).list_jobs()] == [JobStatus.RUNNING] * 2
    await rig.server(3).stop_jobs("1")
    assert [each.status for each in await rig.server(3).list_jobs()] == [JobStatus.STOPPED, JobStatus.RUNNING]
    assert (await running).outcome is StealOutcome.ROLLED_BACK
    check_rest(rig.world, START, History())


@pytest.mark.row("VOL-096")
@virtually
async def test_rebalancing_information_is_cleared() -> None:
    """VOL-096: after its jobs are stopped the node is normal again. A node that owns what it has not copied
    keeps its entries: it would answer without the donor."""
    rig = await Rig.loaded(BOTH, copy_rate=5.0)
    running = rig.begin()
    await rig.until("StoreBegan", "static")
    running.cancel()
    with pytest.raises(OrderRefusedError, match=r"JOBS_RUNNING: node 3 runs jobs \[1\]: stop them first"):
        await rig.server(3).clear_rebalancing()
    await rig.server(3).stop_jobs("1")
    await rig.server(3).clear_rebalancing()
    assert rig.server(3).metadata.get("server.state") == "NORMAL_SERVER"
    assert rig.server(3).metadata.get("rebalancing.steal.info.key") == "[]"
    await asyncio.sleep(0.1)
    check_rest(rig.world, START, History())
    running = rig.begin()
    await rig.until("StoreBegan", "users")
    running.cancel()
    rig.server(3).stop_all()
    with pytest.raises(OrderRefusedError, match="CLUSTER_CHANGED: node 3 owns what it has not copied"):
        await rig.server(3).clear_rebalancing()


STEPS = ("Changed", "UnitBegan", "StoreDone", "UnitEnded", "Committed")


@pytest.mark.row("VOL-014", "VOL-046")
@pytest.mark.parametrize("kind", STEPS)
@virtually
async def test_a_controller_that_dies(kind: str) -> None:
    """VOL-014, VOL-046: another one finds on the nodes what was begun, and takes it back; once a node has
    committed, every node does. A new run is refused until then."""
    rig = await Rig.loaded(BOTH, copy_rate=50.0)
    running = rig.begin()
    await rig.until(kind)
    running.cancel()
    await asyncio.wait({running})
    refused = await Controller(rig.world, "new").rebalance(GROWN)
    assert RefusalCode.BATCH_UNFINISHED in {each.code for each in refused.refusals}
    recovered = await Controller(rig.world, "recovery").recover()
    assert recovered.outcome is StealOutcome.COMPLETED
    wanted = GROWN if kind == "Committed" else START
    check_rest(rig.world, wanted.with_nodes([3]), History())
    assert (await Controller(rig.world, "again").rebalance(GROWN)).outcome is StealOutcome.COMPLETED


@pytest.mark.row("VOL-046")
@virtually
async def test_recovery_waits_for_every_node() -> None:
    """VOL-046: the node that is down may be the one that has committed."""
    rig = await Rig.loaded((USERS,), copy_rate=50.0)
    running = rig.begin()
    await rig.until("Committed")
    running.cancel()
    committed = next(line.node for line in rig.world.trace if line.kind == "Committed")
    rig.world.crash(committed)
    recovered = await Controller(rig.world, "recovery").recover()
    assert [each.message for each in recovered.refusals] == [
        f"node {committed} does not answer: start it first"
    ]
    rig.server(committed).restart()
    await Controller(rig.world, "recovery").recover()
    check_rest(rig.world, GROWN, History())


@virtually
async def test_recovery_of_nothing() -> None:
    rig = await Rig.loaded()
    assert (await rig.controller.recover()).outcome is StealOutcome.COMPLETED
    check_rest(rig.world, START, History())


@pytest.mark.row("VOL-046")
@virtually
async def test_a_node_that_does_not_come_back() -> None:
    """VOL-046: the result names it, and what its entries say stays true: it redirects as soon as it is there,
    until it is recovered."""
    rig = await Rig.loaded((USERS,))
    rig.crash_at(3, "copy users", None)
    result = await rig.rebalance()
    assert (result.outcome, result.left) == (StealOutcome.INCOMPLETE, (3,))
    key = keys_of(1)[0]
    await rig.client.put("users", key, "after")
    rig.server(3).restart()
    assert await rig.values(3, "users", key) == ["after"]
    assert (await Controller(rig.world, "recovery").recover()).outcome is StealOutcome.COMPLETED
    check_rest(rig.world, START, History())


@pytest.mark.row("VOL-093")
@virtually
async def test_a_rollback_by_hand() -> None:
    """VOL-093: after a run without deletes every owner is as before, and what was written since is kept."""
    rig = await Rig.loaded((USERS,), options=RebalanceOptions(1))
    result = await rig.rebalance()
    assert rig.server(1).read_write["users"].keys(1) == tuple(sorted(keys_of(1)))
    await rig.client.put("users", keys_of(1)[0], "since")
    back = await Controller(rig.world, "back").roll_back(result)
    assert back.outcome is StealOutcome.COMPLETED
    assert rig.server(1).metadata.cluster.owners == START.owners
    assert await rig.values(1, "users", keys_of(1)[0]) == ["since"]
