"""The leading controller as coordinator of the partition maps: merges what living nodes report, publishes each
zone.

Level-triggered like the rest: whatever changed, all zones are merged anew from what is there, and those whose
map is another one are written. A map that is written has a higher version or sequence than the one before it,
by whichever controller, because the pointer is replaced under a guard of its revision.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import structlog

from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.core.assignments.target import CHUNK_BYTES
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import DeleteRange, Operation, Put, Txn, as_read, delete_below
from rebalance.core.partition_maps.partition_map import ZoneMapPointer, next_version
from rebalance.core.topology.node_presence import Topology
from rebalance.kernels.partition_map import (
    DamagedMapError,
    FullArrays,
    MapHeader,
    SingleArrays,
    decode_map,
    encode_map,
    merge,
    split_maps,
)
from rebalance.metastore.mirror import KeyspaceCopy, KeyspaceMirror
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

EVERY_S = 30.0
"""Seconds between maps without a report: a node that is gone writes none."""
QUIET_PERIODS = 10
"""Periods between two maps that differ in counters and sizes only: they grow with every update, and no client
routes by them."""


@dataclass(frozen=True, slots=True)
class MergedZone:
    """The three checksums are those of ``ZoneMapPointer``."""

    full: FullArrays
    primaries: int
    routes: int
    content: int


@dataclass(eq=False)
class PartitionMapKeeper:
    """``run`` it while leading. ``intents`` and ``nodes`` are the controller's mirrors."""

    metastore: Metastore
    keyspace: Keyspace
    name: str
    intents: KeyspaceMirror
    nodes: KeyspaceMirror
    topology: Callable[[], Topology]
    period_s: float

    def __post_init__(self) -> None:
        self._reports = KeyspaceMirror(self.metastore, self.keyspace.node_maps)
        self._changed = asyncio.Event()
        self._removed: set[ZoneId] = set()
        self._written_at: dict[ZoneId, float] = {}
        self._put_off = False
        self._unreadable = UnreadableLog()

    async def run(self) -> None:
        """Run until cancelled; a change is published one period later at the latest, changes within it
        together."""
        forget = [mirror.listen(lambda _: self._changed.set()) for mirror in (self._reports, self.nodes)]
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._reports.run())
                await self._reports.loaded()
                while True:
                    self._changed.clear()
                    await self.publish_all()
                    await asyncio.sleep(self.period_s)
                    await self._next_change()
        finally:
            for forget_watch in forget:
                forget_watch()

    async def _next_change(self) -> None:
        """Wait for a change, at the latest until counters that were not worth a map of their own are due."""
        quiet_s = QUIET_PERIODS * self.period_s
        try:
            async with asyncio.timeout(quiet_s if self._put_off else EVERY_S):
                await self._changed.wait()
        except TimeoutError:
            return

    async def publish_all(self) -> None:
        """Every zone that lives and of which a living node reports; dropped ones are removed."""
        read_intents = (read(item, ZoneIntent.decode) for item in self.intents.below(self.keyspace.intents))
        intents = [item for item in read_intents if not isinstance(item, Unreadable)]
        partitions = {intent.zone.zone_id: intent.zone.partitions for intent in intents if not intent.dropped}
        # A copy each, because a thread merges: a zone of a million partitions takes seconds.
        reports, nodes = self._reports.copy(), self.nodes.copy()
        merged = await asyncio.to_thread(merge_reports, reports, nodes, self.keyspace, partitions)
        self._put_off = False
        for zone_id, zone in merged.items():
            try:
                await self._publish(zone_id, zone)
            except MetastoreError as error:
                log.info("partition map not published", zone=zone_id, error=str(error))
                self._changed.set()
        for intent in intents:
            if intent.dropped and intent.zone.zone_id not in self._removed:
                await self._remove(intent.zone.zone_id)

    async def _publish(self, zone_id: ZoneId, zone: MergedZone) -> None:
        key = self.keyspace.zone_map(zone_id)
        item = await self.metastore.get(key)
        before = self._unreadable.read(zone_id, item, ZoneMapPointer.decode)
        if isinstance(before, Unreadable):
            return
        version = next_version(before, self.topology().version, zone.primaries)
        sequence = before.sequence + 1 if before is not None else 1
        if before is not None and version == before.version and self._can_wait(zone_id, zone, before):
            return
        header = MapHeader(zone_id, version.major, version.minor, 0, sequence)
        data = await asyncio.to_thread(encode_map, header, zone.full)
        chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
        guard = as_read(key, item)
        prefix = self.keyspace.zone_map_chunks(zone_id, sequence)
        for number, chunk in enumerate(chunks):
            put = await self.metastore.commit(Txn((guard,), (Put(f"{prefix}{number:05d}", chunk),)))
            if not put.succeeded:
                return
        sums = zone.primaries, zone.routes, zone.content
        unknown = before.unknown if before is not None else None
        pointer = ZoneMapPointer(version, sequence, self.name, len(chunks), len(data), *sums, unknown=unknown)
        older = DeleteRange(self.keyspace.zone_map_chunks(zone_id), prefix)
        written: tuple[Operation, ...] = (Put(key, pointer.encode()), older)
        if (await self.metastore.commit(Txn((guard,), written))).succeeded:
            self._written_at[zone_id] = asyncio.get_running_loop().time()
            log.info("partition map published", zone=zone_id, version=str(version), sequence=sequence)

    def _can_wait(self, zone_id: ZoneId, zone: MergedZone, before: ZoneMapPointer) -> bool:
        """Check that a map can wait: nothing changed; or counters and sizes only, which wait for
        ``QUIET_PERIODS``."""
        if zone.content == before.content:
            return True
        quiet_s = asyncio.get_running_loop().time() - self._written_at.get(zone_id, -math.inf)
        if zone.routes != before.routes or quiet_s >= QUIET_PERIODS * self.period_s:
            return False
        self._put_off = True
        return True

    async def _remove(self, zone_id: ZoneId) -> None:
        try:
            prefix = self.keyspace.zone_map(zone_id).removesuffix("map")
            await self.metastore.commit(Txn((), (delete_below(prefix),)))
            self._removed.add(zone_id)
        except MetastoreError as error:
            log.info("partition map not removed", zone=zone_id, error=str(error))


