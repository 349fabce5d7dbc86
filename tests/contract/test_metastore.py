"""One contract for every metastore: run over a real etcd and over the one in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, aclosing, suppress
from pathlib import Path
from typing import cast

import pytest

from catalog.core.zone import Node
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import (
    OPERATIONS_MAX,
    Compare,
    CompareOp,
    Delete,
    Get,
    Put,
    Txn,
    TxnResult,
    absent,
    delete_below,
    not_written_below,
    present,
    unchanged,
)
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.nodes.node_context import NodeStart
from rebalance.nodes.registration import Registration
from rebalance.ports.metastore import (
    HistoryGoneError,
    LeaseLostError,
    Metastore,
    MetastoreUnavailableError,
    Newest,
    WatchBatch,
    WatchReset,
)
from tests.fixtures.detour import detour
from tests.fixtures.etcd_cluster import EtcdCluster
from tests.fixtures.etcd_server import CALL_S, Etcd, EtcdServer
from tests.fixtures.ports import free_port

WAIT_S = 60.0
SHORT_LEASE_S = 5
"""Less than gRPC takes to give up two connections on which nothing comes."""


async def put(store: Metastore, key: str, value: bytes, lease: int = 0) -> int:
    return (await store.commit(Txn((), (Put(key, value, lease),)))).revision


async def test_reads_what_was_written(store: Metastore, keyspace: Keyspace) -> None:
    key = f"{keyspace.prefix}a"
    assert await store.get(key) is None
    first = await put(store, key, b"1")
    second = await put(store, key, b"2")
    found = await store.get(key)
    assert found is not None
    assert (found.value, found.create_revision, found.mod_revision, found.version) == (b"2", first, second, 2)


@pytest.mark.row("I3-016")
async def test_guards_decide_and_leave_no_trace(store: Metastore, keyspace: Keyspace) -> None:
    """I3-016: guard, write and trigger are one transaction; a failed guard writes nothing."""
    a, b = f"{keyspace.prefix}a", f"{keyspace.prefix}b"
    assert (await store.commit(Txn((absent(a),), (Put(a, b"1"), Put(b, b"1"))))).succeeded
    assert not (await store.commit(Txn((absent(a),), (Put(a, b"2"), Put(b, b"2"))))).succeeded
    snapshot = await store.range(keyspace.prefix)
    assert [item.value for item in snapshot.items] == [b"1", b"1"]
    revision = snapshot.items[0].mod_revision
    assert (await store.commit(Txn((unchanged(a, revision),), (Delete(b),)))).succeeded
    assert await store.get(b) is None


@pytest.mark.parametrize(
    ("op", "ahead", "holds"),
    [
        (CompareOp.EQUAL, 0, True),
        (CompareOp.EQUAL, 1, False),
        (CompareOp.LESS, 1, True),
        (CompareOp.GREATER, 0, False),
    ],
)
async def test_compares_revisions(
    store: Metastore, keyspace: Keyspace, op: CompareOp, ahead: int, holds: bool
) -> None:
    key = f"{keyspace.prefix}a"
    revision = await put(store, key, b"5")
    compare = Compare(key, op, revision + ahead)
    assert (await store.commit(Txn((compare,), ()))).succeeded is holds


async def test_an_absent_key_is_before_any_revision(store: Metastore, keyspace: Keyspace) -> None:
    key = f"{keyspace.prefix}a"
    assert (await store.commit(Txn((absent(key), Compare(key, CompareOp.LESS, 1)), ()))).succeeded
    assert not (await store.commit(Txn((present(key),), ()))).succeeded


async def test_a_compare_below_a_prefix_holds_for_every_key(store: Metastore, keyspace: Keyspace) -> None:
    """One guard for a partition's keys: keys beside the prefix do not count, and none is as an absent one."""
    below, beside = f"{keyspace.prefix}p/assignments/", f"{keyspace.prefix}p/assignments0"
    read = await put(store, beside, b"1")

    async def holds(compare: Compare) -> bool:
        return (await store.commit(Txn((compare,), ()))).succeeded

    assert await holds(not_written_below(below, read))
    assert not await holds(Compare(below, CompareOp.GREATER, 0, below=True)), "there is none"
    first = await put(store, f"{below}a", b"1")
    assert not await holds(not_written_below(below, read))
    assert await holds(not_written_below(below, first))
    await put(store, beside, b"2")
    await put(store, f"{keyspace.prefix}p/assignments", b"2")
    assert await holds(not_written_below(below, first))
    second = await put(store, f"{below}b", b"2")
    assert not await holds(not_written_below(below, first))
    assert await holds(not_written_below(below, second))
    assert not await holds(Compare(below, CompareOp.EQUAL, second, below=True)), "a was written before"
    assert not await holds(Compare(below, CompareOp.GREATER, first, below=True)), (
        "a was written at this revision"
    )
    await store.commit(Txn((), (Delete(f"{below}b"),)))
    assert await holds(not_written_below(below, first)), "a deletion is not seen"


