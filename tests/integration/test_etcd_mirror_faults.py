"""Mirrors when things go wrong: killed processes, lost history, other histories, leases, full disks, no
places."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from aetcd import rpc

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.groups.etcd_mirror import EtcdMirrorHost
from rebalance.hosting.child import spawn
from rebalance.hosting.etcd_binary import find_etcd
from rebalance.hosting.free_ports import is_free
from rebalance.ports.groups import MemberLife, NoPlaceError
from rebalance.ports.mirrors import FollowedGroup, MirrorStatus
from tests.fixtures.group_hosts import P0, P1, TUNING
from tests.fixtures.mirror_process import GROUP, reservations
from tests.fixtures.mirror_rig import MirrorRig, RestoredStore
from tests.fixtures.node_processes import lives
from tests.fixtures.ports import free_block

ROOT = Path(__file__).parents[2]
LEASE_S = 4


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[MirrorRig]:
    """A group of one member on the node ``a``."""
    found = MirrorRig(tmp_path, "a")
    await found.hosts.found(P0, "a")
    yield found
    await found.close()


def copy_name(rig: MirrorRig) -> str:
    return (rig.directory / "reservation.json").read_text()


async def until_failed(rig: MirrorRig, reason: str) -> None:
    """A slow machine may fail it for another reason before."""
    await rig.until(lambda found: found.life is MemberLife.FAILED and reason in found.reason)


@pytest.mark.thorough("test_kills_of_the_store_lose_and_repeat_nothing")
async def test_kills_of_the_follower_lose_and_repeat_nothing(rig: MirrorRig, tmp_path: Path) -> None:
    """kill -9 of the process that follows, at random moments, the first copy included. Its store dies with it,
    and the next process goes on with the same copy. The last one has a copy before it dies, however slow that
    was."""
    own, ports, chooser = tmp_path / "killed", free_block(4), random.Random(11)
    own.mkdir()
    command = [
        sys.executable,
        *("-m", "tests.fixtures.mirror_process", str(own), str(ports.start), str(ports.stop), rig.url("a")),
    ]
    copy = own / "mirrors" / "3-0"
    async with rig.writers("a", pause_s=0.004):
        for is_last in (False, False, False, True):
            process = spawn(command, cwd=ROOT, log=tmp_path / "killed.log")
            agent = psutil.Process(process.pid)
            await _until(agent.children)
            if is_last:
                await _until((copy / "data" / "member" / "wal").is_dir)
            await asyncio.sleep(chooser.uniform(0.0, 1.5))
            stores = agent.children()
            process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(process.wait)
            await _until(lambda stores=stores: not any(map(lives, stores)))
    rig.mirrors, replaced = EtcdMirrorHost(reservations(own, ports), tuning=TUNING), rig.mirrors
    rig.mirrors.open("m")
    before = (copy / "reservation.json").read_text()
    assert '"launched": true' in before
    await rig.follow("a")
    await rig.check_equal("a", oldest=2)
    assert (copy / "reservation.json").read_text() == before
    await replaced.close()


async def _until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_compacted_history_means_a_new_copy(rig: MirrorRig) -> None:
    """Keep the copy when history that the mirror already has is compacted; make a new one when it lacks some of
    it."""
    await rig.follow("a")
    first = await rig.caught_up("a")
    name = copy_name(rig)
    for number in range(50):
        await rig.put("a", b"d/k", b"%d" % number)
    await rig.caught_up("a")
    await rig.kv(rig.url("a")).Compact(rpc.CompactionRequest(revision=first + 20))
    await rig.put("a", b"d/k", b"more")
    await rig.check_equal("a", oldest=first + 20)
    assert copy_name(rig) == name

    await rig.mirrors.stop(P0, destroy=False)
    for number in range(50):
        last = await rig.put("a", b"d/k", b"%d" % number)
    await rig.kv(rig.url("a")).Compact(rpc.CompactionRequest(revision=last))
    await rig.follow("a")
    await rig.until(lambda found: found.safe_revision >= last)
    await rig.check_equal("a", oldest=last)
    assert copy_name(rig) != name


async def test_a_source_that_is_behind_does_no_harm(rig: MirrorRig, tmp_path: Path) -> None:
    """Follow a source that is behind: it sends nothing, and the mirror stays where it is; another source goes
    on from there."""
    behind = RestoredStore(tmp_path / "behind")
    await behind.start(rig.url("a"))
    try:
        await rig.put("a", b"d/k", b"newer")
        await rig.follow("a")
        reached = await rig.caught_up("a")
        name = copy_name(rig)
        await rig.mirrors.follow(P0, GROUP, (behind.client_url,))
        await rig.until(lambda found: found.source == behind.client_url)
        newest = await rig.put("a", b"d/k", b"newest")
        await asyncio.sleep(1.0)
        stands = await rig.until(lambda found: found.life is MemberLife.RUNNING)
        assert stands.safe_revision == reached
        await rig.mirrors.follow(P0, GROUP, (behind.client_url, rig.url("a")))
        await rig.until(lambda found: found.safe_revision >= newest)
        await rig.check_equal("a", oldest=2)
        assert copy_name(rig) == name
    finally:
        behind.stop()


@pytest.mark.thorough("test_compacted_history_means_a_new_copy")
async def test_another_history_means_a_new_copy(rig: MirrorRig, tmp_path: Path) -> None:
    """A group that lost its newest revisions and wrote others, as after a reset: the mirror has revisions
    that the group has not, though their numbers go on without a gap."""
    other = RestoredStore(tmp_path / "other")
    await other.start(rig.url("a"))
    try:
        await rig.put("a", b"d/lost", b"1")
        await rig.follow("a")
        reached = await rig.caught_up("a")
        for number in range(5):
            last = (
                await rig.kv(other.client_url).Put(rpc.PutRequest(key=b"d/k", value=b"%d" % number))
            ).header.revision
        assert last > reached
        await rig.mirrors.follow(P0, GROUP, (other.client_url,))
        await rig.until(lambda found: found.safe_revision >= last)
        mirror = (await rig.status()).client_url
        found = await rig.contents(mirror, last)
        assert found == await rig.contents(other.client_url, last)
        assert b"d/lost" not in found
    finally:
        other.stop()


async def test_leases_of_the_copy_end_when_the_groups_do(rig: MirrorRig) -> None:
    """The marks of puts are under leases: the mirror keeps their keys for as long as the group does, and
    their end, of more keys than a transaction usually takes, is one revision there too."""
    leases, ends = rpc.LeaseStub(rig.channel(rig.url("a"))), asyncio.Event()
    lease = (await leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=LEASE_S))).ID

    async def requests() -> AsyncIterator[rpc.LeaseKeepAliveRequest]:
        while not ends.is_set():
            yield rpc.LeaseKeepAliveRequest(ID=lease)
            await asyncio.sleep(0.5)

    async def keep() -> None:
        async for _ in leases.LeaseKeepAlive(requests()):
            pass

    kept = asyncio.create_task(keep())
    for start in range(0, 300, 100):
        puts = [rpc.PutRequest(key=b"o/%d" % (start + n), lease=lease) for n in range(100)]
        operations = [rpc.RequestOp(request_put=each) for each in puts]
        await rig.kv(rig.url("a")).Txn(rpc.TxnRequest(success=operations))
    granted = await rig.revision("a")
    await rig.follow("a")
    await rig.caught_up("a")
    name = copy_name(rig)
    # Twice as long as the copy's lease would have lived by itself.
    await asyncio.sleep(2 * LEASE_S)
    assert await rig.revision("a") == granted
    await rig.check_equal("a", oldest=granted)
    ends.set()
    await kept

    def ended(status: MirrorStatus) -> bool:
        assert status.life is not MemberLife.FAILED, status
        return status.safe_revision == granted + 1

    await rig.until(ended)
    assert copy_name(rig) == name
    await rig.check_equal("a", oldest=granted)
    mirror = (await rig.status()).client_url
    assert len(await rig.contents(mirror, granted)) == 301
    assert len(await rig.contents(mirror, granted + 1)) == 1


@pytest.mark.thorough("test_leases_of_the_copy_end_when_the_groups_do has one of 300 keys")
async def test_a_revision_of_very_many_keys(rig: MirrorRig) -> None:
    """The end of a lease that many marks were under is one revision, however large."""
    await rig.follow("a")
    await rig.caught_up("a")
    leases = rpc.LeaseStub(rig.channel(rig.url("a")))
    lease = (await leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=600))).ID
    for start in range(0, 25_600, 128):
        puts = [rpc.PutRequest(key=b"o/%0100d" % (start + n), lease=lease) for n in range(128)]
        operations = [rpc.RequestOp(request_put=each) for each in puts]
        await rig.kv(rig.url("a")).Txn(rpc.TxnRequest(success=operations))
    before = await rig.caught_up("a")
    await leases.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease))
    assert await rig.revision("a") == before + 1
    await rig.check_equal("a", oldest=before, samples=0)
    mirror = (await rig.status()).client_url
    assert len(await rig.contents(mirror, before)) == 25_601
    assert len(await rig.contents(mirror, before + 1)) == 1
    await rig.until(lambda found: found.reason == "")


async def test_a_store_that_went_on_by_itself_is_copied_again(rig: MirrorRig) -> None:
    """Copy again a store that took a write of its own, as when the node stood still for longer than a lease:
    nothing of it is taken for the group's."""
    await rig.follow("a")
    await rig.put("a", b"d/k", b"1")
    reached = await rig.caught_up("a")
    name, mirror = copy_name(rig), (await rig.status()).client_url
    await rig.kv(mirror).Put(rpc.PutRequest(key=b"d/k", value=b"foreign"))
    last = await rig.put("a", b"d/k", b"2")
    await rig.until(lambda found: found.safe_revision >= last)
    await rig.check_equal("a", oldest=reached)
    assert copy_name(rig) != name


