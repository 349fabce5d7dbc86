"""Mirrors that hold nothing, for tests of those who use them."""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalance.core.keys import PartitionId
from rebalance.ports.groups import MemberLife
from rebalance.ports.mirrors import MirrorStatus


@dataclass
class HeldMirrors:
    """A ``MirrorHost`` whose copies are complete when the test says so."""

    life: MemberLife = MemberLife.STARTING
    sources: dict[PartitionId, tuple[str, ...]] = field(default_factory=dict)

    def open(self, node: str) -> None: ...

    def partitions(self) -> frozenset[PartitionId]:
        return frozenset(self.sources)

    async def follow(
        self,
        partition: PartitionId,
        group: str,
        sources: tuple[str, ...],
        *,
        generation: int = 0,
        shared_revision: int = 0,
    ) -> None:
        self.sources[partition] = sources

    async def serve(self, partition: PartitionId) -> None: ...

    async def status(self, partition: PartitionId) -> MirrorStatus | None:
        return MirrorStatus(self.life, "http://mirror", 5) if partition in self.sources else None

    async def stop(self, partition: PartitionId, *, destroy: bool) -> None:
        if destroy:
            self.sources.pop(partition, None)

    async def close(self) -> None: ...
