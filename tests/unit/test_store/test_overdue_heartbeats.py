"""A server whose heartbeat has not changed for longer than it may serve is silent, before any event says that
it failed."""

from __future__ import annotations

import asyncio

import pytest
from sortedcontainers import SortedList

from catalog.core.zone import ZoneId
from rebalance.controllers.ring_mirror import RingReader
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import KeyValue, Put, Txn
from rebalance.metastore.mirror import KeyspaceCopy, KeyspaceMirror
from simulator.control.memory_metastore import MemoryMetastore
from simulator.control.virtual_time import run_virtually
from tests.fixtures.committed_ring import CommittedRing, incarnation_of, outcome

KEYSPACE = Keyspace("z/")
NAMES = ("n1", "n2", "n3")
NOTED = ((100.0, 10), (102.0, 11), (104.0, 14))
"""Revisions, and when they were reached."""


def copy(at_s: float, beats: dict[str, int], ttl_ms: int = 0) -> KeyspaceCopy:
    """``beats``: revisions of heartbeats; all others are of revision 10."""
    writes = CommittedRing(KEYSPACE, ttl_ms).after(NAMES, {ZoneId(1): [outcome(*NAMES)]}).success
    values = {write.key: write.value for write in writes if isinstance(write, Put)}
    revisions = {KEYSPACE.store_server(name, incarnation_of(name)): beats[name] for name in beats}
    items = {key: KeyValue(key, value, 1, revisions.get(key, 10), 1) for key, value in values.items()}
    return KeyspaceCopy("z/", 14, items, SortedList(items), NOTED, at_s)


@pytest.mark.parametrize(
    ("age_s", "revision"), [(0.0, 14), (1.0, 14), (1.1, 11), (3.0, 11), (3.1, 10), (5.0, 10), (5.1, 0)]
)
def test_which_revision_was_reached_so_long_ago(age_s: float, revision: int) -> None:
    assert copy(105.0, {}).revision_before(age_s) == revision


@pytest.mark.parametrize(
    ("at_s", "ttl_ms", "silent"),
    [
        (107.4, 0, set()),
        (107.5, 0, {"n1"}),
        (109.5, 0, {"n1", "n2"}),
        (111.4, 0, {"n1", "n2"}),
        (111.5, 0, {"n1", "n2", "n3"}),
        (111.5, 8_000, set()),
        (112.0, 8_000, {"n1"}),
    ],
)
def test_who_does_not_serve_any_more(at_s: float, ttl_ms: int, silent: set[str]) -> None:
    """``ttl_ms``: what servers say of themselves; 0: five seconds."""
    reader = RingReader(copy(at_s, {"n2": 11, "n3": 13}, ttl_ms), KEYSPACE)
    owners = reader.ownership.owners(ZoneId(1), 0)
    assert owners is not None
    assert owners.silent == silent


async def test_a_mirror_and_its_copies_know_how_old_their_revision_is() -> None:
    metastore = MemoryMetastore()
    mirror = KeyspaceMirror(metastore, "z/")
    running = asyncio.create_task(mirror.run())
    await metastore.commit(Txn((), (Put("z/a", b"1"),)))
    assert await mirror.wait_until(lambda: mirror.value("z/a") == b"1", 30.0)
    for keys in (mirror, mirror.copy()):
        assert 0 < keys.revision_before(0.0) <= mirror.revision
        assert keys.revision_before(3_600.0) == 0
    running.cancel()


def test_what_was_reached_before_a_long_silence_is_remembered() -> None:
    async def story() -> tuple[int, int]:
        metastore = MemoryMetastore()
        mirror = KeyspaceMirror(metastore, "z/")
        running = asyncio.create_task(mirror.run())
        await mirror.loaded()
        await metastore.commit(Txn((), (Put("z/a", b"1"),)))
        assert await mirror.wait_until(lambda: mirror.value("z/a") == b"1", 5.0)
        before = mirror.revision_before(0.0)
        for _ in range(2):
            await asyncio.sleep(100.0)
            await metastore.commit(Txn((), (Put("z/a", b"2"),)))
            await asyncio.sleep(1.0)
        running.cancel()
        return before, mirror.revision_before(50.0)

    before, remembered = run_virtually(story())
    assert remembered > before > 0