async def test_a_copy_of_no_use_stays_while_its_group_has_no_leader(tmp_path: Path) -> None:
    """Keep a useless copy while its group has no leader, as it may be the last one: it is not read, reports its
    revision, and is removed once another one can be made. A voter that answers without a majority is no reason
    to remove it."""
    rig = MirrorRig(tmp_path, "a", "b")
    try:
        await rig.hosts.found(P0, "a", "b")
        await rig.follow("a")
        await rig.until(lambda found: found.life is MemberLife.RUNNING)
        await rig.put("a", b"d/k", b"1")
        reached, name = await rig.caught_up("a"), copy_name(rig)
        await rig.hosts.hosts["b"].stop(P0, destroy=False)
        told = await rig.until(lambda found: found.is_silent)
        assert told.complete_revision == reached
        await rig.kv((await rig.status()).client_url).Put(rpc.PutRequest(key=b"d/own", value=b"1"))
        await rig.mirrors.stop(P0, destroy=False)
        await rig.follow("a")
        told = await rig.until(lambda found: "COPIED_AGAIN" in found.reason or "SOURCE" in found.reason)
        await rig.until(
            lambda found: found.complete_revision == reached and found.life is not MemberLife.RUNNING
        )
        await asyncio.sleep(3.0)
        told = await rig.status()
        assert told.life is not MemberLife.RUNNING
        assert told.complete_revision == reached
        assert copy_name(rig) == name
        assert (rig.directory / "data" / "member" / "wal").is_dir()
        await rig.restart_voter("b")
        await rig.hosts.leader(P0)
        await rig.check_equal("a", oldest=reached)
        assert copy_name(rig) != name
    finally:
        await rig.close()