@pytest.mark.row("I3-015")
async def test_nested_transactions_succeed_and_fail_on_their_own(store: Metastore, keyspace: Keyspace) -> None:
    """I3-015: many partitions in one request; a failure in one does not stop the others."""
    a, b = f"{keyspace.prefix}a", f"{keyspace.prefix}b"
    await put(store, a, b"old")
    inner = tuple(Txn((absent(key),), (Put(key, b"new"),), (Get(key),)) for key in (a, b))
    result = await store.commit(Txn((), (*inner, Get(a), Get(b))))
    first, second, *_ = result.responses
    assert isinstance(first, TxnResult)
    assert isinstance(second, TxnResult)
    assert (first.succeeded, second.succeeded) == (False, True)
    assert isinstance(first.responses[0], tuple)
    assert first.responses[0][0].value == b"old"
    assert [item and item.value for item in map(result.only, (2, 3))] == [b"old", b"new"]
    assert second.revision == result.revision


async def test_refuses_a_transaction_that_is_too_large(store: Metastore, keyspace: Keyspace) -> None:
    puts = tuple(Put(f"{keyspace.prefix}{n}", b"") for n in range(OPERATIONS_MAX + 1))
    with pytest.raises(ValueError, match="129 operations"):
        await store.commit(Txn((), puts))
    assert (await store.commit(Txn((), puts[:-1]))).succeeded


async def test_range_is_one_revision_in_key_order(store: Metastore, keyspace: Keyspace) -> None:
    for name in ("b", "a", "c"):
        await put(store, f"{keyspace.prefix}{name}", name.encode())
    snapshot = await store.range(keyspace.prefix)
    assert [item.value for item in snapshot.items] == [b"a", b"b", b"c"]
    await store.commit(Txn((), (delete_below(keyspace.prefix),)))
    assert (await store.range(keyspace.prefix)).items == ()


async def test_the_newest_of_a_range_tells_of_every_change(store: Metastore, keyspace: Keyspace) -> None:
    """A put, a put of the same value, a delete; not what is beside the range."""
    below = f"{keyspace.prefix}zone/"
    assert await store.newest(below) == Newest(0, 0)
    for name in ("a", "b", "a"):
        await put(store, f"{below}{name}", b"1")
    again = await store.get(f"{below}a")
    assert again is not None
    assert await store.newest(below) == Newest(2, again.mod_revision)
    await put(store, f"{keyspace.prefix}zone0", b"1")
    assert await store.newest(below) == Newest(2, again.mod_revision)
    await store.commit(Txn((), (Delete(f"{below}b"),)))
    assert await store.newest(below) == Newest(1, again.mod_revision)


async def test_watch_begins_with_what_is_there_and_brings_every_change(
    store: Metastore, keyspace: Keyspace
) -> None:
    a, b = f"{keyspace.prefix}a", f"{keyspace.prefix}b"
    await put(store, a, b"1")
    watching = cast(AsyncGenerator[WatchReset | WatchBatch, None], store.watch(keyspace.prefix))
    async with asyncio.timeout(WAIT_S), aclosing(watching) as changes:
        first = await anext(changes)
        assert isinstance(first, WatchReset)
        assert [item.key for item in first.snapshot.items] == [a]
        await store.commit(Txn((), (Put(a, b"2"), Put(b, b"2"))))
        batch = await anext(changes)
        assert not isinstance(batch, WatchReset)
        assert {event.key for event in batch.events} == {a, b}
        await store.commit(Txn((), (Delete(a),)))
        batch = await anext(changes)
        assert not isinstance(batch, WatchReset)
        assert [(event.key, event.current) for event in batch.events] == [(a, None)]


async def test_lease_takes_its_keys_along(store: Metastore, keyspace: Keyspace) -> None:
    lease = await store.grant_lease(30)
    key = f"{keyspace.prefix}a"
    await put(store, key, b"1", lease)
    await store.keep_lease(lease, WAIT_S)
    await store.revoke_lease(lease)
    assert await store.get(key) is None
    with pytest.raises(LeaseLostError):
        await store.keep_lease(lease, WAIT_S)
    with pytest.raises(LeaseLostError):
        await put(store, key, b"1", lease)
    await store.revoke_lease(lease)


