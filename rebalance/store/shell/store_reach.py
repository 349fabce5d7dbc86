"""Members of the ring that a server reaches before it joins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rebalance.store.core.ring_records import RingState

REACH_S = 1.0

AddressOf = Callable[[str, str], Awaitable[tuple[str, int] | None]]
"""Address of a server of that name and incarnation; None while that is not known."""


async def unreached(ring: RingState, name: str, address_of: AddressOf) -> tuple[str, ...]:
    """Members other than ``name`` to which no connection is made within a second, by name. One whose address is
    not known is about to be removed, and counts as one of them."""

    async def is_reached(member: str) -> bool:
        address = await address_of(member, ring.incarnations.get(member, ""))
        if address is None:
            return False
        try:
            async with asyncio.timeout(REACH_S):
                _, writer = await asyncio.open_connection(*address)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    members = sorted(ring.cluster.servers.keys() - {name})
    reached = await asyncio.gather(*map(is_reached, members))
    return tuple(member for member, there in zip(members, reached, strict=True) if not there)
