"""Faults that stay: nothing of them is ever healed, and moves must end all the same, or say why not.

What a group with a living, connected majority is owed is to *rest*: nothing pending, planned or locked, the
voters of stable, no learner on its way. Two things may hold it up, and then it names its cause: a link that
stays cut, and a voter that is gone and stays wanted, where those that stay would have no living majority
without the ones that leave; beside one that is gone etcd's strict check, where it is on, admits nobody either.
The same where a voter of stable was removed, is wanted again, and its disk is full or its node gone.
A group without a majority names its cause. Nothing acknowledged is gone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from catalog.core.quorum import majority
from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.operations.operation import Operation
from rebalance.core.topology.data_nodes import DataNodes
from simulator.control.invariants import Auditor, ZoneFacts, assignments_at
from simulator.control.moves import OperationAuditor
from simulator.control.planes import DataPlane
from simulator.control.processes import ControllerProcess, Environment, SimulatedProcess
from simulator.control.simulated_cluster import SimulatedGroup

BOUND_S = 900.0
"""Time after the last event within which everything is at rest or has named its cause."""
PUT_S = 0.5
AFTER_S = (0.2, 6.0)
AIMED = 0.8
SLOW_S = (120.0, 400.0)
JUMPS_S = (-86_400, -3_600, -30, 30, 3_600, 86_400)

EPOCH_MS = 1_000_000_000
"""Time with which the controllers' clocks begin, so that they can jump back."""

CONVERGES = "what has a majority converges"
CAUSE = "what cannot go on names its cause"
SHOWN = "a target that stable differs from for good is shown"
OVER = "an operation with nothing left is over"
KEPT = "no acknowledged put is gone"


CUT = "a link stays cut"
GONE_VOTER = "a voter that is gone stays wanted"
REMOVED_VOTER = "a voter of stable was removed and cannot join again"
NO_MAJORITY = "no majority"
NEVER_PLACED = "no node that lives matches the zone"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """``detail`` begins with what lacks it: a partition, a zone or an operation."""

    invariant: str
    detail: str

    @property
    def subject(self) -> str:
        return self.detail.partition(":")[0]


KINDS = (
    "node is gone",
    "disk is full",
    "copies are slow",
    "link is cut",
    "metastore is out of reach",
    "clock jumps",
)


class StayingFaults:
    """``happen`` makes one of ``kinds`` (all by default) last for ever."""

    def __init__(
        self,
        seed: int,
        environment: Environment,
        controllers: list[ControllerProcess],
        plane: DataPlane,
        kinds: tuple[str, ...] = (),
    ) -> None:
        self._rng = random.Random(f"{seed}/staying")
        self._environment = environment
        self._controllers = controllers
        self._plane = plane
        self.out_of_reach: set[str] = set()
        """Nodes that the metastore does not hear, or that do not hear it."""
        self.gone: set[str] = set()
        for controller in controllers:
            controller.clock.jump(EPOCH_MS)
        ways: tuple[Callable[[str], str], ...] = (
            *(self._gone, self._full, self._slow),
            *(self._link, self._out_of_reach, self._jump),
        )
        unknown = sorted(set(kinds) - set(KINDS))
        if unknown:
            raise ValueError(f"no faults that stay: {', '.join(unknown)}; there are {', '.join(KINDS)}")
        self._kinds = {name: way for name, way in zip(KINDS, ways, strict=True) if not kinds or name in kinds}

    async def happen(self) -> None:
        """Some seconds from now, rather to a node that is about to join a group than to another one."""
        kind = self._rng.choice(tuple(self._kinds))
        await asyncio.sleep(self._rng.uniform(*AFTER_S))
        joiners = self._joiners()
        aimed = joiners if joiners and self._rng.random() < AIMED else list(self._plane.names)
        text = self._kinds[kind](self._rng.choice(aimed))
        self._environment.trace.note(f"{kind} for good", text)

    def _joiners(self) -> list[str]:
        store, joiners = self._environment.store, set[str]()
        for partition, group in self._environment.cluster.groups.items():
            pending = assignments_at(store, self._environment.keyspace.partition(partition).pending)
            if pending is not None:
                joiners |= frozenset(pending.peers) - group.nodes[0]
        return sorted(joiners)

    def _process(self, name: str) -> SimulatedProcess:
        return next(process for process in self._plane.processes if process.name == name)

    def _gone(self, name: str) -> str:
        self._process(name).kill_for_good()
        self.gone.add(name)
        return name

    def _full(self, name: str) -> str:
        self._environment.cluster.full.add(name)
        return name

    def _slow(self, name: str) -> str:
        copy_s = self._environment.cluster.slow[name] = self._rng.uniform(*SLOW_S)
        return f"{name}: {copy_s:.0f} s each"

    def _link(self, name: str) -> str:
        other = self._rng.choice([other_name for other_name in self._plane.names if other_name != name])
        both = self._rng.random() < 0.5
        self._environment.cluster.cut_link(name, other)
        if both:
            self._environment.cluster.cut_link(other, name)
        return f"{name} {'-' if both else 'to'} {other}"

    def _out_of_reach(self, name: str) -> str:
        requests, answers = self._rng.choice(((True, True), (True, False), (False, True)))
        self._process(name).cut_for_good(requests=requests, answers=answers)
        self.out_of_reach.add(name)
        return f"{name}, {'requests' if requests else ''} {'answers' if answers else ''}"

    def _jump(self, _name: str) -> str:
        controller, seconds = self._rng.choice(self._controllers), self._rng.choice(JUMPS_S)
        controller.clock.jump(1_000 * seconds)
        return f"{controller.name} by {seconds} s"


