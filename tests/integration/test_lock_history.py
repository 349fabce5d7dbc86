"""The lock of a move as the metastore's history has it: each revision, with real nodes and members."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from rebalance.core.assignments.assignment import Strategy
from rebalance.core.assignments.change_lock import PendingLock
from rebalance.core.assignments.guarded_write import Outcome
from rebalance.core.keyspace.records import ConfigurationRecord, MemberRole
from rebalance.ports.metastore import KeyEvent
from tests.fixtures.node_cluster import P0, QUICK, NodeCluster, node_cluster, writing
from tests.fixtures.node_processes import members_below
from tests.fixtures.slices import in_every_run
from tests.fixtures.staged_host import Stage, StagedHost, Stops
from tests.fixtures.watched_store import WatchedStore

LOCKING = [Strategy.UPDATE, Strategy.CANCEL]
VOTER, LEARNER = MemberRole.VOTER, MemberRole.LEARNER


@dataclass
class History:
    """Values of the keys of ``P0`` by revision; ``None`` is a deletion."""

    cluster: NodeCluster
    locks: dict[int, PendingLock | None] = field(default_factory=dict)
    published: dict[int, ConfigurationRecord] = field(default_factory=dict)
    switches: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Deletions of pending."""

    def observe(self, revision: int, events: tuple[KeyEvent, ...]) -> None:
        keys = self.cluster.keyspace.partition(P0)
        for event in events:
            item = event.current
            if event.key == keys.lock:
                self.locks[revision] = PendingLock.decode(item.value) if item else None
            elif event.key == keys.configuration and item is not None:
                self.published[revision] = ConfigurationRecord.decode(item.value)
            elif event.key == keys.stable and item is not None:
                self.switches.append(revision)
            elif event.key == keys.pending and item is None:
                self.ends.append(revision)

    def taken(self) -> dict[int, PendingLock]:
        return {revision: lock for revision, lock in self.locks.items() if lock is not None}

    def first(self, node: str, role: MemberRole) -> int:
        """The revision that first shows it."""
        return min(
            revision
            for revision, each in self.published.items()
            if node in each.members and each.members[node].role is role
        )

    def lock_at(self, revision: int) -> PendingLock | None:
        before = [each for each in self.locks if each <= revision]
        return self.locks[max(before)] if before else None


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


@pytest.fixture
async def history(cluster: NodeCluster) -> AsyncIterator[History]:
    store, kept = WatchedStore(cluster.metastore, cluster.keyspace.prefix), History(cluster)
    store.observe(kept.observe)
    task = asyncio.create_task(store.run())
    yield kept
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def founded(cluster: NodeCluster, stage: Stage, nodes: int, *stable: str) -> Stops:
    """Leaders of the group stop at ``stage``."""
    stops = StagedHost.current = Stops("", "", {P0: stage})
    cluster.start(*(f"n{number}" for number in range(1, nodes + 1)), host_type=StagedHost)
    await cluster.write_stable(P0, *stable)
    await cluster.until(lambda: cluster.settled(P0, *stable))
    return stops


@pytest.mark.row("I3A-004", "I3A-014", "I3A-019", "M5", "M13")
@pytest.mark.parametrize("strategy", in_every_run(LOCKING, [Strategy.UPDATE]))
async def test_the_lock_is_there_from_in_sync_to_the_vote_and_goes_with_the_switch(
    cluster: NodeCluster, history: History, strategy: Strategy
) -> None:
    """I3A-004, I3A-014, I3A-019, M5, M13: lock pending for each of two joiners. The lock names the pending, the
    joiner and the term; no joiner votes without it or copies under another's, and it goes in the very
    transaction that switches stable."""
    stops = await founded(cluster, Stage.COPYING, 3, "n1")
    async with writing(cluster, P0) as writer:
        pending = await cluster.write_pending(P0, "n1", "n2", "n3", strategy=strategy)
        await cluster.until(lambda: P0 in stops.reached)
        before = len(writer.written)
        await cluster.until(lambda: len(writer.written) > before + 20)
        assert not history.locks
        assert cluster.voters(P0) == {"n1", "n2"}
        stops.let_go()
        await cluster.until(lambda: cluster.settled(P0, "n1", "n2", "n3"))
        await cluster.until(lambda: bool(history.ends))
    await writer.check()

    joiners = [each.joiner for each in history.taken().values()]
    for node in ("n2", "n3"):
        voted = history.first(node, VOTER)
        published, lock = history.published[voted], history.lock_at(voted)
        assert lock == PendingLock(pending, published.members[node].member_id, published.term)
        assert lock.joiner in joiners
    for revision, configuration in history.published.items():
        held = history.lock_at(revision)
        copying = {each.member_id for each in configuration.members.values() if each.role is LEARNER}
        assert held is None or copying <= {held.joiner}
    assert history.lock_at(history.first("n3", LEARNER)) is None
    assert history.ends == history.switches[-1:] == [max(history.locks)]
    assert history.locks[max(history.locks)] is None


