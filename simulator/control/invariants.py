"""The invariants of the protocol, checked after every step on what the step changed.

Steps are revisions of the metastore and committed steps of groups. The first broken invariant ends the run. The
invariant of the end: the last target that was asked for is reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from catalog.core.quorum import majority
from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from catalog.core.zone_options import may_use
from catalog.filters.json_path import JSON_PATH
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import decode_trigger
from rebalance.core.assignments.target import TargetPointer, is_target_of
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import GroupRecord, MemberRecord, NodeRecord
from rebalance.core.keyspace.txn import KeyValue
from rebalance.core.moves.step_checks import VALID_S
from rebalance.core.operations.operation import Operation, OperationState, operation_id
from rebalance.core.topology.data_nodes import DataNodes
from rebalance.core.topology.node_presence import Topology
from rebalance.ports.metastore import KeyEvent, MetastoreUnavailableError, Snapshot
from simulator.control.simulated_cluster import KNOWN_DOWN_S, SimulatedGroup, SimulatedMirror, SimulatedReplica
from simulator.control.virtual_time import Trace

WHOLE_STEPS = 1_000
"""Steps between checks of everything; the others check only what a step has touched."""

Voters = tuple[frozenset[str], frozenset[str]]
"""Nodes that vote and nodes that catch up to vote, of a group's committed configuration. Learners are
in none of the two."""


class InvariantBrokenError(Exception):
    """``step`` is the number of the step after which it was found."""

    def __init__(self, invariant: str, step: int, at_s: float, detail: str) -> None:
        super().__init__(f"{invariant} (step {step}, {at_s:.3f} s): {detail}")
        self.invariant = invariant
        self.step = step
        self.at_s = at_s
        self.detail = detail


class ObservedStore(Protocol):
    """A metastore as onlookers see it: the one in memory, or what a watch of a real one has brought."""

    def observe(self, observer: Callable[[int, tuple[KeyEvent, ...]], None]) -> Callable[[], None]:
        """``observer`` hears of each revision, in order; the returned function ends that."""
        ...

    def peek(self, key: str) -> KeyValue | None: ...

    def range_now(self, prefix: str) -> Snapshot: ...


class AppliedConfigurations(Protocol):
    def applied(self, partition: PartitionId) -> Voters | None:
        """Voters that the group has committed; None when there is no such group."""
        ...

    def strays(self, partition: PartitionId) -> frozenset[str]:
        """Learners that a request added which its sender had given up long ago: nobody can foresee them."""
        ...

    def mirrors(self, partition: PartitionId) -> frozenset[str] | None:
        """Nodes that hold a learner's whole copy; None where copies are not modelled."""
        ...


@dataclass(slots=True)
class ZoneFacts:
    """The newest target of a zone, and per partition what must only grow and what is under way."""

    pointer: TargetPointer
    rows: npt.NDArray[np.int32]
    triggers: npt.NDArray[np.int64]
    pending: npt.NDArray[np.bool_]

    def target(self, partition: int) -> Assignments:
        names = [self.pointer.nodes[index] for index in self.rows[partition]]
        return Assignments(tuple(names[: self.pointer.consensus]), tuple(names[self.pointer.consensus :]))


