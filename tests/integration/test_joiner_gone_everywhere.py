"""A joiner's node is killed for good at each stage of its move, for each strategy, scale-down and way to an
end: the cells of ``tests.simulation.joiner_cells``, and the moment under the lock, with real controllers,
nodes, members and metastore."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import pytest

from catalog.core.zone import TIMER_OFF, Zone, ZoneId, ZoneIntent
from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.assignment import Strategy
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRole, MemberState
from rebalance.core.keyspace.records import Stage as MoveStage
from tests.fixtures.fault_rig import Controllers
from tests.fixtures.held_joiner import TUNING, gate
from tests.fixtures.joiners import Joiners
from tests.fixtures.node_cluster import NodeCluster, Writer, node_cluster
from tests.fixtures.staged_host import Stage, StagedHost, Stops

pytestmark = pytest.mark.timeout(900)

JOINER, STAYING, LEAVER = "j", ("n1", "n2"), "n3"
FOUNDERS, MOVED = frozenset((*STAYING, LEAVER)), frozenset((*STAYING, JOINER))
BEFORE, AFTER = "$[?(@.side != 'new')]", "$[?(@.side != 'old')]"
JOINER_S, LEASE_S, SOON_S, LATE_S = 3, 3, 1, 600
STAGE_S, CONVERGENCE_S = 120.0, 30.0
REST_S = 120.0
"""Cells that take longer than they may are looked at for so long, to say what became of them."""
LOOK_S = 0.1


class Way(Enum):
    """Cause that ends the move. The operator's cancel, once it ends a move that has begun, is a fourth: add its
    value here, its call in ``end``, and the founders in ``ends``."""

    LEAVES = "it leaves the data nodes"
    TIME_OUT = "the time-out"
    ALTER = "an ALTER back"


@dataclass(frozen=True, slots=True)
class Cell:
    stage: Stage
    strategy: Strategy
    scales_down: bool
    way: Way

    def __str__(self) -> str:
        scaling = "scales down" if self.scales_down else "keeps its nodes"
        return f"{self.stage.value}, {self.strategy.value}, {scaling}, {self.way.value}"

    @property
    def scale_down_s(self) -> int:
        if not self.scales_down:
            return TIMER_OFF
        return SOON_S if self.way is Way.LEAVES else LATE_S

    @property
    def ends(self) -> tuple[frozenset[str], ...]:
        """Sets of voters that may be stable at the end: a joiner in sync when it dies may be promoted all the
        same, and then the move can reach its target."""
        match self.way:
            case Way.LEAVES:
                return (frozenset(STAYING),)
            case Way.ALTER:
                return (FOUNDERS,)
            case Way.TIME_OUT:
                is_early = self.stage in (Stage.RESERVED, Stage.STARTED, Stage.COPYING)
                return (FOUNDERS,) if is_early else (FOUNDERS, MOVED)


def cells(stage: Stage) -> Iterator[Cell]:
    """Cells of one stage; without scale-down no node leaves the data nodes."""
    for strategy in Strategy:
        for scales_down in (True, False):
            for way in Way:
                if scales_down or way is not Way.LEAVES:
                    yield Cell(stage, strategy, scales_down, way)


class Zones:
    """One zone of one partition for each cell."""

    def __init__(self, cluster: NodeCluster, stage: Stage) -> None:
        self.cells = {PartitionId(ZoneId(100 + index), 0): cell for index, cell in enumerate(cells(stage))}
        self._cluster = cluster
        self._intents: dict[PartitionId, ZoneIntent] = {}

    async def publish(self, partition: PartitionId, nodes_filter: str) -> None:
        """Publish the zone's next intent, as the outbox relay does."""
        cell, zone_id = self.cells[partition], partition.zone_id
        zone = Zone(zone_id, f"Z{zone_id}", 1, 3, None, ("default",), strategy=cell.strategy)
        zone = replace(zone, auto_scale_down=cell.scale_down_s, nodes_filter=nodes_filter)
        before = self._intents.get(partition)
        self._intents[partition] = ZoneIntent(before.version + 1 if before else 1, zone)
        await self._cluster.put(self._cluster.keyspace.intent(zone_id), self._intents[partition].encode())

    async def end(self) -> None:
        for partition, cell in self.cells.items():
            if cell.way is Way.ALTER:
                await self.publish(partition, BEFORE)


def is_at(cluster: NodeCluster, stops: Stops, gates: Path, partition: PartitionId, stage: Stage) -> bool:
    record = cluster.record(partition, JOINER)
    if stage is Stage.RESERVED:
        return partition in stops.reached and record is not None and record.state is MemberState.READY
    if stage is Stage.STARTED:
        return gate(gates / JOINER, "started", partition).exists()
    return partition in stops.reached