async def test_lease_ends_when_nobody_renews_it(store: Metastore, keyspace: Keyspace) -> None:
    key = f"{keyspace.prefix}a"
    async with asyncio.timeout(WAIT_S):
        written = False
        while not written:
            # On a busy machine it may end before it is used.
            with suppress(LeaseLostError):
                await put(store, key, b"1", await store.grant_lease(1))
                written = True
        while await store.get(key) is not None:
            await asyncio.sleep(0.1)


async def test_mirror_follows(store: Metastore, keyspace: Keyspace) -> None:
    mirror = KeyspaceMirror(store, keyspace.prefix)
    seen: list[frozenset[str]] = []
    mirror.listen(seen.append)
    a, b = f"{keyspace.prefix}a/1", f"{keyspace.prefix}b/1"
    await put(store, a, b"1")
    running = asyncio.create_task(mirror.run())
    try:
        await loaded(mirror)
        assert mirror.value(a) == b"1"
        await put(store, b, b"2")
        assert await mirror.wait_until(lambda: mirror.value(b) == b"2", WAIT_S)
        assert [item.key for item in mirror.below(f"{keyspace.prefix}a/")] == [a]
        await store.commit(Txn((), (Delete(a),)))
        assert await mirror.wait_until(lambda: mirror.get(a) is None, WAIT_S)
        assert list(mirror.below(f"{keyspace.prefix}a/")) == []
        assert seen == [frozenset((a,)), frozenset((b,)), frozenset((a,))]
        assert not await mirror.wait_until(lambda: False, 0.05)
    finally:
        running.cancel()


async def loaded(mirror: KeyspaceMirror) -> None:
    async with asyncio.timeout(WAIT_S):
        await mirror.loaded()


