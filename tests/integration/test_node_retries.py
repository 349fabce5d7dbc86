"""Requests for a change and their retries, over all members of a group: who asks, how often, and until when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import psutil
import pytest

from catalog.core.zone import ZoneId
from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import MemberRole
from rebalance.ports.groups import ChangeAnswer, FailureCode
from tests.fixtures.group_hosts import etcd_processes
from tests.fixtures.node_cluster import QUICK, NodeCluster, node_cluster, writing
from tests.fixtures.recorded_host import Failure, RecordedHost, Request

pytestmark = pytest.mark.slow("attempts at copies have to time out")

P0 = PartitionId(ZoneId(13), 0)
PATIENT = replace(QUICK, catch_up_timeout_s=60.0, election_ms=5_000)
"""An attempt lasts as long as a slow start does, and a leader stays one on a busy machine."""
IMPATIENT = replace(QUICK, catch_up_timeout_s=0.5)
THREE, FOUR = ("n1", "n2", "n3"), ("n1", "n2", "n3", "n4")
ALWAYS = Limits(copy_attempts=10_000)
"""However many attempts fail, the next one follows within seconds."""
COPY = [(f"copied-{number:03d}", b"x" * (1 << 20)) for number in range(120)]
"""A new member needs many times an attempt's time for it."""


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


def host(cluster: NodeCluster, name: str) -> RecordedHost:
    found = cluster.nodes[name].host
    assert isinstance(found, RecordedHost)
    return found


def requests(cluster: NodeCluster) -> list[tuple[str, Request]]:
    return [(name, each) for name in cluster.nodes for each in host(cluster, name).requests]


def failures(cluster: NodeCluster) -> list[Failure]:
    return [each for name in cluster.nodes for each in host(cluster, name).failures]


def forget_what_was(cluster: NodeCluster) -> None:
    for name in cluster.nodes:
        host(cluster, name).requests.clear()
        host(cluster, name).failures.clear()


def count(cluster: NodeCluster, name: str, code: FailureCode, term: int) -> int:
    return sum((each.code, each.term) == (code, term) for each in host(cluster, name).failures)


def published_term(cluster: NodeCluster) -> int:
    found = cluster.configuration(P0)
    assert found is not None
    return found.term


async def hand_over(cluster: NodeCluster, successor: str) -> tuple[str, int]:
    """The former leader and its term, once another one is published to lead."""
    before = cluster.configuration(P0)
    assert before is not None
    while cluster.leader(P0) == before.leader:
        await cluster.nodes[before.leader].host.transfer_leadership(P0, successor)
        await asyncio.sleep(0.2)
    return before.leader, before.term


@pytest.mark.row("I3-005", "I3-033")
async def test_one_request_a_move(cluster: NodeCluster) -> None:
    """S091, I3-005, I3-033: over all members there is one accepted request for a move, the leader's, and
    followers send none. Where the group refuses a member at first, each attempt that failed is followed by one
    more."""
    cluster.start("n1", "n2", "n3", tuning=PATIENT, host_type=RecordedHost)
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    for target in (("n1", "n2"), THREE):
        forget_what_was(cluster)
        voters = cluster.voters(P0)
        token = await cluster.write_pending(P0, *target)
        await cluster.until(lambda target=target: cluster.settled(P0, *target))
        received = [(name, each) for name, each in requests(cluster) if each.answer is ChangeAnswer.RECEIVED]
        assert {name for name, _ in requests(cluster)} == {"n1"} <= voters
        assert {(each.token, each.target) for _, each in received} == {(token, Assignments(target))}
        refused = [each for each in failures(cluster) if each.code is FailureCode.UNHEALTHY_CLUSTER]
        assert refused == failures(cluster)
        assert len(received) == 1 + len(refused)
        if len(voters) == 1:
            assert len(received) == 1


