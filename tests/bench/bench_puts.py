"""Cost of the group's generation in puts and gets: with it and without, in turns."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

from rebalance.data.zone_router import ZoneRouter
from rebalance.groups.files.etcd_tuning import EtcdTuning
from tests.bench.figures import ratio, report
from tests.fixtures.group_hosts import P0, Fixed, Hosts

TURNS = 40
CALLS = 200
WRITERS = 8
VALUE = b"x" * 100


async def _timed_calls(router: ZoneRouter, turn: int, *, puts: bool) -> list[float]:
    """Seconds of each of CALLS calls, by WRITERS at once."""
    numbers, taken_s = itertools.count(), []

    async def write() -> None:
        while (number := next(numbers)) < CALLS:
            begun = time.perf_counter()
            if puts:
                await router.put(P0, f"k{number}", VALUE, f"{id(router)}/{turn}/{number}")
            else:
                await router.get(P0, f"k{number}")
            taken_s.append(time.perf_counter() - begun)

    await asyncio.gather(*(write() for _ in range(WRITERS)))
    return taken_s


async def test_generation(tmp_path: Path) -> None:
    """One group of three voters; a member's own retries would show in p99."""
    hosts = Hosts(tmp_path, tuning=EtcdTuning())
    for name in "abc":
        hosts.open(name)
    leader = await hosts.found(P0, "a", "b", "c")
    endpoints = hosts.hosts[leader].endpoints(P0)
    assert endpoints is not None
    routers = [ZoneRouter(Fixed((endpoints.client_url,), generation=generation)) for generation in (None, 0)]
    try:
        for puts in (True, False):
            taken: list[list[float]] = [[], []]
            for turn in range(TURNS + 1):
                for router, each in zip(routers, taken, strict=True):
                    seconds = await _timed_calls(router, turn, puts=puts)
                    if turn:
                        each += seconds
            call = "put" if puts else "get"
            before = report(f"{call}, any generation", taken[0])
            after = report(f"{call}, of one generation only", taken[1])
            ratio(f"{call} that carries its generation", after, before)
    finally:
        for router in routers:
            await router.close()
        await hosts.close()
