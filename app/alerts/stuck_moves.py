"""Operations that have made no progress for too long."""

from __future__ import annotations

from app.counts.open_operations import OpenOperations
from rebalance.core.operation_movement import STUCK_MS


class StuckMoves:
    """``divisor`` shortens the time without progress: for trials."""

    def __init__(self, operations: OpenOperations, divisor: float = 1.0) -> None:
        self._operations = operations
        self._early_ms = round(STUCK_MS - STUCK_MS / divisor)

    def still_s(self, now_ms: int) -> dict[str, float]:
        """Seconds since the last progress of each operation that is stuck."""
        return {
            operation.operation_id: (now_ms - operation.movement.at_ms) / 1_000
            for operation in self._operations.all()
            if operation.is_stuck(now_ms + self._early_ms)
        }
