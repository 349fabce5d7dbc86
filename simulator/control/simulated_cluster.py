"""The groups and the disks of all nodes of a simulation; what one group does is in ``simulated_raft``."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.calls.etcd_api import EtcdMemberEntry
from rebalance.ports.groups import MemberEndpoints
from simulator.control.simulated_raft import (
    GroupObserver,
    GroupRates,
    SimulatedGroup,
    SimulatedMirror,
    SimulatedReplica,
)

NOTIFY_S = (0.0, 0.2)
"""Time after a change of a member until its node hears of it."""

Notify = Callable[[PartitionId, float], None]
"""A member or a mirror of the partition is another one after so many seconds."""


class SimulatedCluster:
    """All groups and disks. ``observer`` is notified of what happens to them, each node of its own part of
    it."""

    def __init__(self, seed: str, rates: GroupRates, observer: GroupObserver) -> None:
        self.rates = rates
        self.observer = observer
        self.groups: dict[PartitionId, SimulatedGroup] = {}
        self._seed = seed
        self._rng = random.Random(f"{seed}/processes")
        self._disks: dict[str, dict[PartitionId, SimulatedReplica]] = {}
        self._aside: dict[str, dict[PartitionId, dict[int, SimulatedReplica]]] = {}
        self._mirrors: dict[str, dict[PartitionId, SimulatedMirror]] = {}
        self._nodes: dict[str, str] = {}
        self._notified: dict[str, Notify] = {}
        self._notify_rng = random.Random(f"{seed}/told")
        self._member_ids = 0
        self._urls = 0
        self.cut: set[tuple[str, str]] = set()
        """Links between nodes on which nothing arrives: from, to."""
        self.full: set[str] = set()
        """Nodes whose disk is full: no member starts there, those that run go on."""
        self.slow: dict[str, float] = {}
        """Seconds that each copy to a node takes at least."""

    def tell(self, node: str, notify: Notify) -> None:
        """``notify`` is called at each change of the members and mirrors of ``node``, in place of the
        former one."""
        self._notified[node] = notify

    def changed(self, group: SimulatedGroup) -> None:
        """Notify nodes of a change of the group's leader, or of its majority: all its members answer otherwise
        now, and its mirrors may have another source."""
        for replica in group.replicas.values():
            self._tell(replica.node, group.partition)
        self.grown(group)

    def grown(self, group: SimulatedGroup) -> None:
        """Notify nodes of a step that the group has committed: its leader sees another list, and its mirrors
        have something to fetch."""
        leader = group.replicas.get(group.leader_id)
        if leader is not None:
            self._tell(leader.node, group.partition)
        for node, mirrors in self._mirrors.items():
            if group.partition in mirrors:
                self._tell(node, group.partition)

    def _tell(self, node: str, partition: PartitionId, delay_s: float = 0.0) -> None:
        notify = self._notified.get(node)
        if notify is not None:
            notify(partition, delay_s + self._notify_rng.uniform(*NOTIFY_S))

    def linked(self, one: str, other: str) -> bool:
        return one == other or ((one, other) not in self.cut and (other, one) not in self.cut)

    def cut_link(self, source: str, destination: str) -> None:
        self.cut.add((source, destination))
        for group in self.groups.values():
            if not group.has_leader:
                group.elect()
                self.changed(group)

    def disk(self, node: str) -> dict[PartitionId, SimulatedReplica]:
        return self._disks.setdefault(node, {})

    def replica_at(self, partition: PartitionId, client_url: str) -> SimulatedReplica | None:
        held = (disk.get(partition) for disk in self._disks.values())
        return next((member for member in held if member and member.endpoints.client_url == client_url), None)

    def node_of(self, peer_url: str) -> str:
        return self._nodes.get(peer_url, peer_url)

    def new_member_id(self) -> int:
        self._member_ids += 1
        return self._member_ids

    def delay_s(self, replica: SimulatedReplica) -> float:
        rng = replica.group.rng if replica.group is not None else self._rng
        return rng.uniform(0.001, 0.01)

    def reserve(self, node: str, partition: PartitionId) -> SimulatedReplica:
        self._urls += 1
        endpoints = MemberEndpoints(f"peer://{node}/{self._urls}", f"client://{node}/{self._urls}")
        self._nodes[endpoints.peer_url] = node
        replica = SimulatedReplica(node, partition, endpoints)
        self.disk(node)[partition] = replica
        return replica

    def forget(self, node: str, partition: PartitionId) -> None:
        replica = self.disk(node).get(partition)
        if replica is not None:
            self.observer.on_destroy(replica)
            del self.disk(node)[partition]

    def aside(self, node: str) -> dict[PartitionId, dict[int, SimulatedReplica]]:
        """Replicas of a node that were put aside, by partition and generation."""
        return self._aside.setdefault(node, {})

    def set_aside(self, replica: SimulatedReplica) -> None:
        self.stop(replica)
        held = self.aside(replica.node).setdefault(replica.partition, {})
        held[replica.generation] = self.disk(replica.node).pop(replica.partition)

    def start(self, replica: SimulatedReplica, token: str, initial: Mapping[str, str], *, is_new: bool) -> None:
        """The first start of a member: into a new group of ``initial``, or into the one that has added it."""
        group = self.groups.get(replica.partition)
        if is_new and (group is None or group.token != token):
            group = self._found(replica.partition, token, initial)
        own = replica.endpoints.peer_url
        entry = (
            next((other for other in group.entries.values() if other.peer_url == own), None) if group else None
        )
        if group is None or entry is None or (not is_new and len(initial) != len(group.entries)):
            # As etcd: a member that does not know exactly the list of its group refuses to start.
            self._fail(replica, "EXIT 1: member count is unequal")
            return
        replica.group, replica.member_id = group, entry.member_id
        group.replicas[entry.member_id] = replica
        if not is_new:
            replica.synced_at = float("inf")
        self.restart(replica)

    def found_alone(self, replica: SimulatedReplica, generation: int) -> None:
        """The member leaves its group as it is and begins a new one, with what it has."""
        self.stop(replica)
        applied = replica.group.applied if replica.group is not None else 0
        term = replica.group.term + 1 if replica.group is not None else 1
        self._begin(replica, generation, applied, term)

    def found_from_mirror(self, replica: SimulatedReplica, generation: int) -> None:
        """The same for a reserved member, with what the node's mirror has."""
        mirror = self.mirror_disk(replica.node)[replica.partition]
        replica.acknowledged = mirror.acknowledged
        self._begin(replica, generation, mirror.safe_revision, 1)

    def _begin(self, replica: SimulatedReplica, generation: int, applied: int, term: int) -> None:
        zone, number = replica.partition.zone_id, replica.partition.partition
        own = {replica.node: replica.endpoints.peer_url}
        group = self._found(replica.partition, f"{zone}-{number}-{generation}", own)
        group.applied, group.term, group.acknowledged = applied, term, replica.acknowledged
        replica.group, replica.member_id = group, next(iter(group.entries))
        group.replicas[replica.member_id] = replica
        replica.generation, replica.founding_revision = generation, applied
        self.restart(replica)

    def restart(self, replica: SimulatedReplica) -> None:
        if replica.node in self.full:
            self._fail(replica, "EXIT 1: no space left on device")
            return
        replica.runs, replica.removed, replica.exit_reason = True, False, ""
        replica.starts += 1
        self._tell(replica.node, replica.partition)
        delay_s = self._rng.uniform(*self.rates.start_s)
        asyncio.get_running_loop().call_later(delay_s, self._started, replica, replica.starts)

    def _started(self, replica: SimulatedReplica, start: int) -> None:
        group = replica.group
        if group is None or not replica.runs or replica.starts != start:
            return
        entry = group.entries.get(replica.member_id)
        if entry is None:
            self.expel(replica)
            return
        now = asyncio.get_running_loop().time()
        replica.answers, replica.up_since = True, now
        if not entry.client_url:
            client_url = replica.endpoints.client_url
            group.entries[entry.member_id] = replace(entry, name=replica.node, client_url=client_url)
        copy_s = group.rng.uniform(*self.rates.catch_up_s) if entry.is_learner else 0.0
        replica.synced_at = now + (max(copy_s, self.slow.get(replica.node, 0.0)) if entry.is_learner else 0.0)
        if not group.has_leader:
            group.elect()
        self.changed(group)

    def stop(self, replica: SimulatedReplica, reason: str = "") -> None:
        """The process ends; ``reason`` says how when nobody asked it to."""
        if replica.runs:
            replica.down_since = asyncio.get_running_loop().time()
        replica.runs = replica.answers = False
        replica.exit_reason = reason
        group = replica.group
        if group is not None and group.leader_id == replica.member_id:
            group.elect()
        self._tell(replica.node, replica.partition)
        if group is not None:
            self.changed(group)

    def stop_node(self, node: str) -> None:
        for replica in self.disk(node).values():
            self.stop(replica)
        for mirror in self.mirror_disk(node).values():
            self.stop_mirror(mirror)

    def mirror_disk(self, node: str) -> dict[PartitionId, SimulatedMirror]:
        return self._mirrors.setdefault(node, {})

    def reserve_mirror(self, node: str, partition: PartitionId, group: str) -> SimulatedMirror:
        self._urls += 1
        rng = random.Random(f"{self._seed}/{partition}/{group}/mirror on {node}/{self._urls}")
        mirror = SimulatedMirror(node, partition, group, f"client://{node}/{self._urls}", rng)
        self.mirror_disk(node)[partition] = mirror
        return mirror

    def start_mirror(self, mirror: SimulatedMirror) -> None:
        """A first copy takes its time; one that is there already is only opened."""
        mirror.runs, mirror.exit_reason = True, ""
        delay_s = mirror.rng.uniform(*self.rates.start_s)
        if not mirror.has_copy:
            delay_s += mirror.rng.uniform(*self.rates.mirror_copy_s)
        mirror.ready_at = asyncio.get_running_loop().time() + delay_s
        self._tell(mirror.node, mirror.partition, delay_s)

    def awaited(self, mirror: SimulatedMirror) -> None:
        """Notify the mirror's node once it is ready: it was asked for before."""
        self._tell(mirror.node, mirror.partition, mirror.ready_at - asyncio.get_running_loop().time())

    def stop_mirror(self, mirror: SimulatedMirror, reason: str = "") -> None:
        """Stop a mirror, as ``stop`` does a member."""
        mirror.runs, mirror.exit_reason = False, reason
        self._tell(mirror.node, mirror.partition)

    def forget_mirror(self, node: str, partition: PartitionId) -> None:
        self.observer.on_mirror_destroy(self.mirror_disk(node)[partition])
        del self.mirror_disk(node)[partition]

    def expel(self, replica: SimulatedReplica) -> None:
        """A member that learns that it was removed ends by itself."""
        runs = replica.runs
        self.stop(replica)
        replica.removed = runs or replica.removed

    def _fail(self, replica: SimulatedReplica, reason: str) -> None:
        replica.exit_reason = reason
        replica.not_before = asyncio.get_running_loop().time() + self.rates.restart_delay_s
        self._tell(replica.node, replica.partition)

    def _found(self, partition: PartitionId, token: str, initial: Mapping[str, str]) -> SimulatedGroup:
        group = SimulatedGroup(partition, token, random.Random(f"{self._seed}/{partition}/{token}"), self)
        for name, peer_url in sorted(initial.items()):
            member_id = self.new_member_id()
            group.entries[member_id] = EtcdMemberEntry(member_id, name, peer_url, False)
        self.groups[partition] = group
        self.observer.on_step(group, "founded")
        return group