async def test_a_first_copy_that_repeated_nothing_is_complete(tmp_path: Path) -> None:
    """Take a first copy without a mark as complete: its content was read from its file before anything could
    write to it."""
    rig = MirrorRig(tmp_path, "a")
    try:
        await rig.hosts.found(P0, "a")
        for number in range(5):
            reached = await rig.put("a", b"d/k", b"%d" % number)
        await rig.follow("a")
        told = await rig.until(lambda found: found.complete_revision > 0 and found.is_silent)
        assert told.complete_revision == reached
    finally:
        await rig.close()


async def test_large_values(rig: MirrorRig) -> None:
    """More than a megabyte each, and together too large for one answer of the watch."""
    await rig.follow("a")
    await rig.caught_up("a")
    chooser = random.Random(3)
    await rig.mirrors.stop(P0, destroy=False)
    for number in range(50):
        await rig.put("a", b"d/%d" % (number % 5), chooser.randbytes(1_400_000))
    await rig.follow("a")
    await rig.put("a", b"d/last", chooser.randbytes(1_500_000))
    await rig.caught_up("a")
    newest = await rig.revision("a")
    mirror = (await rig.status()).client_url
    for key in (b"d/0", b"d/last"):
        request = rpc.RangeRequest(key=key, revision=newest)
        theirs = (await rig.kv(rig.url("a")).Range(request)).kvs[0]
        assert (await rig.kv(mirror).Range(request)).kvs[0] == theirs


async def test_a_full_disk_is_told_and_outlived(rig: MirrorRig) -> None:
    """The copy cannot be written, then it can."""
    rig.directory.mkdir(parents=True)
    snapshot = rig.directory / "copy.snapshot"
    snapshot.symlink_to("/dev/full")
    await rig.follow("a")
    await until_failed(rig, "No space left on device")
    snapshot.unlink(missing_ok=True)
    await rig.check_equal("a", oldest=2)
    await rig.until(lambda found: found.reason == "")


