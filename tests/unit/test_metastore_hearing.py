"""Beginning and end of the time for which it is unknown whether the mirror is up to date."""

from __future__ import annotations

from app.alerts.fact_reader import LEASE_S, SETTLE_S, MetastoreHearing


def test_while_it_answers_all_is_known() -> None:
    hearing = MetastoreHearing(100.0)
    hearing.heard(101.0, 101.5)
    assert hearing.unknown_since_s(102.0) is None
    assert hearing.is_fresh(102.0, 1.0)
    assert not hearing.is_fresh(102.1, 1.0)


def test_what_is_not_answered_is_unknown_from_the_last_answer_on() -> None:
    hearing = MetastoreHearing(100.0)
    hearing.heard(101.0, 101.5)
    hearing.missed()
    hearing.missed()
    assert hearing.unknown_since_s(160.0) == 101.0
    assert not hearing.is_fresh(101.5, 1.0)


def test_one_that_never_answered_is_silent_since_it_was_asked() -> None:
    hearing = MetastoreHearing(100.0)
    assert not hearing.is_fresh(100.1, 1.0)
    hearing.missed()
    assert hearing.unknown_since_s(103.0) == 100.0


def test_what_ended_meanwhile_is_waited_for_after_it_answers_again() -> None:
    hearing = MetastoreHearing(100.0)
    hearing.heard(101.0, 101.0)
    hearing.missed()
    hearing.heard(160.0, 160.5)
    hearing.heard(162.0, 162.0)
    assert hearing.unknown_since_s(160.4 + SETTLE_S) == 101.0
    assert not hearing.is_fresh(162.0, 1.0)
    assert hearing.unknown_since_s(160.5 + SETTLE_S) is None
    assert hearing.is_fresh(162.5, 1.0)


def test_silence_that_comes_back_counts_from_its_first_moment() -> None:
    hearing = MetastoreHearing(100.0)
    hearing.heard(101.0, 101.0)
    hearing.missed()
    hearing.heard(160.0, 160.0)
    hearing.missed()
    hearing.heard(170.0, 170.0)
    assert hearing.unknown_since_s(171.0) == 101.0
    assert hearing.unknown_since_s(170.0 + SETTLE_S) is None


def test_a_late_answer_ends_no_lease() -> None:
    hearing = MetastoreHearing(100.0)
    hearing.heard(101.0, 101.0)
    hearing.missed()
    assert hearing.unknown_since_s(103.0) == 101.0
    hearing.heard(104.0, 100.9 + LEASE_S)
    assert hearing.unknown_since_s(100.9 + LEASE_S) is None
