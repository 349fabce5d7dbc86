"""The feed that keeps the console's arrays current: a listener notes what changed, batches of it are read in a
thread.

Nothing is read while no page is open: only the numbers of changed partitions are noted. The first reading of a
zone of 65,000 partitions takes seconds, so the zone's target is shown at once and overwritten as partitions are
read. The moves that may begin under limits are counted over all moves, the less often the longer that takes.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import islice

import numpy as np
import structlog
from sortedcontainers import SortedList

from app.console.viewer import sees, sees_all_zones
from app.console.zone_grid import HealthCell, MoveCell, PartitionReading, ZoneGrid, read_partition
from app.views.keyspace_views import KeyspaceViews, PlacedZone
from app.views.waits import WaitCauses
from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.controllers.ring_mirror import RingReader
from rebalance.controllers.targets import matrix_of
from rebalance.core.admission.move_admission import Limits
from rebalance.core.assignments.target import TargetPointer
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read
from rebalance.metastore.mirror import KeyspaceCopy, KeyspaceMirror
from rebalance.store.core.ownership import StoreOwnership

RECOUNT_S = 5.0
"""Seconds at least between readings of what waits for limits: other partitions' moves change what it waits
for."""
PACE = 15
"""Counting, and reading what waits, is made so many times more seldom than it takes."""


class Recount:
    """``causes`` are those of the last count; None: no limits hold."""

    def __init__(self, mirror: KeyspaceMirror, keyspace: Keyspace) -> None:
        self.causes: WaitCauses | None = None
        self._mirror = mirror
        self._keyspace = keyspace
        self._limits: bytes | None = None
        self._revision = 0
        self._counted_at = 0.0
        self._spent_s = 0.0

    @property
    def is_due(self) -> bool:
        """Check that there is something to count, and it is time to."""
        value = self._mirror.value(self._keyspace.limits)
        if value != self._limits:
            return True
        if value is None or self._revision == self._mirror.revision:
            return False
        return time.monotonic() - self._counted_at >= max(RECOUNT_S, PACE * self._spent_s)

    def spent(self, seconds: float) -> None:
        """Note the seconds spent on reading what waits."""
        self._spent_s += seconds

    async def count(self) -> None:
        """Anew; leaves the loop free."""
        self._limits = self._mirror.value(self._keyspace.limits)
        self._revision = self._mirror.revision
        begun = time.monotonic()
        if Limits.of(self._mirror.get(self._keyspace.limits)).holds(now_ms()):
            causes = WaitCauses(self._mirror.copy(), self._keyspace, now_ms)
            await asyncio.to_thread(causes.rooms)
            self.causes = causes
        else:
            self.causes = None
        self._counted_at = time.monotonic()
        self._spent_s = self._counted_at - begun


def now_ms() -> int:
    return time.time_ns() // 1_000_000


log = structlog.get_logger(__name__)

BATCH = 500
WATCHED_S = 5.0
"""A page that is open says so more often than this."""


class Topic(Enum):
    """Topic that pages are drawn from. PARTITIONS are the arrays of all zones; the others are counted beside
    them."""

    PARTITIONS = "partitions"
    ZONES = "intents, targets and data nodes"
    NODES = "nodes and drains"
    LIMITS = "limits and pauses"
    OPERATIONS = "operations"
    ALERTS = "alerts that fire or are pending, as this server judges them, and silences"
    STATEMENTS = "statements that were run and what was audited, of which the keyspace need not say anything"


@dataclass(frozen=True, slots=True)
class Batch:
    """Partitions of one zone, with all keys that are about them."""

    zone_id: ZoneId
    numbers: tuple[int, ...]
    views: KeyspaceViews
    target_revision: int
    """Revision of the zone's target pointer; 0: it has none."""


