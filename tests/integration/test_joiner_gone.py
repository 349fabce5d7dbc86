"""A joiner's node is killed for good while partitions move to it, each at another stage: every move ends, by
the time-out, by an ALTER back, or because the node leaves the data nodes (M1, M3, M8). Real members; the node
never returns."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest

from catalog.core.zone import ZoneId
from rebalance.core.admission import Limits
from rebalance.core.assignments import Strategy
from rebalance.core.keys import PartitionId
from rebalance.core.records import GivenUpRecord, MemberRole, MemberState, Stage
from rebalance.hosting.child import guarded_command
from tests.held_joiner import TUNING, HeldHost, gate
from tests.integration.test_node_cluster import NodeCluster, Writer, node_cluster
from tests.integration.test_node_faults import members_below

pytestmark = pytest.mark.timeout(400)

JOINER, SECOND, OTHER = "j", "m", "k"
"""The first two are killed."""
FOUNDERS = ("n1", "n2", "n3")
JOINER_S = 3
ASKED, ASKED_AGAIN = 10, 20
CONVERGENCE_S = 120.0
ROOT = Path(__file__).parents[2]

QUEUE, UPDATE, CANCEL = Strategy.QUEUE, Strategy.UPDATE, Strategy.CANCEL


@dataclass(frozen=True)
class Cell:
    """``step``: what of the joiner is held when its node is killed; ``then``: what is asked for after that;
    ``ends``: what may be stable in the end."""

    stable: tuple[str, ...]
    pending: tuple[str, ...]
    step: str
    strategy: Strategy
    then: tuple[str, ...]
    ends: tuple[tuple[str, ...], ...]
    gives_up: tuple[str, ...] = ()


ONE, TWO = ("n1",), ("n1", JOINER)
AWAY = ("n1", OTHER)
MOVED, MOVED_AWAY = ("n1", "n2", JOINER), ("n1", "n2", OTHER)
GROWN = (*FOUNDERS, JOINER, SECOND)

CELLS = (
    Cell(ONE, TWO, "reserve", QUEUE, (), (ONE,), (JOINER,)),
    Cell(ONE, TWO, "reserve", UPDATE, ONE, (ONE,)),
    Cell(ONE, TWO, "reserve", QUEUE, AWAY, (AWAY,)),
    Cell(ONE, TWO, "join", QUEUE, (), (ONE,), (JOINER,)),
    Cell(ONE, TWO, "join", UPDATE, (), (ONE,), (JOINER,)),
    Cell(ONE, TWO, "join", QUEUE, ONE, (ONE,)),
    Cell(ONE, TWO, "join", CANCEL, ONE, (ONE,)),
    Cell(ONE, TWO, "join", UPDATE, AWAY, (AWAY,)),
    # In sync when it dies: it may be promoted all the same, and then the move can end where it was to.
    Cell(FOUNDERS, MOVED, "promote", QUEUE, (), (MOVED, FOUNDERS)),
    Cell(FOUNDERS, MOVED, "promote", CANCEL, MOVED_AWAY, (MOVED_AWAY,)),
    # Promoted, and one more is to come which does not. The dead voter leaves again, unless the other one is
    # given up first: it has copied for longer, and what is left of the target is reached by then.
    Cell(FOUNDERS, GROWN, "promoted", QUEUE, (), (FOUNDERS, (*FOUNDERS, JOINER)), (SECOND,)),
    Cell(FOUNDERS, GROWN, "promoted", UPDATE, FOUNDERS, (FOUNDERS,)),
)


def partition_of(cell: Cell) -> PartitionId:
    return PartitionId(ZoneId(7), CELLS.index(cell))


class Joiners:
    """The nodes that are processes of their own, and the gates of their members."""

    def __init__(self, cluster: NodeCluster, gates: Path) -> None:
        self._cluster = cluster
        self._gates = gates
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def hold(self, cell: Cell) -> None:
        if cell.step == "promoted":
            gate(self._gates / SECOND, "join", partition_of(cell)).touch()
        elif cell.step in ("reserve", "join"):
            gate(self._gates / JOINER, cell.step, partition_of(cell)).touch()

    def start(self, name: str, side: str = "") -> None:
        cluster = self._cluster
        directory, gates, ports = cluster.directory / name, self._gates / name, cluster.ports(name)
        directory.mkdir(exist_ok=True)
        arguments = (cluster.endpoint, cluster.keyspace.prefix, name, directory)
        arguments = (*arguments, ports.start, ports.stop, gates, side)
        command = [sys.executable, "-m", "tests.held_joiner", *map(str, arguments)]
        with (directory / "node.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(guarded_command(command), cwd=ROOT, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """The agent and all its members, and nobody starts them again."""
        process = self._processes.pop(name)
        for each in (psutil.Process(process.pid), *members_below(self._cluster.directory / name)):
            each.send_signal(signal.SIGKILL)
        process.wait(30)

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(60)


def is_at(cluster: NodeCluster, cell: Cell) -> bool:
    """Whether the joiner is as far as it is let."""
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
    """No pending, planned or lock; published are stable's voters and nobody else."""
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
    """As the group itself says; there is no learner."""
    members = await cluster.nodes["n1"].host.configuration(partition, linearizable=True)
    assert all(each.role is MemberRole.VOTER for each in members)
    return frozenset(each.node for each in members)


async def given_up(cluster: NodeCluster, cell: Cell) -> tuple[str, ...]:
    found = await cluster.metastore.get(cluster.keyspace.given_up(partition_of(cell)))
    record = GivenUpRecord.decode(found.value) if found is not None else None
    assert record is None or record.event == ASKED
    return record.names() if record is not None else ()


async def write_to(cluster: NodeCluster, stack: AsyncExitStack) -> list[Writer]:
    """One writer a partition, which never stops."""
    writers = [Writer(cluster.router, partition_of(cell), pause_s=0.2) for cell in CELLS]
    tasks = [asyncio.create_task(each.run()) for each in writers]

    async def stop() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    stack.push_async_callback(stop)
    return writers


@pytest.mark.row("M1", "M3", "M8", shows="service")
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
