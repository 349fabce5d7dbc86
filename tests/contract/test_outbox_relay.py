"""Intents on their way from the catalog's outbox to their keys, many zones at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from catalog.core.zone import Zone, ZoneId, ZoneIntent
from catalog.ports import OutboxRow
from rebalance.controllers.outbox_relay import WAVE_MAX, OutboxRelay
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Put, Txn, TxnResult
from rebalance.ports.metastore import Metastore, MetastoreUnavailableError


def intent(number: int, version: int) -> ZoneIntent:
    zone = Zone(ZoneId(number), f"Z{number}", 1, 1, None, ("default",))
    return ZoneIntent(version, replace(zone, replicas=version))


class ListedRows:
    """An outbox in memory, which counts the calls that mark."""

    def __init__(self, *intents: ZoneIntent) -> None:
        self.rows = [OutboxRow(each.version, each.zone.zone_id, each.encode()) for each in intents]
        self.marked: list[list[OutboxRow]] = []

    async def unsent(self) -> Sequence[OutboxRow]:
        sent = [row for rows in self.marked for row in rows]
        return [row for row in self.rows if row not in sent]

    async def mark_sent(self, rows: Sequence[OutboxRow]) -> None:
        self.marked.append(list(rows))


class WatchedMetastore:
    """Counts transactions; ``before`` is awaited with the number of each, from 1."""

    def __init__(self, inner: Metastore, before: Callable[[int], Awaitable[None]] | None = None) -> None:
        self._inner = inner
        self._before = before
        self.commits = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def commit(self, txn: Txn) -> TxnResult:
        self.commits += 1
        if self._before is not None:
            await self._before(self.commits)
        return await self._inner.commit(txn)


async def published(store: Metastore, keyspace: Keyspace) -> dict[int, int]:
    """The version of each zone's intent."""
    items = (await store.range(keyspace.intents)).items
    intents = [ZoneIntent.decode(item.value) for item in items]
    return {each.zone.zone_id: each.version for each in intents}


async def test_many_zones_go_with_two_requests(store: Metastore, keyspace: Keyspace) -> None:
    outbox = ListedRows(*(intent(number, number) for number in range(1, WAVE_MAX + 1)))
    watched = WatchedMetastore(store)
    assert await OutboxRelay(outbox, watched, keyspace).relay_once() == WAVE_MAX
    assert watched.commits == 2
    assert outbox.marked == [outbox.rows]
    assert await published(store, keyspace) == {number: number for number in range(1, WAVE_MAX + 1)}


async def test_the_versions_of_a_zone_follow_each_other(store: Metastore, keyspace: Keyspace) -> None:
    outbox = ListedRows(intent(1, 1), intent(2, 2), intent(1, 3), intent(1, 4))
    assert await OutboxRelay(outbox, store, keyspace).relay_once() == 4
    assert await published(store, keyspace) == {1: 4, 2: 2}
    key = await store.get(keyspace.intent(ZoneId(1)))
    assert key is not None
    assert key.version == 3
    assert [[row.version for row in rows] for rows in outbox.marked] == [[1, 2], [3], [4]]


async def test_a_zone_that_cannot_be_read_holds_up_no_other(store: Metastore, keyspace: Keyspace) -> None:
    await store.commit(Txn((), (Put(keyspace.intent(ZoneId(2)), b"?"),)))
    outbox = ListedRows(*(intent(number, number) for number in (1, 2, 3)))
    relay = OutboxRelay(outbox, store, keyspace)
    assert await relay.relay_once() == 2
    assert [row.zone_id for row in await outbox.unsent()] == [2]
    await store.commit(Txn((), (Put(keyspace.intent(ZoneId(2)), intent(2, 1).encode()),)))
    assert await relay.relay_once() == 1
    assert await published(store, keyspace) == {1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize("theirs", [1, 9])
async def test_another_relay_in_between_is_no_loss(store: Metastore, keyspace: Keyspace, theirs: int) -> None:
    """Another server writes one of the zones behind the reading: an older version is written over, a newer
    one stays."""

    async def write(number: int) -> None:
        if number == 2:
            await store.commit(Txn((), (Put(keyspace.intent(ZoneId(2)), intent(2, theirs).encode()),)))

    outbox = ListedRows(*(intent(number, 5) for number in (1, 2, 3)))
    assert await OutboxRelay(outbox, WatchedMetastore(store, write), keyspace).relay_once() == 3
    assert await published(store, keyspace) == {1: 5, 2: max(5, theirs), 3: 5}


async def test_what_was_not_written_stays_in_the_outbox(store: Metastore, keyspace: Keyspace) -> None:
    async def fail(number: int) -> None:
        if number == 4:
            raise MetastoreUnavailableError("gone")

    outbox = ListedRows(intent(1, 1), intent(2, 2), intent(1, 3))
    with pytest.raises(MetastoreUnavailableError):
        await OutboxRelay(outbox, WatchedMetastore(store, fail), keyspace).relay_once()
    assert [row.version for row in await outbox.unsent()] == [3]
    assert await OutboxRelay(outbox, store, keyspace).relay_once() == 1
    assert await published(store, keyspace) == {1: 3, 2: 2}
