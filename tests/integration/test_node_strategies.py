"""The strategies ``update`` and ``cancel`` with real members."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments, Strategy
from rebalance.core.assignments.guarded_write import Outcome
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import Stage
from rebalance.groups.calls.member_calls import GroupCalls
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.nodes.partition_view import MirroredEndpoints
from rebalance.ports.groups import CancelAnswer
from tests.fixtures.node_cluster import QUICK, NodeCluster, node_cluster, writing, written
from tests.fixtures.node_processes import members_below
from tests.fixtures.recorded_host import RecordedHost

P0 = PartitionId(ZoneId(9), 0)
PATIENT = replace(QUICK, election_ms=5_000)
"""A leader stays one on a busy machine."""
LOCKING = [Strategy.UPDATE, Strategy.CANCEL]


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


@pytest.mark.row("I3A-004", "I3A-014", "I3A-019")
@pytest.mark.parametrize("strategy", LOCKING)
async def test_moves_under_a_lock(cluster: NodeCluster, strategy: Strategy) -> None:
    """I3A-004, I3A-014, I3A-019: moves with a new leader, under a writer; no lock is left at the end."""
    lock = cluster.keyspace.partition(P0).lock
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    touched: list[int] = []

    def note(changed: frozenset[str]) -> None:
        """A lock lasts for a few milliseconds: its key is seen to change, not to be there."""
        if lock in changed:
            touched.append(cluster.mirrors.partitions.revision)

    cluster.mirrors.partitions.listen(note)
    async with writing(cluster, P0) as writer:
        for target in (("n1", "n2"), ("n2", "n3")):
            touched.clear()
            await cluster.write_pending(P0, *target, strategy=strategy)
            await cluster.until(lambda target=target: cluster.settled(P0, *target))
            assert touched
            assert await cluster.metastore.get(lock) is None
    await writer.check()


@pytest.mark.row("I3A-003", "I3A-022", "I3A-025", "I3A-027")
async def test_a_move_that_cannot_begin_is_cancelled_for_the_planned_one(cluster: NodeCluster) -> None:
    """I3A-003, I3A-022, I3A-025, I3A-027: pending waits for a node that does not exist; planned takes its place
    in one transaction, and is moved to at once. The leader's node cancels, and no other."""
    cluster.start("n1", "n2", "n3", tuning=PATIENT, host_type=RecordedHost)
    await cluster.write_stable(P0, "n1", "n2")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    planned = Assignments(("n1", "n2", "n3"), strategy=Strategy.CANCEL)
    async with written(cluster, P0) as transactions:
        token = await cluster.write_pending(P0, "n1", "n2", "n9", strategy=Strategy.CANCEL)
        await cluster.until(lambda: getattr(cluster.configuration(P0), "reason", "") == "NODE_DOWN: n9")
        leader = cluster.leader(P0)
        await cluster.put(cluster.keyspace.partition(P0).planned, planned.encode())
        await cluster.until(lambda: cluster.settled(P0, *planned.peers) and len(transactions) > 3)
    assert transactions[1:] == [
        {"planned": planned},
        {"pending": planned, "planned": None},
        {"stable": planned.at_rest(), "pending": None},
    ]
    hosts = {name: node.host for name, node in cluster.nodes.items() if isinstance(node.host, RecordedHost)}
    cancelled = (token, CancelAnswer.NOTHING_RUNNING)
    assert {name: set(host.cancels) for name, host in hosts.items() if host.cancels} == {leader: {cancelled}}


