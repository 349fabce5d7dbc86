"""The life of an alert, look by look."""

from __future__ import annotations

import pytest

from app.core.alerts import (
    INSTANCES_MAX,
    RESOLVED_KEPT_MS,
    Alert,
    AlertRecord,
    Alerts,
    AlertState,
    Findings,
    adopted,
    judge,
    shown_order,
)

FOR_MS = 1_000
HOLDS: Findings = {(): "it is so"}
GONE: Findings = {}


def after(before: Alerts, findings: Findings | None, now_ms: int) -> Alerts:
    return judge(before, {"A": findings}, lambda _name: FOR_MS, now_ms)


def only(alerts: Alerts) -> Alert:
    (alert,) = alerts.values()
    return alert


def firing() -> Alerts:
    """Alert that is pending since 0 and firing since 1000, in milliseconds."""
    return after(after({}, HOLDS, 0), HOLDS, FOR_MS)


def test_a_condition_is_pending_until_it_has_held_for_its_time() -> None:
    pending = after({}, HOLDS, 0)
    assert only(pending).state is AlertState.PENDING
    almost = after(pending, HOLDS, FOR_MS - 1)
    assert only(almost).state is AlertState.PENDING
    fires = only(after(almost, HOLDS, FOR_MS))
    assert (fires.state, fires.since_ms, fires.starts_ms) == (AlertState.FIRING, 0, FOR_MS)


def test_a_condition_that_goes_before_its_time_leaves_nothing() -> None:
    assert after(after({}, HOLDS, 0), GONE, 500) == {}


def test_without_a_time_it_fires_at_once() -> None:
    (alert,) = judge({}, {"A": HOLDS}, lambda _name: 0, 7).values()
    assert (alert.state, alert.starts_ms) == (AlertState.FIRING, 7)


def test_what_fires_is_resolved_shown_for_a_while_and_forgotten() -> None:
    resolved = after(firing(), GONE, 2_000)
    alert = only(resolved)
    assert (alert.state, alert.starts_ms, alert.ends_ms) == (AlertState.RESOLVED, 1_000, 2_000)
    kept = after(resolved, GONE, 2_000 + RESOLVED_KEPT_MS - 1)
    assert only(kept) == alert
    assert after(kept, GONE, 2_000 + RESOLVED_KEPT_MS) == {}


def test_a_resolved_alert_that_holds_again_begins_anew() -> None:
    again = only(after(after(firing(), GONE, 2_000), HOLDS, 3_000))
    assert (again.state, again.since_ms, again.starts_ms, again.ends_ms) == (AlertState.PENDING, 3_000, 0, 0)


def test_nothing_is_resolved_while_unknown() -> None:
    doubtful = only(after(firing(), None, 9_000))
    assert (doubtful.state, doubtful.starts_ms, doubtful.is_known) == (AlertState.FIRING, 1_000, False)
    known = only(after({doubtful.key: doubtful}, HOLDS, 10_000))
    assert (known.starts_ms, known.is_known) == (1_000, True)


def test_unknown_time_is_no_time_in_which_a_condition_held() -> None:
    doubtful = after(after({}, HOLDS, 0), None, 5_000)
    assert only(doubtful).state is AlertState.PENDING
    assert only(after(doubtful, HOLDS, 5_999)).state is AlertState.PENDING
    assert only(after(doubtful, HOLDS, 6_000)).state is AlertState.FIRING


def test_nothing_begins_while_unknown() -> None:
    assert after({}, None, 0) == {}


def test_words_may_change_while_it_fires() -> None:
    assert only(after(firing(), {(): "it is worse"}, 2_000)).text == "it is worse"


def test_each_of_several_labels_lives_by_itself() -> None:
    one, other = (("node", "n1"),), (("node", "n2"),)
    both = after(after({}, {one: "x"}, 0), {one: "x", other: "y"}, 1_000)
    assert {labels: alert.state for (_, labels), alert in both.items()} == {
        one: AlertState.FIRING,
        other: AlertState.PENDING,
    }


def test_an_alert_that_is_in_no_table_any_more_goes() -> None:
    assert judge(firing(), {"B": GONE}, lambda _name: FOR_MS, 2_000) == {}


def test_the_number_of_alerts_is_bounded_and_those_that_fire_stay() -> None:
    many: Findings = {(("zone", f"Z{number}"),): "x" for number in range(2 * INSTANCES_MAX)}
    kept = judge(firing(), {"A": HOLDS, "B": many}, lambda _name: FOR_MS, 2_000)
    assert len(kept) == INSTANCES_MAX
    assert ("A", ()) in kept


def test_what_fires_is_shown_first_and_the_earliest_of_it() -> None:
    early = Alert("A", (), AlertState.FIRING, 0, "", 5)
    late = Alert("B", (), AlertState.FIRING, 0, "", 9)
    pending = Alert("C", (), AlertState.PENDING, 0, "")
    resolved = Alert("D", (), AlertState.RESOLVED, 0, "", 1, 2)
    assert shown_order([resolved, pending, late, early]) == [early, late, pending, resolved]


def test_a_restart_changes_no_begin() -> None:
    stored = AlertRecord.decode(AlertRecord(tuple(firing().values())).encode()).by_key
    restarted = adopted({}, stored, is_first=True)
    assert only(after(restarted, HOLDS, 60_000)).starts_ms == 1_000


def test_a_server_that_has_judged_takes_no_alert_from_another_but_the_earlier_begin() -> None:
    stored = firing()
    assert adopted({}, stored, is_first=False) == {}
    own = judge({}, {"A": HOLDS}, lambda _name: 0, 5_000)
    assert only(adopted(own, stored, is_first=False)).starts_ms == 1_000


@pytest.mark.parametrize(
    "other", [Alert("A", (("zone", "Y"),), AlertState.FIRING, 0, ""), Alert("B", (), AlertState.FIRING, 0, "")]
)
def test_a_fingerprint_is_of_name_and_labels_alone(other: Alert) -> None:
    one = Alert("A", (("zone", "X"),), AlertState.FIRING, 0, "")
    same = Alert("A", (("zone", "X"),), AlertState.RESOLVED, 5, "other words", 6, 7)
    assert one.fingerprint == same.fingerprint != other.fingerprint
