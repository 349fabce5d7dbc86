"""A client's writes of unknown outcome: the next write of their key abandons them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from zonekeeper_client.writes import ABANDONED_MAX

KEYS_MAX = 10_000


class UnsettledWrites:
    """Operation ids by zone and key, oldest first: of a key the newest ``ABANDONED_MAX``, of the newest
    ``KEYS_MAX`` keys."""

    def __init__(self) -> None:
        self._ids: OrderedDict[tuple[str, str], list[str]] = OrderedDict()

    def of(self, zone: str, key: str, but: str = "") -> tuple[str, ...]:
        """Operations of the key without an outcome, without ``but``, which is being sent again."""
        return tuple(operation for operation in self._ids.get((zone, key), ()) if operation != but)

    def add(self, zone: str, key: str, operation: str) -> None:
        ids = [*self.of(zone, key, but=operation), operation]
        self._ids[zone, key] = ids[-ABANDONED_MAX:]
        self._ids.move_to_end((zone, key))
        if len(self._ids) > KEYS_MAX:
            self._ids.popitem(last=False)

    def settle(self, zone: str, key: str, operations: Iterable[str]) -> None:
        """Forget operations that have an outcome now."""
        settled = set(operations)
        left = [operation for operation in self._ids.get((zone, key), ()) if operation not in settled]
        if left:
            self._ids[zone, key] = left
        else:
            self._ids.pop((zone, key), None)
