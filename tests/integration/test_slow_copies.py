"""A node behind a slow link gets a copy that takes long: a newer target waits for none, and a healthy one is
never given up. Whole node processes, each in a network of its own."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.assignment import Strategy
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import MemberRole, MemberState
from rebalance.nodes.copy_attempts import FAILED_RETRY_S
from tests.fixtures.cut_networks import CutNetworks, cut_networks, missing
from tests.fixtures.cut_nodes import STORE, CutNodes
from tests.fixtures.group_hosts import etcd_processes
from tests.fixtures.needs import need
from tests.fixtures.node_cluster import P0, NodeCluster, node_cluster, writing

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow("24 MB are copied at 1 or 2 MB a second"),
    pytest.mark.thorough("test_stalled_copies and test_node_strategies hold copies back"),
]

PUTS = 8_192
"""More entries than a group keeps of its log: who joins gets a snapshot of everything."""
MB = 1 << 20
SLOW = "slow"
JOINER_S = 6
STATEMENT_S = 5.0
CONVERGENCE_S = 120.0
CUT_S = 3 * JOINER_S
PUT_PAUSE_S = 0.1


@dataclass(frozen=True)
class Link:
    """``rate``: bytes a second of the joiner's cable."""

    size: int
    rate: int

    @property
    def copy_s(self) -> float:
        """Least time of the copy, in seconds."""
        return self.size / self.rate


SLICE = Link(24 * MB, 2 * MB)
LONGER = Link(24 * MB, MB)
"""One attempt at a change (15 s) is over before the copy is."""
WHOLE = Link(512 * MB, 10_000_000)
SMALL = pytest.param(SLICE.size, id="24MB")
LARGE = pytest.param(WHOLE.size, marks=[pytest.mark.soak, pytest.mark.timeout(1800)], id="512MB")

_events = itertools.count(10)


class Group:
    """One that is filled once, for all tests that copy as much: on nodes n1, n2 and one behind a link."""

    def __init__(self, networks: CutNetworks, nodes: CutNodes, cluster: NodeCluster, size: int) -> None:
        self.networks = networks
        self.nodes = nodes
        self.cluster = cluster
        self.size = size

    async def found(self) -> None:
        await self.cluster.registered("n1", "n2", SLOW)
        await self.cluster.write_stable(P0, "n1", "n2")
        await self.cluster.until(lambda: self.cluster.settled(P0, "n1", "n2"))
        await fill(self.cluster, self.size)

    async def rests_on(self, *peers: str) -> None:
        """Settle the group on these peers, with whole links and with limits that would report an attempt that
        counts."""
        self.networks.heal()
        await self.cluster.put(
            self.cluster.keyspace.limits, Limits(joiner_s=JOINER_S, copy_attempts=1).encode()
        )
        if not self.cluster.settled(P0, *peers):
            await self.cluster.write_pending(P0, *peers)
        await self.cluster.until(lambda: self.cluster.settled(P0, *peers), CONVERGENCE_S)
        await self.cluster.until(lambda: self.cluster.record(P0, SLOW) is None)

    async def alter(self, strategy: Strategy, *peers: str) -> None:
        await self.cluster.alter(P0, strategy, next(_events), *peers)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def group(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Group]:
    need(missing())
    keyspace, directory = Keyspace(f"test-slow-copies-{os.getpid()}/"), tmp_path_factory.mktemp("slow")
    with cut_networks(STORE, "n1", "n2", SLOW) as networks, ExitStack() as stack:
        nodes = CutNodes(networks, keyspace, directory)
        stack.callback(nodes.stop)
        nodes.start_metastore()
        nodes.start("n1", "n2", SLOW)
        async with node_cluster(nodes.endpoint, keyspace, directory) as cluster:
            opened = Group(networks, nodes, cluster, request.param)
            await opened.found()
            yield opened


