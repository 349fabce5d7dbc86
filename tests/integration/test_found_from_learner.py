"""Every voter is lost and a learner has a copy: the group is founded anew on it, with real members."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aetcd import rpc

from rebalance.controllers.clock import WallClock
from rebalance.controllers.operation_control import OperationControl
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.records import MirrorRecord
from rebalance.core.operations.operation import Operation, OperationKind
from rebalance.data.zone_router import ZoneRouter
from rebalance.groups.calls.data_client import LEASE_TTL_S, MARKER_PREFIX, OPERATION_PREFIX
from rebalance.groups.calls.etcd_api import GENERATION_KEY, open_channel
from rebalance.groups.calls.replica_reads import NOW, ReplicaChoice
from rebalance.nodes.partition_view import MirroredEndpoints
from rebalance.ports.groups import OutcomeUnknownError
from tests.fixtures.group_hosts import etcd_processes
from tests.fixtures.learner_founding import P0, force, group, kill
from tests.fixtures.node_cluster import NodeCluster, Writer, node_cluster, writing
from tests.fixtures.puts import is_applied_once
from tests.fixtures.slices import in_every_run

VOTERS, LEARNERS = ("n1", "n2", "n3"), ("n4", "n5")


@pytest.fixture
async def cluster(etcd_server, keyspace, tmp_path) -> AsyncIterator[NodeCluster]:
    async with node_cluster(etcd_server.endpoint, keyspace, tmp_path) as running:
        yield running


def mirror(cluster: NodeCluster, name: str) -> MirrorRecord | None:
    record = cluster.record(P0, name)
    return record.mirror if record is not None else None


def is_readable(cluster: NodeCluster, name: str) -> bool:
    record = cluster.record(P0, name)
    return record is not None and record.is_mirroring


def copy_name(cluster: NodeCluster, name: str) -> str:
    """Name of the mirror's present copy, which each first copy changes."""
    file = cluster.directory / name / "mirrors" / "7-0" / "reservation.json"
    return str(json.loads(file.read_text())["copy"])


async def founded(cluster: NodeCluster) -> None:
    """Three voters and two learners that follow."""
    cluster.start(*VOTERS, *LEARNERS, learns=True)
    stable = Assignments(VOTERS, LEARNERS)
    await cluster.put(cluster.keyspace.partition(P0).stable, stable.encode())
    await cluster.until(lambda: cluster.voters(P0) == set(VOTERS))
    await cluster.until(lambda: all(is_readable(cluster, name) for name in LEARNERS))


async def complete_revisions(cluster: NodeCluster) -> dict[str, int]:
    """Complete revisions of both learners, by name, once both report one, which they do when their sources are
    silent."""

    def told() -> dict[str, int]:
        records = {name: mirror(cluster, name) for name in LEARNERS}
        return {name: each.complete_revision for name, each in records.items() if each is not None}

    await cluster.until(lambda: len(told()) == 2 and all(told().values()))
    return told()


async def revisions_of(router: ZoneRouter, keys: list[str]) -> dict[str, int]:
    """Key -> its revision, of those that are there."""
    found = {}
    for start in range(0, len(keys), 50):
        part = keys[start : start + 50]
        values = await asyncio.gather(*(router.get(P0, each) for each in part))
        for key, datum in zip(part, values, strict=True):
            if datum.value is not None:
                assert datum.value == key.encode()
                found[key] = datum.revision
    return found


async def written_under_load(cluster: NodeCluster, count: int = 120) -> tuple[Writer, dict[str, int]]:
    """The voters' nodes die for good while it writes; with the revisions of what was read back before."""
    async with writing(cluster, P0) as writer:
        await cluster.until(lambda: len(writer.written) > count)
        before = await revisions_of(cluster.router, list(writer.written))
        await kill(cluster, *VOTERS)
    return writer, before


