"""Agreement of catalog and metastore: the pure decision, and the order of events over epochs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.metastore_mark import CatalogTruth, MetastoreMark, SentIntent, adopt_intents
from catalog.core.snapshot import CatalogSnapshot, EntryKind
from catalog.core.zone import Zone, ZoneId, ZoneIntent
from rebalance.core.keyspace.epoch import (
    DivergenceKind,
    EpochRecord,
    LostLife,
    MetastoreTruth,
    event_revision,
    find_divergence,
    split_event_revision,
)
from rebalance.core.keyspace.keys import Keyspace

MARK = MetastoreMark(2, 100, "a", "c1")
CATALOG = CatalogTruth(MARK, 7, sent=SentIntent(ZoneId(1), 7))
STORE = MetastoreTruth(2, 100, "a", "c1", 7)
LOST = LostLife(2, 400, "n1")
ZONE = Zone(ZoneId(1), "Z", 4, 3, None, ("default",))


def _intent(version: int | None) -> ZoneIntent | None:
    return None if version is None else ZoneIntent(version, ZONE)


@pytest.mark.parametrize(
    ("catalog", "store", "newest"),
    [
        (CATALOG, STORE, 7),
        (CATALOG, STORE, None),
        (CATALOG, replace(STORE, mark_revision=101, mark_nonce="another server's"), 7),
        (CatalogTruth(None, 0), MetastoreTruth(None, 0, "", "c1"), None),
        (CatalogTruth(None, 7), MetastoreTruth(1, 0, "", "c1"), 7),
        (CatalogTruth(MARK, 9), STORE, 7),
    ],
    ids=["same", "no-intent", "marked-since", "both-new", "catalog-migrated", "not-published-yet"],
)
def test_stores_that_belong_together(catalog: CatalogTruth, store: MetastoreTruth, newest: int | None) -> None:
    assert find_divergence(catalog, store, _intent(newest)) is None


@pytest.mark.parametrize(
    ("catalog", "store", "newest", "kind", "words"),
    [
        (CATALOG, STORE, 8, "CATALOG_WENT_BACK", "catalog version 8 of zone Z"),
        (replace(CATALOG, knows_intent=False), STORE, 6, "CATALOG_WENT_BACK", "never made"),
        (CATALOG, replace(STORE, epoch=3), 7, "CATALOG_WENT_BACK", "epoch 3"),
        (CATALOG, replace(STORE, cluster_id="c2"), 7, "METASTORE_REPLACED", "cluster c2"),
        (CATALOG, replace(STORE, epoch=1), 7, "METASTORE_WENT_BACK", "epoch 1"),
        (CATALOG, replace(STORE, epoch=None), 7, "METASTORE_WENT_BACK", "no epoch"),
        (CATALOG, replace(STORE, mark_revision=99), 7, "METASTORE_WENT_BACK", "revision 100"),
        (CATALOG, replace(STORE, mark_nonce="b"), 7, "METASTORE_REPLACED", "another value"),
        (CATALOG, replace(STORE, sent_version=6), 6, "METASTORE_WENT_BACK", "version 7 of zone 1"),
        (CATALOG, replace(STORE, sent_version=0), None, "METASTORE_WENT_BACK", "was published"),
        (CATALOG, replace(STORE, lost=LOST), 7, "METASTORE_WENT_BACK", "n1 has seen etcd at revision 400"),
        (CatalogTruth(None, 7), MetastoreTruth(1, 0, "", "c1", lost=LOST), 7, "METASTORE_WENT_BACK", "n1 has"),
    ],
)
def test_stores_that_do_not(
    catalog: CatalogTruth, store: MetastoreTruth, newest: int | None, kind: str, words: str
) -> None:
    found = find_divergence(catalog, store, _intent(newest))
    assert found is not None
    assert found.kind is DivergenceKind(kind)
    assert words in found.reason


EVENTS = st.tuples(st.integers(1, 30_000), st.integers(1, 2**48 - 1))


@pytest.mark.row("I3-050")
@given(EVENTS, EVENTS)
def test_events_sort_by_epoch_and_then_by_revision(one: tuple[int, int], other: tuple[int, int]) -> None:
    """I3-050: an event of an earlier epoch is never newer, whatever its revision."""
    assert split_event_revision(event_revision(*one)) == one
    assert event_revision(*one) < 2**63
    assert (event_revision(*one) < event_revision(*other)) == (one < other)


@given(
    st.tuples(st.integers(1, 30_000), st.integers(1, 10**12 - 1)),
    st.tuples(st.integers(1, 30_000), st.integers(1, 10**12 - 1)),
)
def test_keys_of_targets_sort_as_their_events(one: tuple[int, int], other: tuple[int, int]) -> None:
    """Older targets are deleted as a range of keys."""
    names = [Keyspace().target(ZoneId(1), event_revision(*each)) for each in (one, other)]
    assert (names[0] < names[1]) == (one < other)


def test_the_first_epoch_counts_plain_revisions() -> None:
    assert event_revision(1, 4711) == 4711
    assert Keyspace("p/").target(ZoneId(3), 4711) == "p/targets/3/000000004711/"


def test_epoch_record() -> None:
    record = EpochRecord(3, "for a reason")
    assert EpochRecord.decode(record.encode()) == record
    assert EpochRecord.decode(None) == EpochRecord(1, "")
    with pytest.raises(ValueError, match="format 9"):
        EpochRecord.decode(b'{"v":9}')


def test_what_a_node_has_lost_counts_until_its_epoch_is_over() -> None:
    """Told once. An older build that adopts leaves the field, which says nothing any more then."""
    told = EpochRecord(2).told_by(LOST)
    assert told is not None
    assert (told.lost_life, told.halted) == (LOST, LOST.reason)
    assert told.told_by(LostLife(2, 500, "n2")) is None
    assert replace(told, epoch=3, halted="").lost_life is None
    assert EpochRecord(1).told_by(LOST) == EpochRecord(1, LOST.reason, LOST)
    assert EpochRecord.decode(told.encode()) == told


def test_an_adopting_version_stands_above_every_intent() -> None:
    """Zones of the catalog are published again, those that only the metastore knows end, ids are not reused."""
    lost = replace(ZONE, zone_id=ZoneId(5), name="LOST")
    gone = replace(ZONE, zone_id=ZoneId(6), name="GONE")
    catalog = CatalogSnapshot(version=4, zones=(ZONE,), next_zone_id=ZoneId(2))
    intents = [ZoneIntent(9, replace(ZONE, replicas=5)), ZoneIntent(8, lost), ZoneIntent(7, gone, dropped=True)]
    adopted = adopt_intents(catalog, intents)
    assert adopted.snapshot.version == 10
    assert adopted.snapshot.next_zone_id == 7
    assert adopted.snapshot.zones == (ZONE,)
    assert [(entry.kind, entry.zone) for entry in adopted.entries] == [
        (EntryKind.WRITTEN, ZONE),
        (EntryKind.DROPPED, lost),
    ]
    assert adopt_intents(catalog, []).snapshot.version == 5
    assert adopt_intents(catalog, intents, ZoneId(3)).snapshot.next_zone_id == 7
    assert adopt_intents(catalog, intents, ZoneId(9)).snapshot.next_zone_id == 10
