"""The fence of one node: members of HIGH_AVAILABILITY zones run only while the metastore has heard the node.

``NodeFence`` holds the time (``FenceTime``), tells the killer its deadline, and says which members may start.
A zone is left alone once it is known to be of STRONG_CONSISTENCY; one whose mode was never read counts as the
other kind. Protocol, and what is evidence: ``rebalance/tech-notes/isolation.md``.

``FencePublisher`` writes its length to ``fences/<node>``, with the node's registration and when limits
change. What counts on the node's silence waits as long as is written there. So a longer fence is used only
after it was published, and a shorter one is used first. The key is guarded by its own revision: a write whose
answer was lost may still come, and must not come after a later one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Container
from contextlib import suppress
from dataclasses import dataclass

import structlog

from catalog.core.zone import ZoneId
from rebalance.core.admission.limit_options import RESET_S
from rebalance.core.admission.move_admission import Limits
from rebalance.core.backoff import Backoff
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import Compare, KeyValue, Put, Txn, as_read
from rebalance.core.topology.fencing import SECOND, FenceRecord, FenceTime, fence_ms_of
from rebalance.metastore.guarded_update import read_together
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.fence import MajorityProbe, MemberKiller, WatchLostError
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

LOOK_S = 0.25
REMEMBER_S = 1.0
CLEARANCE_S = 5.0

UNHEARD = Cause.FENCED.text("the metastore has not confirmed this node in time")
UNREGISTERED = Cause.FENCED.text("the metastore has not confirmed this node yet")
UNCLEAR = Cause.FENCED.text("the metastore has not told yet whether the group was founded anew")

Clearance = Callable[[PartitionId, int], Awaitable[str]]
"""Return why a member with data of this generation must not run, read from the metastore itself; empty: it may.
May raise MetastoreError."""


async def cleared(_partition: PartitionId, _generation: int) -> str:
    return ""


@dataclass(eq=False)
class NodeFence:
    """A ``MemberGuard``. ``clock``: nanoseconds that also count while the machine is suspended; ``killer``
    keeps deadlines of the same clock. ``probe`` None: only confirmations count. Belongs to one event loop."""

    lease_s: int
    killer: MemberKiller
    clock: Callable[[], int]
    probe: MajorityProbe | None = None

    def __post_init__(self) -> None:
        lease_ns = self.lease_s * SECOND
        self._time = FenceTime(lease_ns, lease_ns).kept_to(fence_ms_of(RESET_S, self.lease_s))
        self._is_over = True
        self._spans = 1
        """Grows when a span of time in which the node is heard ends: what was known then counts no more."""
        self._clear: dict[PartitionId, int] = {}
        """Partition -> the span that its group was asked after in."""
        self._guarded: dict[int, tuple[PartitionId, int]] = {}
        """Process -> its partition, and the span that it began in."""
        self._strong: Container[ZoneId] = ()
        self._clearance: Clearance = cleared
        self._on_change: Callable[[], None] = lambda: None
        self._remembered_ns: int | None = None
        self._killed: set[int] = set()
        self.killer.listen(self._note_killed)

    def open(
        self, strong: Container[ZoneId], clearance: Clearance, on_change: Callable[[], None] = lambda: None
    ) -> None:
        """``strong``: zones that are known to be of STRONG_CONSISTENCY. ``on_change``: the node was fenced, or
        is heard again."""
        self._strong, self._clearance, self._on_change = strong, clearance, on_change

    @property
    def is_fenced(self) -> bool:
        self._look()
        return self._is_over

    @property
    def fence_ms(self) -> int:
        """Return the fence that the node keeps to now, in milliseconds."""
        return self._time.fence_ns // 1_000_000

    def now_ns(self) -> int:
        return self.clock()

    def keep_to(self, fence_ms: int) -> None:
        if fence_ms != self.fence_ms:
            log.info("the fence has changed", fence_ms=fence_ms, before_ms=self.fence_ms)
            self._set(self._time.kept_to(fence_ms))

    def confirmed(self, sent_ns: int) -> None:
        """The metastore has shown the node's own entry, in answer to what was sent at ``sent_ns``."""
        self._look()
        self._set(self._time.confirmed(sent_ns))
        if self._is_over and not self._time.is_over(self.clock()):
            self._is_over = False
            log.info("the node is heard by the metastore", fence_ms=self.fence_ms, span=self._spans)
            self._on_change()

    def no_majority(self, sent_ns: int, answered_ns: int) -> None:
        """Note that the metastore has no majority, so no one can end the node's lease now:
        ``FenceTime.no_majority``."""
        self._look()
        self._set(self._time.no_majority(sent_ns, answered_ns))

    def zones_changed(self) -> None:
        """More zones may be known to be of STRONG_CONSISTENCY."""
        for pid, (partition, _) in tuple(self._guarded.items()):
            if partition.zone_id in self._strong:
                del self._guarded[pid]
                self.killer.unguard(pid)

    async def refusal(self, partition: PartitionId, generation: int) -> str:
        if partition.zone_id in self._strong:
            return ""
        if self.is_fenced:
            return UNHEARD if self._time.mark_ns is not None else UNREGISTERED
        span = self._spans
        if self._clear.get(partition) == span:
            return ""
        try:
            async with asyncio.timeout(CLEARANCE_S):
                reason = await self._clearance(partition, generation)
        except (TimeoutError, MetastoreError):
            return UNCLEAR
        if self.is_fenced or self._spans != span:
            return UNHEARD
        if not reason:
            self._clear[partition] = span
        return reason

    async def guard(self, partition: PartitionId, pid: int) -> None:
        if partition.zone_id not in self._strong:
            if self.is_fenced or self._clear.get(partition) != self._spans:
                raise WatchLostError(UNHEARD)
            self._guarded[pid] = partition, self._spans
            try:
                await self.killer.guard(pid)
            except BaseException:
                self._guarded.pop(pid, None)
                raise
            # It may have become known meanwhile, when there was nothing to take back yet.
            self.zones_changed()

    def ended(self, pid: int) -> str:
        self._look()
        _, span = self._guarded.pop(pid, (None, self._spans))
        self.killer.unguard(pid)
        was_killed = pid in self._killed
        self._killed.discard(pid)
        return UNHEARD if was_killed or span < self._spans else ""

    async def run(self) -> None:
        """Keeps the killer and looks at the time, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.killer.run())
            tasks.create_task(self._keep_looking())
            if self.probe is not None:
                tasks.create_task(self._keep_asking(self.probe))

    async def close(self) -> None:
        """Close, after the members were stopped."""
        await self.killer.close()

    def _set(self, time: FenceTime) -> None:
        if time != self._time:
            # The killer first: if this process is stopped between the two, its deadline is the earlier one.
            self.killer.until(time.deadline_ns)
            self._time = time

    def _look(self) -> None:
        if not self._is_over and self._time.is_over(self.clock()):
            self._is_over = True
            self._spans += 1
            log.error("the node is fenced", unheard_ms=self.fence_ms, members=len(self._guarded))
            # A killer that is late may hear of the next deadline before it has kept this one.
            self.killer.kill()
            self._on_change()

    def _note_killed(self, pids: tuple[int, ...]) -> None:
        members = [pid for pid in pids if pid in self._guarded]
        self._killed.update(members)
        if members:
            log.error("members were killed at the node's deadline", members=len(members))
            self._on_change()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._look()

    async def _keep_asking(self, probe: MajorityProbe) -> None:
        """Ask for the metastore's majority while confirmations are late, else for its members."""
        lease_ns = self._time.lease_ns
        quiet_ns, period_s = lease_ns // 3 + lease_ns // 10, min(0.5, self.lease_s / 10)
        while True:
            await asyncio.sleep(period_s)
            sent_ns, confirmed_ns = self.clock(), self._time.confirmed_ns
            if confirmed_ns is None:
                continue
            if sent_ns - confirmed_ns > quiet_ns:
                if await probe.no_majority():
                    self.no_majority(sent_ns, self.clock())
            elif confirmed_ns != self._remembered_ns:
                with suppress(TimeoutError, MetastoreError):
                    async with asyncio.timeout(REMEMBER_S):
                        await probe.remember()
                    self._remembered_ns = confirmed_ns