@pytest.mark.row("IEP-059", "IEP-060")
async def test_a_learner_founds_the_group_and_the_other_one_goes_on(cluster: NodeCluster) -> None:
    """IEP-059, IEP-060: the voters are gone for good under load. Every acknowledged put that the better learner
    has is read back at the revision that it had, the other learner goes on without a new first copy, and a
    voter that returns never serves what it has."""
    await founded(cluster)
    writer, before = await written_under_load(cluster)
    copies = {name: copy_name(cluster, name) for name in LEARNERS}
    told = await complete_revisions(cluster)
    better = max(LEARNERS, key=lambda name: told[name])
    other = next(name for name in LEARNERS if name != better)
    assert await put_fails(cluster)
    generation = await force(cluster, better, Assignments((better,), (other,)))
    took_s = await cluster.until(lambda: cluster.stable(P0) == {better, other} and not cluster.has_pending(P0))
    print(f"founded on a learner after {took_s:.2f} s, {len(writer.written)} puts")
    assert (group(cluster).generation, group(cluster).founding_revision) == (generation, told[better])
    after = await revisions_of(cluster.router, writer.written)
    assert {key: after.get(key) for key in before} == before
    lost = [key for key in writer.written if key not in after]
    # Whatever is lost was never at the learner: its revision is beyond what it had.
    assert writer.written[: len(after)] == list(after), "no gap"
    assert max(after.values()) <= told[better]
    print(f"{len(lost)} of {len(writer.written)} acknowledged puts had not reached the learner")
    assert is_applied_once(await cluster.router.put(P0, "after", b"1", "op-after"))
    # A mark of before is known: the same put again changes nothing.
    first = writer.written[-len(lost) - 1]
    assert (await cluster.router.put(P0, first, b"another", f"op-{first}")).repeated

    await check_bookkeeping(cluster, better, generation)
    await cluster.until(lambda: getattr(mirror(cluster, other), "generation", 0) == generation)
    newest = await cluster.router.revision(P0)
    await until_safe(cluster, other, newest)
    assert copy_name(cluster, other) == copies[other]
    await cluster.until(lambda: mirror(cluster, better) is None)
    assert P0 not in cluster.nodes[better].mirrors.partitions()

    cluster.start(*VOTERS, learns=True)
    await cluster.registered(*VOTERS)
    watched = asyncio.create_task(members_seen(cluster, VOTERS))
    await asyncio.sleep(3.0)
    watched.cancel()
    assert not await watched
    assert (await cluster.router.get(P0, "after")).value == b"1"


async def check_bookkeeping(cluster: NodeCluster, name: str, generation: int) -> None:
    """Check that nothing of a mirror is left in the store, each mark of a put has a lease, and each lease has
    marks."""
    endpoints = cluster.nodes[name].host.endpoints(P0)
    assert endpoints is not None
    channel = open_channel(endpoints.client_url)
    kv, leases = rpc.KVStub(channel), rpc.LeaseStub(channel)
    everything = (await kv.Range(rpc.RangeRequest(key=b"\0", range_end=b"\0"))).kvs
    assert not [each.key for each in everything if each.key.startswith(MARKER_PREFIX)]
    assert [each.value for each in everything if each.key == GENERATION_KEY] == [b"%d" % generation]
    marks = [each for each in everything if each.key.startswith(OPERATION_PREFIX)]
    assert marks
    assert all(each.lease for each in marks)
    for each in (await leases.LeaseLeases(rpc.LeaseLeasesRequest())).leases:
        found = await leases.LeaseTimeToLive(rpc.LeaseTimeToLiveRequest(ID=each.ID, keys=True))
        assert found.keys
        assert found.grantedTTL == LEASE_TTL_S
        assert found.TTL > LEASE_TTL_S / 2
    await channel.close()


async def members_seen(cluster: NodeCluster, names: tuple[str, ...]) -> list[str]:
    """Members of these nodes that run at some moment, until it is cancelled."""
    seen: list[str] = []
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            seen += [name for name in names if etcd_processes(cluster.directory / name / "members")]
            # A look goes through all processes of the machine, and a start takes longer than this.
            await asyncio.sleep(0.1)
    return seen


async def put_fails(cluster: NodeCluster) -> bool:
    hurried = ZoneRouter(MirroredEndpoints(cluster.mirrors), time_limit_s=1.0)
    try:
        with pytest.raises(OutcomeUnknownError):
            await hurried.put(P0, "during", b"-", "op-during")
        return True
    finally:
        await hurried.close()