@pytest.mark.row("I3A-017")
async def test_a_target_that_changes_before_the_lock_is_the_one_that_is_locked(
    cluster: NodeCluster, history: History
) -> None:
    """I3A-017: between the end of the copy and the question whether to go on. The leader is told no, takes up
    the newer target, asks again for that one and is told yes; the older one's joiner never votes."""
    stops = await founded(cluster, Stage.IN_SYNC, 3, "n1")
    older = await cluster.write_pending(P0, "n1", "n2", strategy=Strategy.UPDATE)
    await cluster.until(lambda: P0 in stops.reached)
    assert await cluster.alter(P0, Strategy.UPDATE, 5, "n1", "n3") is Outcome.PENDING_KEY_REPLACED
    stops.let_go()
    await cluster.until(lambda: cluster.settled(P0, "n1", "n3"))
    await cluster.until(lambda: bool(history.ends))
    pendings = {each.pending for each in history.taken().values()}
    assert pendings
    assert min(pendings) > older
    assert not any(
        each.members["n2"].role is VOTER for each in history.published.values() if "n2" in each.members
    )


async def applied_index(cluster: NodeCluster, node: str) -> int:
    status = await cluster.nodes[node].host.status(P0)
    assert status is not None
    return status.applied_index


@pytest.mark.row("I3A-018", "M7")
@pytest.mark.parametrize("strategy", in_every_run(LOCKING, [Strategy.CANCEL]))
async def test_the_lock_goes_when_the_group_refuses_the_vote(
    cluster: NodeCluster, history: History, strategy: Strategy
) -> None:
    """I3A-018, M7: in sync and locked, the joiner hangs and falls behind; the group refuses it. Nothing is
    locked afterwards, long before the attempt is over; the move stays, and ends once the joiner goes on."""
    stops = await founded(cluster, Stage.LOCKED, 2, "n1")
    async with AsyncExitStack() as stack:
        pending = await cluster.write_pending(P0, "n1", "n2", strategy=strategy)
        await cluster.until(lambda: P0 in stops.reached)
        frozen = members_below(cluster.directory / "n2")
        assert frozen
        for process in frozen:
            process.suspend()
            stack.callback(process.resume)
        behind = await applied_index(cluster, "n1")
        for number in range(behind):
            await cluster.router.put(P0, f"ahead-{number}", b"v", f"ahead-{number}")
        assert [each.pending for each in history.taken().values()] == [pending]
        stops.let_go()
        await cluster.until(lambda: None in history.locks.values(), QUICK.catch_up_timeout_s * 2 / 3)
        released = min(revision for revision, lock in history.locks.items() if lock is None)
        assert not history.ends
        assert cluster.has_pending(P0)
        assert history.published[max(history.published)].members["n2"].role is LEARNER
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    await cluster.until(lambda: bool(history.ends))
    assert history.ends > [released]
    assert await cluster.metastore.get(cluster.keyspace.partition(P0).lock) is None


@pytest.mark.row("I3A-018", "M5")
@pytest.mark.parametrize("strategy", in_every_run(LOCKING, [Strategy.UPDATE]))
async def test_the_next_leader_clears_the_lock_of_the_one_that_is_gone(
    cluster: NodeCluster, history: History, strategy: Strategy
) -> None:
    """I3A-018, M5: the leader goes under its lock; whatever its promotion came to, the next one clears that
    lock before the move goes on under its own."""
    stops = await founded(cluster, Stage.LOCKED, 4, "n1", "n2", "n3")
    await cluster.until(lambda: cluster.leader(P0) == "n1")
    async with writing(cluster, P0) as writer:
        await cluster.write_pending(P0, "n2", "n3", "n4", strategy=strategy)
        await cluster.until(lambda: P0 in stops.reached and bool(history.locks))
        (first,) = history.taken().values()
        await cluster.stop("n1")
        stops.let_go()
        await cluster.until(lambda: cluster.settled(P0, "n2", "n3", "n4"))
        await cluster.until(lambda: bool(history.ends))
    await writer.check()
    left, cleared, *later = (history.locks[revision] for revision in sorted(history.locks))
    assert (left, cleared) == (first, None)
    assert later[-1] is None
    assert all(each.term > first.term for each in later if each is not None)
