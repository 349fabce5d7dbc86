"""A mirror of a busy group of three under faults at random, from a seed: equal after each round."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import psutil
import pytest
from aetcd import rpc

from rebalance.groups.calls.replica_reads import SafeTimeWriter
from tests.fixtures.group_hosts import P0, member_process
from tests.fixtures.mirror_rig import MirrorRig

NAMES = ("a", "b", "c")
SEEDS = (1, 2, 3)
RUN_S = 120
KEPT_REVISIONS = 300


class Faults:
    """One of these at a time; ``oldest``: no revision before it can be read any more."""

    def __init__(self, rig: MirrorRig, seed: int) -> None:
        self._rig = rig
        self.chooser = random.Random(seed)
        self.oldest = 2
        self.counts: dict[str, int] = {}

    async def any(self) -> None:
        every = (
            self.kill_store,
            self.freeze_store,
            self.stop,
            self.kill_voter,
            self.compact,
            self.other_sources,
        )
        fault = self.chooser.choice(every)
        self.counts[fault.__name__] = self.counts.get(fault.__name__, 0) + 1
        await fault()
        await asyncio.sleep(self.chooser.random())

    async def kill_store(self) -> None:
        self._rig.kill()

    async def freeze_store(self) -> None:
        for process in self._rig.processes():
            process.suspend()
            await asyncio.sleep(2 * self.chooser.random())
            process.resume()

    async def stop(self) -> None:
        await self._rig.mirrors.stop(P0, destroy=False)
        await asyncio.sleep(self.chooser.random())
        await self._rig.follow(*NAMES)

    async def kill_voter(self) -> None:
        name = self.chooser.choice(NAMES)
        member_process(self._rig.hosts, name).kill()
        await asyncio.sleep(self.chooser.random())
        await self._rig.restart_voter(name)

    async def compact(self) -> None:
        self.oldest = max(self.oldest, await self._rig.revision("b") - KEPT_REVISIONS)
        await self._rig.kv(self._rig.url("b")).Compact(rpc.CompactionRequest(revision=self.oldest))

    async def other_sources(self) -> None:
        await self._rig.follow(*self.chooser.sample(NAMES, self.chooser.randint(1, 3)))


async def fail_now_and_then(faults: Faults) -> None:
    for _ in range(faults.chooser.randint(1, 3)):
        try:
            await faults.any()
        except (rpc.AioRpcError, psutil.Error):
            # A voter that was elected or killed a moment ago, a compaction that was done, a process that ended.
            await asyncio.sleep(0.1)


@pytest.mark.row("IEP-056", "IEP-057")
@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_mirror_under_faults(tmp_path: Path, seed: int) -> None:
    """IEP-056, IEP-057: kill -9 and SIGSTOP of the store, restarts of the follower, killed voters,
    compaction, other sources; all while four writers and the beats go on."""
    rig, writer = MirrorRig(tmp_path, *NAMES), SafeTimeWriter()
    await rig.hosts.found(P0, *NAMES)
    beats = asyncio.create_task(writer.run(lambda: {P0: rig.url("a")}))
    faults, rounds, deadline = Faults(rig, seed), 0, time.monotonic() + RUN_S
    try:
        await rig.follow(*NAMES)
        await rig.caught_up("a")
        while time.monotonic() < deadline:
            async with rig.writers(*NAMES):
                await fail_now_and_then(faults)
            await rig.follow(*NAMES)
            for name in NAMES:
                await rig.restart_voter(name)
            await rig.hosts.leader(P0)
            await rig.check_equal("a", oldest=faults.oldest)
            rounds += 1
        print(f"seed {seed}: {rounds} rounds, {await rig.revision('a')} revisions, {faults.counts}")
    finally:
        beats.cancel()
        await asyncio.gather(beats, return_exceptions=True)
        await writer.close()
        await rig.close()
