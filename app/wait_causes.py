"""What partitions wait for that are not admitted: counted from the same keys as the controllers do."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from catalog.core.zone import ZoneId
from rebalance.core.admission import Limits, Loads, Rooms, load_of
from rebalance.core.assignments import Assignments, nodes_of
from rebalance.core.bandwidth import buckets_of
from rebalance.core.keys import Keyspace
from rebalance.core.operation import Operation
from rebalance.core.records import NodeRecord
from rebalance.metastore.mirror import KeyspaceCopy

DECODED_MAX = 20_000
COUNTED_ANEW_MS = 1_000
"""What moves is counted at most so often: it takes a walk over the keys of all partitions."""


class WaitCauses:
    """Over a mirror of the whole keyspace or a copy of it. ``now_ms`` decides which pauses hold."""

    def __init__(self, mirror: KeyspaceCopy, keyspace: Keyspace, now_ms: Callable[[], int]) -> None:
        self._mirror = mirror
        self._keyspace = keyspace
        self._now_ms = now_ms
        self._asked: tuple[bytes | None, int] = (None, 0)
        self._rooms: Rooms | None = None
        self._counted_revision = -1
        self._loads = Loads()

    def rooms(self) -> Rooms | None:
        """What may begin now; None: no limits hold."""
        value, now_ms = self._mirror.value(self._keyspace.limits), self._now_ms()
        if value is None:
            return None
        asked, at_ms = self._asked
        if asked != value or not 0 <= now_ms - at_ms < COUNTED_ANEW_MS:
            self._asked = value, now_ms
            self._rooms = self._rooms_of(Limits.decode(value), now_ms)
        return self._rooms

    def _rooms_of(self, limits: Limits, now_ms: int) -> Rooms | None:
        if not limits.holds(now_ms):
            return None
        if self._counted_revision != self._mirror.revision:
            self._loads, self._counted_revision = self._count(), self._mirror.revision
        records = (NodeRecord.decode(item.value) for item in self._mirror.below(self._keyspace.nodes))
        member_limits = {record.node.name: record.node.member_limit for record in records}
        first = self._first() if limits.one_operation else None
        buckets = buckets_of(self._mirror.value(self._keyspace.admissions))
        return Rooms(limits, self._loads, member_limits, now_ms, first, buckets)

    def _first(self) -> tuple[ZoneId, str] | None:
        """The operation that goes first where only one may, as the controllers choose it."""
        parsed = (Operation.decode(item.value) for item in self._mirror.below(self._keyspace.operations))
        found = min(
            (each for each in parsed if each.kind.moves_data and not each.is_over),
            key=lambda each: (each.event_revision, each.zone_id),
            default=None,
        )
        return (found.zone_id, found.operation_id) if found is not None else None

    def _count(self) -> Loads:
        loads, keys = Loads(), self._keyspace
        for item in self._mirror.below(keys.partitions):
            if not item.key.endswith("/assignments/stable"):
                continue
            parsed = keys.parse_partition(item.key)
            if parsed is None:
                continue
            names, stable = keys.partition(parsed[0]), _decoded(item.value)
            pending, planned = (
                _decoded(value) if value is not None else None
                for value in (self._mirror.value(names.pending), self._mirror.value(names.planned))
            )
            loads.members.update(nodes_of(stable, pending, planned))
            if pending is not None:
                loads.add(parsed[0].zone_id, load_of(stable, pending, planned))
        return loads


@lru_cache(DECODED_MAX)
def _decoded(value: bytes) -> Assignments:
    return Assignments.decode(value)