class Auditor:
    """Observes a store and, as a ``GroupObserver``, groups. ``broken`` is set at the first violation."""

    def __init__(self, store: ObservedStore, keyspace: Keyspace, trace: Trace) -> None:
        self._store = store
        self._keyspace = keyspace
        self._trace = trace
        self.configurations: AppliedConfigurations | None = None
        self.zones: dict[ZoneId, ZoneFacts] = {}
        self.broken: asyncio.Future[InvariantBrokenError] = asyncio.get_running_loop().create_future()
        self.last_work_s = 0.0
        """Time of the last write of a key that is neither a node's nor the leader's."""
        self.switches = 0
        self._versions: dict[ZoneId, int] = {}
        self._terms: dict[PartitionId, int] = {}
        self._given_up: set[tuple[PartitionId, str]] = set()
        """Mirrors whose record went while their node was no learner."""
        self._away_s: dict[str, float] = {}
        """Times at which each node was last seen to be gone."""
        self.groups: Callable[[], Iterable[SimulatedGroup]] = tuple
        """All groups there are, for the whole checks."""
        self.whole_checks = 0
        self._last_whole = 0
        self.whole_steps = WHOLE_STEPS
        self.stop_observing = store.observe(self.on_revision)

    def fail(self, invariant: str, detail: str) -> None:
        if not self.broken.done():
            now = asyncio.get_running_loop().time()
            self.broken.set_result(InvariantBrokenError(invariant, self._trace.steps, now, detail))

    def on_revision(self, revision: int, events: tuple[KeyEvent, ...]) -> None:
        keys = self._keyspace
        self._trace.step(_content(keys, revision, events))
        touched: dict[PartitionId, dict[str, KeyEvent]] = {}
        for event in events:
            key = event.key
            if key.startswith(keys.partitions):
                parsed = keys.parse_partition(key)
                if parsed is not None:
                    touched.setdefault(parsed[0], {})[parsed[1]] = event
            elif key.startswith(keys.pointers):
                self._on_pointer(ZoneId(int(key.removeprefix(keys.pointers))), event)
            elif key.startswith(keys.intents) and event.current is not None:
                self._on_intent(ZoneIntent.decode(event.current.value))
            elif key.startswith(keys.members):
                member = keys.parse_member(key)
                if member is not None:
                    self._on_member(*member, event)
            elif key.startswith(keys.nodes):
                if event.current is None:
                    self._away_s[key.removeprefix(keys.nodes)] = asyncio.get_running_loop().time()
                continue
            elif key.startswith(f"{keys.prefix}leader/"):
                continue
            self.last_work_s = asyncio.get_running_loop().time()
        for partition, fields in touched.items():
            self._on_partition(partition, fields)
        self._look_at_all_at_times()

    def check_everything(self) -> None:
        """Check everything as ``on_revision`` and ``on_step`` check what a step touched."""
        self.whole_checks += 1
        keys, named = self._keyspace, dict[PartitionId, None]()
        for item in self._store.range_now(keys.partitions).items:
            parsed = keys.parse_partition(item.key)
            if parsed is not None:
                named[parsed[0]] = None
        pending = set()
        for partition in named:
            self._check_keys(partition)
            if self._store.peek(keys.partition(partition).pending) is not None:
                pending.add(partition)
            self._check_trigger(partition)
        known = {
            PartitionId(zone_id, int(number))
            for zone_id, zone in self.zones.items()
            for number in np.flatnonzero(zone.pending)
        }
        if known != {partition for partition in pending if partition.zone_id in self.zones}:
            self.fail("what moves is known", f"{sorted(map(str, known ^ pending))[:5]}")
        for group in self.groups():
            self._check_group(group)

    def _look_at_all_at_times(self) -> None:
        if self._trace.steps >= self._last_whole + self.whole_steps:
            try:
                self.check_everything()
            except MetastoreUnavailableError:
                return  # it is paused: after the next step, then
            self._last_whole = self._trace.steps

    def on_step(self, group: SimulatedGroup, step: str) -> None:
        now = asyncio.get_running_loop().time()
        self._trace.step(f"{now:.6f} {group.partition} {group.term} {step}\n".encode())
        self.last_work_s = now
        if group.term < self._terms.get(group.partition, 0) and step != "founded":
            self.fail("a group's term never decreases", f"{group.partition}: {group.term}")
        self._terms[group.partition] = group.term
        if step.startswith(("learner ", "voter ", "gone ")):
            self._check_majority_answered(group, step, now)
        self._check_group(group)

    def _check_majority_answered(self, group: SimulatedGroup, step: str, now: float) -> None:
        """Check for an answering majority where the members themselves do not (S3). Requests that were sent
        long ago may land at any time."""
        if group.is_strict or group.lands_late:
            return
        answering = sum(
            voter in group.replicas
            and (group.answers(voter) or group.replicas[voter].down_since >= now - VALID_S)
            for voter in group.voters
        )
        if answering < majority(len(group.voters)):
            detail = f"{group.partition}: {step}: {answering} of {len(group.voters)}"
            self.fail("no step is sent whose next voters have no answering majority", detail)

    def _check_group(self, group: SimulatedGroup) -> None:
        leader = group.entries.get(group.leader_id)
        if leader is not None and leader.is_learner:
            self.fail("a learner never leads", f"{group.partition}: {leader.name}")
        learners = [entry for entry in group.entries.values() if entry.is_learner]
        if len(learners) > 1:
            self.fail("at most one change per group at a time", f"{group.partition}: {len(learners)} learners")
        if group.term < self._terms.get(group.partition, 0):
            self.fail("a group's term never decreases", f"{group.partition}: {group.term}")

    def on_removal(self, group: SimulatedGroup, before: int, known_up: int, voters: int) -> None:
        if before >= majority(voters + 1) and known_up < majority(voters):
            detail = f"{group.partition}: {known_up} of {voters} voters left are not known to be down"
            self.fail("voters never fall below a majority because of us", detail)

    def on_voter_gone(self, replica: SimulatedReplica) -> None:
        """A voter that becomes a learner stays until there is a copy beside it (IEP-043)."""
        pending = assignments_at(self._store, self._keyspace.partition(replica.partition).pending)
        if pending is None or replica.node not in pending.learners or self.configurations is None:
            return
        known_since = asyncio.get_running_loop().time() - KNOWN_DOWN_S
        if self._away_s.get(replica.node, float("-inf")) > known_since:
            return  # a leader may still think that the node, and its copy, are lost
        mirrors = self.configurations.mirrors(replica.partition)
        if mirrors is not None and replica.node not in mirrors:
            self.fail("a demoted voter leaves a copy", f"{replica.partition} on {replica.node}")

    def on_mirror_destroy(self, mirror: SimulatedMirror) -> None:
        if (mirror.partition, mirror.node) in self._given_up:
            return  # and asked for again since: there will be a new copy
        if self._is_learner(mirror.partition, mirror.node) and self._is_current(mirror):
            detail = f"{mirror.partition} on {mirror.node}"
            self.fail("no mirror is destroyed that stable or pending needs", detail)

    def _is_learner(self, partition: PartitionId, node: str) -> bool:
        keys = self._keyspace.partition(partition)
        named = (assignments_at(self._store, keys.stable), assignments_at(self._store, keys.pending))
        return any(assignments is not None and node in assignments.learners for assignments in named)

    def _on_member(self, partition: PartitionId, node: str, event: KeyEvent) -> None:
        kept = event.current is not None and MemberRecord.decode(event.current.value).mirror is not None
        if kept or self._is_learner(partition, node):
            self._given_up.discard((partition, node))
        else:
            self._given_up.add((partition, node))

    def _is_current(self, mirror: SimulatedMirror) -> bool:
        group = self._store.peek(self._keyspace.partition(mirror.partition).group)
        return group is not None and GroupRecord.decode(group.value).token == mirror.group

    def on_destroy(self, replica: SimulatedReplica) -> None:
        keys = self._keyspace.partition(replica.partition)
        stable, pending = assignments_at(self._store, keys.stable), assignments_at(self._store, keys.pending)
        group = replica.group
        listed = group is not None and any(
            entry.peer_url == replica.endpoints.peer_url for entry in group.entries.values()
        )
        needed = any(
            assignments is not None and replica.node in assignments.peers for assignments in (stable, pending)
        )
        if listed and needed:
            detail = f"{replica.partition} on {replica.node}"
            self.fail("no member is stopped that stable or pending needs", detail)
        elif listed and stable is not None:
            self.fail("no member is destroyed that its group lists", f"{replica.partition} on {replica.node}")

    def _on_intent(self, intent: ZoneIntent) -> None:
        zone_id = intent.zone.zone_id
        if intent.version <= self._versions.get(zone_id, 0):
            self.fail("an intent only moves to a higher version", f"zone {zone_id}: {intent.version}")
        self._versions[zone_id] = intent.version

    def _on_pointer(self, zone_id: ZoneId, event: KeyEvent) -> None:
        known = self.zones.get(zone_id)
        if event.current is None:
            self.zones.pop(zone_id, None)
            return
        pointer = TargetPointer.decode(event.current.value)
        if known is not None and pointer.event_revision <= known.pointer.event_revision:
            detail = f"zone {zone_id}: target {known.pointer.event_revision} to {pointer.event_revision}"
            self.fail("an older event never overrides a newer one", detail)
        prefix = self._keyspace.target(zone_id, pointer.event_revision)
        chunks = [self._store.peek(f"{prefix}{number:05d}") for number in range(pointer.chunks)]
        content = b"".join(chunk.value for chunk in chunks if chunk is not None)
        if len(content) != 4 * pointer.partitions * pointer.replicas:
            self.fail("a pointer names a whole target", f"zone {zone_id}: {len(content)} bytes")
            return
        rows = np.frombuffer(content, dtype="<i4").reshape(pointer.partitions, pointer.replicas)
        self.zones[zone_id] = ZoneFacts(
            pointer,
            rows.astype(np.int32),
            known.triggers if known else np.zeros(pointer.partitions, np.int64),
            known.pending if known else np.zeros(pointer.partitions, np.bool_),
        )

    def _on_partition(self, partition: PartitionId, changed: dict[str, KeyEvent]) -> None:
        zone = self.zones.get(partition.zone_id)
        if zone is not None:
            pending = self._store.peek(self._keyspace.partition(partition).pending)
            zone.pending[partition.partition] = pending is not None
        self._check_keys(partition)
        trigger = changed.get("assignments/change.trigger.revision")
        if trigger is not None:
            self._on_trigger(partition, trigger, changed, zone)
        switched = changed.get("assignments/stable")
        if switched is not None and switched.current is not None and trigger is None:
            self._on_switch(partition, Assignments.decode(switched.current.value))

    def _check_keys(self, partition: PartitionId) -> None:
        keys = self._keyspace.partition(partition)
        pending, stable = self._store.peek(keys.pending), self._store.peek(keys.stable)
        if pending is None and self._store.peek(keys.planned) is not None:
            self.fail("pending absent implies planned absent", f"{partition}")
        if pending is None and self._store.peek(f"{keys.pending}.lock") is not None:
            self.fail("the lock is there only while pending is", f"{partition}")
        if stable is None and pending is not None:
            self.fail("a partition with pending has stable", f"{partition}")

    def _check_trigger(self, partition: PartitionId) -> None:
        """Check that the trigger is as it was last seen to be written; a zone that is dropped has none."""
        zone = self.zones.get(partition.zone_id)
        trigger = self._store.peek(self._keyspace.partition(partition).trigger)
        if zone is None or trigger is None:
            return
        revision, seen = decode_trigger(trigger.value), int(zone.triggers[partition.partition])
        if revision != seen:
            self.fail("trigger revision never decreases", f"{partition}: {seen} was written, now {revision}")

    def _on_trigger(
        self, partition: PartitionId, event: KeyEvent, changed: dict[str, KeyEvent], zone: ZoneFacts | None
    ) -> None:
        if event.current is None:
            if self._store.peek(self._keyspace.partition(partition).stable) is not None:
                self.fail("trigger revision never decreases", f"{partition}: deleted while stable is there")
            return
        if zone is None:
            self.fail("an older event never overrides a newer one", f"{partition}: its zone has no target")
            return
        revision, number = decode_trigger(event.current.value), partition.partition
        if revision <= zone.triggers[number]:
            self.fail("trigger revision never decreases", f"{partition}: {zone.triggers[number]} to {revision}")
        zone.triggers[number] = revision
        if self._is_cancelled(partition.zone_id, zone) and revision > zone.pointer.event_revision:
            self._check_given_up(partition, changed)
            return
        if revision != zone.pointer.event_revision:
            detail = f"{partition}: event {revision} after target {zone.pointer.event_revision}"
            self.fail("an older event never overrides a newer one", detail)
        for name in ("stable", "pending", "planned"):
            written = changed.get(f"assignments/{name}")
            if written is None or written.current is None:
                continue
            if Assignments.decode(written.current.value) != zone.target(number):
                self.fail("an event writes its own target", f"{partition}: {name} of event {revision}")

    def _is_cancelled(self, zone_id: ZoneId, zone: ZoneFacts) -> bool:
        name = operation_id(zone_id, zone.pointer.event_revision)
        operation = self._store.peek(self._keyspace.operation(name))
        return operation is not None and Operation.decode(operation.value).state is OperationState.CANCELLED

    def _check_given_up(self, partition: PartitionId, changed: dict[str, KeyEvent]) -> None:
        """A cancel has written, without an event of its own."""
        stable = assignments_at(self._store, self._keyspace.partition(partition).stable)
        for name in ("stable", "pending", "planned"):
            written = changed.get(f"assignments/{name}")
            if written is None or written.current is None:
                continue
            if name != "pending" or Assignments.decode(written.current.value) != stable:
                self.fail("a cancel only goes back to what is stable", f"{partition}: {name}")

    def _on_switch(self, partition: PartitionId, stable: Assignments) -> None:
        self.switches += 1
        applied = self.configurations.applied(partition) if self.configurations else None
        if applied != (frozenset(stable.peers), frozenset()):
            detail = f"{partition}: stable {sorted(stable.nodes)}, the group has {_shown(applied)}"
            self.fail("stable equals what the group applied last", detail)


