"""Groups that are only written down, as the probe of recoveries sees them."""

from __future__ import annotations

from collections.abc import Mapping

from rebalance.core.keys import PartitionId


class ProbeStub:
    """No group answers, but members whose node is in ``serves``: these still have a majority. ``asked`` grows
    by what each group was asked with: client URLs by node."""

    def __init__(self) -> None:
        self.serves: set[str] = set()
        self.asked: list[tuple[PartitionId, dict[str, str]]] = []

    async def serving(self, partition: PartitionId, client_urls: Mapping[str, str]) -> str:
        self.asked.append((partition, dict(client_urls)))
        return min(self.serves & client_urls.keys(), default="")
