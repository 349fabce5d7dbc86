"""The nodes and groups of a simulation, in whichever form they are simulated."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

from catalog.core.zone import Node
from rebalance.core.keyspace.keys import PartitionId
from simulator.control.invariants import Voters, assignments_at
from simulator.control.processes import Environment, NodeProcess, SimulatedProcess
from simulator.control.simulated_cluster import SimulatedMirror, SimulatedReplica

NOT_MODELLED = "not in bulk"


class DataPlane(ABC):
    """``applied`` and what follows it are asked of one partition; None: not known."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """Every node that ever joined."""

    @property
    @abstractmethod
    def processes(self) -> Sequence[SimulatedProcess]: ...

    @abstractmethod
    def join(self, node: Node) -> None: ...

    @abstractmethod
    def leave(self, name: str, back_s: float) -> None:
        """Stop a node in order; it comes back after ``back_s``."""

    @abstractmethod
    def crash(self, name: str, back_s: float) -> None: ...

    def crash_member(self, rng: random.Random) -> str:
        return NOT_MODELLED

    def change_leader(self, rng: random.Random) -> str:
        return NOT_MODELLED

    @abstractmethod
    def heal(self) -> None:
        """Every node runs, and no fault happens any more."""

    @abstractmethod
    def living(self) -> Sequence[Node]: ...

    @abstractmethod
    def applied(self, partition: PartitionId) -> Voters | None: ...

    def strays(self, partition: PartitionId) -> frozenset[str]:
        return frozenset()

    def mirrors(self, partition: PartitionId) -> frozenset[str] | None:
        return None

    def left_over(self) -> str:
        """Things that are still held for dropped zones, or still to be handed over; empty when there are
        none."""
        return ""

    @abstractmethod
    def end(self) -> None:
        """The simulation is over; its processes are killed by their owner."""


class AgentPlane(DataPlane):
    """Each node is a real agent over modelled members."""

    def __init__(self, environment: Environment, nodes: Sequence[Node]) -> None:
        super().__init__(environment)
        self._nodes: dict[str, NodeProcess] = {}
        self._stops: set[asyncio.Task[None]] = set()
        for node in nodes:
            self.join(node)

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._nodes)

    @property
    def processes(self) -> Sequence[SimulatedProcess]:
        return tuple(self._nodes.values())

    def join(self, node: Node) -> None:
        process = self._nodes[node.name] = NodeProcess(node, self._environment)
        process.start()

    def leave(self, name: str, back_s: float) -> None:
        task = asyncio.create_task(self._leave(self._nodes[name], back_s))
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)

    async def _leave(self, process: NodeProcess, back_s: float) -> None:
        await process.stop()
        process.start_after(back_s)

    def crash(self, name: str, back_s: float) -> None:
        self._nodes[name].kill()
        self._nodes[name].start_after(back_s)

    def crash_member(self, rng: random.Random) -> str:
        """A learner's as well as a voter's."""
        cluster = self._environment.cluster
        running: list[SimulatedReplica | SimulatedMirror] = []
        for name in self._nodes:
            running += [replica for replica in cluster.disk(name).values() if replica.runs]
            running += [mirror for mirror in cluster.mirror_disk(name).values() if mirror.runs]
        if not running:
            return "none runs"
        killed, how = rng.choice(running), "KILLED by signal 9"
        if isinstance(killed, SimulatedMirror):
            cluster.stop_mirror(killed, how)
        else:
            cluster.stop(killed, how)
        return f"{killed.partition} on {killed.node}"

    def change_leader(self, rng: random.Random) -> str:
        groups = [candidate for candidate in self._environment.cluster.groups.values() if candidate.has_leader]
        if not groups:
            return "no group has one"
        group = rng.choice(groups)
        group.lead(rng.choice([voter for voter in group.voters if group.hears(voter, group.leader_id)]))
        return f"{group.partition} to {group.replicas[group.leader_id].node}"

    def heal(self) -> None:
        for process in self._nodes.values():
            process.heal()
            if not process.is_running and not process.is_stopping:
                process.start()

    def living(self) -> Sequence[Node]:
        return tuple(node.node for node in self._nodes.values() if node.is_running)

    def applied(self, partition: PartitionId) -> Voters | None:
        group = self._environment.cluster.groups.get(partition)
        return group.nodes if group is not None else None

    def strays(self, partition: PartitionId) -> frozenset[str]:
        group = self._environment.cluster.groups.get(partition)
        return group.stray_learners if group is not None else frozenset()

    def mirrors(self, partition: PartitionId) -> frozenset[str] | None:
        disks = ((name, self._environment.cluster.mirror_disk(name)) for name in self._nodes)
        return frozenset(name for name, disk in disks if partition in disk and disk[partition].has_copy)

    def left_over(self) -> str:
        intents = self._environment.catalog.intents
        for name in self._nodes:
            cluster = self._environment.cluster
            for partition in (*cluster.disk(name), *cluster.mirror_disk(name)):
                if intents[partition.zone_id].dropped:
                    return f"{name} holds a copy of {partition}, whose zone was dropped"
        return self._to_hand_over()

    def _to_hand_over(self) -> str:
        """Leadership goes to the preferred primary some seconds after all is at rest."""
        store, keyspace = self._environment.store, self._environment.keyspace
        for partition, group in self._environment.cluster.groups.items():
            stable = assignments_at(store, keyspace.partition(partition).stable)
            if stable is None or not group.has_leader:
                continue
            leader = group.replicas[group.leader_id].node
            if leader != stable.primary:
                return f"{partition} is led by {leader} and not by {stable.primary}"
        return ""

    def end(self) -> None:
        for task in self._stops:
            task.cancel()
