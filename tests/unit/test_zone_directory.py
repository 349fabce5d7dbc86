"""Names follow the intents: created, renamed, dropped and taken again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from app.views.routing import ZoneDirectory
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import Zone, ZoneId, ZoneIntent
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.metastore.mirror import KeyspaceMirror
from simulator.control.memory_metastore import MemoryMetastore

KEYS = Keyspace()
ORDERS = Zone(ZoneId(1), "ORDERS", 8, 1, None, ("default",))


class Fixture:
    def __init__(self) -> None:
        self.store = MemoryMetastore()
        self.mirror = KeyspaceMirror(self.store, KEYS.prefix)
        self.catalog = CatalogSnapshot()
        self.directory = ZoneDirectory(self.mirror, KEYS, self.snapshot)

    async def snapshot(self) -> CatalogSnapshot:
        return self.catalog

    async def publish(self, *intents: ZoneIntent) -> None:
        puts = tuple(Put(KEYS.intent(each.zone.zone_id), each.encode()) for each in intents)
        result = await self.store.commit(Txn((), puts))
        assert await self.mirror.wait_until(lambda: self.mirror.revision >= result.revision, 60)


@pytest.fixture
async def known() -> AsyncIterator[Fixture]:
    fixture = Fixture()
    running = asyncio.create_task(fixture.mirror.run())
    await fixture.mirror.loaded()
    yield fixture
    running.cancel()


async def test_a_name_is_found_as_sql_reads_it(known: Fixture) -> None:
    lower = replace(ORDERS, zone_id=ZoneId(2), name="orders")
    await known.publish(ZoneIntent(1, ORDERS))
    assert await known.directory.find("orders") == ORDERS
    await known.publish(ZoneIntent(2, lower))
    assert await known.directory.find("orders") == ORDERS
    assert await known.directory.find('"orders"') == lower
    assert await known.directory.find("ORDERS") == ORDERS


async def test_names_move(known: Fixture) -> None:
    """Two zones that swap names in one revision, then one is dropped."""
    other = replace(ORDERS, zone_id=ZoneId(2), name="OTHER")
    await known.publish(ZoneIntent(1, ORDERS), ZoneIntent(2, other))
    await known.publish(
        ZoneIntent(3, replace(ORDERS, name="OTHER")), ZoneIntent(4, replace(other, name="ORDERS"))
    )
    assert (await known.directory.find("ORDERS")).zone_id == 2
    assert (await known.directory.find("OTHER")).zone_id == 1
    await known.publish(ZoneIntent(5, replace(other, name="ORDERS"), dropped=True))
    with pytest.raises(RefusedError) as refused:
        await known.directory.find("ORDERS")
    assert refused.value.kind is ErrorKind.ZONE_NOT_FOUND


async def test_the_catalog_knows_what_is_still_on_its_way(known: Fixture) -> None:
    known.catalog = CatalogSnapshot(1, (ORDERS,), ZoneId(2))
    assert await known.directory.find("orders") == ORDERS
