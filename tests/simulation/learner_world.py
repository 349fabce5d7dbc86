"""Real agents and controllers over modelled groups and mirrors, in virtual time and without faults."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from catalog.core.zone import EVERY_NODE, DistributionAlgorithm, Zone, ZoneId, ZoneIntent
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import ConfigurationRecord, MemberRecord
from rebalance.core.keyspace.txn import Put, Txn
from simulator.control.invariants import Auditor, Voters
from simulator.control.memory_metastore import MemoryMetastore
from simulator.control.planes import AgentPlane
from simulator.control.processes import NO_FAULTS, ControllerProcess, Environment, SimulatedCatalog
from simulator.control.run import silent_logs
from simulator.control.scenario import node_number
from simulator.control.simulated_cluster import GroupRates, SimulatedCluster, SimulatedGroup
from simulator.control.virtual_time import Trace, run_virtually

P0 = PartitionId(ZoneId(1), 0)
HEALTHY_S = 10.0
"""Seconds after which a group takes new members, and every node knows which others live."""


class LearnerWorld:
    """``voters`` is the list of every number of voters that partition 0 had, without repeats in a row."""

    def __init__(self, directory: Path, nodes: int, partitions: int, *, strict: bool = True) -> None:
        self.store, self.keyspace, trace = MemoryMetastore(), Keyspace(), Trace()
        self.auditor = Auditor(self.store, self.keyspace, trace)
        rates = GroupRates(lost_call=0.0, late_call=0.0, lost_answer=0.0)
        self.cluster = SimulatedCluster("learners", rates, self.auditor)
        self.catalog = SimulatedCatalog()
        self.environment = Environment(
            *("learners", self.store, self.keyspace, self.catalog, self.cluster, trace, directory, NO_FAULTS),
            failing_jobs=0.0,
            strict_share=float(strict),
        )
        self.partitions = partitions
        self.plane = AgentPlane(self.environment, [node_number(number) for number in range(nodes)])
        self.auditor.configurations = self
        self.controller = ControllerProcess("controller", self.environment)
        self.voters: list[int] = []
        self.store.observe(lambda _revision, _events: self._note_voters())

    def _note_voters(self) -> None:
        group = self.cluster.groups.get(P0)
        if group is not None and self.voters[-1:] != [len(group.voters)]:
            self.voters.append(len(group.voters))

    def want(
        self,
        replicas: int,
        quorum: int | None = None,
        *,
        scale_up_s: int = 0,
        scale_down_s: int = 2,
        nodes_filter: str = EVERY_NODE,
        algorithm: DistributionAlgorithm = DistributionAlgorithm.RENDEZVOUS,
        dropped: bool = False,
    ) -> None:
        """CREATE, ALTER or DROP of the one zone."""
        zone = Zone(
            *(ZoneId(1), "Z", self.partitions, replicas, quorum, ("default",)),
            auto_scale_up=scale_up_s,
            auto_scale_down=scale_down_s,
            nodes_filter=nodes_filter,
            algorithm=algorithm,
        )
        self.catalog.execute(ZoneIntent(0, zone, dropped))

    def kill(self, *names: str) -> None:
        """Kill these nodes for good, unless the test starts them again."""
        for process in self.plane.processes:
            if process.name in names:
                process.kill()

    def start(self, *names: str) -> None:
        for process in self.plane.processes:
            if process.name in names:
                process.start()

    async def write(self, stable: str = "", pending: str = "") -> None:
        """Keys of partition 0 by hand: ``ab+c`` are nodes n0 and n1, and the learner n2."""
        keys = self.keyspace.partition(P0)
        for key, text in ((keys.stable, stable), (keys.pending, pending)):
            if text:
                await self.store.commit(Txn((), (Put(key, roles(text).encode()),)))

    def applied(self, partition: PartitionId) -> Voters | None:
        """Voters and learners that the plane applied last; a stable key that is written by hand founds its
        group."""
        stable = self.assignments(partition.partition)
        founded = (frozenset(stable.peers), frozenset()) if stable is not None else None
        return self.plane.applied(partition) or founded

    def strays(self, partition: PartitionId) -> frozenset[str]:
        return self.plane.strays(partition)

    def mirrors(self, partition: PartitionId) -> frozenset[str] | None:
        return self.plane.mirrors(partition)

    def assignments(self, number: int = 0, name: str = "stable") -> Assignments | None:
        keys = self.keyspace.partition(PartitionId(ZoneId(1), number))
        found = self.store.peek(keys.stable if name == "stable" else keys.pending)
        return Assignments.decode(found.value) if found is not None else None

    def record(self, node: str, partition: PartitionId = P0) -> MemberRecord | None:
        found = self.store.peek(self.keyspace.member(partition, node))
        return MemberRecord.decode(found.value) if found is not None else None

    @property
    def reason(self) -> str:
        found = self.store.peek(self.keyspace.partition(P0).configuration)
        return ConfigurationRecord.decode(found.value).reason if found is not None else ""

    @property
    def group(self) -> SimulatedGroup:
        return self.cluster.groups[P0]

    def is_settled(self, text: str = "") -> bool:
        """Every partition's group and mirrors are what stable says, nothing is pending and nothing left over;
        partition 0 is ``text``."""
        if text and self.assignments() != roles(text):
            return False
        for number in range(self.partitions):
            partition, stable = PartitionId(ZoneId(1), number), self.assignments(number)
            if stable is None or self.assignments(number, "pending") is not None:
                return False
            members = {name for name in self.plane.names if partition in self.cluster.disk(name)}
            mirrors = {name for name in self.plane.names if partition in self.cluster.mirror_disk(name)}
            whole = self.plane.applied(partition) == (frozenset(stable.peers), frozenset())
            copies = frozenset(stable.learners) <= (self.plane.mirrors(partition) or frozenset())
            alive = {node.name for node in self.plane.living()}
            left_over = ((members - set(stable.peers)) | (mirrors - set(stable.learners))) & alive
            if not whole or not copies or left_over:
                return False
        return True

    async def until(
        self, condition: Callable[[], bool], timeout_s: float = 120.0, look_s: float = 0.05
    ) -> None:
        """Fails with what is stored when the time is over, or an invariant broken."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not condition():
            assert not self.auditor.broken.done(), self.auditor.broken.result()
            if loop.time() > deadline:
                items = self.store.range_now(self.keyspace.prefix).items
                raise AssertionError("\n".join(f"{each.key} {each.value!r}" for each in items))
            await asyncio.sleep(look_s)

    async def settled(self, text: str = "") -> None:
        await self.until(lambda: self.is_settled(text))


def roles(text: str) -> Assignments:
    peers, _, learners = text.partition("+")
    names = {letter: f"n{ord(letter) - ord('a')}" for letter in peers + learners}
    return Assignments(tuple(names[each] for each in peers), tuple(names[each] for each in learners))


def virtually(
    main: Callable[[LearnerWorld], Awaitable[None]],
    *,
    nodes: int,
    partitions: int = 1,
    controller: bool = False,
    strict: bool = True,
) -> None:
    """Runs ``main`` in a world with ``nodes`` nodes; with ``controller`` zones are placed by one. ``strict``:
    members check membership steps themselves; otherwise the nodes do."""

    async def run(directory: Path) -> None:
        world = LearnerWorld(directory, nodes, partitions, strict=strict)
        await asyncio.sleep(5.0)
        if controller:
            world.controller.start()
        try:
            await main(world)
            assert not world.auditor.broken.done(), world.auditor.broken.result()
        finally:
            world.plane.end()
            for process in (world.controller, *world.plane.processes):
                process.kill()

    with silent_logs(), tempfile.TemporaryDirectory() as directory:
        run_virtually(run(Path(directory)))