class Copying:
    """``node`` is stopped by SIGSTOP when a leader first asks whether it is in sync: it has joined, it copies,
    and it never answers again."""

    def __init__(self, cluster: NodeCluster, node: str) -> None:
        self.asked = asyncio.Event()
        self._cluster = cluster
        self._node = node
        for each in cluster.nodes.values():
            self._listen_to(each.host)

    def _listen_to(self, host: EtcdGroupHost) -> None:
        calls_at = host.calls_at

        @asynccontextmanager
        async def stopped_first(partition: PartitionId, client_url: str) -> AsyncIterator[GroupCalls]:
            held = self._cluster.nodes[self._node].host.endpoints(partition)
            if held is not None and held.client_url == client_url:
                for process in members_below(self._cluster.directory / self._node):
                    process.suspend()
                self.asked.set()
            async with calls_at(partition, client_url) as calls:
                yield calls

        host.calls_at = stopped_first


@pytest.mark.row("I3A-002", "I3A-003", "I3A-004", "I3A-014")
@pytest.mark.parametrize(
    ("strategy", "first"),
    [
        (Strategy.UPDATE, ("n1", "n2")),
        (Strategy.CANCEL, ("n1", "n3", "n2")),
        pytest.param(Strategy.UPDATE, ("n1", "n3", "n2"), marks=pytest.mark.soak),
        pytest.param(Strategy.CANCEL, ("n1", "n2"), marks=pytest.mark.soak),
    ],
)
async def test_a_newer_target_waits_for_no_copy(
    cluster: NodeCluster, strategy: Strategy, first: tuple[str, ...]
) -> None:
    """I3A-002, I3A-003, I3A-004, I3A-014: nothing is locked while the first or the second joiner copies, so the
    newer target is reached though that copy never ends; who was promoted for the older one leaves first."""
    cluster.start("n1", "n2", "n3", "n4")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    copying = first[-1]
    held = Copying(cluster, copying)
    async with writing(cluster, P0) as writer:
        await cluster.write_pending(P0, *first, strategy=strategy)
        async with asyncio.timeout(90):
            await held.asked.wait()
        assert await cluster.metastore.get(cluster.keyspace.partition(P0).lock) is None
        assert copying in cluster.voters(P0)
        assert getattr(cluster.configuration(P0), "stage", None) is Stage.CATCHING_UP
        is_update = strategy is Strategy.UPDATE
        replaced = Outcome.PENDING_KEY_REPLACED if is_update else Outcome.PLANNED_KEY_UPDATED
        assert await cluster.alter(P0, strategy, 5, "n1", "n4") is replaced
        took_s = await cluster.until(lambda: cluster.stable(P0) == {"n1", "n4"})
        print(f"{strategy.value}: {took_s:.2f} s beside a copy that never ends")
        await cluster.until(lambda: cluster.settled(P0, "n1", "n4"))
    await writer.check()


async def test_who_was_announced_as_leaving_stays_after_a_cancel(cluster: NodeCluster) -> None:
    """Told while the new member catches up, so that clients turn away in time; taken back when the move is
    given up, so that clients come back."""
    cluster.start("n1", "n2", "n3", "n4")
    await cluster.write_stable(P0, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    source = MirroredEndpoints(cluster.mirrors)
    assert len(source.route(P0).voters) == 3
    gate, host = asyncio.Event(), cluster.nodes["n4"].host
    join = host.join

    async def held_back(partition: PartitionId, peers: Mapping[str, str], generation: int = 0) -> None:
        await gate.wait()
        await join(partition, peers, generation)

    host.join = held_back
    # At rest the preferred primary comes to lead; it stays, so that this leader names who goes.
    await cluster.until(lambda: cluster.leader(P0) == "n1")
    await cluster.write_pending(P0, "n1", "n4", strategy=Strategy.CANCEL)
    await cluster.until(lambda: getattr(cluster.configuration(P0), "stage", None) is Stage.CATCHING_UP)
    # One at a time, though two are to go.
    await cluster.until(lambda: len(source.route(P0).voters) == 2)
    planned = Assignments(("n1", "n2", "n3"), strategy=Strategy.CANCEL)
    await cluster.put(cluster.keyspace.partition(P0).planned, planned.encode())
    await cluster.until(lambda: not cluster.has_pending(P0))
    gate.set()
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
    await cluster.until(lambda: len(source.route(P0).voters) == 3)
