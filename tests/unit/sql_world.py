"""A whole Zonekeeper without nodes for the SQL tests: SQLite, metastore in memory, controllers, engine.

Members are written by hand: ``serve`` plays the nodes that have done what stable and pending ask for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from app.bootstrap.server_stores import member_counts
from app.sql.engine.calls import Procedures
from app.sql.engine.executor import CatalogExecutor
from app.sql.engine.sql_engine import SqlEngine
from app.sql.engine.statement_jobs import StatementGate
from app.sql.query.sandbox_pool import QueryLimits, SandboxPool
from app.sql.statements.results import ResultSet, SessionContext
from app.sql.statements.script_reader import ScriptReader
from app.sql.views.view_snapshot import ViewSources
from app.views.keyspace_views import KeyspaceViews
from catalog.core.snapshot import ZoneDefaults
from catalog.core.zone import Node, ZoneId
from rebalance.controllers.admission import MoveAdmission
from rebalance.controllers.clock import WallClock
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.recovery import PartitionRecovery
from rebalance.controllers.ring_mirror import RingReader
from rebalance.controllers.store_requests import StoreRequests
from rebalance.controllers.topology import DataNodesKeeper, KnownTopology
from rebalance.controllers.zone import ZoneController
from rebalance.core.assignments.assignment import Assignments, nodes_of
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    LogPosition,
    MemberRecord,
    MemberRole,
    MemberState,
    MirrorRecord,
    NodeRecord,
    Stage,
)
from rebalance.core.keyspace.txn import Delete, Operation, Put, Txn
from rebalance.metastore.mirror import KeyspaceMirror
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.databases import migrated_file
from tests.fixtures.local_engine import LocalPlacementEngine
from tests.fixtures.probe_stub import ProbeStub

DEFAULT_NODES = (
    Node("n1", (("region", "US"),), ("default", "rocks")),
    Node("n2", (("region", "EU"),), ("default", "rocks")),
    Node("n3", (("region", "EU"),), ("default",)),
)

SETTLED_S = 60.0
EXCHANGE_S = 0.2
"""Time limit of exchanges, in seconds. No node carries them out here: a request soon says that it goes on."""


def hashed(password: str) -> str:
    """Quick, and tells nothing of the password but its length."""
    return f"$length${len(password)}"


class World:
    """``url`` is a migrated catalog. One sandbox pool may serve several worlds."""

    def __init__(self, url: str, sandbox: SandboxPool | None = None, timeout_s: float = 60.0) -> None:
        self.keyspace = Keyspace("test/")
        self.metastore = MemoryMetastore()
        self.mirror = KeyspaceMirror(self.metastore, self.keyspace.prefix)
        counts = member_counts(KeyspaceViews(self.mirror, self.keyspace))
        self.catalog = CatalogExecutor(url, ZoneDefaults(partitions=4), counts, hashed)
        self.catalog.guard(lambda: None, KeyspaceViews(self.mirror, self.keyspace).may_rebalance)
        self.relay = OutboxRelay(self.catalog, self.metastore, self.keyspace)
        self.nodes: tuple[Node, ...] = ()
        # One that stands by costs half a second of a processor, and is mostly not used.
        self.sandbox = sandbox or SandboxPool(QueryLimits(), spares=0)
        self.recovery = PartitionRecovery(self.metastore, self.keyspace, ProbeStub())
        ring = RingReader(self.mirror, self.keyspace)
        views = KeyspaceViews(self.mirror, self.keyspace)
        self.store_requests = StoreRequests(
            self.metastore, self.keyspace, self.mirror, ring, views.is_store, EXCHANGE_S
        )
        self.reader = ScriptReader()
        self.engine = SqlEngine(
            self.catalog,
            ViewSources(self.mirror, self.keyspace),
            self.sandbox,
            timeout_s,
            procedures=Procedures(self.recovery, self.store_requests),
            gate=StatementGate(self.reader),
        )
        self.placement = LocalPlacementEngine()
        # Limits are obeyed, and nobody admits anything: what may not begin at once waits for good.
        self.admission = MoveAdmission(self.metastore, self.keyspace, WallClock())
        self.zones = ZoneController(
            self.metastore,
            self.keyspace,
            self.placement,
            DataNodesKeeper(self.metastore, self.keyspace, lambda: KnownTopology.of(*self.nodes)),
            admission=self.admission,
        )

    async def put(self, key: str, value: bytes) -> None:
        await self.metastore.commit(Txn((), (Put(key, value),)))

    async def set_nodes(self, *nodes: Node) -> None:
        writes: list[Operation] = [
            Delete(self.keyspace.node(node.name)) for node in self.nodes if node not in nodes
        ]
        writes += [Put(self.keyspace.node(node.name), NodeRecord(node, "i", 7).encode()) for node in nodes]
        self.nodes = nodes
        await self.metastore.commit(Txn((), tuple(writes)))
        await self.settle()

    async def settle(self) -> None:
        """Wait until the mirror has seen every write; fails after SETTLED_S."""
        revision = (await self.metastore.range(self.keyspace.prefix)).revision
        assert await self.mirror.wait_until(lambda: self.mirror.revision >= revision, SETTLED_S)

    async def run(self, sql: str, reconcile: bool = True) -> ResultSet:
        """A statement, and after DDL the controllers' work."""
        result = await self.engine.execute(sql, SessionContext())
        if result.zone_id is not None and reconcile:
            await self.relay.relay_once()
            failures = await self.zones.reconcile([result.zone_id])
            assert failures == {}, failures
        await self.settle()
        return result

    async def serve(self, zone_id: int, partitions: int, down: Sequence[str] = ()) -> None:
        """Members of stable and pending run, and the group has committed what stable says."""
        for number in range(partitions):
            partition = PartitionId(ZoneId(zone_id), number)
            keys = self.keyspace.partition(partition)
            stable, pending = await self.assignments(keys.stable), await self.assignments(keys.pending)
            assert stable is not None
            voters = {name for each in (stable, pending) if each for name in each.peers}
            for node in nodes_of(stable, pending):
                record = MemberRecord(
                    MemberState.RUNNING,
                    f"http://{node}:1",
                    f"http://{node}:2",
                    started=True,
                    position=LogPosition(7, 9, True) if down else None,
                )
                if node not in voters:
                    record = MemberRecord.of_mirror(MirrorRecord(MemberState.RUNNING, f"http://{node}:3", 12))
                await self.put(self.keyspace.member(partition, node), record.encode())
            leader = next((node for node in stable.peers if node not in down), stable.primary)
            configured = {
                node: ConfiguredMember(node, MemberRole.VOTER, f"http://{node}:1") for node in stable.peers
            }
            await self.put(keys.configuration, ConfigurationRecord(1, leader, Stage.NONE, configured).encode())
        await self.settle()

    async def assignments(self, key: str) -> Assignments | None:
        found = await self.metastore.get(key)
        return Assignments.decode(found.value) if found is not None else None

    async def dump(self) -> object:
        """Everything that is stored, with revisions."""
        keys = (await self.metastore.range(self.keyspace.prefix)).items
        catalog = await self.catalog.snapshot()
        return keys, catalog, await self.catalog.history(catalog.version), await self.catalog.unsent()


@asynccontextmanager
async def opened(
    directory: Path,
    sandbox: SandboxPool | None = None,
    nodes: Sequence[Node] = DEFAULT_NODES,
    timeout_s: float = 60.0,
) -> AsyncIterator[World]:
    world = World(migrated_file(directory), sandbox, timeout_s)
    await world.catalog.open(lambda: None)
    watching = asyncio.gather(world.mirror.run(), world.admission.limits_key.run())
    await world.mirror.loaded()
    await world.admission.limits_key.loaded()
    await world.set_nodes(*nodes)
    try:
        yield world
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        world.engine.close()
        if sandbox is None:
            await world.sandbox.close()
        await world.placement.close()
        await world.catalog.close()
        await world.metastore.close()
