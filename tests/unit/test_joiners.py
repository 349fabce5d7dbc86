"""Joiners that are gone: examples of M1, the time of M3, the record and the delays of M2."""

from __future__ import annotations

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import Observed, Outcome, encode_trigger
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import (
    GivenUpJoiner,
    GivenUpRecord,
    MemberRecord,
    MemberState,
    MirrorRecord,
)
from rebalance.core.keyspace.txn import KeyValue, Put
from rebalance.core.moves.joiners import (
    JOINER_MAX_S,
    STEADY_S,
    JoinerTime,
    again_s,
    back_again,
    decide_on_joiners_gone,
    is_gone,
    target_without,
)
from rebalance.nodes.registration import HeardTime

P0 = PartitionId(ZoneId(1), 0)
KEYS = Keyspace().partition(P0)
GIVEN_UP = Keyspace().given_up(P0)


def roles(text: str) -> Assignments:
    """``ab|c``: voters, then learners."""
    voters, _, learners = text.partition("|")
    return Assignments(tuple(voters), tuple(learners))


@pytest.mark.row("M1")
@pytest.mark.parametrize(
    ("stable", "pending", "gone", "holding", "becomes"),
    [
        ("abc", "abd", "d", "abc", "abc"),
        ("abc", "dba", "d", "abc", "abc"),  # back at stable: its order
        ("a", "abc", "c", "a", "ab"),
        ("a", "abc", "bc", "a", "a"),
        ("abc", "abcde", "e", "abc", "abcd"),
        ("abc", "def", "e", "abc", "daf"),
        ("abc", "def", "e", "bc", "dbf"),  # the one that lives first
        ("abc", "def", "def", "", "abc"),
        ("abcde", "afg", "f", "abcde", "abg"),
        ("abc|d", "abd|c", "d", "abc", "abc|d"),  # a learner that was to vote learns again
        ("abc", "abd|c", "d", "abc", "abc"),
        ("abc", "abd", "c", "abc", "abd"),  # no joiner: what leaves may be gone
        ("abc", "abd", "a", "abc", "abd"),
    ],
)
def test_what_pending_becomes(stable: str, pending: str, gone: str, holding: str, becomes: str) -> None:
    """M1: its place is taken by a voter that was to leave, or stays empty."""
    target = target_without(roles(stable), roles(pending), gone, holding)
    assert (target.peers, target.learners) == (roles(becomes).peers, roles(becomes).learners)


def item(key: str, value: bytes, revision: int = 5) -> KeyValue:
    return KeyValue(key, value, 1, revision, 1)


def observed(stable: str, pending: Assignments, event: int = 0) -> Observed:
    trigger = item(KEYS.trigger, encode_trigger(event)) if event else None
    return Observed(
        KEYS, item(KEYS.stable, roles(stable).encode()), item(KEYS.pending, pending.encode()), trigger=trigger
    )


@pytest.mark.row("M1")
def test_a_forced_pending_is_left_alone() -> None:
    """M1: recovery's move is not for a leader to change."""
    forced = Assignments(("d",), forced=12)
    decision = decide_on_joiners_gone(observed("abc", forced), {"d": ""}, given_up_key=GIVEN_UP)
    assert decision.outcome is Outcome.NO_JOINER_IS_GONE
    assert decision.transaction is None


def recorded(known: GivenUpRecord | None, stable: str, pending: str, event: int, **gone: str) -> GivenUpRecord:
    decision = decide_on_joiners_gone(
        observed(stable, roles(pending), event),
        gone,
        given_up=item(GIVEN_UP, known.encode(), 9) if known else None,
        given_up_key=GIVEN_UP,
    )
    assert decision.transaction is not None
    puts = {each.key: each.value for each in decision.transaction.success if isinstance(each, Put)}
    return GivenUpRecord.decode(puts[GIVEN_UP])


@pytest.mark.row("M2")
def test_what_is_recorded() -> None:
    """M2: who, for which event, how often in a row, and which incarnation failed. One event may give up two,
    one after the other; a joiner that votes by now begins anew."""
    first = recorded(None, "a", "abc", 20, c="")
    assert first == GivenUpRecord(20, {"c": GivenUpJoiner(20, 1)})
    second = recorded(first, "a", "ab", 20, b="i7")
    assert second.names() == ("b", "c")
    assert second.joiners["b"] == GivenUpJoiner(20, 1, "i7")
    third = recorded(second, "a", "abc", 30, c="")
    assert third.names() == ("c",)
    assert third.joiners["c"] == GivenUpJoiner(30, 2)
    assert recorded(third, "ab", "abc", 40, c="").joiners == {"c": GivenUpJoiner(40, 3)}


def member(state: MemberState) -> MemberRecord:
    return MemberRecord(state, "http://d", "c")


@pytest.mark.row("M3")
@pytest.mark.parametrize(
    ("lives", "record", "is_listed", "gone"),
    [
        (False, member(MemberState.RUNNING), True, True),
        (True, None, False, True),
        (True, MemberRecord.of_mirror(MirrorRecord(MemberState.RUNNING)), False, True),
        (True, member(MemberState.FAILED), True, True),
        (True, member(MemberState.FAILED), False, True),
        (True, member(MemberState.READY), True, True),
        (True, member(MemberState.READY), False, False),  # its leader has not come to it yet
        (True, member(MemberState.STARTING), True, False),  # it may receive a snapshot for hours
        (True, member(MemberState.RUNNING), True, False),
    ],
)
def test_who_is_gone(lives: bool, record: MemberRecord | None, is_listed: bool, gone: bool) -> None:
    """M3: by the lease and by what its own agent says, never by whether it answers clients."""
    assert is_gone(lives, record, is_listed=is_listed) is gone


