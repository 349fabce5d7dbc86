"""A node, a member and the leader's agent are killed or frozen in each stage of a change: it converges, and
nothing is left over. One voter of three goes and a new node comes; the stage is held while the fault
strikes. All nodes outlive a test, and hold nothing when it is over; each test has a partition of its own."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from enum import Enum
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import Stage
from rebalance.hosting.child import guarded_command
from rebalance.hosting.free_ports import is_free
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.gated_node import LEASE_S, Gates
from tests.fixtures.node_cluster import NodeCluster, is_settled, node_cluster, writing
from tests.fixtures.node_processes import members_below

pytestmark = [
    pytest.mark.timeout(500),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow("processes stand still for longer than their lease"),
]

FOUNDERS = ("n1", "n2", "n3")
NEW = "n4"
RESTART_S = 0.5
FROZEN_S = LEASE_S + 1.0
CONVERGENCE_S = 120.0
ROOT = Path(__file__).parents[2]

_numbers = itertools.count()


class Victim(Enum):
    """NODE is the one that joins, with all that runs on it; MEMBER is the leader's."""

    NODE = "node"
    MEMBER = "member"
    AGENT = "leader's agent"


class Nodes:
    """Real node processes of one cluster. A killed one is started again, as ``zonectl up`` does it."""

    def __init__(self, cluster: NodeCluster, gates: Gates, gates_dir: Path) -> None:
        self.cluster = cluster
        self.gates = gates
        self._gates_dir = gates_dir
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.stopping = False

    def start(self, name: str) -> None:
        directory = self.cluster.directory / name
        directory.mkdir(exist_ok=True)
        ports = self.cluster.ports(name)
        arguments = (
            self.cluster.endpoint,
            self.cluster.keyspace.prefix,
            name,
            directory,
            ports.start,
            ports.stop,
        )
        command = [sys.executable, "-m", "tests.fixtures.gated_node", *map(str, (*arguments, self._gates_dir))]
        with (directory / "node.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(guarded_command(command), cwd=ROOT, stdout=log, stderr=log)

    async def keep(self) -> None:
        """Start agents that have ended again, until cancelled."""
        while True:
            await asyncio.sleep(RESTART_S)
            for name, process in list(self._processes.items()):
                if process.poll() is not None:
                    self.start(name)

    def agent(self, name: str) -> psutil.Process:
        return psutil.Process(self._processes[name].pid)

    def members(self, name: str) -> list[psutil.Process]:
        return members_below(self.cluster.directory / name)

    async def stop(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._processes.values():
            await asyncio.to_thread(process.wait, 60)

    def left_over(self, partition: PartitionId, holders: frozenset[str]) -> list[str]:
        """Descriptions of what is there and should not be, or the other way round; ``holders`` hold one member
        each."""
        found: list[str] = []
        own = f"{partition.zone_id}-{partition.partition}"
        for name in self._processes:
            record = self.cluster.record(partition, name)
            directories = [each.name for each in (self.cluster.directory / name / "members").glob("*")]
            taken = {port for port in self.cluster.ports(name) if not is_free(port)}
            wanted: set[int] = set()
            if record is not None and name in holders:
                wanted = {int(url.rpartition(":")[2]) for url in (record.peer_url, record.client_url)}
            if (record is not None) is not (name in holders):
                found.append(f"{name}: record {record}")
            if len(self.members(name)) != (name in holders):
                found.append(f"{name}: {len(self.members(name))} member processes")
            if directories != ([own] if name in holders else []):
                found.append(f"{name}: directories {directories}")
            if not wanted <= taken or any(map(self._is_ours, taken - wanted)):
                found.append(f"{name}: ports {sorted(taken)} are taken, of which {sorted(wanted)} should be")
        return found

    def _is_ours(self, port: int) -> bool:
        """True if one of this test's processes listens on the port, as another server may have taken the same
        free one."""
        listening = (each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN)
        owners = {each.pid for each in listening if each.laddr.port == port}
        ours = {process.pid for name in self._processes for process in (self.agent(name), *self.members(name))}
        return bool(owners & ours)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    directory = tmp_path_factory.mktemp("stages")
    gates_dir = directory / "gates"
    gates_dir.mkdir()
    keyspace = Keyspace(f"test-stage-faults-{os.getpid()}/")
    async with node_cluster(etcd_server.endpoint, keyspace, directory) as cluster:
        nodes = Nodes(cluster, Gates(gates_dir), gates_dir)
        for name in (*FOUNDERS, NEW):
            nodes.start(name)
        keeping = asyncio.create_task(nodes.keep())
        try:
            yield nodes
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await nodes.stop()


@pytest.fixture
def partition() -> PartitionId:
    """One that no test had before."""
    return PartitionId(ZoneId(7), next(_numbers))


async def is_in_stage(cluster: NodeCluster, partition: PartitionId, stage: Stage) -> None:
    """NONE: the new node lives, and holds nothing yet."""

    def reached() -> bool:
        configuration = cluster.configuration(partition)
        known = configuration is not None and configuration.stage is stage
        return known and (stage is not Stage.NONE or cluster.has_pending(partition))

    await cluster.until(reached, CONVERGENCE_S)


async def until_clean(nodes: Nodes, partition: PartitionId, holders: frozenset[str]) -> None:
    """Names what is left when it stays."""
    deadline = time.monotonic() + CONVERGENCE_S
    while left := nodes.left_over(partition, holders):
        assert time.monotonic() < deadline, "\n".join(left)
        await asyncio.sleep(0.2)


async def strike(nodes: Nodes, victim: Victim, number: signal.Signals, leader: str, stage: Stage) -> None:
    """Returns when what was frozen goes on again. The gate opens while the fault is still there."""
    processes = {
        Victim.NODE: [nodes.agent(NEW), *nodes.members(NEW)],
        Victim.MEMBER: nodes.members(leader),
        Victim.AGENT: [nodes.agent(leader)],
    }[victim]
    assert processes
    for process in processes:
        process.send_signal(number)
    nodes.gates.open(stage)
    if number is signal.SIGSTOP:
        try:
            await asyncio.sleep(FROZEN_S)
        finally:
            for process in processes:
                process.send_signal(signal.SIGCONT)


IN_EVERY_TEST_RUN = {
    (Stage.NONE, Victim.NODE, signal.SIGKILL),
    (Stage.CATCHING_UP, Victim.AGENT, signal.SIGSTOP),
    (Stage.JOINT, Victim.MEMBER, signal.SIGKILL),
    (Stage.STABLE, Victim.AGENT, signal.SIGKILL),
}
CASES = [
    pytest.param(
        stage,
        victim,
        number,
        id=f"{number.name} {victim.value} {stage.value}",
        marks=() if (stage, victim, number) in IN_EVERY_TEST_RUN else pytest.mark.soak,
    )
    for stage in Stage
    for victim in Victim
    for number in (signal.SIGKILL, signal.SIGSTOP)
]


@pytest.mark.row("I3-041", "I3-049", "I3-056", "I3-060")
@pytest.mark.parametrize(("stage", "victim", "number"), CASES)
async def test_a_fault_in_a_stage(
    nodes: Nodes, partition: PartitionId, stage: Stage, victim: Victim, number: signal.Signals
) -> None:
    """I3-041, I3-049, I3-056, I3-060: it converges to the target, no put fails, all are read back; processes,
    ports and directories are those of the target alone, and none when the zone is gone."""
    cluster = nodes.cluster
    await cluster.registered(*FOUNDERS, NEW)
    await cluster.write_stable(partition, *FOUNDERS)
    await cluster.until(lambda: is_settled(cluster, FOUNDERS, partition), CONVERGENCE_S)
    leader = cluster.leader(partition)
    leaving = next(name for name in FOUNDERS if name != leader)
    target = (*(name for name in FOUNDERS if name != leaving), NEW)
    async with writing(cluster, partition) as writer:
        nodes.gates.close(stage)
        await cluster.write_pending(partition, *target)
        await is_in_stage(cluster, partition, stage)
        await strike(nodes, victim, number, leader, stage)
        took_s = await cluster.until(lambda: is_settled(cluster, target, partition), CONVERGENCE_S)
        await until_clean(nodes, partition, frozenset(target))
        before = len(writer.written)
        await cluster.until(lambda: len(writer.written) > before + 10, CONVERGENCE_S)
    await writer.check()
    print(f"{took_s:.1f} s after it, {len(writer.written)} puts, longest {writer.longest_s:.2f} s")
    await cluster.drop(partition)
    await until_clean(nodes, partition, frozenset())
