"""Mirrors: the first copy of 100 MB, revisions a second, the lag behind busy writers, and what a beat costs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from aetcd import rpc

from rebalance.core.moves.source_revisions import RevisionChange, SourceRevision
from rebalance.groups.calls.replica_reads import SafeTimeWriter
from rebalance.groups.copies.mirror_source import MirrorSource
from rebalance.groups.copies.mirror_store import MirrorStore
from rebalance.ports.groups import MemberEndpoints
from tests.bench.figures import percentile
from tests.fixtures.group_hosts import P0, member_process
from tests.fixtures.mirror_process import GROUP
from tests.fixtures.mirror_rig import MirrorRig

DAY_BEATS = 2 * 86_400


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[MirrorRig]:
    found = MirrorRig(tmp_path, "a", "b", "c")
    yield found
    await found.close()


def say(name: str, figure: str) -> None:
    print(f"{name:<62} {figure}")


async def fill(rig: MirrorRig, count: int, value: bytes, at_once: int = 64) -> float:
    """Puts ``count`` values, ``at_once`` at a time; returns the seconds."""
    stub, begun = rig.kv(rig.url("a")), time.perf_counter()

    async def put(lane: int) -> None:
        for number in range(lane, count, at_once):
            await stub.Put(rpc.PutRequest(key=b"d/%d" % number, value=value))

    await asyncio.gather(*(put(lane) for lane in range(at_once)))
    return time.perf_counter() - begun


async def test_first_copy(rig: MirrorRig, tmp_path: Path) -> None:
    await rig.hosts.found(P0, "a")
    await fill(rig, 100_000, b"v" * 1_000)
    begun = time.perf_counter()
    async with MirrorSource(rig.url("a")) as source:
        size = await source.download(tmp_path / "snapshot")
    download_s = time.perf_counter() - begun
    (tmp_path / "snapshot").unlink()
    begun = time.perf_counter()
    await rig.follow("a")
    await rig.caught_up("a")
    copy_s = time.perf_counter() - begun
    say("first copy of 100,000 values of 1,000 bytes", f"{copy_s:.2f} s for {size / 1e6:.0f} MB")
    say("... its snapshot alone", f"{download_s:.2f} s, {download_s / copy_s:.2f} of it")


async def test_revisions_a_second(rig: MirrorRig) -> None:
    await rig.hosts.found(P0, "a")
    await rig.follow("a")
    await rig.caught_up("a")
    for name, count, value in (("100 bytes", 8_000, b"v" * 100), ("100,000 bytes", 400, b"v" * 100_000)):
        await rig.mirrors.stop(P0, destroy=False)
        fill_s = await fill(rig, count, value)
        begun = time.perf_counter()
        await rig.follow("a")
        await rig.until(lambda found: found.source != "")
        started = time.perf_counter()
        await rig.caught_up("a")
        took_s = time.perf_counter() - started
        say(f"missed revisions of {name}, repeated", f"{count / took_s:,.0f}/s (start {started - begun:.2f} s)")
        say("... put into the group before, 64 at once", f"{count / fill_s:,.0f}/s")


async def test_one_by_one_and_in_batches(rig: MirrorRig) -> None:
    await rig.hosts.found(P0, "a")
    await rig.follow("a")
    await rig.caught_up("a")
    await rig.mirrors.follow(P0, GROUP, ())
    await rig.until(lambda found: found.source == "")
    held = json.loads((rig.directory / "reservation.json").read_text())
    urls = [f"http://{held['host']}:{held[name]}" for name in ("peer_port", "client_port")]
    store = MirrorStore(MemberEndpoints(*urls), held["copy"])
    await store.prepare()
    for size in (1, 10, 100, 500):
        count = max(1_000, 10 * size)
        first = (await store.position()).revision + 1
        changes = [RevisionChange(b"d/%d" % (number % 500), b"v" * 100) for number in range(count)]
        revisions = [SourceRevision(first + number, (each,)) for number, each in enumerate(changes)]
        begun = time.perf_counter()
        for start in range(0, count, size):
            await store.apply(revisions[start : start + size])
        say(f"applied in batches of {size}", f"{count / (time.perf_counter() - begun):,.0f}/s")
    await store.close()


async def test_lag_behind_writers(rig: MirrorRig) -> None:
    """Three voters, the mirror and eight writers on the same machine."""
    await rig.hosts.found(P0, "a", "b", "c")
    await rig.follow("a", "b", "c")
    first = await rig.caught_up("a")
    behind: list[int] = []
    begun = time.perf_counter()
    async with rig.writers("a", "b", "c", count=8, pause_s=0.0):
        while time.perf_counter() - begun < 10:
            now = await rig.revision("a")
            behind.append(max(0, now - (await rig.status()).safe_revision))
            await asyncio.sleep(0.05)
        wrote_s = time.perf_counter() - begun
    last = await rig.revision("a")
    ended = time.perf_counter()
    await rig.caught_up("a")
    say("8 writers on a group of three, with a mirror", f"{(last - first) / wrote_s:,.0f} revisions/s")
    lag = f"p50 {percentile(behind, 0.5):.0f}, p99 {percentile(behind, 0.99):.0f} revisions"
    say("... the mirror behind them", f"{lag}; at the end caught up in {time.perf_counter() - ended:.2f} s")


async def test_beats(rig: MirrorRig) -> None:
    await rig.hosts.found(P0, "a", "b", "c")
    await rig.follow("a", "b", "c")
    await rig.caught_up("a")
    stores = {"voter": member_process(rig.hosts, "a"), "mirror": rig.process()}
    writer, count = SafeTimeWriter(), 4_000
    before = {name: spent(process) for name, process in stores.items()}
    for _ in range(count):
        await writer.beat(P0, rig.url("a"))
    await rig.caught_up("a")
    await asyncio.sleep(1.0)
    for name, process in stores.items():
        cpu_s, written = (now - then for now, then in zip(spent(process), before[name], strict=True))
        a_day = DAY_BEATS / count
        say(
            f"beats of an idle partition a day, {name}",
            f"{written * a_day / 1e6:,.0f} MB written, {cpu_s * a_day:,.0f} s of a core",
        )
    kept = [(await rig.status()).size_bytes / 1e6, 10_000 * (await rig.status()).size_bytes / count / 1e6]
    say("store of the mirror after these, at 10,000 kept", f"{kept[0]:.1f} MB, {kept[1]:.1f} MB")
    await writer.close()


def spent(process: psutil.Process) -> tuple[float, int]:
    """Seconds of a core and bytes written, so far."""
    times = process.cpu_times()
    return times.user + times.system, process.io_counters().write_bytes
