"""Decisions of a node on its own mirror, from the keys and the mirror's life alone; and who may read it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.core.keyspace.records import MemberRecord, MemberState, MirrorRecord, rounded_revision
from rebalance.nodes.partition_view import NodePartitionView, Recorded, client_urls, learner_urls
from rebalance.nodes.replica_decision import MirrorDuty, decide_mirror, mirror_record
from rebalance.ports.groups import MemberLife
from rebalance.ports.mirrors import MirrorStatus
from tests.fixtures.member_views import url, view

HELD = MirrorStatus(MemberLife.RUNNING, "http://a:3", 17)


def client(name: str) -> str:
    return f"{url(name)}2"


def mirrored(
    seen: NodePartitionView, *names: str, state: MemberState = MemberState.RUNNING
) -> NodePartitionView:
    """``names`` have a mirror, beside the member that they may have."""
    records = dict(seen.records)
    for name in names:
        mirror = MirrorRecord(state, f"http://{name}:3", 16)
        member = records[name].value if name in records else MemberRecord.of_mirror(mirror)
        records[name] = Recorded(replace(member, mirror=mirror), 7, 7)
    return replace(seen, records=records)


RUNS = {"started": "bc", "founded": "bc", "listed": "bc"}


@pytest.mark.row("I3-049", "IEP-005", "IEP-043")
@pytest.mark.parametrize(
    ("seen", "status", "duty"),
    [
        (view("bc", **RUNS), None, MirrorDuty.NOTHING),
        (view("bc+a"), None, MirrorDuty.WAIT),
        (view("bc+a", reserved="bc", founded="bc"), None, MirrorDuty.WAIT),
        (view("bc+a", **RUNS), None, MirrorDuty.FOLLOW),
        (view("bc", "bc+a", **RUNS), None, MirrorDuty.FOLLOW),
        (view("bc+a", "bc", **RUNS), HELD, MirrorDuty.FOLLOW),
        # Promoted: until the stable switch, and not a moment longer.
        (view("bc+a", "abc", **RUNS), HELD, MirrorDuty.FOLLOW),
        (view("abc", started="abc", founded="bc", listed="abc"), HELD, MirrorDuty.CLEAN_UP),
        # Demoted: before the stable switch.
        (view("abc", "bc+a", started="abc", founded="abc", listed="abc"), None, MirrorDuty.FOLLOW),
        # Nobody names it any more; a dropped zone names nobody.
        (view("bc", **RUNS), HELD, MirrorDuty.CLEAN_UP),
        (mirrored(view("bc", **RUNS), "a"), None, MirrorDuty.CLEAN_UP),
        (view(), HELD, MirrorDuty.CLEAN_UP),
    ],
)
def test_duty_of_node_a(seen: NodePartitionView, status: MirrorStatus | None, duty: MirrorDuty) -> None:
    """IEP-005, IEP-043, I3-049: a mirror is kept while stable or pending names the node as a learner."""
    assert decide_mirror(seen, "a", status).duty is duty


def test_a_mirror_follows_other_voters() -> None:
    """The leader's published voters, never the own member, which is on its way in or out."""
    seen = view("abc", "bc+a", started="abc", founded="abc", listed="abc")
    assert decide_mirror(seen, "a", None).sources == (client("b"), client("c"))
    assert decide_mirror(seen, "a", None).group.token == "t"
    alone = view("a", "b+a", started="a", founded="a", listed="a")
    assert decide_mirror(alone, "a", None).reason == "WAITING: no other voter serves clients"
    assert decide_mirror(view("bc+a"), "a", None).reason == "WAITING: the group has not elected a leader yet"


