"""The fence of one node: members of HIGH_AVAILABILITY zones run only while the metastore has heard the node.

It holds the time (``FenceTime``), tells the killer its deadline, and says which members may start. A zone is
left alone once it is known to be of STRONG_CONSISTENCY; one whose mode was never read counts as the other kind.
Protocol, and what is evidence: ``rebalance/tech-notes/isolation.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from contextlib import suppress

import structlog

from catalog.core.zone import ZoneId
from rebalance.core.admission.limit_options import RESET_S
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.topology.fence_time import SECOND, FenceTime
from rebalance.core.topology.isolation import fence_ms_of
from rebalance.ports.fence import MajorityProbe, MemberKiller, WatchLostError
from rebalance.ports.metastore import MetastoreError

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


class NodeFence:
    """A ``MemberGuard``. ``clock``: nanoseconds that also count while the machine is suspended; ``killer``
    keeps deadlines of the same clock. ``probe`` None: only confirmations count. Belongs to one event loop."""

    def __init__(
        self,
        lease_s: int,
        killer: MemberKiller,
        clock: Callable[[], int],
        probe: MajorityProbe | None = None,
    ) -> None:
        lease_ns = lease_s * SECOND
        self._lease_s = lease_s
        self._time = FenceTime(lease_ns, lease_ns).kept_to(fence_ms_of(RESET_S, lease_s))
        self._killer = killer
        self._clock = clock
        self._probe = probe
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
        killer.listen(self._note_killed)

    def open(
        self, strong: Container[ZoneId], clearance: Clearance, on_change: Callable[[], None] = lambda: None
    ) -> None:
        """``strong``: zones that are known to be of STRONG_CONSISTENCY. ``on_change``: the node was fenced, or
        is heard again."""
        self._strong, self._clearance, self._on_change = strong, clearance, on_change

    @property
    def lease_s(self) -> int:
        return self._lease_s

    @property
    def is_fenced(self) -> bool:
        self._look()
        return self._is_over

    @property
    def fence_ms(self) -> int:
        """Return the fence that the node keeps to now, in milliseconds."""
        return self._time.fence_ns // 1_000_000

    def now_ns(self) -> int:
        return self._clock()

    def keep_to(self, fence_ms: int) -> None:
        if fence_ms != self.fence_ms:
            log.info("the fence has changed", fence_ms=fence_ms, before_ms=self.fence_ms)
            self._set(self._time.kept_to(fence_ms))

    def confirmed(self, sent_ns: int) -> None:
        """The metastore has shown the node's own entry, in answer to what was sent at ``sent_ns``."""
        self._look()
        self._set(self._time.confirmed(sent_ns))
        if self._is_over and not self._time.is_over(self._clock()):
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
                self._killer.unguard(pid)

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
                await self._killer.guard(pid)
            except BaseException:
                self._guarded.pop(pid, None)
                raise
            # It may have become known meanwhile, when there was nothing to take back yet.
            self.zones_changed()

    def ended(self, pid: int) -> str:
        self._look()
        _, span = self._guarded.pop(pid, (None, self._spans))
        self._killer.unguard(pid)
        was_killed = pid in self._killed
        self._killed.discard(pid)
        return UNHEARD if was_killed or span < self._spans else ""

    async def run(self) -> None:
        """Keeps the killer and looks at the time, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._killer.run())
            tasks.create_task(self._keep_looking())
            if self._probe is not None:
                tasks.create_task(self._keep_asking(self._probe))

    async def close(self) -> None:
        """Close, after the members were stopped."""
        await self._killer.close()

    def _set(self, time: FenceTime) -> None:
        if time != self._time:
            # The killer first: if this process is stopped between the two, its deadline is the earlier one.
            self._killer.until(time.deadline_ns)
            self._time = time

    def _look(self) -> None:
        if not self._is_over and self._time.is_over(self._clock()):
            self._is_over = True
            self._spans += 1
            log.error("the node is fenced", unheard_ms=self.fence_ms, members=len(self._guarded))
            # A killer that is late may hear of the next deadline before it has kept this one.
            self._killer.kill()
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
        quiet_ns, period_s = lease_ns // 3 + lease_ns // 10, min(0.5, self._lease_s / 10)
        while True:
            await asyncio.sleep(period_s)
            sent_ns, confirmed_ns = self._clock(), self._time.confirmed_ns
            if confirmed_ns is None:
                continue
            if sent_ns - confirmed_ns > quiet_ns:
                if await probe.no_majority():
                    self.no_majority(sent_ns, self._clock())
            elif confirmed_ns != self._remembered_ns:
                with suppress(TimeoutError, MetastoreError):
                    async with asyncio.timeout(REMEMBER_S):
                        await probe.remember()
                    self._remembered_ns = confirmed_ns
