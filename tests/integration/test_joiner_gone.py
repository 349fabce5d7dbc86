"""A joiner's node is killed for good while partitions move to it, each at another stage: every move ends, by
the time-out, by an ALTER back, or because the node leaves the data nodes (M1, M3, M8). Real members; the node
never returns."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from rebalance.core.admission.move_admission import Limits
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import GivenUpRecord, MemberRole, MemberState, Stage
from rebalance.groups.calls.etcd_api import CallFailedError, FailureKind
from tests.fixtures.held_joiner import TUNING, HeldHost
from tests.fixtures.joiners import CELLS, FOUNDERS, JOINER, OTHER, SECOND, Cell, Joiners, partition_of
from tests.fixtures.node_cluster import NodeCluster, Writer, node_cluster

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.slow("moves to nodes that never return, to their end"),
    pytest.mark.thorough("simulation/test_joiner_gone_for_good has each stage and strategy"),
]

JOINER_S = 3
ASKED, ASKED_AGAIN = 10, 20
CONVERGENCE_S = 120.0


def is_at(cluster: NodeCluster, cell: Cell) -> bool:
    """True if the joiner has reached the step of its cell, past which it is not let."""
    partition = partition_of(cell)
    record, configuration = cluster.record(partition, JOINER), cluster.configuration(partition)
    listed = configuration.members.get(JOINER) if configuration is not None else None
    match cell.step:
        case "reserve":
            return cluster.has_pending(partition) and record is None
        case "join":
            return listed is not None and listed.role is MemberRole.LEARNER
        case "promote":
            running = record is not None and record.state is MemberState.RUNNING
            return running and listed is not None and listed.role is MemberRole.LEARNER
    second = configuration.members.get(SECOND) if configuration is not None else None
    return listed is not None and listed.role is MemberRole.VOTER and second is not None


def is_converged(cluster: NodeCluster, cell: Cell) -> bool:
    """True without pending, planned and lock, once the published members are exactly stable's voters."""
    partition = partition_of(cell)
    keys, configuration = cluster.keyspace.partition(partition), cluster.configuration(partition)
    left = [cluster.mirrors.partitions.get(key) for key in (keys.pending, keys.planned, keys.lock)]
    return (
        left == [None] * 3
        and cluster.stable(partition) in map(frozenset, cell.ends)
        and configuration is not None
        and configuration.stage in (Stage.NONE, Stage.STABLE)
        and configuration.members.keys() == cluster.stable(partition)
        and all(each.role is MemberRole.VOTER for each in configuration.members.values())
    )


async def voters(cluster: NodeCluster, partition: PartitionId) -> frozenset[str]:
    """Voters that the group itself lists, asked until it has a leader; there is no learner."""
    deadline = time.monotonic() + CONVERGENCE_S
    while True:
        try:
            members = await cluster.nodes["n1"].host.configuration(partition, linearizable=True)
            break
        except CallFailedError as error:
            if error.kind is not FailureKind.NO_LEADER or time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
    assert all(each.role is MemberRole.VOTER for each in members)
    return frozenset(each.node for each in members)


async def given_up(cluster: NodeCluster, cell: Cell) -> tuple[str, ...]:
    found = await cluster.metastore.get(cluster.keyspace.given_up(partition_of(cell)))
    record = GivenUpRecord.decode(found.value) if found is not None else None
    assert record is None or record.event == ASKED
    return record.names() if record is not None else ()


async def write_to(cluster: NodeCluster, stack: AsyncExitStack) -> list[Writer]:
    """One writer a partition, which never stops."""
    writers = [Writer(cluster.router, partition_of(cell), pause_s=0.5) for cell in CELLS]
    tasks = [asyncio.create_task(each.run()) for each in writers]

    async def stop() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    stack.push_async_callback(stop)
    return writers


@pytest.mark.row("M1", "M3", "M8")
async def test_every_move_to_a_node_that_never_returns_ends(etcd_server, keyspace, tmp_path: Path) -> None:
    """M1, M3, M8: twelve moves to one node that is killed for good, at five stages, with three strategies and
    three ways to an end: nothing is pending, planned or locked, voters are stable's, no learner is left, and
    whatever was acknowledged is read back."""
    for name in (JOINER, SECOND, OTHER):
        (tmp_path / "gates" / name).mkdir(parents=True)
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as cluster, AsyncExitStack() as stack:
        await cluster.put(cluster.keyspace.limits, Limits(joiner_s=JOINER_S).encode())
        joiners = Joiners(cluster, tmp_path / "gates")
        stack.callback(joiners.stop)
        held = frozenset(partition_of(cell) for cell in CELLS if cell.step == "promote")
        stack.callback(setattr, HeldHost, "held", frozenset())
        HeldHost.held = held
        cluster.start(*FOUNDERS, host_type=HeldHost, tuning=TUNING)
        for cell in CELLS:
            joiners.hold(cell)
            await cluster.write_stable(partition_of(cell), *cell.stable)
        for name in (JOINER, SECOND, OTHER):
            joiners.start(name)
        await cluster.registered(JOINER, SECOND, OTHER)
        for cell in CELLS:
            await cluster.until(partial(cluster.settled, partition_of(cell), *cell.stable))
        async with AsyncExitStack() as writing:
            writers = await write_to(cluster, writing)
            await asyncio.gather(
                *(cluster.alter(partition_of(cell), cell.strategy, ASKED, *cell.pending) for cell in CELLS)
            )
            for cell in CELLS:
                await cluster.until(partial(is_at, cluster, cell), CONVERGENCE_S)
            joiners.kill(JOINER)
            joiners.kill(SECOND)
            HeldHost.held = frozenset()
            await asyncio.gather(
                *(
                    cluster.alter(partition_of(cell), cell.strategy, ASKED_AGAIN, *cell.then)
                    for cell in CELLS
                    if cell.then
                )
            )
            took_s = 0.0
            for cell in CELLS:
                took_s += await cluster.until(partial(is_converged, cluster, cell), CONVERGENCE_S)
            before = [len(writer.written) for writer in writers]
            await cluster.until(
                lambda: all(len(w.written) > count + 3 for w, count in zip(writers, before, strict=True))
            )
        print(f"{took_s:.1f} s after the node was killed, {sum(len(each.written) for each in writers)} puts")
        for cell, writer in zip(CELLS, writers, strict=True):
            assert await voters(cluster, partition_of(cell)) == cluster.stable(partition_of(cell)), cell
            if cell.gives_up:
                assert {*cell.gives_up} <= {*await given_up(cluster, cell)}, cell
            await writer.check()
