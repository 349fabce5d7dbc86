"""One truth in two stores: real etcd, real catalog, and one of them restored from a backup that is too old."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.sql.engine.executor import CatalogExecutor
from app.sql.plan.member_counts import MemberCounts
from catalog.core.errors import ErrorKind, RefusedError, StoreError
from catalog.core.level import LEVEL
from catalog.core.snapshot import ZoneDefaults
from catalog.core.zone import Node, ZoneId, ZoneIntent
from catalog.store.migrate import migrate
from parser.to_command import parse_ddl
from rebalance.controllers.outbox_relay import OutboxRelay
from rebalance.controllers.runtime import ControllerRules, ControllerRuntime
from rebalance.controllers.store_guard import ShownState, StoreGuard
from rebalance.core.assignments.guarded_write import decode_trigger
from rebalance.core.assignments.target import TargetPointer
from rebalance.core.keyspace.epoch import DivergenceKind, EpochRecord, split_event_revision
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import MetastoreUnavailableError
from tests.fixtures.etcd_server import Etcd, EtcdServer, start_etcd_server, stop_etcd_server
from tests.fixtures.local_engine import LocalPlacementEngine

NODES = tuple(Node(f"n{number}") for number in range(1, 6))
ZONE = ZoneId(1)
TWO = ZoneId(2)
BIG = b"x" * 1_000_000


@dataclass
class Server:
    """Parts of a server, without HTTP: catalog, relay, guard and a leading controller."""

    catalog: CatalogExecutor
    guard: StoreGuard
    mirror: KeyspaceMirror
    metastore: EtcdMetastore
    keyspace: Keyspace

    async def sql(self, text: str) -> None:
        await self.catalog.run(parse_ddl(text), NODES)

    async def until(self, zone_id: ZoneId, version: int, replicas: int) -> None:
        """The zone's last partition was brought to this version: its trigger is the event of its target."""
        keys = self.keyspace.partition(PartitionId(zone_id, 3))

        def is_written() -> bool:
            pointer, trigger = (
                self.mirror.value(self.keyspace.target_pointer(zone_id)),
                self.mirror.value(keys.trigger),
            )
            if pointer is None or trigger is None:
                return False
            target = TargetPointer.decode(pointer)
            written = decode_trigger(trigger) == target.event_revision
            return written and target.catalog_version >= version and target.replicas == replicas

        assert await self.mirror.wait_until(is_written, 90), f"zone {zone_id} at version {version}"

    async def until_marked(self) -> None:
        async with asyncio.timeout(90):
            while True:
                truth = await self.catalog.truth(None)
                state = await self.guard.check()
                if truth.mark is not None and truth.mark.revision >= state.revision:
                    return

    def halted(self) -> str:
        return EpochRecord.decode(self.mirror.value(self.keyspace.epoch)).halted

    async def version(self) -> int:
        return (await self.catalog.snapshot()).version

    async def refused(self, text: str, kind: ErrorKind) -> StoreError:
        with pytest.raises(StoreError) as raised:
            await self.sql(text)
        assert raised.value.kind is kind
        return raised.value


@asynccontextmanager
async def serving(etcd: Etcd, keyspace: Keyspace, database: Path) -> AsyncIterator[Server]:
    url = f"sqlite:///{database}"
    migrate(url)
    metastore = EtcdMetastore([etcd.endpoint])
    mirror = KeyspaceMirror(metastore, keyspace.prefix)
    catalog = CatalogExecutor(url, ZoneDefaults(partitions=4), MemberCounts(lambda _: ()))
    relay = OutboxRelay(catalog, metastore, keyspace, lambda: guard.is_agreed)
    guard = StoreGuard(catalog, metastore, mirror, keyspace, relay.relay_once)
    catalog.guard(guard.require_writable)
    await catalog.open(relay.wake)
    runtime = ControllerRuntime(metastore, keyspace, LocalPlacementEngine(), ControllerRules("test", 2))
    for node in NODES:
        put = Put(keyspace.node(node.name), NodeRecord(node, "1").at_level(LEVEL).encode())
        await metastore.commit(Txn((), (put,)))
    work = [mirror.run(), guard.run(), relay.run(), runtime.run()]
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await mirror.loaded()
        await guard.check()
        yield Server(catalog, guard, mirror, metastore, keyspace)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await catalog.close()
        await metastore.close()