def merge_reports(
    reports: KeyspaceCopy, nodes: KeyspaceCopy, keyspace: Keyspace, partitions: Mapping[ZoneId, int]
) -> dict[ZoneId, MergedZone]:
    """The full map of each zone of ``partitions`` (zone -> how many it has) of which anybody reports.

    Only nodes that live count, and of a node only what its present incarnation wrote: a report of its life
    before says nothing of its members now. A report that cannot be read is left out and logged.
    """
    singles: dict[ZoneId, dict[str, SingleArrays]] = {}
    for item in reports.below(keyspace.node_maps):
        name = item.key.removeprefix(keyspace.node_maps)
        registered = nodes.get(keyspace.node(name))
        if registered is None:
            continue
        try:
            incarnation, *encoded = split_maps(item.value) or [b""]
            record = read(registered, NodeRecord.decode)
            # Of a node whose record cannot be read nobody knows the incarnation: what it reported stays.
            if isinstance(record, NodeRecord) and incarnation.decode(errors="replace") != record.incarnation:
                continue
            maps = [decode_map(report) for report in encoded]
        except DamagedMapError as error:
            log.warning("a node's partition map cannot be read", node=name, error=str(error))
            continue
        for header, full in maps:
            count = partitions.get(ZoneId(header.zone), 0)
            if full.partitions <= count:
                singles.setdefault(ZoneId(header.zone), {})[name] = _single(full)
    summed = {}
    for zone_id, by_node in singles.items():
        names = sorted(by_node)
        full = merge(names, [by_node[name] for name in names], partitions[zone_id])
        summed[zone_id] = _summed(full)
    return summed


def _single(full: FullArrays) -> SingleArrays:
    """A map of one node, as it is merged again."""
    numbers = full.owners_of_copies
    return SingleArrays(
        numbers.astype(np.int32),
        full.states,
        full.counters,
        full.sizes,
        full.terms[numbers],
        full.leaders[numbers] >= 0,
    )


def _summed(full: FullArrays) -> MergedZone:
    names = (full.names[leader] if leader >= 0 else "" for leader in full.leaders.tolist())
    primaries = zlib.crc32("\n".join(names).encode())
    routes = zlib.crc32("\n".join(full.names).encode(), primaries)
    for values in (full.starts, full.nodes, full.states, full.terms):
        routes = zlib.crc32(values.tobytes(), routes)
    content = zlib.crc32(full.sizes.tobytes(), zlib.crc32(full.counters.tobytes(), routes))
    return MergedZone(full, primaries, routes, content)
