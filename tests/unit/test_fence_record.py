"""Fence record that a node publishes, where answers overtake each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from catalog.core.zone import Node
from rebalance.core.admission.move_admission import Limits
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.core.topology.fencing import FenceRecord
from rebalance.nodes.node_fence import FenceDraft, FencePublisher, NodeFence
from simulator.control.memory_metastore import MemoryMetastore

KEYSPACE = Keyspace("t/")
LEASE_S = 2


class NoMembers:
    """Killer without a member to kill."""

    def listen(self, killed: Callable[[tuple[int, ...]], None]) -> None: ...

    def until(self, deadline_ns: int) -> None: ...

    async def guard(self, pid: int) -> None: ...

    def unguard(self, pid: int) -> None: ...

    def kill(self) -> None: ...

    async def run(self) -> None: ...

    async def close(self) -> None: ...


async def test_a_late_answer_does_not_lengthen_the_fence_again() -> None:
    """A longer fence is written; before its answer is there the limits go back and a shorter one is written."""
    store, fence = MemoryMetastore(), NodeFence(LEASE_S, NoMembers(), lambda: 0)
    publisher = FencePublisher("n1", "first", store, KEYSPACE, fence)

    async def written(reset_s: int) -> FenceDraft:
        limits = Put(KEYSPACE.limits, Limits(ha_reset_s=reset_s).encode())
        entry = Put(KEYSPACE.node("n1"), NodeRecord(Node("n1"), "first").encode())
        await store.commit(Txn((), (limits, entry)))
        draft = await publisher.draft()
        assert (await store.commit(Txn(draft.guards, draft.puts))).succeeded
        return draft

    publisher.published(await written(6))
    long = await written(20)
    short = await written(6)
    publisher.published(short)
    publisher.published(long)
    item = await store.get(KEYSPACE.fence("n1"))
    assert item is not None
    assert FenceRecord.decode(item.value).fence_ms == fence.fence_ms == LEASE_S * 1_000
    publisher.published(await written(20))
    assert fence.fence_ms == 16_000


async def test_a_record_that_could_not_be_read_is_published_once_it_is_gone() -> None:
    """The node need not be started again for it."""
    store, fence = MemoryMetastore(), NodeFence(LEASE_S, NoMembers(), lambda: 0)
    publisher = FencePublisher("n1", "first", store, KEYSPACE, fence)
    entry = Put(KEYSPACE.node("n1"), NodeRecord(Node("n1"), "first").encode())
    await store.commit(Txn((), (entry, Put(KEYSPACE.fence("n1"), b"garbage"))))
    draft = await publisher.draft()
    assert not draft.puts
    publisher.published(draft)
    task = asyncio.create_task(publisher.run())
    try:
        await store.commit(Txn((), (Delete(KEYSPACE.fence("n1")),)))
        async with asyncio.timeout(60):
            while (item := await store.get(KEYSPACE.fence("n1"))) is None:
                await asyncio.sleep(0.05)
        assert FenceRecord.decode(item.value).incarnation == "first"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
