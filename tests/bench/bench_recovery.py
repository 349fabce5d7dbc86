"""A dry run of a reset over a zone of 65,000 partitions of which 1,280 have lost their majority."""

from __future__ import annotations

import asyncio
import time

from tests.fixtures.large_zone import world_of

PARTITIONS, LOST = 65_000, 1_280
LOOK_S = 0.001


async def longest_stall(ended: asyncio.Event) -> float:
    longest, seen = 0.0, time.perf_counter()
    while not ended.is_set():
        await asyncio.sleep(LOOK_S)
        now = time.perf_counter()
        longest, seen = max(longest, now - seen - LOOK_S), now
    return longest


async def dry_run() -> None:
    begun = time.perf_counter()
    world = await world_of(PARTITIONS, LOST)
    print(f"{PARTITIONS:,} partitions are there after {time.perf_counter() - begun:.1f} s")
    for _ in range(2):
        ended = asyncio.Event()
        looking = asyncio.create_task(longest_stall(ended))
        await asyncio.sleep(0)
        begun = time.perf_counter()
        resets = await world.recovery.reset(world.intent().zone, dry_run=True)
        took_s = time.perf_counter() - begun
        ended.set()
        print(
            f"dry run: {took_s:.2f} s, {took_s / PARTITIONS * 1e6:.0f} us a partition; {len(resets):,} are "
            f"lost; longest stall of the loop {await looking:.3f} s"
        )


def test_dry_run() -> None:
    asyncio.run(dry_run())
