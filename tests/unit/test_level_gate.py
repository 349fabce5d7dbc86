"""A process below the level in force ends, whenever it comes into force; a leader below it is replaced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from catalog.core.level import LEVEL
from rebalance.controllers.controller_leadership import ControllerLeadership
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import ProcessRecord
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.metastore.level_gate import BelowLevelError, within_level
from rebalance.ports.metastore import MetastoreUnavailableError
from simulator.control.memory_metastore import MemoryMetastore
from simulator.control.virtual_time import run_virtually

KEYSPACE = Keyspace()
LEADER = KEYSPACE.controller_leader


def epoch(level: int) -> bytes:
    return json.dumps({"v": 2, "epoch": 1, "halted": "", "level": level}).encode()


async def put(store: MemoryMetastore, key: str, value: bytes) -> None:
    await store.commit(Txn((), (Put(key, value),)))


async def for_ever() -> None:
    await asyncio.sleep(1e9)


async def leads(store: MemoryMetastore, in_force: Callable[[], int]) -> bool:
    """Check that ``new`` leads within a minute beside a leader whose lease never ends."""
    leadership = ControllerLeadership(store, KEYSPACE, "new", 10, in_force=in_force)
    running = asyncio.ensure_future(leadership.run(for_ever))
    await asyncio.sleep(60)
    is_leader = leadership.is_leader
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return is_leader


def test_a_process_that_starts_below_the_level_ends_at_once() -> None:
    async def main() -> None:
        store = MemoryMetastore()
        await put(store, KEYSPACE.epoch, epoch(LEVEL + 1))
        with pytest.raises(BelowLevelError, match="this controller is of release level"):
            await within_level(store, KEYSPACE, "this controller", for_ever())

    run_virtually(main())


def test_one_that_runs_ends_when_a_level_above_comes_into_force() -> None:
    async def main() -> None:
        store = MemoryMetastore()
        await put(store, KEYSPACE.epoch, epoch(LEVEL))
        running = asyncio.ensure_future(within_level(store, KEYSPACE, "it", for_ever()))
        await asyncio.sleep(3_600)
        assert not running.done()
        await put(store, KEYSPACE.epoch, epoch(LEVEL + 1))
        await asyncio.sleep(10)
        with pytest.raises(BelowLevelError):
            await running

    run_virtually(main())


def test_a_metastore_that_is_away_ends_nobody() -> None:
    async def main() -> None:
        store = MemoryMetastore()
        store.pause()
        with pytest.raises(MetastoreUnavailableError):
            await store.get(KEYSPACE.epoch)
        running = asyncio.ensure_future(within_level(store, KEYSPACE, "it", for_ever()))
        await asyncio.sleep(3_600)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtually(main())


def test_what_the_service_ends_with_is_what_its_process_ends_with() -> None:
    async def broken() -> None:
        raise OSError("the port is taken")

    async def main() -> None:
        with pytest.raises(OSError, match="the port is taken"):
            await within_level(MemoryMetastore(), KEYSPACE, "it", broken())

    run_virtually(main())


@pytest.mark.parametrize(
    ("in_force", "leader", "is_replaced"),
    [
        (0, 0, False),
        (LEVEL, 0, True),
        (LEVEL, LEVEL, False),
        (LEVEL, None, False),
    ],
)
def test_a_leader_below_the_level_is_replaced(in_force: int, leader: int | None, is_replaced: bool) -> None:
    """A leader of the level stays, and so does one that is not registered: it may be about to be."""

    async def main() -> None:
        store = MemoryMetastore()
        await put(store, LEADER, b"old")
        if leader is not None:
            await put(store, KEYSPACE.process("old"), ProcessRecord("controller", level=leader).encode())
        assert await leads(store, lambda: in_force) is is_replaced

    run_virtually(main())
