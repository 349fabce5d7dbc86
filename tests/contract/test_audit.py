"""The audit on both databases: written with the version, read by filters; without a version there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.core.audit import NOBODY, Actor, AuditEntry, AuditFilter, Channel
from catalog.core.statement_batch import StatementStamp
from catalog.core.zone import Node, Origin
from catalog.service import CatalogService
from catalog.store import CatalogStore
from tests.fixtures.script_runner import script_of

ALICE = Actor("alice", True, Channel.CLI, "10.0.0.7")
NODES = (Node("n1"), Node("n2"), Node("n3"))


@pytest.fixture
def store(catalog_url: str) -> Iterator[CatalogStore]:
    opened = CatalogStore.open(catalog_url, lambda: 1_700_000_000_000_000)
    yield opened
    opened.close()


def run(store: CatalogStore, sql: str, actor: Actor = ALICE) -> None:
    (done,) = CatalogService(store.unit_of_work).execute_together([script_of(sql, NODES, actor=actor)])
    assert done.error is None


def test_each_version_has_its_row(store: CatalogStore) -> None:
    """One transaction: a version and who made it; a statement that changes nothing has neither. Comments are
    no action."""
    run(store, "-- nightly\nCREATE ZONE a (PARTITIONS 2)")
    run(store, "CREATE ZONE IF NOT EXISTS a")
    run(store, "/* x */ ALTER ZONE a SET (REPLICAS 2); DROP ZONE a", NOBODY)
    found = store.audit.read(AuditFilter(), 10)
    told = [(each.entry.action, each.entry.version_before, each.entry.version_after) for each in found]
    newest = store.unit_of_work.snapshot().version
    assert told == [
        ("DROP ZONE", newest - 1, newest),
        ("ALTER ZONE", newest - 2, newest - 1),
        ("CREATE ZONE", newest - 3, newest - 2),
    ]
    assert [each.entry.actor for each in found] == [NOBODY, NOBODY, ALICE]
    assert {each.entry.subject for each in found} == {"A"}
    assert found[0].at_us == 1_700_000_000_000_000
    assert found[-1].number < found[0].number


def test_filters_and_pages(store: CatalogStore) -> None:
    for number in range(5):
        actor = ALICE if number % 2 else Actor("bob")
        store.audit.record(AuditEntry("DRAIN NODE", f"n{number}", actor, "disks", "{}", 1, 1))
    assert [each.entry.subject for each in store.audit.read(AuditFilter(by="alice"), 10)] == ["n3", "n1"]
    assert [each.entry.subject for each in store.audit.read(AuditFilter(subject="N2"), 10)] == ["n2"]
    assert store.audit.read(AuditFilter(action="drain zone"), 10) == ()
    first = store.audit.read(AuditFilter(), 2)
    rest = store.audit.read(AuditFilter(), 10, first[-1].number)
    assert [each.entry.subject for each in (*first, *rest)] == ["n4", "n3", "n2", "n1", "n0"]


def test_what_no_database_takes_is_replaced(store: CatalogStore) -> None:
    """Replaced both in stored texts and in those of questions."""
    store.audit.record(AuditEntry("DRAIN NODE", "n\0", Actor("a\ud800b"), "why\0", "{}", 1, 1))
    (found,) = store.audit.read(AuditFilter(subject="N\0", by="a\ud800b"), 10)
    assert (found.entry.subject, found.entry.actor.name, found.entry.reason) == ("n\ufffd", "a?b", "why\ufffd")
    assert store.audit.read(AuditFilter(action="\0"), 10) == ()


@pytest.mark.row("VOL-093")
def test_a_restored_zone_is_a_version_that_says_why(store: CatalogStore) -> None:
    """VOL-093: also when no parameter changes, and with the stored target in the intent."""
    run(store, "CREATE ZONE a (PARTITIONS 2)")
    before = store.unit_of_work.snapshot()
    zone = before.zone("A")
    assert zone is not None
    origin = Origin("dave", False, "slow", restores=12, reverses="1-20")
    stamp = StatementStamp("reverse", "REVERSE OPERATION 1-20", NOBODY.named("dave"), origin)
    version = CatalogService(store.unit_of_work).restore_zone(lambda catalog: zone, stamp)
    assert version == before.version + 1
    assert store.unit_of_work.snapshot().zone("A") == zone
    row = store.outbox.unsent()[-1]
    assert row.version == version
    assert b'"restores":12,"reverses":"1-20"' in row.payload
    (record, *_) = store.audit.read(AuditFilter(), 1)
    assert (record.entry.action, record.entry.reason) == ("REVERSE OPERATION", "slow")
    assert record.entry.actor.name == "dave"
