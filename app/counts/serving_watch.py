"""The watch for the partitions that serve while the metastore is silent: they are asked one after the other, by
reads like a user's.

A linearizable answer takes a majority of a group, or the primary of a store zone in its time. So many a second
are asked, a zone's in turn with those of the others; of many thousands most are unknown at any moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice

from app.views.mirror_freshness import MetastoreSilence, ServingAnswer
from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.data.zone_router import ZoneRouter
from rebalance.ports.groups import GroupError

LOOK_S = 2.0
"""Seconds between two questions whether the metastore is silent."""
ROUND_S = 1.0
"""A partition is asked no more often."""
ASK_S = 2.0
"""A partition that takes longer does not serve."""
FRESH_S = 15.0
"""An answer counts for so long."""
PER_S = 50
AT_ONCE = 32
AGAIN_S = 1.0
JITTER_MS = 1_000
"""Most milliseconds by which one moment differs between two clocks."""
KEY = ""
"""Key that is asked for, and that no entry has: keys are not empty."""


@dataclass(eq=False)
class ServingWatch:
    """``unknown_since_ms``: see ``FactReader``. ``sizes``: numbers of partitions by zone. ``run`` must run, or
    all is unknown."""

    unknown_since_ms: Callable[[], Awaitable[int | None]]
    reader: ZoneRouter
    sizes: Callable[[], Mapping[ZoneId, int]]

    def __post_init__(self) -> None:
        self._answers: dict[PartitionId, ServingAnswer] = {}
        self._asked_s: dict[PartitionId, float] = {}
        """Times at which partitions were asked last, the earliest first."""
        self._since_ms: int | None = None
        self._looked_s = 0.0

    async def silence(self) -> MetastoreSilence | None:
        """See ``MirrorFreshness``."""
        since_ms = await self._silent_since_ms()
        if since_ms is None:
            return None
        fresh_s = asyncio.get_running_loop().time() - FRESH_S
        while self._asked_s and next(iter(self._asked_s.values())) < fresh_s:
            del self._asked_s[next(iter(self._asked_s))]
        return MetastoreSilence(since_ms, {partition: self._answers[partition] for partition in self._asked_s})

    async def _silent_since_ms(self) -> int | None:
        """The same as long as the silence lasts; asked once a second at most."""
        loop = asyncio.get_running_loop()
        if self._since_ms is None or loop.time() - self._looked_s > AGAIN_S:
            since_ms = await self.unknown_since_ms()
            is_another = (
                since_ms is None or self._since_ms is None or abs(since_ms - self._since_ms) > JITTER_MS
            )
            self._since_ms = since_ms if is_another else self._since_ms
            self._looked_s = loop.time()
        return self._since_ms

    async def run(self) -> None:
        """Ask partitions whenever the metastore is silent, until cancelled."""
        while True:
            if await self._silent_since_ms() is None:
                self._answers.clear()
                self._asked_s.clear()
                await asyncio.sleep(LOOK_S)
            else:
                await self._round()

    async def _round(self) -> None:
        """All partitions, as long as the silence lasts."""
        loop, places = asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)
        begun = loop.time()
        partitions = in_turn(self.sizes())
        async with asyncio.TaskGroup() as asking:
            while some := list(islice(partitions, int(LOOK_S * PER_S))):
                for partition in some:
                    await places.acquire()
                    asking.create_task(self._ask(partition, places))
                    await asyncio.sleep(1 / PER_S)
                if await self._silent_since_ms() is None:
                    break
        await asyncio.sleep(max(begun + ROUND_S - loop.time(), 0.0))

    async def _ask(self, partition: PartitionId, places: asyncio.Semaphore) -> None:
        asked_s = asyncio.get_running_loop().time()
        try:
            await self.reader.get(partition, KEY, limit_s=ASK_S)
            serves = True
        except GroupError:
            serves = False
        finally:
            places.release()
        known = self._answers.get(partition)
        if known is None or known.serves != serves:
            self._answers[partition] = ServingAnswer(serves, time.time_ns() // 1_000_000)
        self._asked_s.pop(partition, None)
        self._asked_s[partition] = asked_s


def in_turn(sizes: Mapping[ZoneId, int]) -> Iterator[PartitionId]:
    """The first partition of each zone, then the second ones."""
    for number in count():
        sizes = {zone_id: size for zone_id, size in sizes.items() if size > number}
        if not sizes:
            return
        yield from (PartitionId(zone_id, number) for zone_id in sizes)
