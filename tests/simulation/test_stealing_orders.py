"""Deletes come last; orders that come late or do not fit are refused; a crash leaves no half of a change."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from simulator.stealing.core.steal_checks import RebalanceOptions, RefusalCode
from simulator.stealing.core.steal_cluster import ClusterMetadata
from simulator.stealing.core.steal_plan import StealUnit
from simulator.stealing.core.steal_state_change import BatchId, StealStateChange
from simulator.stealing.simulation.controller import Controller, StealOutcome
from simulator.stealing.simulation.steal_errors import InvalidMetadataError, NodeDownError, OrderRefusedError
from simulator.stealing.simulation.steal_metadata import ChangeOrder
from simulator.stealing.simulation.steal_rules import check_rest
from simulator.stealing.simulation.steal_workload import History
from tests.simulation.stealing_rig import (
    BOTH,
    CARTS,
    GROWN,
    START,
    USERS,
    Rig,
    keys_of,
    virtually,
)

ATTEMPTS = 3
UNIT = StealUnit(3, 1, (("users", (1,)),))


@pytest.mark.row("VOL-094", "VOL-103")
@virtually
async def test_moved_data_are_deleted() -> None:
    """VOL-094: donors have none of them after success, and a rollback is refused. VOL-103: the first delete
    comes after the last copy of the last batch."""
    rig = await Rig.loaded(BOTH, options=RebalanceOptions(1, delete=True))
    result = await rig.rebalance()
    assert result.deleted_at == {1, 2}
    assert rig.server(1).read_write["users"].keys(1) == ()
    assert rig.server(1).read_only["static"].keys(1) == ()
    assert rig.server(1).read_write["users"].keys(4) != ()
    kinds = [line.kind for line in rig.world.trace]
    assert kinds.index("Deleted") > max(
        at for at, kind in enumerate(kinds) if kind in ("StoreDone", "Committed")
    )
    back = await Controller(rig.world, "back").roll_back(result)
    assert [each.code for each in back.refusals] == [RefusalCode.DONOR_DATA_DELETED]


@pytest.mark.row("VOL-103")
@virtually
async def test_nothing_is_deleted_by_a_run_that_fails() -> None:
    """VOL-103: the first batch is done, the second one fails: its donors and those of the first have all they
    had."""
    rig = await Rig.loaded((USERS,), options=RebalanceOptions(1, delete=True))
    running = rig.begin()
    await rig.until("Batch", "2:")
    rig.fail(3, "copy users", ATTEMPTS)
    result = await running
    assert (result.outcome, result.batches, result.deleted_at) == (StealOutcome.ROLLED_BACK, 1, set())
    assert not rig.seen.lines("Deleted")
    assert rig.server(1).read_write["users"].keys(1) == tuple(sorted(keys_of(1)))
    assert (await Controller(rig.world, "back").roll_back(result)).outcome is StealOutcome.COMPLETED


@pytest.mark.row("VOL-094")
@virtually
async def test_what_a_node_owns_is_not_deleted() -> None:
    """VOL-094."""
    rig = await Rig.loaded((USERS,))
    with pytest.raises(OrderRefusedError, match="OWNED: node 1 has a replica of partition 1 of users"):
        await rig.server(1).delete("users", 1)


@pytest.mark.row("VOL-046")
@virtually
async def test_orders_that_come_too_late() -> None:
    """VOL-046: what is committed is not taken back."""
    rig = await Rig.loaded((USERS,))
    await rig.rebalance()
    with pytest.raises(OrderRefusedError, match="COMMITTED: node 3 has committed batch 1 of run run"):
        await rig.server(3).undo(BatchId("run", 1), ())


@pytest.mark.row("VOL-105", "VOL-106")
@virtually
async def test_sweeps_of_stealers_and_donors() -> None:
    """VOL-105: refused on the stealer. VOL-106: on a donor it waits until its partitions are not read any more.
    On a node that takes no part it runs at once."""
    rig = await Rig.loaded((USERS, CARTS), copy_rate=20.0)
    running = rig.begin()
    await rig.until("StoreBegan", "from 1")
    while not rig.server(1).streams:
        await asyncio.sleep(0.001)
    assert not await rig.server(3).sweep()
    assert await rig.server(0).sweep()
    assert await rig.server(1).sweep()
    fates = [(line.node, line.detail) for line in rig.world.trace if line.kind == "Sweep"]
    assert fates[:3] == [(3, "REFUSED"), (0, "RUN"), (1, "DELAYED")]
    assert fates[-1] == (1, "RUN")
    assert rig.world.trace.index(next(line for line in rig.world.trace if line.kind == "StoreDone")) < max(
        at for at, line in enumerate(rig.world.trace) if line.kind == "Sweep"
    )
    await running
    assert await rig.server(3).sweep()


async def half_stolen(rig: Rig) -> None:
    """Node 3 has copied the carts of partition 1, and is about to copy the users. State changes go by node."""
    rig.world.rng.shuffle = list.sort
    running = rig.begin()
    await rig.until("StoreDone", "carts from 1")
    assert [each.value for each in await rig.server(3).get("carts", keys_of(1)[0])] == ["first"]
    await running


@pytest.mark.row("VOL-007", "VOL-046")
@virtually
async def test_a_stealer_comes_back_after_the_rollback() -> None:
    """VOL-007, VOL-046: its copy of the carts was complete when it died. Meanwhile the donor is the owner
    again, and has newer values: those are what the stealer answers with."""
    rig = await Rig.loaded((USERS, CARTS), max_parallel_stores=1)
    rig.crash_at(3, "copy users", None)
    await half_stolen(rig)
    key = keys_of(1)[0]
    await rig.client.put("carts", key, "after")
    rig.server(3).restart()
    assert rig.server(3).metadata.cluster.owners[1] == 3
    assert await rig.values(3, "carts", key) == ["after"]


@pytest.mark.row("VOL-007", "VOL-046")
@virtually
async def test_a_rollback_begins_on_the_stealers() -> None:
    """VOL-007, VOL-046: the donor is back in the old state, and serves clients, while the stealer is not: it
    redirects what it had copied already."""
    rig = await Rig.loaded((USERS, CARTS), max_parallel_stores=1)
    rig.fail(3, "copy users", ATTEMPTS)
    rig.fail(3, "undo REBALANCE", 9)
    running = asyncio.create_task(half_stolen(rig))
    await rig.until("Undone")
    while rig.server(1).metadata.record is not None:
        await asyncio.sleep(0.001)
    key = keys_of(1)[0]
    version = await rig.client.put("carts", key, "after")
    assert await rig.server(1).get("carts", key) == (version,)
    assert await rig.server(3).get("carts", key) == (version,)
    await running
    check_rest(rig.world, START, History())


@pytest.mark.row("VOL-042", "VOL-048")
@virtually
async def test_no_request_is_served_in_the_middle_of_a_change() -> None:
    """VOL-042, VOL-048: serve no request between taking back the rebalance state and the metadata, when a
    stealer would own what it has not got. The request waits, and is then refused, so that the client asks
    another node."""
    rig = await Rig.loaded((USERS,), copy_rate=2.0)
    running = rig.begin()
    await rig.until("StoreBegan")
    key = keys_of(1)[-1]
    undo = asyncio.create_task(
        rig.server(3).undo(BatchId("run", 1), (StealStateChange.REBALANCE, StealStateChange.CLUSTER))
    )
    await rig.until("TookBack", "REBALANCE")
    assert rig.server(3).metadata.cluster.owners[1] == 3
    with pytest.raises(InvalidMetadataError):
        await rig.server(3).get("users", key)
    await undo
    running.cancel()


def order_for(batch: str, before: ClusterMetadata = START) -> ChangeOrder:
    return ChangeOrder(BatchId(batch, 1), before, GROWN, (StealStateChange.CLUSTER,))


@pytest.mark.row("VOL-010", "VOL-046")
@virtually
async def test_orders_that_do_not_fit_are_refused() -> None:
    """VOL-010, VOL-046: a node that is in a batch takes no order of another one, and none that rests on other
    metadata than it has; it changes nothing then."""
    rig = await Rig.loaded((USERS,))
    with pytest.raises(OrderRefusedError, match="METADATA_DIFFERS: node 0 has"):
        await rig.server(0).change_state(order_for("a", before=GROWN))
    await rig.server(0).change_state(order_for("a"))
    with pytest.raises(OrderRefusedError, match="BATCH_UNFINISHED: node 0 has not finished batch 1 of run a"):
        await rig.server(0).change_state(order_for("b", before=GROWN))
    assert rig.server(0).metadata.unfinished == BatchId("a", 1)


@pytest.mark.row("VOL-046")
@virtually
async def test_a_state_change_that_a_crash_cuts_off() -> None:
    """VOL-046: put the node into the old state as soon as it is back, before any request."""
    rig = await Rig.loaded((USERS,))
    rig.crash_at(1, "change SWAP", None)
    parts = (StealStateChange.CLUSTER, StealStateChange.SWAP)
    with pytest.raises(NodeDownError):
        await rig.world.order(1, lambda server: server.change_state(replace(order_for("a"), parts=parts)))
    assert rig.server(1).metadata.cluster == GROWN
    rig.server(1).restart()
    assert rig.server(1).metadata.cluster == START
    assert rig.server(1).metadata.record is None
