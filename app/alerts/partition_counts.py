"""How many partitions have no majority, which nodes are missed, whose disks are full: counted as keys change.

Partitions that look alike are counted together, so that a node that goes or comes is no walk over all of them.
What has changed is read in short slices: the event loop is never held up for longer than ``SLICE_S``. While
nothing changes a look costs nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from catalog.core.quorum import majority
from catalog.core.zone import ZoneId
from rebalance.core.assignments import Assignments, nodes_of
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.readable import Unreadable, read
from rebalance.core.records import MemberRecord, MemberState
from rebalance.metastore.mirror import KeyspaceMirror

SLICE_S = 0.003
PAUSE_S = 0.006
"""Between slices: a third of a core is used at most."""
DISK_FULL = "DISK_FULL"
"""First word of the reason of a member that ended for want of space."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """What partitions have in common. ``voters``: of stable. ``running``: nodes whose member runs, as they said
    last. ``assigned``: of stable and pending. ``full``: nodes whose member found no space."""

    zone_id: ZoneId
    voters: frozenset[str]
    running: frozenset[str]
    assigned: frozenset[str]
    full: frozenset[str]

    def lacks_majority(self, alive: Collection[str]) -> bool:
        living = sum(1 for node in self.voters if node in self.running and node in alive)
        return living < majority(len(self.voters))


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """By zone and by node."""

    without_majority: Counter[ZoneId] = field(default_factory=Counter)
    absent_nodes: Counter[str] = field(default_factory=Counter)
    full_disks: Counter[str] = field(default_factory=Counter)


class PartitionCounter:
    """Over a mirror of the whole keyspace. Partitions of groups only: store zones tell of theirs otherwise."""

    def __init__(self, mirror: KeyspaceMirror, keyspace: Keyspace) -> None:
        self._mirror = mirror
        self._keyspace = keyspace
        self._unread: deque[Iterator[str]] = deque()
        self._dirty: set[PartitionId] = set()
        self._likeness: dict[PartitionId, Likeness] = {}
        self._alike: Counter[Likeness] = Counter()
        self._counted: tuple[object, PartitionCounts] | None = None
        mirror.listen(self._on_change)

    async def counts(self, alive: Collection[str], drained: Collection[str]) -> PartitionCounts:
        """Of the mirror as it is now, or a little later. ``drained`` nodes are not missed."""
        await self._catch_up()
        basis = frozenset(alive), frozenset(drained)
        if self._counted is not None and self._counted[0] == basis:
            return self._counted[1]
        counts = PartitionCounts()
        begun_s = time.perf_counter()
        for likeness, number in tuple(self._alike.items()):
            if likeness.lacks_majority(alive):
                counts.without_majority[likeness.zone_id] += number
            for node in likeness.assigned:
                if node not in alive and node not in drained:
                    counts.absent_nodes[node] += number
            for node in likeness.full:
                counts.full_disks[node] += number
            begun_s = await _breathe(begun_s)
        self._counted = basis, counts
        return counts

    def _on_change(self, changed: frozenset[str]) -> None:
        self._unread.append(iter(changed))

    async def _catch_up(self) -> None:
        begun_s = time.perf_counter()
        while self._unread:
            for key in self._unread[0]:
                parsed = self._keyspace.parse_partition(key) or self._keyspace.parse_member(key)
                if parsed is not None:
                    self._dirty.add(parsed[0])
                begun_s = await _breathe(begun_s)
            self._unread.popleft()
        while self._dirty:
            self._read(self._dirty.pop())
            begun_s = await _breathe(begun_s)

    def _read(self, partition: PartitionId) -> None:
        before, likeness = self._likeness.pop(partition, None), self._likeness_of(partition)
        if likeness is not None:
            self._likeness[partition] = likeness
        if likeness == before:
            return
        self._counted = None
        if before is not None:
            self._alike[before] -= 1
            if not self._alike[before]:
                del self._alike[before]
        if likeness is not None:
            self._alike[likeness] += 1

    def _likeness_of(self, partition: PartitionId) -> Likeness | None:
        """None: it is not there, not founded yet, or cannot be read: then it is reported as such."""
        names, get = self._keyspace.partition(partition), self._mirror.get
        stable = read(get(names.stable), Assignments.decode)
        pending = read(get(names.pending), Assignments.decode)
        if get(names.configuration) is None or not isinstance(stable, Assignments):
            return None
        running, full = set(), set()
        prefix = self._keyspace.member(partition, "")
        for item in self._mirror.below(prefix):
            member = read(item, MemberRecord.decode)
            if isinstance(member, Unreadable):
                continue
            node = item.key.removeprefix(prefix)
            if member.state is MemberState.RUNNING:
                running.add(node)
            elif member.state is MemberState.FAILED and member.reason.startswith(DISK_FULL):
                full.add(node)
        assigned = nodes_of(stable, None if isinstance(pending, Unreadable) else pending)
        return Likeness(
            partition.zone_id,
            frozenset(stable.peers),
            frozenset(running),
            frozenset(assigned),
            frozenset(full),
        )


async def _breathe(begun_s: float) -> float:
    """Lets others run when the slice is over; when the slice began."""
    if time.perf_counter() - begun_s < SLICE_S:
        return begun_s
    await asyncio.sleep(PAUSE_S)
    return time.perf_counter()