async def test_a_missing_tool_is_named(rig: MirrorRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node runs without it; the mirror says what to install, and goes on once it is there."""
    alone = tmp_path / "bin"
    alone.mkdir()
    (alone / "etcd").symlink_to(find_etcd().path)
    (alone / "setpriv").symlink_to(str(shutil.which("setpriv")))
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(alone))
        await rig.follow("a")
        await until_failed(rig, "not found: install it (Debian: apt-get install etcd-client)")
    await rig.check_equal("a", oldest=2)


@pytest.mark.thorough("test_a_full_disk_is_told_and_outlived lacks room, too")
async def test_a_full_store_is_told_and_goes_on_with_more_space(rig: MirrorRig) -> None:
    """etcd's own limit, far below what the group holds: the rest follows once the store has a higher one. Of
    the history the node may have made room."""
    generous, small = rig.mirrors, replace(TUNING, quota_bytes=1 << 20)
    rig.mirrors = EtcdMirrorHost(rig.hosts.hosts["m"].mirror_places(), tuning=small)
    rig.mirrors.open("m")
    await rig.follow("a")
    await rig.caught_up("a")
    name = copy_name(rig)
    for number in range(120):
        last = await rig.put("a", b"d/%d" % number, b"v" * 100_000)
    await until_failed(rig, "database space exceeded")
    await rig.mirrors.close()
    generous.open("m")
    rig.mirrors = generous
    await rig.follow("a")
    await rig.check_equal("a", oldest=last, samples=0)
    assert copy_name(rig) == name


@pytest.mark.thorough("test_compacted_history_means_a_new_copy")
async def test_a_store_that_does_not_start_is_copied_again(rig: MirrorRig) -> None:
    """Told as FAILED with etcd's own words, tried again, and then given up for a new copy."""
    await rig.follow("a")
    await rig.put("a", b"d/k", b"1")
    await rig.caught_up("a")
    name = copy_name(rig)
    await rig.mirrors.stop(P0, destroy=False)
    (rig.directory / "data" / "member" / "snap" / "db").write_bytes(b"not a database" * 1000)
    await rig.follow("a")
    await until_failed(rig, "COPY_DAMAGED: failed to open database: invalid database")
    await rig.check_equal("a", oldest=2)
    assert copy_name(rig) != name


async def test_a_destroyed_mirror_leaves_nothing(rig: MirrorRig) -> None:
    """No directory, no process, no port: the pair can be taken again. Also in the middle of the first copy."""
    await rig.follow("a")
    await rig.caught_up("a")
    port = int((await rig.status()).client_url.rsplit(":", 1)[1])
    await rig.mirrors.stop(P0, destroy=True)
    assert await rig.mirrors.status(P0) is None
    assert list(rig.directory.parent.iterdir()) == []
    assert rig.processes() == []
    assert is_free(port)
    for pause_s in (0.0, 0.05, 0.15, 0.3):
        await rig.follow("a")
        await asyncio.sleep(pause_s)
        await rig.mirrors.stop(P0, destroy=True)
        assert list(rig.directory.parent.iterdir()) == []
        assert rig.processes() == []


async def test_a_mirror_of_another_group_goes_first(rig: MirrorRig) -> None:
    """The zone was dropped and its id used again: nothing of the old group is left."""
    await rig.follow("a")
    await rig.caught_up("a")
    name = copy_name(rig)
    await rig.mirrors.follow(P0, FollowedGroup("another"), (rig.url("a"),))
    assert '"token": "another"' not in name
    await rig.check_equal("a", oldest=2)
    assert '"token": "another"' in copy_name(rig)


async def test_an_address_of_another_group_is_no_source(rig: MirrorRig) -> None:
    """A port that another group's member has by now: nothing is copied from it."""
    await rig.hosts.found(P1, "a")
    other = rig.hosts.hosts["a"].endpoints(P1)
    assert other is not None
    await rig.mirrors.follow(P0, GROUP, (other.client_url,))
    told = await rig.until(lambda found: "is '3/1', not '3/0'" in found.reason)
    assert (told.life, told.safe_revision) == (MemberLife.STARTING, 0)
    await rig.follow("a")
    await rig.check_equal("a", oldest=2)


async def test_places_are_shared_with_members_and_named_when_they_run_out(rig: MirrorRig) -> None:
    """The range of the node ``m`` has four pairs."""
    host = rig.hosts.hosts["m"]
    taken = [await host.reserve(PartitionId(ZoneId(9), number)) for number in range(3)]
    await rig.follow("a")
    with pytest.raises(NoPlaceError, match="NO_FREE_PORTS"):
        await rig.mirrors.follow(P1, GROUP, ())
    await host.stop(PartitionId(ZoneId(9), 0), destroy=True)
    await rig.mirrors.follow(P1, GROUP, ())
    waiting: MirrorStatus | None = await rig.mirrors.status(P1)
    assert waiting is not None
    assert waiting.life is MemberLife.RESERVED
    assert waiting.client_url in {each.client_url for each in taken}
    few = EtcdMirrorHost(host.mirror_places(), mirror_limit=1, tuning=TUNING)
    few.open("m")
    with pytest.raises(NoPlaceError, match="NODE_MEMBER_LIMIT"):
        await few.follow(PartitionId(ZoneId(9), 7), GROUP, ())
