"""The mirrors of a node that keeps none: it can vote, and says so when it is asked to learn."""

from __future__ import annotations

from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.ports.groups import NoPlaceError
from rebalance.ports.mirrors import MirrorStatus


class NoMirrors:
    """A ``MirrorHost`` that holds nothing and follows nobody."""

    def open(self, node: str) -> None:
        """Do nothing: there are no mirrors to open."""

    def partitions(self) -> frozenset[PartitionId]:
        return frozenset()

    async def follow(
        self,
        partition: PartitionId,
        group: str,
        sources: tuple[str, ...],
        *,
        generation: int = 0,
        shared_revision: int = 0,
    ) -> None:
        raise NoPlaceError(Cause.MIRRORS_NOT_KEPT.text("this node was started without a place for learners"))

    async def serve(self, partition: PartitionId) -> None:
        """Do nothing: there is no mirror to serve."""

    async def status(self, partition: PartitionId) -> MirrorStatus | None:
        return None

    async def stop(self, partition: PartitionId, *, destroy: bool) -> None:
        """Do nothing: there is no mirror to stop."""

    async def close(self) -> None:
        """Do nothing: nothing runs."""