async def fill(cluster: NodeCluster, size: int) -> None:
    gate, value = asyncio.Semaphore(16), b"x" * (size // PUTS)

    async def put(number: int) -> None:
        async with gate:
            await cluster.router.put(P0, f"large-{number}", value, f"large-{number}", limit_s=90)

    begun = time.monotonic()
    await asyncio.gather(*map(put, range(PUTS)))
    print(f"{size / MB:.0f} MB in {PUTS} puts: {time.monotonic() - begun:.1f} s")


def received(nodes: CutNodes) -> int:
    """Bytes of the snapshot that the slow node gets at the moment; 0 before it and after it."""
    try:
        parts = nodes.data_dir(SLOW).glob("members/*/data/member/snap/tmp*")
        return max((each.stat().st_size for each in parts), default=0)
    except FileNotFoundError:  # It is whole in this moment.
        return 0


def is_copying(group: Group, *voters: str) -> bool:
    """The slow node has a part and not the whole, beside ``voters``."""
    configuration = group.cluster.configuration(P0)
    if configuration is None:
        return False
    roles = {name: each.role for name, each in configuration.members.items()}
    listed = {**dict.fromkeys(voters, MemberRole.VOTER), SLOW: MemberRole.LEARNER}
    return roles == listed and MB < received(group.nodes) < group.size // 2


@pytest.mark.row("I3A-002", "I3A-003", "I3A-004")
@pytest.mark.parametrize("group", [SMALL, LARGE], indirect=True)
async def test_a_newer_target_waits_for_no_slow_copy(group: Group) -> None:
    """I3A-002, I3A-003, I3A-004: `update` and `cancel`, the first joiner and the second: the newer target is
    applied within seconds of the statement, while the copy has long to go; nothing is locked before."""
    cluster = group.cluster
    await group.rests_on("n1", "n2")
    group.networks.slow(SLOW, rate=link_of(group, SLICE).rate)
    async with writing(cluster, P0, PUT_PAUSE_S) as writer:
        for strategy in (Strategy.UPDATE, Strategy.CANCEL):
            # n2 leaves with the first, and is back as the first of two joiners.
            for newer in (("n1",), ("n1", "n2")):
                await group.alter(strategy, *newer, SLOW)
                await cluster.until(lambda: is_copying(group, "n1", "n2"), CONVERGENCE_S)
                assert await cluster.metastore.get(cluster.keyspace.partition(P0).lock) is None
                begun = time.monotonic()
                await group.alter(strategy, *newer)
                await cluster.until(lambda newer=newer: cluster.stable(P0) == set(newer))
                took_s = time.monotonic() - begun
                print(f"{strategy.value}: joiner {len(newer)}: {took_s:.2f} s after the statement")
                await cluster.until(lambda newer=newer: cluster.settled(P0, *newer))
                assert took_s < STATEMENT_S
    await writer.check()


@pytest.mark.row("M1")
@pytest.mark.parametrize("group", [SMALL], indirect=True)
async def test_a_member_that_is_removed_while_it_restarts_in_mid_copy(group: Group) -> None:
    """M1: remove a member in mid-copy while it restarts, when it knows no peer and does not learn of its
    removal. Its node, which is wanted again before it has seen that it was not, begins anew: with another
    member."""
    cluster, nodes = group.cluster, group.nodes
    await group.rests_on("n1", "n2")
    await cluster.put(cluster.keyspace.limits, Limits().encode())
    group.networks.slow(SLOW, rate=SLICE.rate)
    async with writing(cluster, P0, PUT_PAUSE_S) as writer:
        await group.alter(Strategy.UPDATE, "n1", "n2", SLOW)
        await cluster.until(lambda: is_copying(group, "n1", "n2"), CONVERGENCE_S)
        removed = slow_member(cluster)
        (process,) = etcd_processes(nodes.data_dir(SLOW))
        agent = process.parent()
        assert agent is not None
        agent.suspend()
        try:
            process.kill()
            await group.alter(Strategy.UPDATE, "n1", "n2")
            await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
            await group.alter(Strategy.UPDATE, "n1", "n2", SLOW)
        finally:
            agent.resume()
        took_s = await cluster.until(lambda: cluster.settled(P0, "n1", "n2", SLOW), CONVERGENCE_S)
    print(f"{took_s:.1f} s after it was wanted again")
    assert slow_member(cluster) != removed
    await writer.check()


@pytest.mark.row("M3")
@pytest.mark.parametrize("group", [SMALL, LARGE], indirect=True)
async def test_a_slow_copy_that_goes_on_is_never_given_up(group: Group) -> None:
    """M3: it takes many times the joiners' limit, and the first one ends it: the member that was added is the
    one that votes, its node never lost its lease, and pending was never another one."""
    cluster, link = group.cluster, link_of(group, LONGER)
    await group.rests_on("n1")
    group.networks.slow(SLOW, rate=link.rate)
    keys = cluster.keyspace.partition(P0)
    members: set[str] = set()
    reasons: set[str] = set()
    in_sync_s: list[float] = []
    written: set[int] = set()

    def note(_: frozenset[str]) -> None:
        configuration, pending = cluster.configuration(P0), cluster.mirrors.partitions.get(keys.pending)
        if configuration is not None and SLOW in configuration.members:
            members.add(configuration.members[SLOW].member_id)
            reasons.add(configuration.reason)
        if pending is not None:
            written.add(pending.mod_revision)

    def note_state(_: frozenset[str]) -> None:
        record = cluster.record(P0, SLOW)
        if record is not None and record.state is MemberState.RUNNING:
            in_sync_s.append(time.monotonic())

    cluster.mirrors.partitions.listen(note)
    cluster.mirrors.members.listen(note_state)
    node = cluster.mirrors.nodes.get(cluster.keyspace.node(SLOW))
    async with writing(cluster, P0, PUT_PAUSE_S) as writer:
        begun = time.monotonic()
        await cluster.write_pending(P0, "n1", SLOW)
        await cluster.until(lambda: cluster.settled(P0, "n1", SLOW), 3 * link.copy_s + CONVERGENCE_S)
        took_s = time.monotonic() - begun
        voted_s = begun + took_s - in_sync_s[0]
    print(f"{link.size / MB:.0f} MB: {took_s:.1f} s with a limit of {JOINER_S} s for who is gone")
    print(f"it voted {voted_s:.1f} s after it answered; {sorted(reasons)}")
    assert not [reason for reason in reasons if reason.startswith(Cause.COPY_FAILED.name)]
    assert voted_s < FAILED_RETRY_S
    assert took_s > link.copy_s > 3 * JOINER_S
    assert len(members) == len(written) == 1
    assert cluster.mirrors.nodes.get(cluster.keyspace.node(SLOW)) == node
    assert await cluster.metastore.get(cluster.keyspace.given_up(P0)) is None
    await writer.check()


@pytest.mark.row("M3")
@pytest.mark.parametrize("group", [SMALL], indirect=True)
async def test_a_copy_whose_link_is_cut_goes_on_when_it_is_healed(group: Group) -> None:
    """M3: its node lives and its process runs, and only the leader does not reach it: however long, that is no
    joiner that is gone. Puts go on, nothing is locked, and the same member votes in the end."""
    cluster, networks = group.cluster, group.networks
    await group.rests_on("n1")
    networks.slow(SLOW, rate=SLICE.rate)
    async with writing(cluster, P0, PUT_PAUSE_S) as writer:
        pending = await cluster.write_pending(P0, "n1", SLOW, strategy=Strategy.UPDATE)
        await cluster.until(lambda: is_copying(group, "n1"), CONVERGENCE_S)
        added = slow_member(cluster)
        networks.cut("n1", SLOW)
        before = len(writer.written)
        await asyncio.sleep(CUT_S)
        keys = cluster.keyspace.partition(P0)
        kept = await cluster.metastore.get(keys.pending)
        assert kept is not None
        assert kept.mod_revision == pending
        assert await cluster.metastore.get(keys.lock) is None
        assert await cluster.metastore.get(cluster.keyspace.given_up(P0)) is None
        assert len(writer.written) > before
        print(f"while the link is cut: {cluster.configuration(P0)}")
        networks.heal()
        healed_s = await cluster.until(lambda: cluster.settled(P0, "n1", SLOW), CONVERGENCE_S)
        print(f"{healed_s:.1f} s after the link was healed, {CUT_S} s after it was cut")
    assert slow_member(cluster) == added
    await writer.check()


def slow_member(cluster: NodeCluster) -> str:
    configuration = cluster.configuration(P0)
    assert configuration is not None
    return configuration.members[SLOW].member_id


def link_of(group: Group, link: Link) -> Link:
    """The whole one where the group has as much."""
    return link if group.size == link.size else WHOLE
