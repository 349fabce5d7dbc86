"""The catalog's memory of the metastore on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from catalog.core.level import LEVEL
from catalog.core.metastore_mark import MetastoreMark, SentIntent
from catalog.core.zone import Node, Zone, ZoneId, ZoneIntent
from catalog.service import CatalogService
from catalog.store import CatalogStore
from catalog.store.connections import parse_url
from parser.to_command import parse_ddl

NODES = tuple(Node(f"n{n}") for n in range(3))
MARK = MetastoreMark(1, 10, "a", "c1")


@pytest.fixture
def store(catalog_url: str) -> Iterator[CatalogStore]:
    opened = CatalogStore.open(catalog_url)
    yield opened
    opened.close()


def execute(store: CatalogStore, sql: str) -> int:
    return CatalogService(store.unit_of_work).execute(parse_ddl(sql), NODES)[-1].version


def zone(store: CatalogStore) -> Zone:
    (found,) = store.unit_of_work.snapshot().zones
    return found


def test_marks_only_move_forward(store: CatalogStore) -> None:
    marks = store.metastore_marks
    assert marks.truth(None).mark is None
    marks.record(MARK)
    assert marks.truth(None).mark == MARK
    marks.record(replace(MARK, revision=9, nonce="late"))
    marks.record(replace(MARK, revision=10, nonce="same revision"))
    marks.record(replace(MARK, revision=11, epoch=2))
    assert marks.truth(None).mark == MARK
    newer = replace(MARK, revision=12, nonce="b")
    marks.record(newer)
    assert marks.truth(None).mark == newer


def test_what_was_sent_and_what_is_known(store: CatalogStore) -> None:
    """The catalog knows the intents that it wrote, and no other of the same version."""
    marks = store.metastore_marks
    execute(store, "CREATE ZONE a (REPLICAS 1); ALTER ZONE a SET (REPLICAS 3)")
    assert marks.truth(None).sent is None
    store.outbox.mark_sent(store.outbox.unsent()[:1])
    first = marks.truth(ZoneIntent(2, zone(store)))
    assert (first.version, first.sent, first.knows_intent) == (2, SentIntent(ZoneId(1), 1), True)
    for unknown in (ZoneIntent(1, zone(store)), ZoneIntent(3, zone(store)), ZoneIntent(2, zone(store), True)):
        assert not marks.truth(unknown).knows_intent


def test_adopting_is_one_version_with_everything_in_it(store: CatalogStore) -> None:
    execute(store, "CREATE ZONE a (REPLICAS 3)")
    store.outbox.mark_sent(store.outbox.unsent())
    store.metastore_marks.record(MARK)
    kept = zone(store)
    lost = replace(kept, zone_id=ZoneId(7), name="LOST")
    mark = MetastoreMark(2, 0, "", "c2")
    intents = [ZoneIntent(5, lost), ZoneIntent(4, replace(kept, replicas=1))]
    store.metastore_marks.adopt(intents, mark, ZoneId(11))
    assert store.metastore_marks.truth(None).mark == mark
    assert zone(store) == kept
    sent = [ZoneIntent.decode(row.payload) for row in store.outbox.unsent()]
    assert sent == [ZoneIntent(6, kept), ZoneIntent(6, lost, dropped=True)]
    assert execute(store, "CREATE ZONE b (REPLICAS 3)") == 7
    found = store.unit_of_work.snapshot().zone("B")
    assert found is not None
    assert found.zone_id == 12
    assert [each.version for each in store.history()] == [1, 6, 7]


def test_a_new_catalog_is_of_this_builds_level(store: CatalogStore) -> None:
    assert store.metastore_marks.truth(None).level == LEVEL


def test_a_catalog_of_before_gets_the_level_once_it_is_raised(store: CatalogStore, catalog_url: str) -> None:
    """And keeps it: the level of an earlier build takes nothing away."""
    engine = create_engine(parse_url(catalog_url), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("UPDATE schema_writers SET oldest = '0010'"))
    assert store.metastore_marks.truth(None).level == LEVEL - 1
    for level in (LEVEL, LEVEL - 1):
        store.metastore_marks.raise_level(level)
        assert store.metastore_marks.truth(None).level == LEVEL