def restore(backup: Path, place: Path) -> None:
    """``place`` holds again what it held when it was copied; a database without its write-ahead log."""
    if backup.is_dir():
        shutil.rmtree(place)
        shutil.copytree(backup, place)
        return
    for suffix in ("-wal", "-shm"):
        place.with_name(place.name + suffix).unlink(missing_ok=True)
    shutil.copy(backup, place)


@pytest.mark.row("I3-050")
async def test_an_etcd_restored_from_an_older_backup(
    own_etcd: EtcdServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """I3-050: detected while everything runs, statements refused, controllers stop; adopted, it
    converges, and events count in the next epoch."""
    data, backup = own_etcd.directory / "data", tmp_path / "backup"
    async with serving(own_etcd, keyspace, tmp_path / "catalog.sqlite") as server:
        await server.sql("CREATE ZONE one (REPLICAS 3)")
        await server.until(ZONE, 1, 3)
    own_etcd.kill()
    shutil.copytree(data, backup)
    own_etcd.restart()
    async with serving(own_etcd, keyspace, tmp_path / "catalog.sqlite") as server:
        await server.sql("ALTER ZONE one SET (REPLICAS 5); CREATE ZONE two (REPLICAS 3)")
        await server.until(ZONE, 2, 5)
        await server.until(TWO, 3, 3)

        own_etcd.kill()
        restore(backup, data)
        own_etcd.restart()
        assert await server.mirror.wait_until(lambda: server.halted() != "", 90)
        error = await server.refused("CREATE ZONE three", ErrorKind.METASTORE_DIVERGED)
        assert "zonectl metastore adopt" in error.message
        assert error.kind.sqlstate == "55000"
        state = await server.guard.check()
        assert state.divergence is not None
        assert state.divergence.kind is DivergenceKind.METASTORE_WENT_BACK
        assert await server.version() == 3
        assert server.mirror.value(keyspace.intent(TWO)) is None

        stale = replace(state.shown, reason="another one")
        for shown in (stale, replace(state.shown, epoch=2), ShownState(1, "", "")):
            with pytest.raises(RefusedError) as refused:
                await server.guard.adopt(shown)
            assert refused.value.kind is ErrorKind.SHOWN_STATE_CHANGED
        assert (await server.guard.check()).shown == state.shown
        done = await server.guard.adopt(state.shown)
        assert done is not None
        assert (done.epoch, done.catalog_version, done.dropped) == (2, 4, ())
        with pytest.raises(RefusedError, match="they are now: epoch 2, both agree"):
            await server.guard.adopt(state.shown)
        assert await server.guard.adopt((await server.guard.check()).shown) is None
        await server.until(ZONE, 4, 5)
        await server.until(TWO, 4, 3)
        await server.sql("CREATE ZONE three (REPLICAS 3)")
        await server.until(ZoneId(3), 5, 3)
        pointer = server.mirror.value(keyspace.target_pointer(ZoneId(3)))
        assert pointer is not None
        assert split_event_revision(TargetPointer.decode(pointer).event_revision)[0] == 2


async def test_a_catalog_restored_from_an_older_backup(
    own_etcd: EtcdServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """Detected at the start, refused; adopting takes the catalog's zones back to what it says and ends the zone
    that only etcd knows, whose id is not given again."""
    database, backup = tmp_path / "catalog.sqlite", tmp_path / "backup.sqlite"
    async with serving(own_etcd, keyspace, database) as server:
        await server.sql("CREATE ZONE one (REPLICAS 3)")
        await server.until(ZONE, 1, 3)
    shutil.copy(database, backup)
    async with serving(own_etcd, keyspace, database) as server:
        await server.sql("ALTER ZONE one SET (REPLICAS 5); CREATE ZONE two (REPLICAS 3)")
        await server.until(ZONE, 2, 5)
        await server.until(TWO, 3, 3)
    restore(backup, database)
    async with serving(own_etcd, keyspace, database) as server:
        await server.refused("CREATE ZONE two (REPLICAS 5)", ErrorKind.METASTORE_DIVERGED)
        state = await server.guard.check()
        assert state.divergence is not None
        assert state.divergence.kind is DivergenceKind.CATALOG_WENT_BACK
        assert "version 3 of zone TWO" in state.divergence.reason

        done = await server.guard.adopt(state.shown)
        assert done is not None
        assert (done.catalog_version, done.published, done.dropped) == (4, 2, ("TWO",))
        await server.until(ZONE, 4, 3)
        left = keyspace.zone_partitions(TWO)
        assert await server.mirror.wait_until(lambda: not any(server.mirror.below(left)), 90)
        intent = server.mirror.value(keyspace.intent(TWO))
        assert intent is not None
        assert ZoneIntent.decode(intent).dropped
        await server.sql("CREATE ZONE two (REPLICAS 3)")
        await server.until(ZoneId(3), 5, 3)


async def test_the_right_backup_ends_it_without_adoption(
    own_etcd: EtcdServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """The newer catalog was only mislaid: when it is back, writing goes on in the same epoch."""
    database, older, newer = (tmp_path / name for name in ("catalog.sqlite", "older.sqlite", "newer.sqlite"))
    async with serving(own_etcd, keyspace, database) as server:
        await server.until_marked()
    shutil.copy(database, older)
    async with serving(own_etcd, keyspace, database) as server:
        await server.sql("CREATE ZONE one (REPLICAS 3)")
        await server.until(ZONE, 1, 3)
    shutil.copy(database, newer)
    restore(older, database)
    async with serving(own_etcd, keyspace, database) as server:
        assert await server.mirror.wait_until(lambda: server.halted() != "", 90)
    restore(newer, database)
    async with serving(own_etcd, keyspace, database) as server:
        assert await server.mirror.wait_until(lambda: server.halted() == "", 90)
        await server.sql("ALTER ZONE one SET (REPLICAS 5)")
        await server.until(ZONE, 2, 5)
        assert server.guard.state is not None
        assert server.guard.state.epoch == 1


async def test_a_full_etcd_refuses_statements_until_there_is_space(keyspace: Keyspace, tmp_path: Path) -> None:
    """Refuse statements of a full etcd with a code of its own (53100); accept them again when etcd was
    compacted and defragmented and the alarm is gone."""
    etcd = start_etcd_server("--quota-backend-bytes", str(16 << 20))
    try:
        async with serving(etcd, keyspace, tmp_path / "catalog.sqlite") as server:
            await server.sql("CREATE ZONE one (REPLICAS 3)")
            await server.until(ZONE, 1, 3)
            await fill(server.metastore)
            await server.guard.check()
            error = await server.refused("CREATE ZONE two", ErrorKind.METASTORE_FULL)
            assert error.kind.sqlstate == "53100"
            assert "NOSPACE" in error.message

            revision = (await server.guard.check()).revision
            _maintain(etcd, "kv/compaction", {"revision": str(revision), "physical": True})
            _maintain(etcd, "maintenance/defragment", {})
            await server.guard.check()
            await server.refused("CREATE ZONE two", ErrorKind.METASTORE_FULL)
            for alarm in _maintain(etcd, "maintenance/alarm", {"action": "GET"})["alarms"]:
                _maintain(etcd, "maintenance/alarm", {"action": "DEACTIVATE", **alarm})
            state = await server.guard.check()
            assert not state.full
            await server.sql("CREATE ZONE two (REPLICAS 3)")
            await server.until(TWO, 2, 3)
    finally:
        stop_etcd_server(etcd)


async def fill(metastore: EtcdMetastore) -> None:
    """One key again and again until there is no space for its history; a slow answer is no such refusal."""
    for _ in range(200):
        try:
            await metastore.commit(Txn((), (Put("filling", BIG),)))
        except MetastoreUnavailableError as error:
            if "space" in str(error):
                return
    raise AssertionError("200 MB fitted")


def _maintain(etcd: EtcdServer, path: str, body: dict[str, object]) -> Any:
    """etcd's own JSON interface, as an operator's tools use it."""
    url = f"http://{etcd.endpoint}/v3/{path}"
    return httpx.post(url, json=body, trust_env=False, timeout=60).raise_for_status().json()
