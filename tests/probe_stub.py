"""Groups that are only written down, as the probe of recoveries sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from rebalance.core.keys import PartitionId


class ProbeStub:
    """No group answers, but members whose node is in ``serves``: these still have a majority. ``asked`` grows
    by what each group was asked with: client URLs by node. ``before_answer`` happens while a group is asked."""

    def __init__(self) -> None:
        self.serves: set[str] = set()
        self.asked: list[tuple[PartitionId, dict[str, str]]] = []
        self.before_answer: Callable[[], Awaitable[None]] | None = None

    async def serving(self, partition: PartitionId, client_urls: Mapping[str, str]) -> str:
        self.asked.append((partition, dict(client_urls)))
        if self.before_answer is not None:
            await self.before_answer()
        return min(self.serves & client_urls.keys(), default="")
