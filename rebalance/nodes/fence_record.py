"""Published fence of a node: ``fences/<node>``, written with its registration and when limits change.

What counts on the node's silence waits as long as is written there. So a longer fence is used only after it
was published, and a shorter one is used first. The key is guarded by its own revision: a write whose answer was
lost may still come, and must not come after a later one.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import structlog

from rebalance.core.admission.limit_options import RESET_S
from rebalance.core.admission.move_admission import Limits
from rebalance.core.backoff import Backoff
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import Compare, Get, KeyValue, Put, Txn, unchanged
from rebalance.core.topology.isolation import FenceRecord, fence_ms_of
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.nodes.node_fence import NodeFence
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

AGAIN = Backoff(0.2, 5.0)


@dataclass(frozen=True, slots=True)
class FenceDraft:
    """A part of a transaction. ``fence_ms``: what it publishes. ``number``: of two drafts that were both done
    the higher one was done later, because the guard of each is the key as the other has left it."""

    fence_ms: int
    number: int = 0
    guards: tuple[Compare, ...] = ()
    puts: tuple[Put, ...] = ()


class FencePublisher:
    """Publisher for one node and one start (``incarnation``) of it."""

    def __init__(
        self, node: str, incarnation: str, metastore: Metastore, keyspace: Keyspace, fence: NodeFence
    ) -> None:
        self._incarnation = incarnation
        self._metastore = metastore
        self._keyspace = keyspace
        self._node_key = keyspace.node(node)
        self._key = keyspace.fence(node)
        self._fence = fence
        self._target_ms = fence_ms_of(RESET_S, fence.lease_s)
        self._published_ms: int | None = None
        self._drafts = 0
        self._last_published = 0
        self._due = asyncio.Event()
        self._unreadable = UnreadableLog()
        self._random = random.Random(incarnation)

    def on_limits(self, item: KeyValue | None) -> None:
        """Take limits as they were read last. Limits that cannot be read change nothing."""
        limits = read(item, Limits.decode)
        if isinstance(limits, Unreadable):
            return
        reset_s = limits.ha_reset_s if limits is not None and limits.ha_reset_s is not None else RESET_S
        self._target_ms = fence_ms_of(reset_s, self._fence.lease_s)
        if not self._is_settled:
            self._due.set()

    @property
    def _is_settled(self) -> bool:
        return self._published_ms is None or self._published_ms == self._target_ms == self._fence.fence_ms

    async def draft(self) -> FenceDraft:
        """Return what the registration's transaction is to hold besides the node's own entry: of the limits as
        they are now. Nothing where the key cannot be read: a newer build has written it, and it stays. Raises
        MetastoreError."""
        result = await self._metastore.commit(Txn((), (Get(self._keyspace.limits), Get(self._key))))
        self.on_limits(result.only(0))
        return self._draft(result.only(1), self._target_ms)

    def published(self, draft: FenceDraft) -> None:
        """The transaction with ``draft`` was done. An answer that comes after a later draft's says nothing of
        what is published now."""
        if draft.puts and draft.number > self._last_published:
            self._last_published = draft.number
            self._published_ms = draft.fence_ms
            self._fence.keep_to(draft.fence_ms)
            if not self._is_settled:
                self._due.set()
        elif not draft.puts:
            # The key cannot be read: it is published once somebody has mended it.
            self._published_ms = 0
            self._due.set()

    async def run(self) -> None:
        """Publishes each change of the limits, until it is cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            again = AGAIN
            while not self._is_settled:
                try:
                    is_done = await self._publish(self._target_ms)
                except MetastoreError as error:
                    log.info("the fence is not published", error=str(error))
                    is_done = False
                if not is_done:
                    again = again.failed()
                    await asyncio.sleep(again.delay_s(self._random.random()))

    async def _publish(self, fence_ms: int) -> bool:
        """Publish a fence; False where the node's entry or the key is not as it should be, or changed
        meanwhile."""
        result = await self._metastore.commit(Txn((), (Get(self._node_key), Get(self._key))))
        own = read(result.only(0), NodeRecord.decode)
        if own is None or isinstance(own, Unreadable) or own.incarnation != self._incarnation:
            return False
        draft, item = self._draft(result.only(1), fence_ms), result.only(0)
        if not draft.puts or item is None:
            return False
        guards = (unchanged(self._node_key, item.mod_revision), *draft.guards)
        done = await self._metastore.commit(Txn(guards, draft.puts))
        if done.succeeded:
            self.published(draft)
        return done.succeeded

    def _draft(self, item: KeyValue | None, fence_ms: int) -> FenceDraft:
        """A shorter fence is in use from here on."""
        if fence_ms < self._fence.fence_ms:
            self._fence.keep_to(fence_ms)
        before = read(item, FenceRecord.decode)
        if isinstance(before, Unreadable):
            self._unreadable.waits("fence", before)
            return FenceDraft(fence_ms)
        self._unreadable.goes_on("fence")
        record = FenceRecord(self._incarnation, fence_ms, unknown=before.unknown if before else None)
        guard = unchanged(self._key, item.mod_revision if item is not None else 0)
        self._drafts += 1
        return FenceDraft(fence_ms, self._drafts, (guard,), (Put(self._key, record.encode()),))