async def put_in_the_end(store: Metastore, key: str, value: bytes) -> None:
    """A channel that failed to connect waits a moment before it tries again."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await put(store, key, value)
                return
            except MetastoreUnavailableError:
                await asyncio.sleep(0.1)


async def test_watch_survives_the_server(own_etcd: EtcdServer, keyspace: Keyspace) -> None:
    """A killed etcd loses nothing for a watch, and calls in between say that it is not reachable."""
    store, hasty = (EtcdMetastore([own_etcd.endpoint], timeout_s) for timeout_s in (CALL_S, 1.0))
    mirror = KeyspaceMirror(store, keyspace.prefix)
    running = asyncio.create_task(mirror.run())
    try:
        await put(store, f"{keyspace.prefix}a", b"1")
        await loaded(mirror)
        own_etcd.kill()
        with pytest.raises(MetastoreUnavailableError) as unavailable:
            await put(store, f"{keyspace.prefix}a", b"2")
        assert unavailable.value.outcome_unknown
        with pytest.raises(MetastoreUnavailableError):
            await hasty.get(f"{keyspace.prefix}a")
        await asyncio.to_thread(own_etcd.restart)
        await put_in_the_end(store, f"{keyspace.prefix}b", b"3")
        assert await mirror.wait_until(lambda: mirror.value(f"{keyspace.prefix}b") == b"3", WAIT_S)
        assert mirror.value(f"{keyspace.prefix}a") == b"1"
    finally:
        running.cancel()
        await store.close()
        await hasty.close()


async def test_range_pages_through_many_keys(metastore: EtcdMetastore, keyspace: Keyspace) -> None:
    """More keys than a page: all of them, in order, at one revision."""
    for start in range(0, 6_000, 120):
        puts = tuple(Put(f"{keyspace.prefix}{n:05d}", b"x") for n in range(start, start + 120))
        await metastore.commit(Txn((), puts))
    snapshot = await metastore.range(keyspace.prefix)
    assert [item.key for item in snapshot.items] == [f"{keyspace.prefix}{n:05d}" for n in range(6_000)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    started = EtcdCluster(tmp_path)
    yield started
    started.stop()


@pytest.mark.row("I3-060")
async def test_calls_go_to_another_endpoint(cluster: EtcdCluster, keyspace: Keyspace) -> None:
    """I3-060: whichever member a client talks to is killed: it goes on with the next, also its watch. A
    transaction that was under way is reported as unknown, once, and not repeated."""
    store = EtcdMetastore(cluster.endpoints, CALL_S)
    mirror = KeyspaceMirror(store, keyspace.prefix)
    running = asyncio.create_task(mirror.run())
    try:
        lease = await store.grant_lease(300)
        await put(store, f"{keyspace.prefix}0", b"0", lease)
        for member in (0, 1):
            cluster.kill(member)
            assert await mirror.wait_until(lambda: mirror.is_loaded, WAIT_S)
            found = await store.get(f"{keyspace.prefix}0")
            assert found is not None
            assert found.lease == lease
            await store.keep_lease(lease, WAIT_S)
            await put_in_the_end(store, f"{keyspace.prefix}{member + 1}", b"x")
            key = f"{keyspace.prefix}{member + 1}"
            assert await mirror.wait_until(lambda key=key: mirror.value(key) == b"x", WAIT_S)
            cluster.start(member)
            await asyncio.to_thread(cluster.wait_for_leader)
        assert len(list(mirror.below(keyspace.prefix))) == 3
    finally:
        running.cancel()
        await store.close()


@pytest.mark.row("I3-060")
async def test_a_short_lease_is_renewed_though_two_endpoints_say_nothing(
    etcd_server: Etcd, keyspace: Keyspace
) -> None:
    """I3-060: all of them have their turn within the time of the lease, however much longer a call may take."""
    with ExitStack() as stack:
        port = int(etcd_server.endpoint.rsplit(":", 1)[1])
        ways = [stack.enter_context(detour(port)) for _ in range(2)]
        endpoints = [*(f"127.0.0.1:{way.port}" for way in ways), etcd_server.endpoint]
        store = EtcdMetastore(endpoints, 5 * SHORT_LEASE_S)
        try:
            lease = await store.grant_lease(SHORT_LEASE_S)
            key = f"{keyspace.prefix}a"
            await put(store, key, b"1", lease)
            assert all(member.is_up for member in await store.statuses())
            for way in ways:
                way.hold()
            await store.keep_lease(lease, SHORT_LEASE_S)
            found = await store.get(key)
            assert found is not None
            assert found.lease == lease
        finally:
            await store.close()


@pytest.mark.row("I3-060")
async def test_calls_that_fail_together_leave_an_endpoint_once(etcd_server: Etcd, keyspace: Keyspace) -> None:
    """I3-060: two calls at an endpoint where nobody answers do not bring each other back to it."""
    store = EtcdMetastore([f"127.0.0.1:{free_port()}", etcd_server.endpoint], CALL_S)
    try:
        calls = (put(store, f"{keyspace.prefix}{number}", b"x") for number in range(2))
        failed = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in failed] == [MetastoreUnavailableError] * 2
        assert await put(store, f"{keyspace.prefix}a", b"x") > 0
    finally:
        await store.close()


@pytest.mark.row("I3-060")
@pytest.mark.parametrize("of_leader", [0, 1], ids=["leader", "follower"])
async def test_a_lease_outlives_a_frozen_member(
    of_leader: int, cluster: EtcdCluster, keyspace: Keyspace, tmp_path: Path
) -> None:
    """I3-060: the member that a node talks to accepts and never answers. The others are asked in time: the node
    keeps its lease."""
    member = (await asyncio.to_thread(cluster.wait_for_leader) + of_leader) % 3
    # A third of the lease goes by before a renewal, and a third of the limit at the frozen member: the last
    # third is what a busy machine may take. All of the limit there would be too much.
    lease_s = 9
    own = EtcdMetastore(cluster.endpoints[member:] + cluster.endpoints[:member], timeout_s=lease_s)
    onlooker = EtcdMetastore(cluster.endpoints[:member] + cluster.endpoints[member + 1 :], CALL_S)
    entry = Registration(own, keyspace, NodeStart(Node("n1"), tmp_path / "n1", lease_s))
    await entry.register()
    keeping = asyncio.create_task(entry.keep())
    try:
        before = await onlooker.get(keyspace.node("n1"))
        cluster.freeze(member)
        await asyncio.sleep(lease_s + 4)
        assert before is not None
        assert await onlooker.get(keyspace.node("n1")) == before
    finally:
        keeping.cancel()
        await own.close()
        await onlooker.close()


async def test_etcd_is_read_as_it_was_until_it_is_compacted(own_etcd: EtcdServer) -> None:
    store = EtcdMetastore([own_etcd.endpoint], CALL_S)
    try:
        first = await put(store, "a/1", b"1")
        second = await put(store, "a/1", b"2")
        await put(store, "a/2", b"3")
        assert [item.value for item in (await store.range_at("a/", first)).items] == [b"1"]
        snapshot = await store.range_at("a/", second)
        assert (snapshot.revision, [item.value for item in snapshot.items]) == (second, [b"2"])
        own_etcd.compact(second)
        with pytest.raises(HistoryGoneError):
            await store.range_at("a/", first)
    finally:
        await store.close()