@pytest.mark.row("IEP-055")
def test_readers_are_sent_to_mirrors_that_run_and_stay() -> None:
    """IEP-055: clients of the group see voters only; learners are asked for apart."""
    seen = view("b+ac", started="b", founded="b", listed="b")
    assert learner_urls(seen) == ()
    assert learner_urls(mirrored(seen, "a", "c")) == ("http://a:3", "http://c:3")
    assert client_urls(mirrored(seen, "a", "c")) == (client("b"),)
    assert learner_urls(mirrored(seen, "a", state=MemberState.STARTING)) == ()
    assert learner_urls(replace(mirrored(seen, "a", "c"), living=frozenset("bc"))) == ("http://c:3",)
    assert learner_urls(mirrored(view("b", **{**RUNS, "listed": "b"}), "a")) == (), "about to be destroyed"


def test_a_mirror_of_an_earlier_life_is_not_read() -> None:
    """Revisions beyond the founding are of no group that exists. Its node learns how far both lives agree."""
    seen = mirrored(view("b+a", started="b", founded="b", listed="b", generation=9), "a")
    assert learner_urls(seen) == ()
    assert seen.group is not None
    founded = replace(seen.group, value=replace(seen.group.value, founding_revision=40, earlier={"5": 30}))
    seen = replace(seen, group=founded)
    for generation, shared in ((0, 30), (5, 40), (9, 0)):
        found = decide_mirror(seen, "a", replace(HELD, generation=generation))
        assert (found.group.generation, found.group.shared_revision) == (9, shared)
    record = seen.records["a"].value
    assert record.mirror is not None
    present = replace(record, mirror=replace(record.mirror, generation=9))
    seen = replace(seen, records={**seen.records, "a": Recorded(present, 8, 8)})
    assert learner_urls(seen) == ("http://a:3",)


def test_what_a_silent_mirror_has_is_told_exactly() -> None:
    """The number of a mirror that follows would change with each put, and is left out."""
    held = replace(HELD, complete_revision=1_017, generation=5)
    assert mirror_record(held).complete_revision == 0
    told = mirror_record(replace(held, is_silent=True))
    assert (told.complete_revision, told.generation) == (1_017, 5)


@pytest.mark.parametrize(
    ("status", "reason", "record"),
    [
        (None, "why", MirrorRecord(MemberState.READY, reason="why")),
        (MirrorStatus(MemberLife.RESERVED, "u"), "", MirrorRecord(MemberState.READY, "u")),
        (MirrorStatus(MemberLife.STARTING, "u"), "", MirrorRecord(MemberState.STARTING, "u")),
        (MirrorStatus(MemberLife.STOPPED, "u"), "", MirrorRecord(MemberState.STARTING, "u")),
        (
            MirrorStatus(MemberLife.FAILED, "u", reason="x"),
            "y",
            MirrorRecord(MemberState.FAILED, "u", reason="x"),
        ),
        # Published seldom: at 17 still what was published at 16.
        (MirrorStatus(MemberLife.RUNNING, "u", 17), "", MirrorRecord(MemberState.RUNNING, "u", 16)),
        (MirrorStatus(MemberLife.RUNNING, "u", 100), "", MirrorRecord(MemberState.RUNNING, "u", 96)),
        (MirrorStatus(MemberLife.RUNNING, "u", 0), "", MirrorRecord(MemberState.RUNNING, "u", 0)),
    ],
)
def test_what_is_published(status: MirrorStatus | None, reason: str, record: MirrorRecord) -> None:
    assert mirror_record(status, reason) == record
    both = MemberRecord(MemberState.STARTING, "p", "c", started=True, mirror=record)
    for stored in (MemberRecord.of_mirror(record), both):
        assert MemberRecord.decode(stored.encode()) == stored
    assert "mirror" not in MemberRecord(MemberState.READY, "p", "c").encode().decode()


@given(revision=st.integers(0, 1 << 63), later=st.integers(0, 1 << 40))
def test_a_published_revision_is_never_too_much(revision: int, later: int) -> None:
    """Down by less than a third, never backwards, and what is rounded stays as it is."""
    rounded = rounded_revision(revision)
    assert rounded <= revision
    assert 3 * rounded >= 2 * revision - 2
    assert rounded <= rounded_revision(revision + later)
    assert rounded_revision(rounded) == rounded
