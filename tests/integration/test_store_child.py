"""A store server as a child of its agent: its end is reported at once, and another one takes its place."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rebalance.controllers.clock import SteadyClock
from rebalance.core.keyspace.keys import Keyspace
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.nodes.store_child import StoreChild
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.ring_world import RingWorld

ROOT = Path(__file__).parents[2]
NO_TIME_MS = 3_600_000
"""Milliseconds of a heartbeat, so many that no server fails for the lack of one."""


@pytest.mark.slow("two processes of a server start, one after the other")
async def test_a_killed_server_fails_at_once_and_comes_back(
    tmp_path: Path,
    etcd_server: Etcd,
    metastore: EtcdMetastore,
    keyspace: Keyspace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ZONEKEEPER_METASTORE", etcd_server.endpoint)
    monkeypatch.setenv("ZONEKEEPER_METASTORE_PREFIX", keyspace.prefix)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pid = tmp_path / "pid"

    def command(incarnation: str) -> Sequence[str]:
        serve = ("store", "serve", "--name", "n1", "--data-dir", str(tmp_path), "--incarnation", incarnation)
        own_pid = f'echo $$ > {pid}; exec "$@"'
        return ("/bin/sh", "-c", own_pid, "sh", sys.executable, "-m", "app.cli", *serve)

    world = RingWorld(metastore, keyspace)
    child = StoreChild("n1", metastore, keyspace, command, ("PATH", "HOME", "PYTHON*", "ZONEKEEPER_*"))
    async with world.control(clock=SteadyClock(), ttl_ms=NO_TIME_MS):
        running = asyncio.create_task(child.run())
        try:
            first = (await world.until(lambda state: "n1" in state.incarnations)).incarnations["n1"]
            os.kill(int(pid.read_text()), signal.SIGKILL)
            await world.until(lambda state: state.incarnations.get("n1", first) != first)
            assert first in [record.incarnation for record in await world.records()]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        # The agent that stops says so, too.
        await world.until(lambda state: not state.incarnations)


async def test_a_server_that_dies_of_its_file_again_and_again_is_told_of(
    metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    """Report a server that dies of its file three times in a row, as LMDB does on a file that was cut; two
    times may have another cause."""
    ends = 0
    damages: list[str] = []

    def command(incarnation: str) -> Sequence[str]:
        nonlocal ends
        ends += 1
        return ("/bin/sh", "-c", "exit 1" if ends == 3 else "kill -BUS $$")

    child = StoreChild("n1", metastore, keyspace, command, ("PATH",), damages.append)
    running = asyncio.create_task(child.run())
    try:
        async with asyncio.timeout(60):
            while not damages:
                await asyncio.sleep(0.05)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert damages == ["it ended with SIGBUS 3 times in a row"]
    assert ends >= 6
