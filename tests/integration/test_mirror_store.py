"""A mirror's store alone: each revision is applied once and in its place, whatever is sent to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from aetcd import rpc

from rebalance.core.moves.source_revisions import RevisionChange, SourceRevision
from rebalance.groups.calls.data_client import Connections, PartitionClient
from rebalance.groups.calls.etcd_api import CallFailedError
from rebalance.groups.copies.mirror_store import (
    CopyUselessError,
    MirrorStore,
    ProposalsFailedError,
    RaftProposals,
)
from rebalance.ports.groups import MemberEndpoints
from tests.fixtures.group_hosts import P0
from tests.fixtures.mirror_process import GROUP
from tests.fixtures.mirror_rig import MirrorRig


@dataclass
class Standing:
    """Store of a mirror that follows no source, at ``revision``."""

    rig: MirrorRig
    store: MirrorStore
    endpoints: MemberEndpoints
    revision: int
    others: list[MirrorStore] = field(default_factory=list)

    def next(self, count: int, value: bytes = b"v") -> list[SourceRevision]:
        """Revisions that follow the store's first one: a key is put, and every third time deleted."""
        numbers = range(self.revision + 1, self.revision + 1 + count)
        return [
            SourceRevision(n, (RevisionChange(b"d/%d" % (n % 7), None if n % 3 == 0 else value),))
            for n in numbers
        ]

    async def another(self, *, prepared: bool = True) -> MirrorStore:
        """Another user of the same store, who knows where it stands now."""
        store = MirrorStore(self.endpoints, copy_of(self.rig))
        self.others.append(store)
        if prepared:
            await store.prepare()
        await store.position()
        return store

    async def applied(self) -> int:
        return (await self.store.position()).revision


def copy_of(rig: MirrorRig) -> str:
    return str(json.loads((rig.directory / "reservation.json").read_text())["copy"])


@pytest.fixture
async def standing(tmp_path: Path) -> AsyncIterator[Standing]:
    rig = MirrorRig(tmp_path, "a")
    await rig.hosts.found(P0, "a")
    await rig.follow("a")
    await rig.put("a", b"d/0", b"0")
    revision = await rig.caught_up("a")
    await rig.mirrors.follow(P0, GROUP, ())
    await rig.until(lambda found: found.source == "")
    held = json.loads((rig.directory / "reservation.json").read_text())
    urls = (f"http://{held['host']}:{held[name]}" for name in ("peer_port", "client_port"))
    endpoints = MemberEndpoints(*urls)
    store = MirrorStore(endpoints, copy_of(rig))
    await store.prepare()
    found = Standing(rig, store, endpoints, revision)
    assert await found.applied() == revision
    yield found
    for each in (store, *found.others):
        await each.close()
    await rig.close()


async def test_a_batch_is_one_revision_each(standing: Standing) -> None:
    """Hundreds in one request, deletes of keys that are not there included."""
    batch = standing.next(500)
    await standing.store.apply(batch)
    assert await standing.applied() == batch[-1].revision
    assert await standing.store.holds(batch[-1])
    url = standing.endpoints.client_url
    for each in batch[::50]:
        contents = await standing.rig.contents(url, each.revision)
        for change in each.changes:
            found = contents.get(change.key)
            assert (found and (found[0], found[2])) == (change.value and (change.value, each.revision))


async def test_a_repeat_changes_nothing(standing: Standing) -> None:
    """Requests of users who do not know how far the store is, at once and one by one: it stands still."""
    batch = standing.next(40)
    late = [await standing.another(), await standing.another(prepared=False)]
    await standing.store.apply(batch[:20])
    halfway = await standing.another()
    await standing.store.apply(batch[20:])
    for store, again in (
        (late[0], batch),
        (late[0], batch[:1]),
        (late[1], batch[:20]),
        (halfway, batch[20:30]),
    ):
        with pytest.raises(CallFailedError):
            await store.apply(again)
        assert await standing.applied() == batch[-1].revision
    assert await standing.store.holds(batch[-1])


async def test_two_followers_of_one_store_cannot_repeat_twice(standing: Standing) -> None:
    """Apply each revision once with several followers of one store, as when the requests of a follower that is
    gone arrive late."""
    batch = standing.next(60)

    async def apply(store: MirrorStore) -> None:
        while lacking := batch[(await store.position()).revision - standing.revision :]:
            with contextlib.suppress(CallFailedError):
                await store.apply(lacking[:6])

    await asyncio.gather(*[apply(await standing.another()) for _ in range(3)])
    assert await standing.applied() == batch[-1].revision
    for each in batch:
        contents = await standing.rig.contents(standing.endpoints.client_url, each.revision)
        assert max(found[2] for found in contents.values()) <= each.revision
        assert (each.changes[0].key in contents) == (each.changes[0].value is not None)


async def test_a_store_that_takes_no_proposals_is_fed_one_by_one(standing: Standing) -> None:
    """The peer port refuses what is not of its own group."""
    store = await standing.another(prepared=False)
    batch = standing.next(30)
    await store.apply(batch)
    assert await standing.applied() == batch[-1].revision
    answer = httpx.get(f"{standing.endpoints.peer_url}/members", trust_env=False, timeout=30)
    another_cluster = int(answer.headers["X-Etcd-Cluster-Id"], 16) ^ 1
    for url, cluster, complaint in (
        (standing.endpoints.peer_url, another_cluster, "HTTP 412"),
        ("http://127.0.0.1:9", 1, "ConnectError"),
    ):
        proposals = RaftProposals(url, 1, cluster, "3.4.0")
        with pytest.raises(ProposalsFailedError, match=complaint):
            await proposals.send([b""])
        await proposals.close()


async def test_another_history_is_noticed(standing: Standing) -> None:
    """Notice another history where copy and group meet: another value, another key, a key that should be
    gone."""
    number = standing.revision + 1
    await standing.store.apply(
        [SourceRevision(number, (RevisionChange(b"d/0", None), RevisionChange(b"d/1", b"v")))]
    )
    for right in (
        (RevisionChange(b"d/1", b"v"),),
        (RevisionChange(b"d/0", None), RevisionChange(b"d/1", b"v")),
    ):
        assert await standing.store.holds(SourceRevision(number, right))
    for wrong in (
        RevisionChange(b"d/1", b"another"),
        RevisionChange(b"d/0", b"v"),
        RevisionChange(b"d/1", None),
        RevisionChange(b"g", None),
    ):
        assert not await standing.store.holds(SourceRevision(number, (wrong,)))
    assert not await standing.store.holds(SourceRevision(number + 1, (RevisionChange(b"d/1", b"v"),)))


async def test_a_foreign_write_is_noticed(standing: Standing) -> None:
    """Between two batches as well, and for good: what came after it is in the wrong place, and is never
    read."""
    await standing.store.apply(standing.next(2))
    client = PartitionClient(P0, connections := Connections())
    progress = await client.progress(standing.endpoints.client_url, 30.0, mirrored=True)
    assert progress.safe_revision == standing.revision + 2
    await standing.rig.kv(standing.endpoints.client_url).Put(rpc.PutRequest(key=b"d/foreign"))
    with pytest.raises(CopyUselessError, match="revision"):
        await standing.store.apply(standing.next(3)[-1:])
    with pytest.raises(CopyUselessError, match=f"{standing.revision + 3} was the last repeated"):
        await standing.store.position()
    progress = await client.progress(standing.endpoints.client_url, 30.0, mirrored=True)
    assert progress.safe_revision == 0
    await connections.close()
