"""What partitions wait for that are not admitted: counted from the same keys as the controllers do."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import lru_cache

from app.views.reset_waits import reset_wait
from catalog.core.zone import STORE_ENGINE, ZoneId, ZoneIntent, zone_engine
from rebalance.core.admission.bandwidth import AdmissionRecord, buckets_of
from rebalance.core.admission.move_admission import Limits, Loads, Rooms, load_of, move_of, without_members
from rebalance.core.assignments.assignment import Assignments, nodes_of
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.moves.move_status import PartitionView
from rebalance.core.operations.operation import Operation
from rebalance.metastore.mirror import KeyspaceCopy

DECODED_MAX = 20_000
COUNTED_ANEW_MS = 1_000
"""What moves is counted anew after a millisecond for each partition, and after so long at the latest: it takes
a walk over the keys of all of them."""


class WaitCauses:
    """Over a mirror of the whole keyspace or a copy of it. ``now_ms`` decides which pauses hold."""

    def __init__(self, mirror: KeyspaceCopy, keyspace: Keyspace, now_ms: Callable[[], int]) -> None:
        self._mirror = mirror
        self._keyspace = keyspace
        self._now_ms = now_ms
        self._seen: tuple[bytes | None, int] = (None, 0)
        self._rooms: Rooms | None = None
        self._counted_revision = -1
        self._holds_ms = COUNTED_ANEW_MS
        self._loads = Loads()

    def rooms(self) -> Rooms | None:
        """What may begin now; None: no limits hold."""
        item, now_ms = self._mirror.get(self._keyspace.limits), self._now_ms()
        if item is None:
            return None
        value = item.value
        known, at_ms = self._seen
        if known != value or not 0 <= now_ms - at_ms < self._holds_ms:
            self._seen = value, now_ms
            self._rooms = self._rooms_of(Limits.of(item), now_ms)
        return self._rooms

    def of_view(
        self,
        partition: PartitionId,
        view: PartitionView,
        keys: KeyspaceCopy,
        seen: Collection[ZoneId] | None = None,
    ) -> PartitionView:
        """``view``, which was read from ``keys``, with what its move or its automatic reset waits for, as who
        sees the zones of ``seen`` may know it; None: all."""
        wait = reset_wait(keys, self._keyspace, partition, view)
        view = replace(view, reset_wait=wait) if wait else view
        target, stable = view.target, view.stable
        if view.processed or view.pending is not None or target is None or stable is None or stable == target:
            return view
        # A move that has not begun may be held back by limits.
        rooms = self.rooms()
        if rooms is None:
            return replace(view, admission="")
        if seen is not None:
            rooms = rooms.seen_by(seen)
        move = move_of(stable, target)
        is_stored = view.owners is not None
        cause = rooms.cause(partition.zone_id, without_members(move) if is_stored else move)
        return replace(view, admission=cause)

    def _rooms_of(self, limits: Limits, now_ms: int) -> Rooms | None:
        if not limits.holds(now_ms):
            return None
        if self._counted_revision != self._mirror.revision:
            self._loads, self._counted_revision = self._count(), self._mirror.revision
        first = self._first() if limits.one_operation else None
        admission = read(self._mirror.get(self._keyspace.admissions), AdmissionRecord.decode)
        if isinstance(admission, Unreadable):
            limits, admission = replace(limits, unreadable=admission.cause), None
        buckets = buckets_of(admission)
        return Rooms(limits, self._loads, self._member_limits(), now_ms, first, buckets)

    def _member_limits(self) -> dict[str, int]:
        """A node whose record cannot be read takes no more members."""
        prefix, limits = self._keyspace.nodes, {}
        for item in self._mirror.below(prefix):
            record = read(item, NodeRecord.decode)
            limit = 0 if isinstance(record, Unreadable) else record.node.member_limit
            limits[item.key.removeprefix(prefix)] = limit
        return limits

    def _first(self) -> tuple[ZoneId, str] | None:
        """The operation that goes first where only one may, as the controllers choose it."""
        parsed = (read(item, Operation.decode) for item in self._mirror.below(self._keyspace.operations))
        known = (operation for operation in parsed if not isinstance(operation, Unreadable))
        first = min(
            (operation for operation in known if operation.kind.moves_data and not operation.is_over),
            key=lambda operation: (operation.event_revision, operation.zone_id),
            default=None,
        )
        return (first.zone_id, first.operation_id) if first is not None else None

    def _count(self) -> Loads:
        loads, keys, stored = Loads(), self._keyspace, self._stored()
        partitions = 0
        for item in self._mirror.below(keys.partitions):
            if not item.key.endswith("/assignments/stable"):
                continue
            parsed = keys.parse_partition(item.key)
            if parsed is None:
                continue
            partitions += 1
            names, get = keys.partition(parsed[0]), self._mirror.get
            read_keys = [read(key, _decoded) for key in (item, get(names.pending), get(names.planned))]
            stable, pending, planned = (
                None if isinstance(record, Unreadable) else record for record in read_keys
            )
            if parsed[0].zone_id not in stored:
                loads.members.update(nodes_of(stable, pending, planned))
            if stable is not None and pending is not None:
                loads.add(parsed[0].zone_id, load_of(stable, pending, planned))
        self._holds_ms = min(partitions, COUNTED_ANEW_MS)
        return loads

    def _stored(self) -> frozenset[ZoneId]:
        """Zones that store servers keep, by what living nodes say now."""
        records = (read(item, NodeRecord.decode) for item in self._mirror.below(self._keyspace.nodes))
        nodes = [record.node for record in records if not isinstance(record, Unreadable)]
        if not any(engine == STORE_ENGINE for node in nodes for _, engine in node.engines):
            return frozenset()
        intents = (read(item, ZoneIntent.decode) for item in self._mirror.below(self._keyspace.intents))
        zones = (intent.zone for intent in intents if not isinstance(intent, Unreadable))
        return frozenset(zone.zone_id for zone in zones if zone_engine(zone, nodes) == STORE_ENGINE)


@lru_cache(DECODED_MAX)
def _decoded(value: bytes) -> Assignments:
    return Assignments.decode(value)
