"""Operations that have made no progress for too long, kept as their records change."""

from __future__ import annotations

from rebalance.core.keys import Keyspace
from rebalance.core.operation import Operation
from rebalance.core.operation_movement import STUCK_MS
from rebalance.core.readable import Unreadable, read
from rebalance.metastore.mirror import KeyspaceMirror


class StuckMoves:
    """Over a mirror of the whole keyspace. ``divisor`` shortens the time without progress: for trials."""

    def __init__(self, mirror: KeyspaceMirror, keyspace: Keyspace, divisor: float = 1.0) -> None:
        self._mirror = mirror
        self._prefix = keyspace.operations
        self._early_ms = round(STUCK_MS - STUCK_MS / divisor)
        self._open: dict[str, Operation] = {}
        self._changed: set[str] = set()
        mirror.listen(self._on_change)

    def still_s(self, now_ms: int) -> dict[str, float]:
        """Seconds since the last progress of each operation that is stuck."""
        changed, self._changed = self._changed, set()
        for key in changed:
            operation = read(self._mirror.get(key), Operation.decode)
            if operation is None or isinstance(operation, Unreadable) or operation.is_over:
                self._open.pop(key, None)
            else:
                self._open[key] = operation
        return {
            operation.operation_id: (now_ms - operation.movement.at_ms) / 1_000
            for operation in self._open.values()
            if operation.is_stuck(now_ms + self._early_ms)
        }

    def _on_change(self, changed: frozenset[str]) -> None:
        self._changed.update(key for key in changed if key.startswith(self._prefix))
