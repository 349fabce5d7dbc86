"""Changes of log levels: which are accepted, how long they hold, who follows them, and what is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.core.log_levels import CHANGES_MAX, LineLevel, LogLevel, checked_module, levels_now
from app.process.logs import LogLevelFollower, LogLevelKeeper, utc_now_ms
from catalog.core.codec import RecordNotReadableError
from catalog.core.errors import RefusedError
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Snapshot
from simulator.control.memory_metastore import MemoryMetastore
from tests.unit.operations_world import operations_world

PATIENCE_S = 60.0
KEYSPACE = Keyspace()
DEBUG_OF_NODES = {"rebalance.nodes": LineLevel.DEBUG}


def change(level: LineLevel = LineLevel.DEBUG, for_ms: int = 3_600_000) -> LogLevel:
    now_ms = utc_now_ms()
    return LogLevel(level, now_ms, now_ms + for_ms, "alice")


class Levels:
    """Log levels of a process; each change wakes the tasks that wait for one."""

    def __init__(self) -> None:
        self._now: dict[str, LineLevel] = {}
        self._changed = asyncio.Event()

    def set(self, levels: Mapping[str, LineLevel]) -> None:
        self._now = dict(levels)
        self._changed.set()

    async def become(self, levels: Mapping[str, LineLevel]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self._now != levels:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def following(store: MemoryMetastore) -> AsyncIterator[Levels]:
    levels = Levels()
    mirror = KeyspaceMirror(store, KEYSPACE.prefix)
    LogLevelFollower(mirror, KEYSPACE, levels.set)
    task = asyncio.create_task(mirror.run())
    try:
        yield levels
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_every_process_follows_a_change_and_its_reset() -> None:
    store = MemoryMetastore()
    keeper = LogLevelKeeper(store, KEYSPACE)
    async with following(store) as early:
        await keeper.change("rebalance.nodes", change())
        await early.become(DEBUG_OF_NODES)
        async with following(store) as late:
            await late.become(DEBUG_OF_NODES)
            await keeper.change("app", change(LineLevel.ERROR))
            for levels in (early, late):
                await levels.become({**DEBUG_OF_NODES, "app": LineLevel.ERROR})
            assert await keeper.reset("rebalance.nodes")
            assert not await keeper.reset("rebalance.nodes")
            for levels in (early, late):
                await levels.become({"app": LineLevel.ERROR})


async def test_a_change_ends_by_itself_though_its_key_stays() -> None:
    """The key stays where the lease outlives the change, because the metastore had another leader."""
    store = MemoryMetastore()
    async with following(store) as levels:
        short = change(for_ms=1_500)
        await store.commit(Txn((), (Put(KEYSPACE.log_level("rebalance.nodes"), short.encode()),)))
        await levels.become(DEBUG_OF_NODES)
        await levels.become({})
        assert utc_now_ms() >= short.until_ms
        assert await store.get(KEYSPACE.log_level("rebalance.nodes")) is not None
        assert await LogLevelKeeper(store, KEYSPACE).read() == {}


async def test_the_key_of_a_change_goes_with_its_lease() -> None:
    store = MemoryMetastore()
    await LogLevelKeeper(store, KEYSPACE).change("rebalance.nodes", change(for_ms=1_000))
    async with asyncio.timeout(PATIENCE_S):
        while await store.get(KEYSPACE.log_level("rebalance.nodes")) is not None:
            await asyncio.sleep(0.05)


async def test_what_cannot_be_read_changes_nothing_and_is_not_overwritten() -> None:
    store = MemoryMetastore()
    keeper = LogLevelKeeper(store, KEYSPACE)
    key = KEYSPACE.log_level("rebalance.nodes")
    async with following(store) as levels:
        await keeper.change("rebalance.nodes", change())
        await levels.become(DEBUG_OF_NODES)
        await store.commit(Txn((), (Put(key, b'{"v":2}'),)))
        await store.commit(Txn((), (Put(KEYSPACE.log_level("app"), change(LineLevel.ERROR).encode()),)))
        await levels.become({**DEBUG_OF_NODES, "app": LineLevel.ERROR})
        with pytest.raises(RecordNotReadableError):
            await keeper.reset("rebalance.nodes")
        with pytest.raises(RecordNotReadableError):
            await keeper.change("rebalance.nodes", change())
        await store.commit(Txn((), (Delete(key),)))
        await levels.become({"app": LineLevel.ERROR})


class Overwritten(MemoryMetastore):
    """Another build writes the key of a level right after all were read."""

    async def range(self, prefix: str) -> Snapshot:
        before = await super().range(prefix)
        await self.commit(Txn((), (Put(KEYSPACE.log_level("app"), b'{"v":2}'),)))
        return before


async def test_a_change_that_cannot_be_made_asks_for_no_lease() -> None:
    store = Overwritten()
    before = await store.grant_lease(1)
    with pytest.raises(RecordNotReadableError):
        await LogLevelKeeper(store, KEYSPACE).change("app", change())
    assert await store.grant_lease(1) == before + 1


async def test_too_many_changes_are_refused() -> None:
    keeper = LogLevelKeeper(MemoryMetastore(), KEYSPACE)
    for number in range(CHANGES_MAX):
        await keeper.change(f"app.m{number}", change())
    with pytest.raises(RefusedError, match=f"{CHANGES_MAX} modules"):
        await keeper.change("app.another", change())
    await keeper.change("app.m0", change(LineLevel.INFO))


@pytest.mark.parametrize(
    "module", ["sqlalchemy", "httpx", "", "apple", "app.", "app..sql", "app/sql", "a" * 200]
)
def test_modules_without_a_level_are_refused(module: str) -> None:
    with pytest.raises(RefusedError, match="not a module with a level"):
        checked_module(module, LineLevel.INFO)


def test_libraries_do_not_write_credentials() -> None:
    assert checked_module("uvicorn.error", LineLevel.INFO) == "uvicorn.error"
    with pytest.raises(RefusedError, match="credentials"):
        checked_module("uvicorn.error", LineLevel.DEBUG)
    changes = [("uvicorn", change()), ("sqlalchemy.engine", change()), ("app.sql", change())]
    assert levels_now(changes, utc_now_ms()) == {"app.sql": LineLevel.DEBUG}


async def test_the_api_changes_lists_resets_and_records(tmp_path: Path) -> None:
    async with operations_world(tmp_path) as api:
        request = {"level": "debug", "for_s": 600, "by": "alice", "reason": "slow"}
        done = (await api.http.put("/log-levels/rebalance.nodes", json=request)).json()
        assert (done["module"], done["level"], done["by"], done["reason"]) == (
            *("rebalance.nodes", "debug"),
            *("alice", "slow"),
        )
        body = await api.get("/log-levels")
        assert body["changes"] == [done]
        assert (body["defaults"]["rebalance"], body["others"]) == ("info", "warning")
        refused = await api.http.put("/log-levels/uvicorn", json={"level": "debug"})
        assert (refused.status_code, refused.json()["name"]) == (400, "INVALID_REQUEST")
        for wrong in ({"level": "loud"}, {"level": "debug", "for_s": 0}, {}):
            assert (await api.http.put("/log-levels/app", json=wrong)).status_code == 400
        for changed in (True, False):
            reset = (await api.http.delete("/log-levels/rebalance.nodes")).json()
            assert reset == {"module": "rebalance.nodes", "changed": changed}
        assert (await api.get("/log-levels"))["changes"] == []
        records = (await api.get("/audit"))["records"]
        told = [(record["action"], record["subject"], record["by"], record["reason"]) for record in records]
        assert told == [
            ("RESET LOG LEVEL", "rebalance.nodes", None, ""),
            ("CHANGE LOG LEVEL", "rebalance.nodes", "alice", "slow"),
        ]
