"""Plain values of the recovery page: partitions without a majority, and what a reset would do to them."""

from __future__ import annotations

from typing import Any

import pytest

from app.console.fragments import render
from app.console.recovery_model import (
    DryRun,
    ZoneLoss,
    candidates_of,
    consequence_of,
    dry_run,
    ranges_of,
    read_partitions,
    zone_loss,
    zones_with_loss,
)
from app.console.zone_grid import CopyCell, HealthCell, MoveCell, PartitionReading, Role, ZoneGrid, cell
from app.console.zone_states import ZoneState, stuck, zone_state
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import Zone, ZoneId

Json = dict[str, Any]
CAUSE = "NODE_DOWN: n1, n10"


def replica(node: str, state: str, *, voter: bool = True) -> Json:
    return {"node": node, "state": state, "voter": voter, "committed": None, "last": None, "reason": ""}


def state(number: int, *replicas: Json, recovering_on: str | None = None) -> Json:
    return {
        "partition": number,
        "state": "READ_ONLY",
        "voters": 3,
        "voters_alive": 1,
        "generation": 0,
        "recovering_on": recovering_on,
        "restarting": [],
        "replicas": list(replicas),
    }


def candidate(node: str, kind: str = "VOTER", **changed: Any) -> Json:
    fields: Json = {
        "node": node,
        "kind": kind,
        "revision": 41,
        "generation": 0,
        "state": "RUNNING",
        "usable": True,
        "by_name": False,
        "reason": "",
        "committed": None,
        "last": None,
    }
    return {**fields, **changed}


def reset(number: int, **changed: Any) -> Json:
    fields: Json = {
        "partition": number,
        "written": False,
        "survivor": "n2",
        "then": {"peers": ["n2", "n3"], "learners": ["n4"]},
        "empty": False,
        "possibly_lost_entries": 0,
        "missed_revisions": 0,
        "orderly": True,
        "candidates": [candidate("n2"), candidate("n3", "LEARNER", revision=40)],
        "silent": [],
        "to_confirm": ["n1", "n10"],
        "unproven": {},
        "refusal": None,
    }
    return {**fields, **changed}


def refused(number: int, name: str = "COPIES_LEFT") -> Json:
    refusal = {"name": name, "code": 5208, "detail": "n3 is alive and has a replica"}
    return reset(number, survivor=None, then=None, possibly_lost_entries=None, orderly=None, refusal=refusal)


def loss(*states: Json, total: int = 4) -> ZoneLoss:
    return zone_loss("Z", total, [each["partition"] for each in states], states, [CAUSE] * total)


def run_of(*answer: Json, numbers: tuple[int, ...] = ()) -> DryRun:
    states = (state(each["partition"], replica("n1", "UNAVAILABLE")) for each in answer)
    return dry_run({"from": ""}, answer, numbers, loss(*states))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", []),
        ("  ", []),
        ("3", [3]),
        ("7, 0-2,1", [0, 1, 2, 7]),
        ("5 6;7", [5, 6, 7]),
        ("0 - 3", [0, 1, 2, 3]),
    ],
)
def test_partitions_are_read_as_numbers_and_ranges(text: str, numbers: list[int]) -> None:
    assert read_partitions(text, 8) == numbers
    assert read_partitions(ranges_of(numbers), 8) == numbers


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("x", ErrorKind.INVALID_REQUEST, '"x" is not a partition: enter numbers and ranges, such as 0-3, 7'),
        ("1--2", ErrorKind.INVALID_REQUEST, '"1--2" is not a partition'),
        ("1-", ErrorKind.INVALID_REQUEST, '"1-" is not a partition'),
        ("8", ErrorKind.PARTITION_NOT_FOUND, '"8" is out of range: the zone has partitions 0 to 7'),
        ("3-2", ErrorKind.PARTITION_NOT_FOUND, '"3-2" is out of range: the zone has partitions 0 to 7'),
        ("0-999999", ErrorKind.PARTITION_NOT_FOUND, "partitions 0 to 7"),
        ("9999999", ErrorKind.INVALID_REQUEST, "is not a partition"),
    ],
)
def test_what_names_no_partition_is_refused(text: str, kind: ErrorKind, words: str) -> None:
    with pytest.raises(RefusedError) as error:
        read_partitions(text, 8)
    assert error.value.kind is kind
    assert words in error.value.message


def test_a_lost_partition_names_its_dead_voters_and_living_copies() -> None:
    replicas = (
        replica("n10", "UNAVAILABLE"),
        replica("n1", "BROKEN"),
        replica("n2", "HEALTHY"),
        replica("n4", "HEALTHY", voter=False),
        replica("n5", "UNAVAILABLE", voter=False),
    )
    (partition,) = loss(state(2, *replicas, recovering_on="n2")).partitions
    assert partition["dead"] == ["n1", "n10"]
    assert [(copy["node"], copy["kind"]) for copy in partition["copies"]] == [
        ("n1", "voter"),
        ("n2", "voter"),
        ("n4", "learner"),
    ]
    assert (partition["cause"], partition["recovering_on"]) == (CAUSE, "n2")


def test_every_candidate_says_whether_it_is_used() -> None:
    copies = candidates_of(
        reset(
            0,
            candidates=[
                candidate("n2", committed=12, last=14),
                candidate("n3", "LEARNER", committed=None),
                candidate(
                    "n4", "KEPT", revision=None, generation=None, usable=False, by_name=True, reason="kept"
                ),
                candidate("n5", "JOINER", usable=False, reason="it has received nothing yet"),
            ],
        )
    )
    assert [(each["node"], each["kind"], each["log"], each["use"]) for each in copies] == [
        ("n2", "voter", "12 of 14", "the survivor"),
        ("n3", "learner", "no log", "candidate"),
        ("n4", "kept", "no log", "only if named"),
        ("n5", "joiner", "unknown", "excluded"),
    ]
    assert [each["revision"] for each in copies] == [41, 41, None, 41]


