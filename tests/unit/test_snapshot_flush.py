"""Flushes while a snapshot arrives, and that nothing else is flushed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from rebalance.groups.files.snapshot_flush import flush_while


class Flushed:
    """Sizes of the file at each flush; ``failing``: each one fails as on a broken disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, failing: bool = False) -> None:
        self.sizes: list[int] = []
        self._failing = failing
        self._flush = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._note)

    def _note(self, descriptor: int) -> None:
        self.sizes.append(os.fstat(descriptor).st_size)
        if self._failing:
            raise OSError(5, "Input/output error")
        self._flush(descriptor)

    async def reaches(self, size: int) -> None:
        async with asyncio.timeout(20):
            while size not in self.sizes:
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("failing", [False, True], ids=["flushed", "broken disk"])
async def test_each_part_is_flushed_as_it_comes(
    failing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file grows, becomes a snapshot, and another one begins; it ends when the member has joined."""
    flushed = Flushed(monkeypatch, failing=failing)
    joins = True
    snapshots = tmp_path / "snap"
    task = asyncio.create_task(flush_while(lambda: joins, snapshots))
    await asyncio.sleep(0)
    snapshots.mkdir()
    (snapshots / "db").write_bytes(b"x" * 7)
    part = snapshots / "tmp123"
    for size in (1_000, 2_000):
        part.write_bytes(b"x" * size)
        await flushed.reaches(size)
    part.rename(snapshots / "0000000000000001.snap.db")
    (snapshots / "tmp124").write_bytes(b"x" * 3_000)
    await flushed.reaches(3_000)
    joins = False
    async with asyncio.timeout(20):
        await task
    assert set(flushed.sizes) <= {0, 1_000, 2_000, 3_000}, "neither the store nor a whole snapshot"


async def test_nothing_is_flushed_for_one_that_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = Flushed(monkeypatch)
    (tmp_path / "tmp1").write_bytes(b"x")
    await flush_while(lambda: False, tmp_path)
    assert flushed.sizes == []