async def until_safe(cluster: NodeCluster, name: str, revision: int) -> None:
    mirrors = cluster.nodes[name].mirrors
    assert mirrors is not None
    async with asyncio.timeout(90):
        while True:
            status = await mirrors.status(P0)
            if status is not None and status.safe_revision >= revision:
                return
            await asyncio.sleep(0.05)


@pytest.mark.row("IEP-059")
async def test_a_learner_goes_on_with_a_group_that_a_voter_has_founded(cluster: NodeCluster) -> None:
    """IEP-059: one voter of three is left. The revision that the new group began with is known exactly, though
    clients write as soon as it serves; the learner goes on from there without a new first copy."""
    await founded(cluster)
    async with writing(cluster, P0) as writer:
        await cluster.until(lambda: len(writer.written) > 100)
        surely = await revisions_of(cluster.router, writer.written[:80])
        # What the leader has not applied no learner has, whichever voter it follows.
        await cluster.until(lambda: cluster.leader(P0) == "n1")
        await kill(cluster, "n2", "n3")
        position = await told_position(cluster, "n1")
        before = copy_name(cluster, "n4")
        generation = await force(cluster, "n1", Assignments(("n1",), LEARNERS))
        count = len(writer.written)
        await cluster.until(lambda: len(writer.written) > count + 20)
    await cluster.until(lambda: cluster.stable(P0) == {"n1", *LEARNERS} and not cluster.has_pending(P0))
    assert (group(cluster).generation, group(cluster).founding_revision) == (generation, position)
    revisions = await revisions_of(cluster.router, writer.written)
    # What only the two had when they died is lost; nothing of before, and nothing of the new group.
    assert {key: revisions.get(key) for key in surely} == surely
    assert set(writer.written[count:]) <= revisions.keys()
    await cluster.until(lambda: getattr(mirror(cluster, "n4"), "generation", 0) == generation)
    await until_safe(cluster, "n4", max(revisions.values()))
    assert copy_name(cluster, "n4") == before


async def told_position(cluster: NodeCluster, name: str) -> int:
    """The data revision that the member publishes, once it does."""

    def told() -> int:
        record = cluster.record(P0, name)
        return record.position.revision if record is not None and record.position is not None else 0

    await cluster.until(lambda: told() > 0)
    return told()


async def lagging(cluster: NodeCluster, *stopped: str) -> None:
    """The group has one put that these learners never saw, and then no voter any more."""
    await founded(cluster)
    await cluster.router.put(P0, "early", b"1", "op-early")
    early = await cluster.router.revision(P0)
    for name in LEARNERS:
        await until_safe(cluster, name, early)
    for name in stopped:
        await cluster.stop(name)
    await cluster.router.put(P0, "late", b"1", "op-late")
    late = await cluster.router.revision(P0)
    for name in set(LEARNERS) - set(stopped):
        await until_safe(cluster, name, late)
    await kill(cluster, *VOTERS)
    cluster.start(*stopped, learns=True)


@pytest.mark.row("IEP-059")
async def test_what_the_founding_may_have_lost_is_kept_until_it_is_finalised(cluster: NodeCluster) -> None:
    """IEP-059: the lost voters have a put that no learner had. Back again they do not serve it; their data is
    kept aside, also while a new member of the group lives on the same node, and goes when the reset is
    finalised."""
    await lagging(cluster, *LEARNERS)
    await complete_revisions(cluster)
    generation = await force(cluster, "n4")
    await cluster.until(lambda: cluster.settled(P0, "n4"))
    cluster.start(*VOTERS)
    names = [f"{name}@0" for name in VOTERS]
    keys = [cluster.keyspace.kept_copies(P0) + name for name in names]
    await cluster.until(lambda: all(cluster.mirrors.partitions.get(key) is not None for key in keys))
    for name in VOTERS:
        await cluster.until(lambda name=name: P0 not in cluster.nodes[name].host.partitions())
    await cluster.write_pending(P0, "n4", "n1")
    await cluster.until(lambda: cluster.settled(P0, "n4", "n1"))
    assert (await cluster.router.get(P0, "late")).value is None
    assert (await cluster.router.get(P0, "early")).value == b"1"
    kept = [cluster.directory / name / "given_up" / "7-0@0" / "data" for name in VOTERS]
    assert all(each.is_dir() for each in kept)
    operation = Operation(OperationKind.RESET, P0.zone_id, "Z", generation, 3, 0).closed(1)
    await cluster.put(cluster.keyspace.operation(operation.operation_id), operation.encode())
    control = OperationControl(cluster.metastore, cluster.keyspace, WallClock())
    assert await control.finalise(operation.operation_id) == len(VOTERS)
    await cluster.until(lambda: all(cluster.mirrors.partitions.get(key) is None for key in keys))
    assert not any(each.exists() for each in kept)
    assert cluster.settled(P0, "n4", "n1")