def assignments_at(store: ObservedStore, key: str) -> Assignments | None:
    """Assignments at a partition's ``key``; None when it is not there."""
    item = store.peek(key)
    return Assignments.decode(item.value) if item is not None else None


def _shown(applied: Voters | None) -> str:
    return f"voters {sorted(applied[0])} learners {sorted(applied[1])}" if applied else "nothing"


def _content(keys: Keyspace, revision: int, events: tuple[KeyEvent, ...]) -> bytes:
    """The part of a revision that is the same in each run of a seed: a node's record carries process ids."""
    parts = [str(revision).encode()]
    for event in events:
        parts.append(event.key.encode())
        if event.current is not None and not event.key.startswith(keys.nodes):
            parts.append(event.current.value)
    return b"\n".join(parts)


def unfinished(
    store: ObservedStore,
    keyspace: Keyspace,
    auditor: Auditor,
    configurations: AppliedConfigurations,
    intents: Iterable[ZoneIntent],
    living: Iterable[Node],
) -> Iterator[str]:
    """Yield what is missing until each zone is as in ``intents``, cheap checks first; nothing when all is
    done."""
    nodes = tuple(living)
    for intent in intents:
        zone_id = intent.zone.zone_id
        if intent.dropped:
            for prefix in (keyspace.zone_partitions(zone_id), keyspace.zone_members(zone_id)):
                left = store.range_now(prefix).items
                if left:
                    yield f"dropped zone {zone_id}: {len(left)} keys are left, {left[0].key}"
            continue
        facts = auditor.zones.get(zone_id)
        missing = _target_missing(store, keyspace, intent, facts, nodes)
        if missing or facts is None:
            yield f"zone {zone_id}: {missing}"
        elif facts.pending.any():
            yield f"zone {zone_id}: {int(facts.pending.sum())} partitions have pending"
        else:
            yield from _partitions(store, keyspace, intent.zone, facts, configurations)