@pytest.mark.row("M3")
def test_a_joiner_may_be_gone_for_as_long_as_it_has_copied() -> None:
    """M3: max(time-out, the time that the copy has run), at most 1 h; a break begins anew."""
    short = JoinerTime().seen(0, is_gone=False, is_listed=True).seen(10, is_gone=True, is_listed=True)
    assert not short.is_over(69.9, 60)
    assert short.is_over(70, 60)
    again = short.seen(69, is_gone=False, is_listed=True).seen(70, is_gone=True, is_listed=True)
    assert not again.is_over(100, 60)

    long = JoinerTime().seen(0, is_gone=False, is_listed=True).seen(36_000, is_gone=False, is_listed=True)
    long = long.seen(36_001, is_gone=True, is_listed=True)
    assert not long.is_over(36_091, 60)
    assert not long.is_over(36_001 + JOINER_MAX_S - 1, 60)
    assert long.is_over(36_001 + JOINER_MAX_S, 60)
    assert not JoinerTime().is_over(1e9, 1)


@pytest.mark.row("M3")
def test_a_member_that_fails_again_and_again_is_given_up() -> None:
    """M3: short runs in between are no copying and end nothing; while one lasts it is not given up. One that
    runs steadily begins anew, and so does a node that was away."""
    time = JoinerTime().seen(0, is_gone=False, is_listed=True)
    for at_s in range(10, 70, 10):
        time = time.seen(at_s, is_gone=True, is_listed=True, failed=True)
        assert not time.is_over(at_s, 60)
        time = time.seen(at_s + 5, is_gone=False, is_listed=True)
    assert not time.is_over(1_000, 60), "it runs"
    assert time.seen(70, is_gone=True, is_listed=True, failed=True).is_over(70, 60)

    steady = time.seen(66 + STEADY_S, is_gone=False, is_listed=True)
    steady = steady.seen(100, is_gone=True, is_listed=True, failed=True)
    assert not steady.is_over(159, 60)
    assert steady.is_over(100 + 66 + STEADY_S, 60)


@pytest.mark.row("M3")
def test_waiting_for_its_turn_is_no_copying() -> None:
    """M3: a joiner that its group does not list yet has copied nothing that a long limit would be for."""
    waited = JoinerTime().seen(0, is_gone=False, is_listed=False).seen(1_000, is_gone=False, is_listed=False)
    assert waited.seen(1_001, is_gone=True, is_listed=False).is_over(1_061, 60)


@pytest.mark.row("M3")
def test_time_stands_still_while_the_metastore_is_silent() -> None:
    """M3: what lies between two renewals that are far apart does not count; what follows does."""
    heard = HeardTime(5.0)
    for at_s in (100.0, 102.0, 104.0):
        heard.note(at_s)
    assert heard.now_s == 4.0
    heard.note(400.0)
    assert heard.now_s == 4.0
    heard.note(402.0)
    assert heard.now_s == 6.0


@pytest.mark.row("M2")
def test_who_is_asked_again() -> None:
    """M2: a node that lives again; one that lived and failed once it was started again; none of an earlier
    event. The delay doubles, from a minute to an hour."""
    record = GivenUpRecord(
        30, {"b": GivenUpJoiner(30, 1), "c": GivenUpJoiner(30, 1, "i1"), "d": GivenUpJoiner(20, 4)}
    )
    assert back_again(record, {"a": "x", "c": "i1", "d": "y"}) == ()
    assert back_again(record, {"b": "z", "c": "i2"}) == ("b", "c")
    assert [again_s(times) for times in (1, 2, 3, 6, 7, 1_000)] == [60, 120, 240, 1_920, 3_600, 3_600]
    assert again_s(3, 0.5) == 2.0


@pytest.mark.row("M3")
def test_a_copy_stalls_when_nothing_comes_for_the_whole_time() -> None:
    """M3: a figure that changes begins anew, whichever way; what is gone or not listed copies nothing."""
    copying = {"is_gone": False, "is_listed": True}
    time = JoinerTime().seen(0, **copying, copied=5).seen(59, **copying, copied=5)
    assert not time.is_stalled(59, 60)
    assert time.is_stalled(60, 60)
    assert not time.seen(60, **copying, copied=6).is_stalled(119, 60)
    assert time.seen(60, **copying, copied=4).seen(200, **copying, copied=4).is_stalled(200, 60)
    assert not time.seen(60, is_gone=True, is_listed=True).is_stalled(1e9, 60)
    assert not time.seen(60, is_gone=False, is_listed=False).is_stalled(1e9, 60)
    again = time.seen(60, is_gone=True, is_listed=True).seen(100, **copying, copied=5)
    assert not again.is_stalled(159, 60), "it has just come back"
    assert not JoinerTime().is_stalled(1e9, 60)