def left(cluster: NodeCluster, partition: PartitionId, cell: Cell) -> str:
    """Description of what is not converged; empty: no pending, planned or lock, and the published members are
    exactly stable's voters."""
    keys, configuration = cluster.keyspace.partition(partition), cluster.configuration(partition)
    names = (keys.pending, keys.planned, keys.lock)
    kept = [name.rpartition("/")[2] for name in names if cluster.mirrors.partitions.get(name) is not None]
    stable = cluster.stable(partition)
    if stable not in cell.ends:
        kept.append(f"stable {sorted(stable)}")
    if configuration is None:
        return "no configuration"
    if configuration.stage not in (MoveStage.NONE, MoveStage.STABLE):
        kept.append(f"stage {configuration.stage.value}")
    roles = {name: each.role for name, each in configuration.members.items()}
    if roles != dict.fromkeys(stable, MemberRole.VOTER):
        kept.append(f"members {roles}")
    return ", ".join(kept)


async def convergence(cluster: NodeCluster, zones: Zones) -> dict[PartitionId, float]:
    """Seconds of each, from now; those that are missing take longer than ``REST_S``."""
    begun, took_s = time.monotonic(), dict[PartitionId, float]()
    while len(took_s) < len(zones.cells) and time.monotonic() - begun < REST_S:
        await asyncio.sleep(LOOK_S)
        for partition, cell in zones.cells.items():
            if partition not in took_s and not left(cluster, partition, cell):
                took_s[partition] = time.monotonic() - begun
    return took_s


@pytest.mark.row("M1", "M3", "M8", "M9")
@pytest.mark.soak
@pytest.mark.parametrize("stage", Stage, ids=lambda stage: stage.value)
async def test_every_move_ends_without_its_joiner(stage: Stage, own_etcd, keyspace, tmp_path: Path) -> None:
    """M1, M3, M8, M9: all cells of a stage at once. Each is converged within 30 s, and whatever was
    acknowledged is read back."""
    gates = tmp_path / "gates"
    (gates / JOINER).mkdir(parents=True)
    controllers = Controllers([own_etcd.endpoint], keyspace, tmp_path / "controller", LEASE_S)
    async with node_cluster(own_etcd.endpoint, keyspace, tmp_path) as cluster, AsyncExitStack() as stack:
        zones = Zones(cluster, stage)
        stops = Stops(JOINER, LEAVER, dict.fromkeys(zones.cells, stage))
        StagedHost.current = stops
        await cluster.put(keyspace.limits, Limits(joiner_s=JOINER_S).encode())
        joiners = Joiners(cluster, gates)
        stack.callback(joiners.stop)
        for names, side in ((STAYING, "both"), ((LEAVER,), "old")):
            cluster.start(*names, host_type=StagedHost, tuning=TUNING, attributes={"side": side})
        if stage is Stage.STARTED:
            for partition in zones.cells:
                gate(gates / JOINER, "start", partition).touch()
        joiners.start(JOINER, "new")
        await cluster.registered(*STAYING, LEAVER, JOINER)
        stack.push_async_callback(asyncio.to_thread, controllers.stop)
        controllers.start()
        for partition in zones.cells:
            await zones.publish(partition, BEFORE)
        for partition in zones.cells:
            await cluster.until(lambda each=partition: cluster.settled(each, *STAYING, LEAVER), STAGE_S)
        writers = [Writer(cluster.router, partition, pause_s=0.2) for partition in zones.cells]
        writing = [asyncio.create_task(writer.run()) for writer in writers]
        try:
            for partition in zones.cells:
                await zones.publish(partition, AFTER)
            for partition in zones.cells:
                await cluster.until(lambda each=partition: is_at(cluster, stops, gates, each, stage), STAGE_S)
            joiners.kill(JOINER)
            stops.let_go()
            await zones.end()
            took_s = await convergence(cluster, zones)
            before = [len(writer.written) for writer in writers]
            await cluster.until(
                lambda: all(len(w.written) > count + 3 for w, count in zip(writers, before, strict=True))
            )
        finally:
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
        for partition, cell in zones.cells.items():
            seconds = f"{took_s[partition]:.1f} s" if partition in took_s else left(cluster, partition, cell)
            print(f"{cell}: {seconds}, stable {sorted(cluster.stable(partition))}")
        puts, longest_s = sum(len(each.written) for each in writers), max(each.longest_s for each in writers)
        print(f"{stage.value}: {puts} puts, the longest {longest_s:.2f} s")
        for writer in writers:
            await writer.check()
        assert took_s.keys() == zones.cells.keys()
        assert max(took_s.values()) <= CONVERGENCE_S