def not_over(store: ObservedStore, keyspace: Keyspace) -> Iterator[str]:
    """Operations that go on although their targets are reached."""
    for item in store.range_now(keyspace.operations).items:
        operation = Operation.decode(item.value)
        if not operation.is_over:
            yield f"operation {operation.operation_id} is {operation.state.value}"


def not_joined(store: ObservedStore, keyspace: Keyspace, names: Iterable[str]) -> Iterator[str]:
    """Nodes that are to run and that the controllers have not seen since their last start: their joining is an
    event that is still to come."""
    topology = store.peek(keyspace.topology)
    nodes = Topology.decode(topology.value).seen if topology is not None else ()
    seen = {node.node.name: node.incarnation for node in nodes}
    for name in names:
        record = store.peek(keyspace.node(name))
        if record is None:
            yield f"node {name} is not registered"
        elif NodeRecord.decode(record.value).incarnation != seen.get(name):
            yield f"node {name} has joined and is not in the topology"


def _target_missing(
    store: ObservedStore,
    keyspace: Keyspace,
    intent: ZoneIntent,
    facts: ZoneFacts | None,
    living: tuple[Node, ...],
) -> str:
    zone = intent.zone
    stored = store.peek(keyspace.intent(zone.zone_id))
    if stored is None or ZoneIntent.decode(stored.value).version != intent.version:
        return f"version {intent.version} is not published"
    data_nodes_key = store.peek(keyspace.data_nodes(zone.zone_id))
    if facts is None or data_nodes_key is None:
        return "no target"
    data_nodes = DataNodes.decode(data_nodes_key.value)
    absent = [
        node.name for node in living if may_use(zone, node, JSON_PATH) and node.name not in data_nodes.nodes
    ]
    if absent:
        return f"living nodes are not data nodes: {absent[:5]}"
    if not is_target_of(facts.pointer, intent, data_nodes):
        return f"target {facts.pointer.event_revision} is not that of version {intent.version}"
    return ""


def _partitions(
    store: ObservedStore,
    keyspace: Keyspace,
    zone: Zone,
    facts: ZoneFacts,
    configurations: AppliedConfigurations,
) -> Iterator[str]:
    for number in range(zone.partitions):
        partition = PartitionId(zone.zone_id, number)
        keys, target = keyspace.partition(partition), facts.target(number)
        if assignments_at(store, keys.stable) != target:
            yield f"{partition}: stable is not the target"
        elif store.peek(keys.planned) is not None:
            yield f"{partition}: planned is there"
        elif configurations.applied(partition) != (frozenset(target.peers), frozenset()):
            yield f"{partition}: the group is not the target"
        elif configurations.mirrors(partition) not in (None, frozenset(target.learners)):
            yield f"{partition}: the mirrors are not the target's learners"