AGAIN = Backoff(0.2, 5.0)


@dataclass(frozen=True, slots=True)
class FenceDraft:
    """A part of a transaction. ``fence_ms``: what it publishes. ``number``: of two drafts that were both done
    the higher one was done later, because the guard of each is the key as the other has left it."""

    fence_ms: int
    number: int = 0
    guards: tuple[Compare, ...] = ()
    puts: tuple[Put, ...] = ()


@dataclass(eq=False)
class FencePublisher:
    """Publisher for one node and one start (``incarnation``) of it."""

    node: str
    incarnation: str
    metastore: Metastore
    keyspace: Keyspace
    fence: NodeFence

    def __post_init__(self) -> None:
        self._node_key = self.keyspace.node(self.node)
        self._key = self.keyspace.fence(self.node)
        self._target_ms = fence_ms_of(RESET_S, self.fence.lease_s)
        self._published_ms: int | None = None
        self._drafts = 0
        self._last_published = 0
        self._due = asyncio.Event()
        self._unreadable = UnreadableLog()
        self._random = random.Random(self.incarnation)

    def on_limits(self, item: KeyValue | None) -> None:
        """Take limits as they were read last. Limits that cannot be read change nothing."""
        limits = read(item, Limits.decode)
        if isinstance(limits, Unreadable):
            return
        reset_s = limits.ha_reset_s if limits is not None and limits.ha_reset_s is not None else RESET_S
        self._target_ms = fence_ms_of(reset_s, self.fence.lease_s)
        if not self._is_settled:
            self._due.set()

    @property
    def _is_settled(self) -> bool:
        return self._published_ms is None or self._published_ms == self._target_ms == self.fence.fence_ms

    async def draft(self) -> FenceDraft:
        """Return what the registration's transaction is to hold besides the node's own entry: of the limits as
        they are now. Nothing where the key cannot be read: a newer build has written it, and it stays. Raises
        MetastoreError."""
        (limits, item), _ = await read_together(self.metastore, self.keyspace.limits, self._key)
        self.on_limits(limits)
        return self._draft(item, self._target_ms)

    def published(self, draft: FenceDraft) -> None:
        """The transaction with ``draft`` was done. An answer that comes after a later draft's says nothing of
        what is published now."""
        if draft.puts and draft.number > self._last_published:
            self._last_published = draft.number
            self._published_ms = draft.fence_ms
            self.fence.keep_to(draft.fence_ms)
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
        (item, fence), _ = await read_together(self.metastore, self._node_key, self._key)
        own = read(item, NodeRecord.decode)
        if not isinstance(own, NodeRecord) or own.incarnation != self.incarnation:
            return False
        draft = self._draft(fence, fence_ms)
        if not draft.puts:
            return False
        guards = (as_read(self._node_key, item), *draft.guards)
        done = await self.metastore.commit(Txn(guards, draft.puts))
        if done.succeeded:
            self.published(draft)
        return done.succeeded

    def _draft(self, item: KeyValue | None, fence_ms: int) -> FenceDraft:
        """A shorter fence is in use from here on."""
        if fence_ms < self.fence.fence_ms:
            self.fence.keep_to(fence_ms)
        before = self._unreadable.read("fence", item, FenceRecord.decode)
        if isinstance(before, Unreadable):
            return FenceDraft(fence_ms)
        record = FenceRecord(self.incarnation, fence_ms, unknown=before.unknown if before else None)
        guard = as_read(self._key, item)
        self._drafts += 1
        return FenceDraft(fence_ms, self._drafts, (guard,), (Put(self._key, record.encode()),))