@pytest.mark.thorough("test_a_learner_founds_the_group_and_the_other_one_goes_on")
@pytest.mark.row("IEP-060")
async def test_a_learner_that_has_more_than_the_new_group_is_copied_again(cluster: NodeCluster) -> None:
    """IEP-060: the group is founded on the copy that was named; what the other learner has beyond it is not
    read there any more, and it follows the new group from a new copy."""
    await lagging(cluster, "n4")
    told = await complete_revisions(cluster)
    assert told["n4"] < told["n5"]
    before = copy_name(cluster, "n5")
    generation = await force(cluster, "n4", Assignments(("n4",), ("n5",)))
    await cluster.until(lambda: cluster.stable(P0) == set(LEARNERS) and not cluster.has_pending(P0))
    assert is_applied_once(await cluster.router.put(P0, "after", b"1", "op-after"))
    await cluster.until(lambda: getattr(mirror(cluster, "n5"), "generation", 0) == generation)
    await cluster.until(lambda: is_readable(cluster, "n5"))
    values = await asyncio.gather(
        *(cluster.router.read_at(P0, key, NOW, ReplicaChoice.LEARNER, 90) for key in ("early", "late", "after"))
    )
    assert [each.value for each in values] == [b"1", None, b"1"]
    assert copy_name(cluster, "n5") != before


def _stages(node: Path) -> dict[str, Callable[[], bool]]:
    member = node / "members" / "7-0"
    return {
        "reserved": (member / "reservation.json").exists,
        "snapshot": (member / "founding.snapshot").exists,
        "restored": (member / "data.draft" / "member" / "wal").is_dir,
        "made ready": (member / "founding.log").exists,
        "named": (member / "data").is_dir,
    }


@pytest.mark.thorough("test_a_founding_is_done_once_whenever_the_node_dies")
@pytest.mark.row("IEP-059")
@pytest.mark.parametrize(
    "stage", in_every_run(("reserved", "snapshot", "restored", "made ready", "named"), ["snapshot", "named"])
)
async def test_a_founding_that_is_killed_comes_to_the_same(cluster: NodeCluster, stage: str) -> None:
    """IEP-059: the node dies in the middle of the founding; it comes back, and the group has what its mirror
    has, at the same revisions, once."""
    await founded(cluster)
    async with writing(cluster, P0) as writer:
        await cluster.until(lambda: len(writer.written) > 60)
    before = await revisions_of(cluster.router, writer.written)
    for name in LEARNERS:
        await until_safe(cluster, name, max(before.values()))
    await kill(cluster, *VOTERS)
    told = await complete_revisions(cluster)
    generation = await force(cluster, "n4")
    reached = _stages(cluster.directory / "n4")[stage]
    async with asyncio.timeout(90):
        while not reached():
            await asyncio.sleep(0)
    await kill(cluster, "n4")
    assert group(cluster).generation == 0 or stage == "named"
    cluster.start("n4", learns=True)
    await cluster.until(lambda: cluster.settled(P0, "n4"))
    assert (group(cluster).generation, group(cluster).founding_revision) == (generation, told["n4"])
    assert await revisions_of(cluster.router, writer.written) == before
    member = cluster.directory / "n4" / "members" / "7-0"
    assert not (member / "founding.snapshot").exists()
    assert not (member / "data.draft").exists()
    assert is_applied_once(await cluster.router.put(P0, "after", b"1", "op-after"))