@pytest.mark.row("I3-055")
async def test_a_former_leader_stops_asking(cluster: NodeCluster) -> None:
    """I3-055: leadership moves while its leader retries. The former one makes at most one more request of its
    own term and is told so; the group's new leader goes on with the same pending; asked by hand in the old
    term, both refuse it and the group stays as it is."""
    await cluster.put(cluster.keyspace.limits, ALWAYS.encode())
    cluster.start(*FOUR, tuning=IMPATIENT, host_type=RecordedHost)
    await cluster.write_stable(P0, *THREE)
    await cluster.until(lambda: cluster.settled(P0, *THREE))
    host(cluster, "n4").held = True
    token = await cluster.write_pending(P0, *FOUR)
    never_started = FailureCode.MEMBER_NOT_STARTED
    await cluster.until(lambda: count(cluster, cluster.leader(P0), never_started, published_term(cluster)) >= 2)
    former, term = await hand_over(cluster, next(name for name in THREE if name != cluster.leader(P0)))
    last = len(host(cluster, former).requests)
    successor, later = cluster.leader(P0), published_term(cluster)
    assert later > term
    await cluster.until(lambda: count(cluster, successor, never_started, later) >= 4)
    after = [each for each in host(cluster, former).requests[last:] if each.term <= later]
    assert len(after) <= 1, after
    assert all(each.answer in (ChangeAnswer.NOT_LEADER, ChangeAnswer.OLD_TERM) for each in after)
    urls = {name: record.peer_url for name in FOUR if (record := cluster.record(P0, name)) is not None}
    members = await host(cluster, successor).configuration(P0, linearizable=True)
    for name, refusal in ((former, ChangeAnswer.NOT_LEADER), (successor, ChangeAnswer.OLD_TERM)):
        asked = host(cluster, name).change_peers_and_learners
        assert await asked(P0, term, token + 1, Assignments(THREE), urls) is refusal
    assert await host(cluster, successor).configuration(P0, linearizable=True) == members
    host(cluster, "n4").held = False
    await cluster.until(lambda: cluster.settled(P0, *FOUR))
    assert {each.token for each in host(cluster, successor).accepted} == {token}


async def put_what_is_copied(cluster: NodeCluster) -> None:
    gate = asyncio.Semaphore(4)

    async def put(key: str, value: bytes) -> None:
        async with gate:
            await cluster.router.put(P0, key, value, f"op-{key}")

    await asyncio.gather(*(put(key, value) for key, value in COPY))


async def stopped_in_its_copy(cluster: NodeCluster, name: str) -> psutil.Process:
    """The node's member once it has joined and one attempt was too short for its copy: from then on it stands
    still, and is never in sync. Until then it runs for a small part of the time."""
    members = cluster.directory / name / "members"
    timed_out = FailureCode.CATCH_UP_TIMEOUT
    while True:
        for process in etcd_processes(members):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
                await asyncio.sleep(0.18)
                # A member that joins by a snapshot ends once, and another process takes its place.
                is_stopped = process.status() == psutil.STATUS_STOPPED
                if is_stopped and any(each.code is timed_out for each in failures(cluster)):
                    return process
                process.resume()
        await asyncio.sleep(0.02)


async def depose_in_an_attempt(cluster: NodeCluster) -> None:
    """Leadership moves until it does so while an attempt runs, which says so."""
    last = None
    while last is None or last.code is not FailureCode.LEADER_STEPPED_DOWN:
        leader = host(cluster, cluster.leader(P0))
        last, term = await deposed(cluster, leader)
        assert last.term == term


async def deposed(cluster: NodeCluster, leader: RecordedHost) -> tuple[Failure, int]:
    """Failure of the attempt that has just begun when the leader hands over, and the term that is over."""
    before = len(leader.accepted)
    await cluster.until(lambda: len(leader.accepted) > before)
    _, term = await hand_over(cluster, next(name for name in THREE if name != cluster.leader(P0)))
    await cluster.until(lambda: len(leader.failures) == len(leader.accepted))
    return leader.failures[-1], term


