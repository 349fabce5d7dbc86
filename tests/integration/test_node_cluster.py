"""Several node agents over one real etcd as metastore, with real members: the base of the other node tests."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from catalog.core.zone import Node, ZoneId
from rebalance.controllers.partitions import observe
from rebalance.core.assignments import Assignments, Strategy
from rebalance.core.epoch import EpochRecord
from rebalance.core.guarded_write import Observed, Outcome, decide_on_trigger
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.records import ConfigurationRecord, MemberRecord, MemberState, NodeRecord, Stage
from rebalance.core.txn import Delete, Put, Txn
from rebalance.groups.data_client import Datum
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.groups.etcd_mirror import EtcdMirrorHost
from rebalance.groups.etcd_tuning import EtcdTuning
from rebalance.groups.router import Router
from rebalance.groups.safe_time import SafeTimeWriter
from rebalance.hosting.tls import TlsFiles
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.nodes.agent import NodeAgent
from rebalance.nodes.endpoints import MirroredEndpoints
from rebalance.nodes.partition_view import Mirrors
from rebalance.ports.mirrors import MirrorHost
from tests.ports import free_block
from tests.puts import is_applied_once
from tests.strict_steps import STRICT_STEPS

QUICK = EtcdTuning(heartbeat_ms=100, election_ms=1_000, stop_grace_s=1.0, strict_steps=STRICT_STEPS)


@dataclass
class RunningNode:
    agent: NodeAgent
    host: EtcdGroupHost
    metastore: EtcdMetastore
    task: asyncio.Task[None]
    mirrors: MirrorHost | None = None


class NodeCluster:
    """Agents of one test, by name. Keys are written as the controllers would write them."""

    def __init__(self, endpoint: str, keyspace: Keyspace, directory: Path, tls: TlsFiles | None = None) -> None:
        """``tls``: of the metastore and of every member."""
        self.endpoint = endpoint
        self.tls = tls
        self.keyspace = keyspace
        self.directory = directory
        self.metastore = EtcdMetastore([endpoint], tls=tls)
        self.mirrors = Mirrors.over(self.metastore, keyspace)
        self.router = Router(MirroredEndpoints(self.mirrors), tls=tls)
        self.nodes: dict[str, RunningNode] = {}
        self._ports: dict[str, range] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        self._tasks = [asyncio.create_task(self.mirrors.run())]
        await self.mirrors.loaded()

    async def close(self) -> None:
        await asyncio.gather(*(self.stop(name) for name in list(self.nodes)))
        await self.router.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.metastore.close()

    def ports(self, name: str, pairs: int = 20) -> range:
        if name not in self._ports:
            self._ports[name] = free_block(2 * pairs)
        return self._ports[name]

    def start(
        self,
        *names: str,
        tuning: EtcdTuning = QUICK,
        lease_ttl_s: int = 3,
        mirrors: MirrorHost | None = None,
        learns: bool = False,
        map_period_s: float | None = None,
        host_type: type[EtcdGroupHost] = EtcdGroupHost,
        failures_period_s: float | None = None,
        attributes: Mapping[str, str] | None = None,
        start_without_metastore: bool = False,
    ) -> None:
        """``mirrors`` is for one node alone. ``learns``: with mirrors of its own, and safe time."""
        for name in names:
            data_dir = self.directory / name
            data_dir.mkdir(parents=True, exist_ok=True)
            own = replace(tuning, tls=self.tls)
            members = host_type(data_dir, self.ports(name), tuning=own)
            mirrors = EtcdMirrorHost(members.mirror_places(), tuning=own) if learns else mirrors
            metastore = EtcdMetastore([self.endpoint], tls=self.tls)
            agent = NodeAgent(
                Node(name, tuple((attributes or {}).items())),
                *(metastore, self.keyspace, members, data_dir),
                mirrors=mirrors,
                safe_times=SafeTimeWriter(tls=self.tls) if learns else None,
                lease_ttl_s=lease_ttl_s,
                map_period_s=map_period_s,
                failures_period_s=failures_period_s,
                start_without_metastore=start_without_metastore,
            )
            task = asyncio.create_task(agent.run())
            self.nodes[name] = RunningNode(agent, members, metastore, task, mirrors)

    async def stop(self, name: str) -> None:
        node = self.nodes.pop(name)
        # Once: another one would break into the stopping that the first has begun.
        if not node.task.cancelling():
            node.task.cancel()
        await asyncio.gather(node.task, return_exceptions=True)
        await node.metastore.close()

    async def put(self, key: str, value: bytes) -> int:
        """Returns the revision of it."""
        result = await self.metastore.commit(Txn((), (Put(key, value),)))
        assert result.succeeded
        return result.revision

    async def write_stable(self, partition: PartitionId, *peers: str) -> None:
        await self.put(self.keyspace.partition(partition).stable, Assignments(peers).encode())

    async def write_pending(
        self, partition: PartitionId, *peers: str, strategy: Strategy = Strategy.QUEUE
    ) -> int:
        return await self.put(
            self.keyspace.partition(partition).pending, Assignments(peers, strategy=strategy).encode()
        )

    async def alter(self, partition: PartitionId, strategy: Strategy, event: int, *peers: str) -> Outcome:
        """Writes a newer target as the controllers do."""
        keys = self.keyspace.partition(partition)
        prefix = f"{self.keyspace.zone_partitions(partition.zone_id)}{partition.partition}/"
        while True:
            known = observe(self.keyspace, (await self.metastore.range(prefix)).items)
            observed = known.get(partition, Observed(keys))
            decision = decide_on_trigger(observed, Assignments(peers), event, strategy=strategy)
            assert decision.transaction is not None, decision.outcome
            if (await self.metastore.commit(decision.transaction)).succeeded:
                return decision.outcome

    async def halt(self, reason: str) -> None:
        """As a server does; returns when every agent has seen it."""
        await self.put(self.keyspace.epoch, EpochRecord(1, reason).encode())
        agents = [node.agent for node in self.nodes.values()]
        await self.until(lambda: all(agent.halted for agent in agents))

    async def drop(self, partition: PartitionId) -> None:
        keys = self.keyspace.partition(partition)
        names = (keys.stable, keys.pending, keys.planned, keys.trigger, keys.group, keys.configuration)
        await self.metastore.commit(Txn((), tuple(Delete(name) for name in names)))

    def configuration(self, partition: PartitionId) -> ConfigurationRecord | None:
        value = self.mirrors.partitions.value(self.keyspace.partition(partition).configuration)
        return ConfigurationRecord.decode(value) if value else None

    def leader(self, partition: PartitionId) -> str:
        """As published; empty while nobody has."""
        found = self.configuration(partition)
        return found.leader if found else ""

    def leaders_at_switch(self, partition: PartitionId, *peers: str) -> list[str]:
        """Filled from now on: who leads when stable becomes ``peers``, as the very revision says it."""
        found: list[str] = []
        key = self.keyspace.partition(partition).stable

        def note(changed: frozenset[str]) -> None:
            if key in changed and self.stable(partition) == frozenset(peers):
                found.append(self.leader(partition))

        self.mirrors.partitions.listen(note)
        return found

    async def registered(self, *names: str) -> None:
        """Once they are, a node that has just been started knows what it holds."""
        keys = [self.keyspace.node(name) for name in names]
        await self.until(lambda: all(self.mirrors.nodes.get(key) is not None for key in keys))

    def stable(self, partition: PartitionId) -> frozenset[str]:
        value = self.mirrors.partitions.value(self.keyspace.partition(partition).stable)
        return Assignments.decode(value).nodes if value else frozenset()

    def has_pending(self, partition: PartitionId) -> bool:
        return self.mirrors.partitions.get(self.keyspace.partition(partition).pending) is not None

    def record(self, partition: PartitionId, name: str) -> MemberRecord | None:
        value = self.mirrors.members.value(self.keyspace.member(partition, name))
        return MemberRecord.decode(value) if value else None

    def voters(self, partition: PartitionId) -> frozenset[str]:
        found = self.configuration(partition)
        return frozenset(found.members) if found else frozenset()

    def settled(self, partition: PartitionId, *peers: str) -> bool:
        """stable = peers, nothing pending, the group lists exactly them, nobody else holds anything."""
        wanted = frozenset(peers)
        configuration = self.configuration(partition)
        holders = {name for name, node in self.nodes.items() if partition in node.host.partitions()}
        states = [self.record(partition, name) for name in peers]
        return (
            self.stable(partition) == wanted
            and not self.has_pending(partition)
            and configuration is not None
            and self.voters(partition) == wanted
            and configuration.stage is Stage.NONE
            and holders <= wanted
            and all(state is not None and state.state is MemberState.RUNNING for state in states)
        )

    async def until(self, condition: Callable[[], bool], timeout_s: float = 90.0) -> float:
        """Seconds until ``condition``; fails with what is published when the time is over."""
        started = time.monotonic()
        while not condition():
            for name, node in self.nodes.items():
                if node.task.done():
                    raise AssertionError(f"agent {name} ended: {node.task}")
            if time.monotonic() - started > timeout_s:
                raise AssertionError(f"not within {timeout_s} s:\n{self.published()}")
            await asyncio.sleep(0.02)
        return time.monotonic() - started

    def published(self) -> str:
        items = itertools.chain(
            self.mirrors.partitions.below(self.keyspace.partitions),
            self.mirrors.members.below(self.keyspace.members),
            self.mirrors.nodes.below(self.keyspace.nodes),
        )
        return "\n".join(f"{item.key} {json.loads(item.value)}" for item in items)


@dataclass
class Writer:
    """Puts one key after the other, each once; afterwards everything acknowledged must be there."""

    router: Router
    partition: PartitionId
    pause_s: float = 0.004
    longest_s: float = 0.0
    repeated: int = 0
    attempts: int = 0
    written: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    async def run(self) -> None:
        for number in itertools.count():
            key = f"key-{number:06d}"
            started = time.monotonic()
            try:
                result = await self.router.put(self.partition, key, key.encode(), f"op-{number}")
            except Exception as error:
                self.errors.append(error)
            else:
                self.written.append(key)
                self.repeated += result.repeated
                self.attempts += result.attempts
            self.longest_s = max(self.longest_s, time.monotonic() - started)
            await asyncio.sleep(self.pause_s)

    async def check(self) -> None:
        """No error, everything acknowledged is read back, and nothing was written twice."""
        assert not self.errors, self.errors[:3]
        assert self.written
        revisions = set()
        for start in range(0, len(self.written), 50):
            keys = self.written[start : start + 50]
            for key, datum in zip(keys, await asyncio.gather(*map(self._read, keys)), strict=True):
                assert datum.value == key.encode(), key
                revisions.add(datum.revision)
        assert len(revisions) == len(self.written)

    async def _read(self, key: str) -> Datum:
        return await self.router.get(self.partition, key)


@asynccontextmanager
async def writing(cluster: NodeCluster, partition: PartitionId) -> AsyncIterator[Writer]:
    writer = Writer(cluster.router, partition)
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def node_cluster(
    endpoint: str, keyspace: Keyspace, directory: Path, tls: TlsFiles | None = None
) -> AsyncIterator[NodeCluster]:
    cluster = NodeCluster(endpoint, keyspace, directory, tls)
    await cluster.open()
    try:
        yield cluster
    finally:
        await cluster.close()


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


P0 = PartitionId(ZoneId(7), 0)


async def test_a_node_is_registered_while_it_runs(cluster: NodeCluster) -> None:
    """A node's key holds its incarnation and goes when the node stops."""
    cluster.start("n1")
    key = cluster.keyspace.node("n1")
    await cluster.until(lambda: cluster.mirrors.nodes.get(key) is not None)
    first = NodeRecord.decode(cluster.mirrors.nodes.value(key) or b"")
    assert first.node == Node("n1")
    await cluster.stop("n1")
    await cluster.until(lambda: cluster.mirrors.nodes.get(key) is None)
    cluster.start("n1")
    await cluster.until(lambda: cluster.mirrors.nodes.get(key) is not None)
    second = NodeRecord.decode(cluster.mirrors.nodes.value(key) or b"")
    assert second.incarnation != first.incarnation


@pytest.mark.row("I3-027", shows="service")
async def test_stable_founds_a_group_once_all_members_are_reserved(cluster: NodeCluster) -> None:
    """I3-027: members start exactly on the nodes of stable; the group is founded by the ``group`` key."""
    cluster.start("n1", "n2")
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: "n3" in getattr(cluster.record(P0, "n1"), "reason", ""))
    assert cluster.mirrors.partitions.get(cluster.keyspace.partition(P0).group) is None
    cluster.start("n3", "n4")
    took_s = await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    print(f"3 members founded in {took_s:.2f} s")
    assert P0 not in cluster.nodes["n4"].host.partitions()
    assert is_applied_once(await cluster.router.put(P0, "k", b"v", "id-1"))
    assert (await cluster.router.put(P0, "k", b"other", "id-1")).repeated
    assert (await cluster.router.get(P0, "k")).value == b"v"
