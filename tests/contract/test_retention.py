"""Rows that the catalog deletes, and those that can be read as before, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.core.audit import Actor, AuditEntry, AuditFilter
from catalog.core.errors import StoreError
from catalog.core.retention import KEEP_ALL, Retention, Trimmed
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.zone import Node
from catalog.service import CatalogService
from catalog.store import CatalogStore
from catalog.store.retention import DAY_US, ROWS_AT_ONCE
from tests.fixtures.script_runner import ScriptRunner

NODES = (Node("n1"), Node("n2"), Node("n3"))
TEN_DAYS = Retention(10, 10)


class Clock:
    """Microseconds; days pass when it is told."""

    def __init__(self) -> None:
        self.now_us = 1_000 * DAY_US

    def __call__(self) -> int:
        return self.now_us

    def pass_days(self, days: float) -> None:
        self.now_us += int(days * DAY_US)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(catalog_url: str, clock: Clock) -> Iterator[CatalogStore]:
    opened = CatalogStore.open(catalog_url, clock)
    yield opened
    opened.close()


@pytest.fixture
def runner(store: CatalogStore) -> ScriptRunner:
    return ScriptRunner(CatalogService(store.unit_of_work))


def publish(store: CatalogStore) -> None:
    while rows := store.outbox.unsent():
        store.outbox.mark_sent(rows)


def readable(store: CatalogStore, upto: int) -> dict[int, CatalogSnapshot]:
    snapshots = {}
    for version in range(1, upto + 1):
        try:
            snapshots[version] = store.unit_of_work.snapshot(version)
        except StoreError as refused:
            if "any more: it keeps those from" not in str(refused):
                raise
    return snapshots


def test_versions_are_forgotten_from_the_oldest_on(
    store: CatalogStore, runner: ScriptRunner, clock: Clock
) -> None:
    """The one that was the newest ten days ago is read as before, and all after it; a zone that nobody has
    touched since is in all of them."""
    runner.run("CREATE ZONE a; CREATE ZONE b (REPLICAS 3); CREATE TABLE t (id INT PRIMARY KEY) ZONE a", NODES)
    runner.run("ALTER ZONE a SET (REPLICAS 2); DROP ZONE b", NODES)
    clock.pass_days(20)
    runner.run("ALTER ZONE a SET (REPLICAS 3); CREATE ZONE c; DROP ZONE c", NODES)
    publish(store)
    newest = store.unit_of_work.snapshot()
    before = readable(store, newest.version)
    history = store.history()
    assert list(before) == list(range(1, newest.version + 1))
    assert store.retention.trim(KEEP_ALL) == Trimmed()

    trimmed = store.retention.trim(Retention(10, 0))

    kept_from = newest.version - 3
    assert trimmed == Trimmed(versions=kept_from - 1)
    assert readable(store, newest.version) == {
        version: snapshot for version, snapshot in before.items() if version >= kept_from
    }
    assert store.history() == tuple(record for record in history if record.version >= kept_from)
    assert store.retention.trim(Retention(10, 0)) == Trimmed()
    assert store.unit_of_work.snapshot() == newest
    runner.run("CREATE ZONE d", NODES)
    (row,) = store.outbox.unsent()
    assert (row.version, row.zone_id) == (newest.version + 1, 4), "ids of forgotten zones are not given again"


def test_what_is_not_published_yet_is_kept(store: CatalogStore, runner: ScriptRunner, clock: Clock) -> None:
    runner.run("CREATE ZONE a; ALTER ZONE a SET (REPLICAS 2); DROP ZONE a; CREATE ZONE b", NODES)
    unsent = store.outbox.unsent()
    clock.pass_days(20)
    assert store.retention.trim(TEN_DAYS).versions == 3
    assert store.outbox.unsent() == unsent
    publish(store)
    runner.run("ALTER ZONE b SET (REPLICAS 2)", NODES)
    clock.pass_days(20)
    assert store.retention.trim(TEN_DAYS).versions == 1
    assert [zone.name for zone in store.unit_of_work.snapshot().zones] == ["B"]


def test_the_newest_publication_is_known_for_ever(
    store: CatalogStore, runner: ScriptRunner, clock: Clock
) -> None:
    """The publication identifies the metastore as the catalog's, also where its zone was dropped."""
    runner.run("CREATE ZONE a; CREATE ZONE b; DROP ZONE b", NODES)
    publish(store)
    sent = store.metastore_marks.truth(None).sent
    clock.pass_days(20)
    runner.run("CREATE ROLE r; CREATE ROLE s", NODES)
    clock.pass_days(20)
    assert store.retention.trim(TEN_DAYS).versions > 0
    assert store.metastore_marks.truth(None).sent == sent


def test_audit_records_are_forgotten_by_themselves(store: CatalogStore, clock: Clock) -> None:
    for number in range(ROWS_AT_ONCE + 5):
        store.audit.record(AuditEntry("DRAIN NODE", f"n{number}", Actor("ann"), "", "", 0, 0))
    clock.pass_days(20)
    store.audit.record(AuditEntry("DRAIN NODE", "young", Actor("ann"), "", "", 0, 0))
    rounds = [store.retention.trim(Retention(0, 10)).audit_records for _ in range(3)]
    assert rounds == [ROWS_AT_ONCE, 5, 0]
    assert [record.entry.subject for record in store.audit.read(AuditFilter(), 10)] == ["young"]