@pytest.mark.row("I3-046", "I3-052")
async def test_a_slow_copy_outlives_every_fault(cluster: NodeCluster) -> None:
    """I3-046, I3-052: a new member is slow. Its copy times out and is tried again, through a higher term,
    through the shutdown of the leading node, and through the end of the member that it goes to; then it
    succeeds by itself. Each failure was reported to the leader's agent in the term and with the token of a
    request for the target; nothing that was acknowledged is lost."""
    await cluster.put(cluster.keyspace.limits, ALWAYS.encode())
    cluster.start(*FOUR, tuning=IMPATIENT, host_type=RecordedHost)
    await cluster.write_stable(P0, *THREE)
    await cluster.until(lambda: cluster.settled(P0, *THREE))
    await put_what_is_copied(cluster)
    await cluster.until(lambda: cluster.leader(P0) == "n1")
    timed_out = FailureCode.CATCH_UP_TIMEOUT
    reported: list[Failure] = []
    asked: list[tuple[str, Request]] = []
    async with writing(cluster, P0) as writer:
        token = await cluster.write_pending(P0, *FOUR)
        async with asyncio.timeout(60):
            joiner = await stopped_in_its_copy(cluster, "n4")
        term = published_term(cluster)
        await cluster.until(lambda: count(cluster, "n1", timed_out, term) >= 3)

        await depose_in_an_attempt(cluster)
        successor, later = cluster.leader(P0), published_term(cluster)
        assert later > term
        await cluster.until(lambda: count(cluster, successor, timed_out, later) >= 1)

        reported += host(cluster, successor).failures
        asked += [(successor, each) for each in host(cluster, successor).requests]
        await cluster.stop(successor)
        await cluster.until(lambda: cluster.leader(P0) not in ("", successor))
        third = cluster.leader(P0)
        # With one voter less nobody asks for its vote before it serves: the copy times out as a start does.
        codes = (timed_out, FailureCode.MEMBER_NOT_STARTED)
        await cluster.until(lambda: any(count(cluster, third, each, published_term(cluster)) for each in codes))
        assert "n4" not in voting(cluster)
        cluster.start(successor, tuning=IMPATIENT, host_type=RecordedHost)

        joiner.kill()
        await cluster.until(lambda: cluster.settled(P0, *FOUR))
    await writer.check()
    for key, value in COPY:
        assert (await cluster.router.get(P0, key)).value == value
    reported += failures(cluster)
    asked += requests(cluster)
    targets = {(each.term, each.token): each.target for _, each in asked}
    assert all(targets[each.term, each.token] == Assignments(FOUR) for each in reported)
    assert {each.token for each in reported} == {token}


def voting(cluster: NodeCluster) -> set[str]:
    found = cluster.configuration(P0)
    assert found is not None
    return {name for name, each in found.members.items() if each.role is MemberRole.VOTER}


@pytest.mark.row("I3-054")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("groups", [26, pytest.param(100, marks=pytest.mark.soak)])
async def test_retries_hold_up_nobody(
    cluster: NodeCluster, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I3-054: one node leads more groups than it works on at once, and the retry of each one's change is
    pending, for far longer than this test takes. A put is acknowledged, and a new target of one of them is
    acted on, to the end of its move, before any other one is tried again. Then all of them are, on request."""
    monkeypatch.setattr("rebalance.nodes.copy_attempts.FAILED_RETRY_S", 3600.0)
    retrying = [PartitionId(P0.zone_id, number) for number in range(groups)]
    others, chosen = set(retrying[:-1]), retrying[-1]
    for name in ("n1", "n2"):
        cluster.ports(name, pairs=groups)
    many = replace(PATIENT, heartbeat_ms=500, catch_up_timeout_s=0.1)
    cluster.start("n1", "n2", tuning=many, lease_ttl_s=60, host_type=RecordedHost)
    cluster.start("n3", tuning=PATIENT, lease_ttl_s=60)
    await cluster.registered("n1", "n2", "n3")
    leader = host(cluster, "n1")
    host(cluster, "n2").held = True
    for partition in retrying:
        await cluster.write_stable(partition, "n1")
    for partition in retrying:
        await cluster.until(lambda partition=partition: cluster.settled(partition, "n1"), 300)
    for partition in retrying:
        await cluster.write_pending(partition, "n1", "n2")
    for partition in retrying:
        await cluster.until(lambda partition=partition: has_failed(cluster, partition), 300)
    # A machine that is busy with so many members answers some calls too late.
    assert {each.code for each in leader.failures} - {FailureCode.TIMED_OUT} == {FailureCode.MEMBER_NOT_STARTED}

    before = len(leader.requests)
    await cluster.router.put(retrying[0], "k", b"v", "op-k")
    target = ("n1", "n3")
    await cluster.write_pending(chosen, *target)
    await cluster.until(lambda: cluster.settled(chosen, *target))
    assert {each.partition for each in leader.requests[before:]} == {chosen}
    await cluster.put(cluster.keyspace.limits, Limits().encode())
    await cluster.until(lambda: {each.partition for each in leader.requests[before:]} >= others, 300)


def has_failed(cluster: NodeCluster, partition: PartitionId) -> bool:
    found = cluster.configuration(partition)
    return found is not None and found.reason.startswith(Cause.COPY_FAILED.name)
