"""Nodes and groups as arrays: for so many partitions that an object for each member would be too much.

A group is a row: the nodes that vote, the nodes that pending asks for, the revision of pending and the moment
at which the change to it is complete. A change is one step here: it takes the time of its catch-ups and needs
its target's voters and a majority of its own alive at its end. Learners are in the keys only. Stable
is switched as the product does it, by ``decide_on_configuration_applied`` on keys that are read for it, many
partitions to a request.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from catalog.core.zone import Node, ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import Observed, decide_on_configuration_applied
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import Get, KeyValue, Put, Txn, TxnResult
from rebalance.ports.metastore import KeyEvent, LeaseLostError, MetastoreError, WatchReset
from simulator.control.invariants import Voters
from simulator.control.planes import DataPlane
from simulator.control.processes import Environment, SimulatedClient, SimulatedProcess

TICK_S = 0.2
RETRY_S = 1.0
NODE_LEASE_S = 10
READ_AT_ONCE = 40
"""Three keys a partition, 128 operations a request."""
REQUESTS_AT_ONCE = 8
NOBODY = -1
NEVER = np.inf


@dataclass(slots=True)
class GroupRows:
    """The groups of one zone: [partitions, replicas] of node numbers, ``NOBODY`` where a row is shorter."""

    rng: np.random.Generator
    voters: npt.NDArray[np.int32]
    target: npt.NDArray[np.int32]
    pending: npt.NDArray[np.int64]
    due: npt.NDArray[np.float64]

    @classmethod
    def empty(cls, seed: int) -> GroupRows:
        nobody = np.full((0, 1), NOBODY, np.int32)
        return cls(np.random.default_rng(seed), nobody, nobody.copy(), np.zeros(0, np.int64), np.full(0, NEVER))

    def make_room(self, partitions: int, replicas: int) -> None:
        rows, columns = self.voters.shape
        if partitions > rows:
            partitions = max(partitions, 2 * rows)
            more = partitions - rows
            self.pending = np.concatenate((self.pending, np.zeros(more, np.int64)))
            self.due = np.concatenate((self.due, np.full(more, NEVER)))
        if partitions > rows or replicas > columns:
            shape = (0, max(partitions - rows, 0)), (0, max(replicas - columns, 0))
            self.voters = np.pad(self.voters, shape, constant_values=NOBODY)
            self.target = np.pad(self.target, shape, constant_values=NOBODY)

    def change(self, partition: int, nodes: Sequence[int], revision: int, now: float) -> None:
        """Pending asks for ``nodes``; the time that it takes grows with the replicas that have to catch up."""
        if self.pending[partition] == revision:
            return
        self.target[partition] = NOBODY
        self.target[partition, : len(nodes)] = nodes
        self.pending[partition] = revision
        added = len(set(nodes).difference(self.voters[partition].tolist()))
        self.due[partition] = now + 0.2 + float(self.rng.uniform(0.1, 4.0)) * added

    def forget_change(self, partition: int) -> None:
        self.pending[partition], self.due[partition] = 0, NEVER
        self.target[partition] = NOBODY

    def complete(self, alive: npt.NDArray[np.bool_], now: float) -> npt.NDArray[np.int64]:
        """Bring the changes that are due and possible to their end; returns their partitions."""
        due: npt.NDArray[np.int64] = np.flatnonzero(self.due <= now)
        if not len(due):
            return due
        target, voters = self.target[due], self.voters[due]
        all_live = (alive[target] | (target == NOBODY)).all(axis=1)
        voting = voters != NOBODY
        living = (alive[voters] & voting).sum(axis=1)
        possible = all_live & (2 * living > voting.sum(axis=1))
        done: npt.NDArray[np.int64] = due[possible]
        later = due[~possible]
        self.due[later] = now + RETRY_S
        self.due[done] = NEVER
        self.voters[done] = self.target[done]
        return done


@dataclass(slots=True)
class GroupState:
    """State that survives every process: groups, and the nodes that live. ``alive`` is by node number; its last
    entry, which ``NOBODY`` reads, is never alive."""

    names: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    alive: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1, np.bool_))
    zones: dict[ZoneId, GroupRows] = field(default_factory=dict)

    def add_node(self, name: str) -> int:
        number = self.numbers[name] = len(self.names)
        self.names.append(name)
        self.alive = np.append(self.alive, False)
        return number

    def nodes(self, row: npt.NDArray[np.int32]) -> tuple[str, ...]:
        return tuple(self.names[number] for number in row.tolist() if number != NOBODY)


class BulkAgents(SimulatedProcess):
    """The agents of all nodes as one process with one connection; the groups are in ``state``."""

    def __init__(self, environment: Environment, state: GroupState) -> None:
        super().__init__("agents", environment)
        self._state = state
        self._switching: dict[PartitionId, None] = {}

    async def work(self, client: SimulatedClient) -> None:
        self._switching.clear()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(client))
            tasks.create_task(self._complete(client))

    async def _follow(self, client: SimulatedClient) -> None:
        keys = self.environment.keyspace
        async for change in client.watch(keys.partitions):
            if isinstance(change, WatchReset):
                self._reset(change.snapshot.items)
            else:
                self._apply(change.events)

    def _reset(self, items: Iterable[KeyValue]) -> None:
        """Stable before pending, as in key order it would come after it."""
        pending: set[PartitionId] = set()
        keys = self.environment.keyspace
        ordered = sorted(items, key=lambda item: not item.key.endswith("/stable"))
        for item in ordered:
            parsed = keys.parse_partition(item.key)
            if parsed is not None:
                self._on_key(parsed[0], parsed[1], item)
                if parsed[1] == "assignments/pending":
                    pending.add(parsed[0])
        for zone_id, rows in self._state.zones.items():
            for number in np.flatnonzero(rows.pending).tolist():
                if PartitionId(zone_id, number) not in pending:
                    rows.forget_change(number)
        # A group that applied a change and did not switch stable does so now.
        for partition in pending:
            rows = self._state.zones[partition.zone_id]
            if np.array_equal(rows.voters[partition.partition], rows.target[partition.partition]):
                self._switching[partition] = None

    def _apply(self, events: Iterable[KeyEvent]) -> None:
        keys = self.environment.keyspace
        for event in events:
            parsed = keys.parse_partition(event.key)
            if parsed is not None:
                self._on_key(parsed[0], parsed[1], event.current)

    def _on_key(self, partition: PartitionId, name: str, item: KeyValue | None) -> None:
        number, zone_id = partition.partition, partition.zone_id
        if name == "assignments/stable":
            rows = self._state.zones.get(zone_id)
            if rows is None:
                seed = random.Random(f"{self.environment.seed}/groups/{zone_id}").getrandbits(32)
                rows = self._state.zones[zone_id] = GroupRows.empty(seed)
            if item is None:
                rows.voters[number] = NOBODY
                return
            nodes = self._numbers(item)
            rows.make_room(number + 1, len(nodes))
            if rows.voters[number, 0] == NOBODY:
                rows.voters[number, : len(nodes)] = nodes
        elif name == "assignments/pending":
            rows = self._state.zones[zone_id]
            if item is None:
                rows.forget_change(number)
                return
            nodes = self._numbers(item)
            rows.make_room(number + 1, len(nodes))
            rows.change(number, nodes, item.mod_revision, asyncio.get_running_loop().time())

    def _numbers(self, item: KeyValue) -> list[int]:
        numbers = self._state.numbers
        return [numbers[name] for name in Assignments.decode(item.value).peers]

    async def _complete(self, client: SimulatedClient) -> None:
        state, trace = self._state, self.environment.trace
        while True:
            await asyncio.sleep(TICK_S)
            now = asyncio.get_running_loop().time()
            for zone_id, rows in state.zones.items():
                done = rows.complete(state.alive, now)
                if len(done):
                    trace.step(done.tobytes())
                    self._switching.update(
                        dict.fromkeys(PartitionId(zone_id, number) for number in done.tolist())
                    )
            if self._switching:
                await self._switch_all(client)

    async def _switch_all(self, client: SimulatedClient) -> None:
        """Switch all that wait; those whose request fails stay in the list."""
        waiting = tuple(self._switching)
        chunks = [waiting[start : start + READ_AT_ONCE] for start in range(0, len(waiting), READ_AT_ONCE)]
        for start in range(0, len(chunks), REQUESTS_AT_ONCE):
            some = chunks[start : start + REQUESTS_AT_ONCE]
            await asyncio.gather(*(self._switch(client, chunk) for chunk in some))

    async def _switch(self, client: SimulatedClient, partitions: Sequence[PartitionId]) -> None:
        keys = [self.environment.keyspace.partition(partition) for partition in partitions]
        reads = tuple(Get(name) for names in keys for name in (names.stable, names.pending, names.planned))
        try:
            responses = (await client.commit(Txn((), reads))).responses
            decided: list[tuple[PartitionId, Txn]] = []
            for index, partition in enumerate(partitions):
                observed = Observed(
                    keys[index], *(_only(response) for response in responses[3 * index : 3 * index + 3])
                )
                row = self._state.zones[partition.zone_id].voters[partition.partition]
                applied = self._state.nodes(row)
                # Nothing waits for learners: the leader reports those that it was asked for.
                learners = Assignments.decode(observed.pending.value).learners if observed.pending else ()
                decision = (
                    decide_on_configuration_applied(observed, Assignments(applied, learners))
                    if applied and not frozenset(applied) & frozenset(learners)
                    else None
                )
                if decision is None or decision.transaction is None:
                    self._switching.pop(partition, None)
                else:
                    decided.append((partition, decision.transaction))
            if not decided:
                return
            results = (await client.commit(Txn((), tuple(transaction for _, transaction in decided)))).responses
        except MetastoreError:
            return  # perhaps it was done: it is read again
        for (partition, _), result in zip(decided, results, strict=True):
            if isinstance(result, TxnResult) and result.succeeded:
                self._switching.pop(partition, None)


class BulkPlane(DataPlane):
    """Data plane of arrays."""

    def __init__(self, environment: Environment, nodes: Sequence[Node]) -> None:
        super().__init__(environment)
        self._state = GroupState()
        self._nodes: dict[str, Node] = {}
        self._leases: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        self._agents = BulkAgents(environment, self._state)
        self._agents.start()
        self._keeping = asyncio.create_task(self._keep_leases())
        for node in nodes:
            self.join(node)

    @property
    def names(self) -> Sequence[str]:
        return self._state.names

    @property
    def processes(self) -> Sequence[SimulatedProcess]:
        return (self._agents,)

    def join(self, node: Node) -> None:
        self._nodes[node.name] = node
        self._starts[node.name] = 0
        self._state.add_node(node.name)
        self._start(node.name)

    def leave(self, name: str, back_s: float) -> None:
        self.crash(name, back_s)
        lease = self._leases.pop(name, 0)
        if lease:
            self._environment.store.revoke_lease_now(lease)

    def crash(self, name: str, back_s: float) -> None:
        number, starts = self._state.numbers[name], self._starts[name]
        self._state.alive[number] = False

        def back() -> None:
            if self._starts[name] == starts:
                self._start(name)

        asyncio.get_running_loop().call_later(back_s, back)

    def heal(self) -> None:
        self._agents.heal()
        for name, number in self._state.numbers.items():
            if not self._state.alive[number]:
                self._start(name)

    def living(self) -> Sequence[Node]:
        return tuple(node for name, node in self._nodes.items() if self._state.alive[self._state.numbers[name]])

    def applied(self, partition: PartitionId) -> Voters | None:
        rows = self._state.zones.get(partition.zone_id)
        if rows is None or partition.partition >= len(rows.voters):
            return None
        return frozenset(self._state.nodes(rows.voters[partition.partition])), frozenset()

    def end(self) -> None:
        self._keeping.cancel()

    def _start(self, name: str) -> None:
        self._starts[name] += 1
        self._leases.pop(name, None)
        self._state.alive[self._state.numbers[name]] = True
        self._register(name)

    def _register(self, name: str) -> None:
        store, keys = self._environment.store, self._environment.keyspace
        record = NodeRecord(self._nodes[name], f"{name}-{self._starts[name]}")
        try:
            lease = store.grant_lease_now(NODE_LEASE_S)
            store.commit_now(Txn((), (Put(keys.node(name), record.encode(), lease),)))
        except MetastoreError:
            return  # tried again when leases are kept next
        self._leases[name] = lease

    async def _keep_leases(self) -> None:
        store = self._environment.store
        while True:
            await asyncio.sleep(NODE_LEASE_S / 4)
            for node in self.living():
                lease = self._leases.get(node.name)
                try:
                    if lease is not None:
                        store.keep_lease_now(lease)
                        continue
                except LeaseLostError:
                    pass
                except MetastoreError:
                    continue
                self._register(node.name)


def _only(response: object) -> KeyValue | None:
    return response[0] if isinstance(response, tuple) and response else None
