"""Questions to partitions while the metastore is silent: which, how many at once, and what is made of the
answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from app.counts.serving_watch import AT_ONCE, PER_S, ServingWatch, in_turn
from app.views.mirror_freshness import MetastoreSilence
from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.ports.groups import OutcomeUnknownError

SINCE_MS = 1_700_000_000_000
SMALL, LARGE = ZoneId(1), ZoneId(2)
WAIT_S = 60.0


class Partitions:
    """Partitions of zones of these sizes. Those of ``down`` do not answer; ``at_once_max``: the most asked at
    once."""

    def __init__(self, sizes: Mapping[ZoneId, int]) -> None:
        self.sizes = sizes
        self.since_ms: int | None = SINCE_MS
        self.down: set[PartitionId] = set()
        self.asked: list[PartitionId] = []
        self.at_once = self.at_once_max = 0

    async def get(self, partition: PartitionId, key: str, *, limit_s: float | None = None) -> object:
        self.asked.append(partition)
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        try:
            if partition in self.down:
                assert limit_s is not None
                await asyncio.sleep(limit_s)
                raise OutcomeUnknownError("no answer")
        finally:
            self.at_once -= 1
        return None

    async def unknown_since_ms(self) -> int | None:
        return self.since_ms


@asynccontextmanager
async def watching(partitions: Partitions) -> AsyncIterator[ServingWatch]:
    watch = ServingWatch(partitions.unknown_since_ms, partitions, lambda: partitions.sizes)
    running = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(watch: ServingWatch, condition: Callable[[MetastoreSilence], bool]) -> MetastoreSilence:
    async with asyncio.timeout(WAIT_S):
        while (silence := await watch.silence()) is None or not condition(silence):
            await asyncio.sleep(0.02)
    return silence


async def test_each_partition_is_told_as_it_answers() -> None:
    partitions = Partitions({SMALL: 3})
    one, other, third = (PartitionId(SMALL, number) for number in range(3))
    partitions.down.add(other)
    began_ms = time.time_ns() // 1_000_000
    async with watching(partitions) as watch:
        silence = await until(watch, lambda silence: len(silence.answers) == 3)
        assert [silence.state(each) for each in (one, other, third)] == ["SERVING", "NOT_SERVING", "SERVING"]
        assert silence.state(PartitionId(LARGE, 0)) == "UNKNOWN"
        assert silence.state_since_ms(PartitionId(LARGE, 0)) == silence.since_ms == SINCE_MS
        assert silence.state_since_ms(one) >= began_ms
        asked = partitions.asked.count(one)
        later = await until(watch, lambda _: partitions.asked.count(one) > asked + 1)
        assert later.answers[one] == silence.answers[one], "since then it has not changed"
        partitions.down = {one}
        changed = await until(watch, lambda silence: silence.state(one) == "NOT_SERVING")
        assert changed.state_since_ms(one) > silence.state_since_ms(one)
        assert (await until(watch, lambda silence: silence.state(other) == "SERVING")).since_ms == SINCE_MS


async def test_nobody_is_asked_while_the_metastore_answers() -> None:
    partitions = Partitions({SMALL: 3})
    partitions.since_ms = None
    async with watching(partitions) as watch:
        await asyncio.sleep(0.2)
        assert await watch.silence() is None
        assert partitions.asked == []
        partitions.since_ms = SINCE_MS
        assert await watch.silence() == MetastoreSilence(SINCE_MS)
        await until(watch, lambda silence: len(silence.answers) == 3)


async def test_of_many_partitions_so_many_a_second_are_asked() -> None:
    """Partitions of every zone are asked, at most PER_S a second, and of those that hang AT_ONCE at once."""
    partitions = Partitions({SMALL: 3, LARGE: 60_000})
    partitions.down = {PartitionId(LARGE, number) for number in range(10, 60_000)}
    async with watching(partitions) as watch:
        began = time.monotonic()
        await until(watch, lambda silence: len(silence.answers) > 2 * AT_ONCE)
        took_s = time.monotonic() - began
        asked = partitions.asked
        assert {PartitionId(SMALL, number) for number in range(3)} < set(asked[:6])
        assert len(asked) == len(set(asked)) <= took_s * PER_S + 1
        assert partitions.at_once_max == AT_ONCE


def test_zones_take_turns() -> None:
    turns = in_turn({SMALL: 1, LARGE: 3})
    assert [*turns] == [
        PartitionId(zone, number) for zone, number in ((SMALL, 0), *((LARGE, n) for n in range(3)))
    ]
    assert [*in_turn({})] == []
