"""Puts and gets of programs, one after the other, in a store zone and in one of etcd groups of one
installation: by the Python client and through the server, beside a bare commit of LMDB."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import lmdb
import pytest

from tests.bench.figures import ratio, report, timed
from tests.e2e.installation import Installation, without_spark
from zonekeeper_client import Mode, ZoneClient

CALLS = 500
TURN = 50
VALUE = "x" * 100
ZONES = {"STORED": "bulk", "GROUPED": "default"}


def bare_commits(directory: Path) -> list[float]:
    """One row a commit, synced."""
    with lmdb.Environment(str(directory), map_size=1 << 30) as environment:
        numbers = iter(range(1_000_000))

        def commit() -> None:
            with environment.begin(write=True) as txn:
                txn.put(b"%08d" % next(numbers), VALUE.encode())

        return timed(commit, CALLS)


async def seconds_of(call: Callable[[str], Awaitable[object]], first: int) -> list[float]:
    """Seconds of TURN calls, one after the other."""
    seconds = []
    for number in range(first, first + TURN):
        begun = time.perf_counter()
        await call(f"key-{number}")
        seconds.append(time.perf_counter() - begun)
    return seconds


@pytest.mark.slow("an installation of three nodes, and thousands of calls one after the other")
async def test_one_program(tmp_path: Path) -> None:
    """Measure both engines in turns, so that they have the same load of the machine."""
    installation = Installation(tmp_path / "data", environment=without_spark(tmp_path))
    installation.start()
    try:
        for zone, profile in ZONES.items():
            storage = f"STORAGE PROFILES ['{profile}']"
            installation.execute(f"CREATE ZONE {zone} (PARTITIONS 8, REPLICAS 3) {storage}", 240)
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        commit = report("bare commit of LMDB, synced", bare_commits(tmp_path))
        for mode in (Mode.DIRECT, Mode.ROUTED):
            async with ZoneClient(
                [installation.url], mode=mode, tls=installation.tls, **installation.login
            ) as client:
                await measured(client, mode, commit)
        print(f"load {os.getloadavg()[0]:.1f}")
    finally:
        installation.stop()


async def measured(client: ZoneClient, mode: Mode, commit: float) -> None:
    for name in ("put", "get"):
        taken: dict[str, list[float]] = {zone: [] for zone in ZONES}

        def call_of(zone: str, name: str = name) -> Callable[[str], Awaitable[object]]:
            if name == "put":
                return lambda key: client.put(zone, key, VALUE)
            return lambda key: client.get(zone, key)

        for first in range(0, CALLS, TURN):
            for zone, seconds in taken.items():
                seconds += await seconds_of(call_of(zone), first)
        way = "by the client" if mode is Mode.DIRECT else "through the server"
        stored = report(f"{name} {way}, store zone", taken["STORED"][TURN:])
        grouped = report(f"{name} {way}, etcd groups", taken["GROUPED"][TURN:])
        ratio(f"{name} {way}, against etcd groups", stored, grouped)
        if name == "put":
            ratio(f"{name} {way}, against a bare commit", stored, commit)