async def put_for_ever(environment: Environment) -> None:
    """A client that writes to every group, until it is cancelled."""
    while True:
        await asyncio.sleep(PUT_S)
        for group in environment.cluster.groups.values():
            group.put()


class StayingAuditor:
    """Auditor of what is owed at the end of a run whose faults stay."""

    def __init__(
        self, environment: Environment, auditor: Auditor, operations: OperationAuditor, faults: StayingFaults
    ) -> None:
        self._environment = environment
        self._auditor = auditor
        self._operations = operations
        self._faults = faults
        self.held: dict[PartitionId, str] = {}
        """Partitions that are not at rest, and need not be, with their causes, as of the last ``unsettled``."""

    def lost(self) -> Iterator[Shortfall]:
        """Holds at any moment."""
        cluster = self._environment.cluster
        for partition, group in cluster.groups.items():
            if self._environment.catalog.intents[partition.zone_id].dropped:
                continue
            held = [group.replicas[voter] for voter in group.voters if voter in group.replicas]
            there = [replica for replica in held if cluster.disk(replica.node).get(partition) is replica]
            newest = max((replica.acknowledged for replica in there), default=0)
            if newest < group.acknowledged or group.lost:
                detail = f"{newest} of {group.acknowledged} are on a voter's disk, a leader missed {group.lost}"
                yield Shortfall(KEPT, f"{partition}: {detail}")

    def unsettled(self) -> Iterator[Shortfall]:
        environment = self._environment
        self.held.clear()
        for zone_id, intent in environment.catalog.intents.items():
            facts = self._auditor.zones.get(zone_id)
            if intent.dropped:
                continue
            if facts is None and self._has_no_node(zone_id):
                self.held[PartitionId(zone_id, 0)] = f"{NEVER_PLACED}: NO_DATA_NODES"
                continue
            if facts is None:
                yield Shortfall(CONVERGES, f"zone {zone_id}: no target")
                continue
            shortfalls = [
                shortfall
                for number in range(facts.pointer.partitions)
                for shortfall in self._partition(PartitionId(zone_id, number), facts)
            ]
            yield from shortfalls or self._operations_of(zone_id, facts)

    def _has_no_node(self, zone_id: ZoneId) -> bool:
        """The zone's status says NO_DATA_NODES then."""
        item = self._environment.store.peek(self._environment.keyspace.data_nodes(zone_id))
        return item is not None and not DataNodes.decode(item.value).nodes

    def _partition(self, partition: PartitionId, facts: ZoneFacts) -> Iterator[Shortfall]:
        store, keys = self._environment.store, self._environment.keyspace.partition(partition)
        group = self._environment.cluster.groups.get(partition)
        cause = self._operations.cause(partition, facts)
        if group is None or not group.has_majority:
            if not cause:
                yield Shortfall(CAUSE, f"{partition}: it has no majority")
            self.held[partition] = f"{NO_MAJORITY}: {cause}"
            return
        stable = assignments_at(store, keys.stable)
        left = [
            name
            for name, key in (("pending", keys.pending), ("planned", keys.planned), ("lock", keys.lock))
            if store.peek(key) is not None
        ]
        if stable is not None and group.nodes != (frozenset(stable.peers), frozenset()):
            left.append("the group is not stable's")
        holds = self._what_holds(partition, group) if left else ""
        if holds and cause:
            self.held[partition] = f"{holds}: {cause}"
        elif left:
            yield Shortfall(CONVERGES, f"{partition}: {', '.join(left)}; {cause or 'no cause'} {_roles(group)}")
        if not left and stable != facts.target(partition.partition) and not cause:
            yield Shortfall(SHOWN, f"{partition}: stable is not the target")

    def _what_holds(self, partition: PartitionId, group: SimulatedGroup) -> str:
        """The lasting fault at this partition's nodes that no move gets past."""
        store, cluster = self._environment.store, self._environment.cluster
        keys = self._environment.keyspace.partition(partition)
        stable, pending = assignments_at(store, keys.stable), assignments_at(store, keys.pending)
        gone = {
            cluster.node_of(group.entries[voter].peer_url) for voter in group.voters if not group.answers(voter)
        }
        target = frozenset(pending.peers) if pending is not None else frozenset()
        # Nobody is removed where too few of those that stay would live; etcd's strict check adds nobody either.
        if gone & target and (group.is_strict or len(target - gone) < majority(len(target))):
            return GONE_VOTER
        # It votes in stable, so it counts as no joiner and nobody gives it up.
        voted = frozenset(stable.peers) if stable is not None else frozenset()
        again = (target & voted) - group.nodes[0]
        if again & (cluster.full | self._faults.gone):
            return REMOVED_VOTER
        nodes = frozenset().union(
            *group.nodes, *(assignments.nodes for assignments in (stable, pending) if assignments)
        )
        is_cut = any(one in nodes and other in nodes for one, other in cluster.cut)
        return CUT if is_cut or not nodes.isdisjoint(self._faults.out_of_reach) else ""

    def _operations_of(self, zone_id: ZoneId, facts: ZoneFacts) -> Iterator[Shortfall]:
        """Partitions rest, or have said why they do not: so has their operation."""
        environment = self._environment
        waits = False
        for number in range(facts.pointer.partitions):
            partition = PartitionId(zone_id, number)
            waits = waits or bool(self._operations.step(partition, facts).cause)
        for item in environment.store.range_now(environment.keyspace.operations).items:
            operation = Operation.decode(item.value)
            if operation.zone_id == zone_id and not operation.is_over and not waits:
                yield Shortfall(OVER, f"{operation.operation_id}: it is {operation.state.value}")


def _roles(group: SimulatedGroup) -> str:
    voters, learners = group.nodes
    return f"(voters {sorted(voters)}, learners {sorted(learners)})"