class PartitionFeed:
    """``grids`` and ``intents`` by zone, of all zones that live and that the viewer sees. ``version`` grows
    with every change of them."""

    def __init__(self, mirror: KeyspaceMirror, keyspace: Keyspace) -> None:
        self._grids: dict[ZoneId, ZoneGrid] = {}
        self._intents: dict[ZoneId, ZoneIntent] = {}
        self.version = 0
        self._mirror = mirror
        self._keyspace = keyspace
        self._ring = RingReader(mirror, keyspace)
        self._ownership = StoreOwnership()
        self._views = KeyspaceViews(mirror, keyspace, ownership=lambda: self._ring.shown)
        self._dirty: dict[ZoneId, set[int]] = {}
        self._zones_dirty: set[ZoneId] = set()
        self._nodes_dirty = False
        self._alive: frozenset[str] = frozenset()
        self._placed: dict[ZoneId, tuple[int, PlacedZone | None]] = {}
        self._recount = Recount(mirror, keyspace)
        self._demand = asyncio.Event()
        self._watched_until = 0.0
        self._reading = 0
        """Partitions of the batch that is being read: of neither side."""
        self._seen: Counter[Topic] = Counter()

    @property
    def grids(self) -> Mapping[ZoneId, ZoneGrid]:
        """Return the grids; of a viewer that does not see all, made anew for each call."""
        return self._grids if sees_all_zones() else {key: self._grids[key] for key in filter(sees, self._grids)}

    @property
    def intents(self) -> Mapping[ZoneId, ZoneIntent]:
        """Return the intents that the viewer sees, as ``grids``."""
        if sees_all_zones():
            return self._intents
        return {key: self._intents[key] for key in filter(sees, self._intents)}

    def seen(self, *parts: Topic | ZoneId | PartitionId) -> tuple[Hashable, ...]:
        """Return another answer when one of ``parts`` has changed: a page may have something new to show then.
        A zone stands for its arrays, a partition for its keys."""
        return tuple(map(self._count_of, parts))

    def note(self, topic: Topic) -> None:
        """Note that the topic has changed."""
        self._seen[topic] += 1

    def _count_of(self, part: Topic | ZoneId | PartitionId) -> Hashable:
        if isinstance(part, PartitionId):
            return self._revisions_of(part)
        if isinstance(part, Topic):
            return self.version if part is Topic.PARTITIONS else self._seen[part]
        return self._grids[part].version if part in self._grids else -1

    def _revisions_of(self, partition: PartitionId) -> tuple[Hashable, ...]:
        """Return how many keys tell of the partition, or of failures of any, and the highest revision of them;
        of a store zone who owns it, too."""
        keys = self._keyspace
        prefixes = (
            keys.failures,
            f"{keys.zone_partitions(partition.zone_id)}{partition.partition}/",
            keys.member(partition, ""),
        )
        revisions = [item.mod_revision for prefix in prefixes for item in self._mirror.below(prefix)]
        ownership = self._ring.shown
        outcome = ownership.outcome(partition.zone_id, partition.partition)
        return (
            len(revisions),
            max(revisions, default=0),
            outcome,
            frozenset(ownership.servers - ownership.silent),
        )

    @property
    def unread(self) -> int:
        """Partitions whose newest state is not in the arrays yet."""
        return self._reading + sum(map(len, self._dirty.values()))

    def watch(self) -> None:
        """Note that a page is open: what changed is read from now on, for a while."""
        self._watched_until = time.monotonic() + WATCHED_S
        is_due = self._recount.is_due or self._ring.shown is not self._ownership
        if self.unread or self._zones_dirty or self._nodes_dirty or is_due:
            self._demand.set()

    async def run(self) -> None:
        """Run until cancelled."""
        await self._mirror.loaded()
        self._begin()
        stop = self._mirror.listen(self._on_change)
        try:
            while True:
                await self._demand.wait()
                self._demand.clear()
                await self._read_all()
        finally:
            stop()

    def _begin(self) -> None:
        self._alive = self._views.alive()
        intents = self._mirror.below(self._keyspace.intents)
        zone_ids = (self._keyspace.parse_intent(item.key) for item in intents)
        self._zones_dirty.update(zone_id for zone_id in zone_ids if zone_id is not None)
        self._adopt_zones()

    async def _read_all(self) -> None:
        while time.monotonic() < self._watched_until:
            if self._recount.is_due:
                await self._recount.count()
                self._note_waiting()
            self._adopt_nodes()
            self._adopt_zones()
            self._adopt_owners()
            batch = self._next_batch()
            if batch is None:
                return
            begun = time.monotonic()
            self._reading = len(batch.numbers)
            try:
                readings = await asyncio.to_thread(self._read, batch)
            finally:
                self._reading = 0
            self._recount.spent(time.monotonic() - begun)
            grid = self._grids.get(batch.zone_id)
            if grid is not None:
                grid.place(batch.numbers, readings)
                self.version += 1

    def _read(self, batch: Batch) -> list[PartitionReading]:
        return [self._read_one(batch, number) for number in batch.numbers]

    def _read_one(self, batch: Batch, number: int) -> PartitionReading:
        """A record that this build cannot read is a cause like others: the rest of the zone is shown."""
        try:
            placed = self._placed_zone(batch)
            view, _ = batch.views.view(PartitionId(batch.zone_id, number), placed)
            return read_partition(view, self._alive)
        except Exception as error:
            log.warning(
                "the console cannot read a partition", zone=batch.zone_id, partition=number, error=str(error)
            )
            return PartitionReading((), MoveCell.WAITING, HealthCell.UNREAD, Cause.UNREADABLE.text(str(error)))

    def _placed_zone(self, batch: Batch) -> PlacedZone | None:
        """The newest target, decoded once; only one batch is read at a time."""
        known = self._placed.get(batch.zone_id)
        if known is None or known[0] != batch.target_revision:
            known = self._placed[batch.zone_id] = batch.target_revision, batch.views.placed(batch.zone_id)
        return known[1]

    def _next_batch(self) -> Batch | None:
        for zone_id, numbers in self._dirty.items():
            if not numbers:
                continue
            chosen = tuple(islice(numbers, BATCH))
            numbers.difference_update(chosen)
            pointer = self._mirror.get(self._keyspace.target_pointer(zone_id))
            revision = pointer.mod_revision if pointer is not None else 0
            return Batch(zone_id, chosen, self._views_of(zone_id, chosen), revision)
        return None

    def _views_of(self, zone_id: ZoneId, numbers: Sequence[int]) -> KeyspaceViews:
        """Over the keys of these partitions, and few more: a copy of everything takes longer than a thread may
        wait."""
        keys = self._keyspace
        # Intent and nodes say which engine a zone that is not opened yet will have.
        prefixes = [keys.target_pointer(zone_id), keys.intent(zone_id), keys.nodes]
        known = self._placed.get(zone_id)
        pointer = self._mirror.get(prefixes[0])
        if pointer is not None and (known is None or known[0] != pointer.mod_revision):
            named = read(pointer, TargetPointer.decode)
            if not isinstance(named, Unreadable):
                prefixes.append(keys.target(zone_id, named.event_revision))
        for number in numbers:
            prefixes += (
                f"{keys.zone_partitions(zone_id)}{number}/",
                keys.member(PartitionId(zone_id, number), ""),
            )
        items = {item.key: item for prefix in prefixes for item in self._mirror.below(prefix)}
        copy = KeyspaceCopy(self._mirror.prefix, self._mirror.revision, items, SortedList(items))
        ownership = self._ownership
        return KeyspaceViews(copy, keys, waits=self._recount.causes, ownership=lambda: ownership)

    def _adopt_zones(self) -> None:
        """Zones that are new, changed or gone."""
        while self._zones_dirty:
            zone_id = self._zones_dirty.pop()
            intent = read(self._mirror.get(self._keyspace.intent(zone_id)), ZoneIntent.decode)
            self.version += 1
            if isinstance(intent, Unreadable):
                # What was known of the zone is shown; its pages tell why it waits.
                self._mark(zone_id, range(self._grids[zone_id].partitions if zone_id in self._grids else 0))
                continue
            if intent is None or intent.dropped:
                for known in (self._grids, self._intents, self._dirty, self._placed):
                    known.pop(zone_id, None)
                continue
            self._intents[zone_id] = intent
            grid = self._grids.get(zone_id)
            if grid is None or grid.partitions != intent.zone.partitions:
                grid = self._grids[zone_id] = ZoneGrid(intent.zone.partitions)
                self._seed(zone_id, grid)
            pointer = read(self._mirror.get(self._keyspace.target_pointer(zone_id)), TargetPointer.decode)
            grid.aim(pointer.event_revision if isinstance(pointer, TargetPointer) else 0)
            self._dirty[zone_id] = set(range(grid.partitions))

    def _seed(self, zone_id: ZoneId, grid: ZoneGrid) -> None:
        placed = self._views.placed(zone_id)
        if placed is not None and placed.pointer.partitions == grid.partitions:
            with suppress(RecordNotReadableError):
                grid.seed(placed.pointer.nodes, matrix_of(placed.stored), placed.pointer.consensus)

    def _adopt_nodes(self) -> None:
        """A node that came or went changes what its partitions are."""
        if self._nodes_dirty:
            self._nodes_dirty = False
            alive = self._views.alive()
            for zone_id, grid in self._grids.items():
                self._mark(zone_id, grid.held_by(alive ^ self._alive).tolist())
            self._alive = alive
            self.version += 1

    def _adopt_owners(self) -> None:
        """Note new owners of partitions of store zones, which exchanges name without a key for each."""
        before, self._ownership = self._ownership, self._ring.shown
        if self._ownership is not before:
            for zone_id in self._grids:
                self._mark(zone_id, self._ownership.changed_since(before, zone_id))

    def _note_waiting(self) -> None:
        for zone_id, grid in self._grids.items():
            self._mark(zone_id, np.flatnonzero(grid.moves == MoveCell.WAITING).tolist())

    def _mark(self, zone_id: ZoneId, numbers: Iterable[int]) -> None:
        if zone_id in self._grids:
            self._dirty.setdefault(zone_id, set()).update(numbers)

    def _on_change(self, changed: frozenset[str]) -> None:
        keys = self._keyspace
        whole_zones = (keys.intents, keys.pointers, keys.all_data_nodes)
        topics: set[Topic] = set()
        for key in changed:
            if key.startswith((keys.partitions, keys.members)):
                self._note_key(key)
            elif key.startswith(whole_zones):
                topics.add(Topic.ZONES)
                zone_id = keys.parse_intent(keys.intents + key.rpartition("/")[2])
                if zone_id is not None:
                    self._zones_dirty.add(zone_id)
            elif key.startswith((keys.nodes, keys.drains)):
                topics.add(Topic.NODES)
                self._nodes_dirty |= key.startswith(keys.nodes)
            elif key.startswith(keys.operations):
                topics.add(Topic.OPERATIONS)
            elif key == keys.limits:
                topics.add(Topic.LIMITS)
        self._seen.update(topics)
        if time.monotonic() < self._watched_until:
            self._demand.set()

    def _note_key(self, key: str) -> None:
        """Some keys below the prefixes are of no partition."""
        parsed = self._keyspace.parse_partition(key) or self._keyspace.parse_member(key)
        if parsed is not None:
            zone_id, number = parsed[0].zone_id, parsed[0].partition
            grid = self._grids.get(zone_id)
            if grid is not None and number < grid.partitions:
                self._dirty.setdefault(zone_id, set()).add(number)
