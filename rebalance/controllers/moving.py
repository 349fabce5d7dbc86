"""Partitions that move now, counted over the whole cluster from a mirror as it changes, and those that wait.

A zone's waiting partitions are arrays (``WaitingLine``), so that looking through all of them costs little.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt

from catalog.core.zone import ZoneId
from rebalance.controllers.targets import NamedTarget
from rebalance.core.admission.bulk_write import BulkDecisions
from rebalance.core.admission.move_admission import (
    NO_LIMIT,
    AdmissionRecord,
    Loads,
    Move,
    Rooms,
    TokenBuckets,
    Waiting,
    buckets_of,
    load_of,
)
from rebalance.core.assignments.assignment import Assignments, nodes_of
from rebalance.core.assignments.guarded_write import Observed, require_readable
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read, readable
from rebalance.core.keyspace.records import ConfigurationRecord
from rebalance.kernels.admission import with_room
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore

KEYS_PER_SLICE = 5_000
NOTHING: tuple[Move | None, frozenset[str]] = (None, frozenset())


class MovingPartitions:
    """Keeps ``loads`` while ``mirror`` runs. Only while limits hold: it has the keys of all partitions."""

    def __init__(self, metastore: Metastore, keyspace: Keyspace) -> None:
        self.mirror = KeyspaceMirror(metastore, keyspace.partitions)
        self.loads = Loads()
        self._keyspace = keyspace
        self._changed: set[str] = set()
        self.partitions: set[PartitionId] = set()
        """Partitions that move."""
        self.unreadable: dict[PartitionId, RecordNotReadableError] = {}
        self.mended: set[PartitionId] = set()
        """Partitions that could not be read before, and can be now."""
        self._known: dict[PartitionId, tuple[Move | None, frozenset[str]]] = {}
        self._held: dict[ZoneId, Counter[str]] = {}
        self._decoded = cache(Assignments.decode)
        self.mirror.listen(self._note)

    @property
    def admissions_revision(self) -> int:
        """Return the revision of the last admission that ``loads`` knows; 0: there was none."""
        item = self.mirror.get(self._keyspace.admissions)
        return item.mod_revision if item else 0

    @property
    def admission(self) -> AdmissionRecord | Unreadable | None:
        """The last one; nothing is admitted on one that cannot be read."""
        return read(self.mirror.get(self._keyspace.admissions), AdmissionRecord.decode)

    @property
    def buckets(self) -> TokenBuckets:
        """Return the buckets as the last admission has left them."""
        admission = self.admission
        return TokenBuckets() if isinstance(admission, Unreadable) else buckets_of(admission)

    def loads_without(self, stored: Collection[ZoneId]) -> Loads:
        """``loads``, in which zones that are ``stored`` have no members."""
        members = self.loads.members.copy()
        for zone_id in stored:
            members.subtract(self._held.get(zone_id, {}))
        return replace(self.loads, members=members)

    def size(self, zone_id: ZoneId, number: int) -> int:
        """Bytes that a copy takes, as the group's leader reports; 0: not reported yet."""
        item = self.mirror.get(self._keyspace.partition(PartitionId(zone_id, number)).configuration)
        configuration = read(item, ConfigurationRecord.decode)
        return configuration.size_bytes if isinstance(configuration, ConfigurationRecord) else 0

    def observed(self, partition: PartitionId) -> Observed:
        return Observed.of(self._keyspace.partition(partition), self.mirror.get)

    async def count(self) -> frozenset[PartitionId]:
        """Brings ``loads`` up to the mirror; returns the partitions that changed since the last time.

        When it returns, loads, keys and ``admissions_revision`` are of one revision, until the caller awaits.
        """
        await self.mirror.loaded()
        touched: set[PartitionId] = set()
        while self._changed:
            changed, self._changed = list(self._changed), set()
            for start in range(0, len(changed), KEYS_PER_SLICE):
                if start:
                    await asyncio.sleep(0)
                parsed = map(self._keyspace.parse_partition, changed[start : start + KEYS_PER_SLICE])
                partitions = {parts[0] for parts in parsed if parts is not None}
                for partition in partitions:
                    self._recount(partition)
                touched |= partitions
        return frozenset(touched)

    def _note(self, changed: frozenset[str]) -> None:
        self._changed.update(key for key in changed if "/assignments/" in key)

    def _recount(self, partition: PartitionId) -> None:
        """Count the partition as the mirror has it now: what changes meanwhile is counted again. A partition of
        which a key cannot be read counts as it did before."""
        try:
            require_readable(self.observed(partition))
        except RecordNotReadableError as error:
            self.unreadable[partition] = error
            return
        if self.unreadable.pop(partition, None) is not None:
            self.mended.add(partition)
        before, held = self._known.pop(partition, NOTHING)
        if before is not None:
            self.loads.add(partition.zone_id, before, -1)
            self.partitions.discard(partition)
        zone_members = self._held.setdefault(partition.zone_id, Counter())
        for members in (self.loads.members, zone_members):
            members.subtract(held)
        keys, get = self._keyspace.partition(partition), self.mirror.get
        items = map(get, (keys.stable, keys.pending, keys.planned))
        stable, pending, planned = (readable(item, self._decoded) for item in items)
        move = load_of(stable, pending, planned) if stable is not None and pending is not None else None
        holds = nodes_of(stable, pending, planned)
        if move is not None:
            self.loads.add(partition.zone_id, move)
            self.partitions.add(partition)
        for members in (self.loads.members, zone_members):
            members.update(holds)
        if holds:
            self._known[partition] = move, holds


