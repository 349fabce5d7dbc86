"""Checks of what changed and checks of everything find the same."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import encode_trigger
from rebalance.core.assignments.target import TargetPointer
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.groups.calls.etcd_api import EtcdMemberEntry
from simulator.control.invariants import Auditor
from simulator.control.memory_metastore import MemoryMetastore
from simulator.control.run import Simulation, simulate
from simulator.control.simulated_cluster import GroupRates, SimulatedCluster, SimulatedGroup
from simulator.control.virtual_time import Trace, run_virtually
from tests.fixtures.examples import examples

ZONE, PARTITIONS, TARGET = ZoneId(1), 6, 5
BROKEN = {
    "planned": "pending absent implies planned absent",
    "lock": "the lock is there only while pending is",
    "pending": "a partition with pending has stable",
    "trigger": "trigger revision never decreases",
    "learners": "at most one change per group at a time",
    "leader": "a learner never leads",
    "term": "a group's term never decreases",
}
KEYS = Keyspace()
HELD = Assignments(("a", "b", "c"), ()).encode()


class Place:
    """A zone at rest with a group for each partition."""

    def __init__(self) -> None:
        self.store = MemoryMetastore()
        self.auditor = Auditor(self.store, KEYS, Trace())
        self.cluster = SimulatedCluster("whole", GroupRates(), self.auditor)
        self.auditor.groups = self.cluster.groups.values
        rows = np.tile(np.arange(3, dtype="<i4"), (PARTITIONS, 1)).tobytes()
        pointer = TargetPointer(TARGET, 1, 1, PARTITIONS, 3, 3, ("a", "b", "c"), "local", "rendezvous")
        assert pointer.chunks == 1
        self.commit(
            Put(f"{KEYS.target(ZONE, TARGET)}00000", rows), Put(KEYS.target_pointer(ZONE), pointer.encode())
        )
        for number in range(PARTITIONS):
            keys = KEYS.partition(PartitionId(ZONE, number))
            self.commit(Put(keys.stable, HELD), Put(keys.trigger, encode_trigger(TARGET)))
            group = SimulatedGroup(PartitionId(ZONE, number), "t", random.Random(1), self.cluster, term=3)
            group.entries = {each: EtcdMemberEntry(each, "", f"peer://{each}", False) for each in (1, 2, 3)}
            self.cluster.groups[group.partition] = group
            self.auditor.on_step(group, "founded")

    def commit(self, *operations: Put | Delete) -> None:
        self.store.commit_now(Txn((), operations))

    def harm(self, kind: str, number: int) -> None:
        partition = PartitionId(ZONE, number)
        keys, group = KEYS.partition(partition), self.cluster.groups[partition]
        match kind:
            case "planned":
                self.commit(Put(keys.planned, HELD))
            case "lock":
                self.commit(Put(f"{keys.pending}.lock", b"5"))
            case "pending":
                self.commit(Put(keys.pending, HELD), Delete(keys.stable))
            case "trigger":
                self.commit(Put(keys.trigger, encode_trigger(TARGET - 1)))
            case "learners":
                group.entries |= {each: EtcdMemberEntry(each, "", f"p{each}", True) for each in (8, 9)}
            case "leader":
                group.leader_id = 1
                group.entries[1] = replace(group.entries[1], is_learner=True)
            case "term":
                group.term = 1

    def found(self) -> str:
        broken = self.auditor.broken
        return broken.result().invariant if broken.done() else ""


@settings(max_examples=examples(60), deadline=None)
@given(
    kind=st.sampled_from(sorted(BROKEN)),
    number=st.integers(0, PARTITIONS - 1),
    harmless=st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.booleans()), max_size=8),
)
def test_both_find_what_is_broken(kind: str, number: int, harmless: list[tuple[int, bool]]) -> None:
    """Find a harmful step after harmless ones, by the check of that step, and by a whole check of an auditor
    that did not see the step."""

    async def main() -> None:
        for whole in (False, True):
            place = Place()
            for other, moves in harmless:
                pending = KEYS.partition(PartitionId(ZONE, other)).pending
                place.commit(Put(pending, HELD) if moves else Delete(pending))
            if kind in ("planned", "lock"):
                place.commit(Delete(KEYS.partition(PartitionId(ZONE, number)).pending))
            place.auditor.check_everything()
            assert place.found() == ""
            if whole:
                place.auditor.stop_observing()
            place.harm(kind, number)
            if whole:
                assert place.found() == ""
                place.auditor.check_everything()
            elif kind in ("learners", "leader", "term"):
                place.auditor.on_step(place.cluster.groups[PartitionId(ZONE, number)], "harmed")
            assert place.found() == BROKEN[kind]

    run_virtually(main())


def test_everything_is_looked_at_each_thousand_steps_and_at_the_end() -> None:
    """A run without faults of the protocol: the whole checks find nothing that the others do not."""

    async def main() -> None:
        place = Place()
        pending = KEYS.partition(PartitionId(ZONE, 0)).pending
        for number in range(2_100):
            place.commit(Put(pending, HELD) if number % 2 else Delete(pending))
            await asyncio.sleep(0)
        assert place.auditor.whole_checks == 2
        assert place.found() == ""

    run_virtually(main())
    report = simulate(Simulation(1, partitions=2, events=2))
    assert report.broken is None
    assert report.whole_checks == 1 + report.steps // 1_000
