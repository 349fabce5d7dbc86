"""Progress of copies, as a node publishes it of its members that catch up: seldom, but so that a stalled copy
is seen."""

from __future__ import annotations

from collections.abc import Callable

from rebalance.core.keyspace.keys import PartitionId

PUBLISHED_S = 5.0


def pause_s(joiner_s: float) -> float:
    """Return the seconds between two figures of one member: a judge by ``joiner_s`` sees several before."""
    return min(PUBLISHED_S, joiner_s / 3)


class CopyProgress:
    """Published progress of one node's copies. ``joiner_s``: how long a copy may stand still before it is said
    to."""

    def __init__(self, joiner_s: Callable[[], float]) -> None:
        self._joiner_s = joiner_s
        self._published: dict[PartitionId, tuple[int, float]] = {}

    def of(self, partition: PartitionId, received: int, now_s: float) -> int:
        """Return what to publish of a member that has ``received`` so many bytes by now; 0: it does not catch
        up."""
        if not received:
            self._published.pop(partition, None)
            return 0
        known, at_s = self._published.get(partition, (0, float("-inf")))
        if received == known or now_s - at_s < pause_s(self._joiner_s()):
            return known
        self._published[partition] = received, now_s
        return received
