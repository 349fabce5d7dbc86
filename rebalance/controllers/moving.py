"""Partitions that move now, in the whole cluster, counted from a mirror as it changes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from functools import cache

from catalog.core.zone import ZoneId
from rebalance.core.admission.bandwidth import AdmissionRecord, TokenBuckets, buckets_of
from rebalance.core.admission.move_admission import Loads, Move, load_of
from rebalance.core.assignments.assignment import Assignments, nodes_of
from rebalance.core.assignments.guarded_write import Observed, require_readable
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read, readable
from rebalance.core.keyspace.records import ConfigurationRecord
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
