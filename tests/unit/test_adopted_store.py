"""Nodes after an adoption of the metastore: what they may forget, and what they must keep."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

import pytest

from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from rebalance.controllers.store_guard import HeldZones
from rebalance.core.keyspace.epoch import EpochRecord, LostLife
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import ConfigurationRecord, ConfiguredMember, MemberRole, NodeRecord, Stage
from rebalance.core.keyspace.txn import Delete, KeyValue, Put, Txn
from rebalance.hosting.private_files import write_note
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.nodes.kept_copies import why_kept
from rebalance.nodes.member_starts import ZoneNotes
from rebalance.nodes.node_context import NodeStart
from rebalance.nodes.registration import NodeFile, Registration
from simulator.control.memory_metastore import MemoryMetastore

KEYSPACE = Keyspace()
URL = "http://127.0.0.1:1"
ZONE = Zone(ZoneId(1), "Z", 4, 3, None, ("default",))


def key(value: bytes, revision: int) -> KeyValue:
    return KeyValue("key", value, revision, revision, 1)


def epoch(number: int) -> KeyValue:
    return key(EpochRecord(number).encode(), 50)


def configuration(revision: int, *urls: str) -> KeyValue:
    members = {f"n{n}": ConfiguredMember(str(n), MemberRole.VOTER, url, False) for n, url in enumerate(urls)}
    return key(ConfigurationRecord(1, "n0", Stage.STABLE, members, "").encode(), revision)


def intent(dropped: bool) -> KeyValue:
    return key(ZoneIntent(3, ZONE, dropped).encode(), 49)


@pytest.mark.row("I3-049")
@pytest.mark.parametrize(
    ("now", "published", "wanted", "words"),
    [
        (None, None, None, ""),
        (epoch(1), configuration(40), intent(False), ""),
        (epoch(2), configuration(49), intent(False), "has not published"),
        (epoch(2), None, intent(False), "has not published"),
        (epoch(2), None, None, "has not published"),
        (epoch(2), configuration(49), intent(True), ""),
        (epoch(2), configuration(51, URL), intent(False), "counts it"),
        (epoch(2), configuration(51, "http://127.0.0.1:2"), intent(False), ""),
        (epoch(2), configuration(51, "http://127.0.0.1:2"), None, "no zone of this id"),
    ],
)
def test_what_is_kept(
    now: KeyValue | None, published: KeyValue | None, wanted: KeyValue | None, words: str
) -> None:
    """I3-049: data is destroyed on the word of the catalog, or of the group after the adoption."""
    why = why_kept(URL, now, published, wanted)
    assert words in why
    assert bool(why) == bool(words)


async def test_only_an_adoption_lowers_what_a_node_has_seen(tmp_path: Path) -> None:
    """Across restarts too."""

    def registration() -> Registration:
        return Registration(MemoryMetastore(), Keyspace(), NodeStart(Node("n1"), tmp_path))

    node = registration()
    node.saw(100)
    node.saw(7)
    node.adopted(1, 7)
    assert node.revision_floor == 100
    node.adopted(2, 8)
    assert node.revision_floor == 8
    again = registration()
    assert (again.epoch, again.revision_floor) == (2, 8)
    again.adopted(2, 3)
    assert again.revision_floor == 8


def test_a_file_of_a_node_from_before_epochs(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text('{"v":1,"incarnation":"a","revision":5}')
    assert NodeFile.read(path) == NodeFile("a", 5, 1)


async def store_at(revision: int, record: EpochRecord | None = None) -> MemoryMetastore:
    """A metastore that counts this far."""
    store = MemoryMetastore()
    if record is not None:
        await store.commit(Txn((), (Put(KEYSPACE.epoch, record.encode()),)))
    while (await store.commit(Txn((), (Put("k", b""),)))).revision < revision:
        pass
    return store


async def told(store: MemoryMetastore) -> EpochRecord:
    item = await store.get(KEYSPACE.epoch)
    return EpochRecord.decode(item.value if item is not None else None)


@pytest.mark.parametrize(
    ("known", "now", "revision", "lost"),
    [
        (1, None, 20, LostLife(1, 60, "n1")),
        (1, EpochRecord(1), 20, LostLife(1, 60, "n1")),
        (2, EpochRecord(1), 200, LostLife(2, 60, "n1")),
        (1, EpochRecord(1), 60, None),
        (1, EpochRecord(2), 20, None),
    ],
    ids=["no-epoch", "older", "before-an-adoption", "same", "adopted"],
)
async def test_a_node_tells_that_the_metastore_went_back(
    tmp_path: Path, known: int, now: EpochRecord | None, revision: int, lost: LostLife | None
) -> None:
    """A node reports it with its first request, judging by its own file. The store that went back keeps the
    report, which another node's registration does not change."""
    write_note(tmp_path / "node.json", **asdict(NodeFile("before", 60, known)))
    store = await store_at(revision, now)
    node = Registration(store, KEYSPACE, NodeStart(Node("n1"), tmp_path))
    await node.register()
    record = await told(store)
    assert record.lost_life == lost
    assert record.halted == (lost.reason if lost is not None else "")
    other = Registration(store, KEYSPACE, NodeStart(Node("n2"), tmp_path / "n2"))
    await other.register()
    assert await told(store) == record


async def test_a_node_reports_the_highest_zone_that_it_ever_held(tmp_path: Path) -> None:
    """The number is reported even when nothing is assigned to the node any more, and after a restart."""
    notes = ZoneNotes(tmp_path)
    for zone_id in (4, 9, 7):
        notes.holds(ZoneId(zone_id))
    again = ZoneNotes(tmp_path)
    assert again.highest == 9
    store = MemoryMetastore()
    start = NodeStart(Node("n1"), tmp_path)
    await Registration(store, KEYSPACE, start, held_zone=lambda: again.highest).register()
    held = HeldZones(mirror := KeyspaceMirror(store, ""), KEYSPACE)
    task = asyncio.create_task(mirror.run())
    await mirror.loaded()
    assert held.highest == 9
    item = await store.get(KEYSPACE.node("n1"))
    assert item is not None
    assert NodeRecord.decode(item.value).highest_zone == 9
    await store.commit(Txn((), (Delete(KEYSPACE.node("n1")),)))
    assert await mirror.wait_until(lambda: mirror.get(KEYSPACE.node("n1")) is None, 30)
    assert held.highest == 9
    task.cancel()


@pytest.mark.parametrize("text", ["", "[]", '{"v":1}', '{"highest":"x"}'])
def test_notes_that_cannot_be_read_end_no_node(tmp_path: Path, text: str) -> None:
    (tmp_path / "zones.json").write_text(text)
    notes = ZoneNotes(tmp_path)
    assert notes.highest == 0
    notes.holds(ZoneId(3))
    assert ZoneNotes(tmp_path).highest == 3