FREE, CLOSED = 0, 1
"""Entries of the room vector: room for everything, and for nothing."""
CHUNK = 256
"""Partitions that are tried before the rooms are looked at again."""


class NodeNumbers:
    """Each node's three entries in the room vector: as a donor, as a receiver, for one member more."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def entries(self, move: Move) -> list[int]:
        sides = enumerate((move.donors, move.receivers, move.joins), start=CLOSED + 1)
        return [side + 3 * self._number(node) for side, nodes in sides for node in nodes] or [FREE]

    def room(self, rooms: Rooms) -> npt.NDArray[np.int64]:
        """int64 [2 + 3 nodes]."""
        room = [NO_LIMIT, 0]
        for node in self._numbers:
            room += (rooms.donor_room(node), rooms.receiver_room(node), rooms.member_room(node))
        return np.array(room, dtype=np.int64)

    def _number(self, node: str) -> int:
        return self._numbers.setdefault(node, len(self._numbers))


class WaitingLine:
    """Waiting partitions of a zone, in order. ``named`` and ``decisions`` are those of its newest target."""

    def __init__(
        self,
        zone_id: ZoneId,
        named: NamedTarget,
        decisions: BulkDecisions,
        moves: Mapping[int, Move],
        nodes: NodeNumbers,
    ) -> None:
        self.zone_id = zone_id
        self.named = named
        self.decisions = decisions
        self._nodes = nodes
        self._numbers = sorted(moves)
        self._places = {number: place for place, number in enumerate(self._numbers)}
        self._moves: list[Move | None] = [moves[number] for number in self._numbers]
        entries = [nodes.entries(moves[number]) for number in self._numbers]
        width = max(map(len, entries), default=1)
        rows = [entry + entry[:1] * (width - len(entry)) for entry in entries]
        self._uses = np.array(rows, dtype=np.int32).reshape(len(rows), width)
        self._left = len(rows)
        self.due: set[int] = set()
        """Partitions that began to move otherwise: their target is planned, and needs no room."""

    def __len__(self) -> int:
        return self._left

    def __contains__(self, number: int) -> bool:
        """Check that the partition came with this line, waiting or not."""
        return number in self._places

    def remove(self, number: int) -> None:
        """The partition waits no more, and nothing of it is due."""
        self.update(number, None)
        self.due.discard(number)

    def update(self, number: int, move: Move | None) -> None:
        """Set what the partition waits to do now; None: it waits no more."""
        place = self._places[number]
        self._left += (move is not None) - (self._moves[place] is not None)
        self._moves[place] = move
        entries = [CLOSED] if move is None else self._nodes.entries(move)
        wider = len(entries) - self._uses.shape[1]
        if wider > 0:
            self._uses = np.pad(self._uses, ((0, 0), (0, wider)), mode="edge")
        self._uses[place] = entries + entries[:1] * (self._uses.shape[1] - len(entries))

    def candidates(self, rooms: Rooms) -> Iterator[Waiting]:
        """Yield the partitions whose nodes have room, in order; ``rooms`` may be used up while this goes on."""
        start = 0
        while True:
            places = with_room(self._uses, self._nodes.room(rooms), start)
            if not len(places):
                return
            for place in places[:CHUNK].tolist():
                move = self._moves[place]
                assert move is not None, "the row of what waits no more has no room"
                yield self._numbers[place], move
                start = place + 1