def test_no_copy_goes_on_where_a_partition_begins_without_data() -> None:
    (row,) = run_of(reset(0, empty=True, orderly=None)).rows
    assert (row.lost, [copy["use"] for copy in row.copies]) == ("everything", ["candidate", "candidate"])


def test_a_dry_run_counts_what_is_lost_and_leaves_out_what_is_refused() -> None:
    run = run_of(
        reset(0, possibly_lost_entries=2),
        refused(1),
        reset(2, possibly_lost_entries=1, to_confirm=["n1", "n7"], unproven={"n3": "3.5.1"}),
        reset(3, empty=True, possibly_lost_entries=0),
    )
    assert (run.entries, run.emptied, run.to_confirm) == (3, 1, ("n1", "n7", "n10"))
    assert run.unproven == [("n3", "3.5.1")]
    assert [row.refusal for row in run.rows if row.refusal] == ["COPIES_LEFT: n3 is alive and has a replica"]
    assert [row.lost for row in run.resets] == ["up to 2 entries", "up to 1 entry", "everything"]


def test_a_reset_asks_for_exactly_what_was_shown() -> None:
    run = run_of(reset(0), refused(1), reset(2), reset(3, survivor="n3"), numbers=(0, 1, 2))
    assert run.request_of_reset(("n1", "n10")) == {
        "from": "",
        "partitions": [0, 2],
        "confirm_dead": ["n1", "n10"],
        "shown": [{"partitions": [0, 2], "survivor": "n2", "empty": False, "possibly_lost_entries": 0}],
    }


def test_nobody_has_to_be_named_for_what_is_refused() -> None:
    assert run_of(refused(0)).to_confirm == ()


def test_a_dry_run_is_out_of_date_once_something_else_is_lost() -> None:
    lost = state(0, replica("n1", "UNAVAILABLE"), replica("n2", "HEALTHY"))
    run = dry_run({}, [reset(0)], (), loss(lost))
    assert not run.is_stale(loss(dict(lost)))
    moved = [{**row, "committed": 7, "last": 9} for row in lost["replicas"]]
    assert not run.is_stale(loss({**lost, "replicas": moved, "restarting": ["n2"]}))
    for now in (
        loss(),
        loss(lost, state(1, replica("n1", "UNAVAILABLE"))),
        loss(state(0, replica("n1", "UNAVAILABLE"), replica("n2", "BROKEN"))),
        loss({**lost, "recovering_on": "n2"}),
    ):
        assert run.is_stale(now)


@pytest.mark.parametrize(
    ("answer", "words", "silent_of"),
    [
        (
            [reset(0), reset(1)],
            ["partitions 0-1", "no entry is known", "Assumed dead: n1, n10."],
            "start empty",
        ),
        ([reset(0, possibly_lost_entries=1, to_confirm=[])], ["up to 1 entry may be lost"], "Assumed dead"),
        ([reset(0, empty=True)], ["1 of them start empty"], "replica of"),
    ],
)
def test_the_last_question_says_what_is_lost(answer: list[Json], words: list[str], silent_of: str) -> None:
    text = consequence_of(run_of(*answer))
    assert [each for each in words if each not in text] == []
    assert silent_of not in text


def test_markup_in_what_is_shown_stays_text() -> None:
    nasty = "<b onclick=x>"
    answer = reset(0, survivor=nasty, candidates=[candidate(nasty, reason=nasty)], to_confirm=[nasty])
    run = run_of(answer, {**refused(1), "refusal": {"name": "X", "code": 1, "detail": nasty}})
    for shown in (
        render("recovery_dry_run", run=run, is_stale=True),
        render("recovery_copies", rows=run.rows, total=3, zone=nasty),
        render("recovery_lost", loss=loss(state(0, replica(nasty, "UNAVAILABLE")))),
        render("recovery_asked", written="0", refused=run.rows),
        render("recovery_head", zone=nasty),
    ):
        assert "<b " not in shown
        assert "&lt;b onclick=x&gt;" in shown


def lost_state(name: str, *lost: bool, cause: str = "NODE_DOWN: n1") -> ZoneState:
    """A zone with a partition for each value; all of them wait."""
    grid = ZoneGrid(len(lost))
    copies = (("a", cell(Role.LEADER, CopyCell.HEALTHY)),)
    readings = [
        PartitionReading(copies, MoveCell.WAITING, HealthCell.READ_ONLY, cause, lost=each) for each in lost
    ]
    grid.place(range(len(lost)), readings)
    assert grid.lost_numbers() == [number for number, each in enumerate(lost) if each]
    return zone_state(Zone(ZoneId(1), name, len(lost), 3, None, ("default",)), grid, "")


def test_zones_with_most_losses_come_first() -> None:
    states = [lost_state("A", False), lost_state("B", True, False), lost_state("C", True, True)]
    assert [(each.zone.name, each.lost) for each in zones_with_loss(states)] == [("C", 2), ("B", 1)]


def test_a_cause_leads_to_the_recovery_of_zones_that_have_lost_something() -> None:
    states = [lost_state("A", False), lost_state("B", True), lost_state("C", True, cause="PAUSED: by ada")]
    causes = {cause.word: cause.lost for cause in stuck(states)}
    assert causes == {"NODE_DOWN": ("B",), "PAUSED": ()}
    shown = render("overview_causes", causes=stuck(states))
    assert "/console/recovery?zone=B" in shown
    assert "/console/recovery?zone=A" not in shown
