"""Causes: one enumeration, one table, and no name of them written elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.causes.cause import (
    STAGES,
    Cause,
    CauseLabels,
    Normality,
    cause_of,
    labels_of,
    told_cause,
)
from rebalance.core.causes.cause_table import (
    CAUSES,
    PAGE,
    PERMITTED,
    RESET_AFTER_S,
    advice,
    anchor,
    in_words,
    row_of,
)
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    MemberRecord,
    MemberRole,
    MemberState,
    Stage,
)
from rebalance.core.moves.move_status import PartitionView, StoreOwners
from rebalance.core.moves.partition_state import (
    PartitionFacts,
    VoterCount,
    facts_of,
    lacks_majority,
    voter_count,
)
from rebalance.nodes.leader_decision import cause_of_failure
from rebalance.ports.groups import FailureCode, ReconfigurationFailure

ROOT = Path(__file__).parents[2]
LAYERS = ("app", "catalog", "rebalance", "spark")
FIRST_WORD = re.compile(r"([A-Z]{2,}(?:_[A-Z]+)*): ")
SAYS_CAUSES = ("rebalance/", "spark/", "app/views/")
"""Folders in which a text that begins like a cause is one, known or not."""
NO_CAUSES = {
    "TLS": "begins the message of a setting's error",
    "WRONG_GENERATION": "begins the message of an error",
}
EXAMPLES = ("app/contract/health.py",)
"""Documents the API with an example."""


def written_causes(source: str) -> Iterator[str]:
    """First words of texts in ``source`` that look like causes, docstrings left out."""
    tree = ast.parse(source)
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            match = FIRST_WORD.match(node.value)
            if match is not None:
                yield match[1]


def test_no_cause_is_written_where_the_enumeration_is_not() -> None:
    paths = [path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")]
    found = {
        (place, word)
        for path in paths
        if (place := str(path.relative_to(ROOT))) not in EXAMPLES
        for word in written_causes(path.read_text())
        if word in Cause.__members__ or (place.startswith(SAYS_CAUSES) and word not in NO_CAUSES)
    }
    assert len(paths) > 500
    assert not found


def test_a_written_cause_is_found() -> None:
    assert list(written_causes('x = f"NODE_DOWN: {name}"\n"""NODE_UP: no cause"""')) == ["NODE_DOWN"]


def test_each_cause_has_a_row_and_an_anchor() -> None:
    labels_only = {Cause.NONE, Cause.OTHER}
    assert set(CAUSES) == set(Cause) - labels_only
    page = (ROOT / PAGE).read_text()
    anchors = {f"{PAGE}#{title.lower()}" for title in re.findall("^### ([A-Z_]+)$", page, re.M)}
    assert {anchor(cause.text("n1")) for cause in CAUSES} == anchors


def test_only_what_is_normal_for_a_time_has_one() -> None:
    for row in CAUSES.values():
        assert (row.normal_s > 0) == (row.normality is Normality.SHORTLY), row
        assert row.meaning.endswith("."), row
        assert row.action.endswith("."), row
        assert not row.words or row.normality is not Normality.NEVER, row


def test_what_limits_hold_back_is_permitted() -> None:
    held = {Cause.PAUSED, Cause.OUTSIDE_WINDOW, Cause.OPERATION_RUNS, Cause.CLUSTER_CAP, Cause.BANDWIDTH}
    assert held < PERMITTED
    assert not PERMITTED & {Cause.NODE_DOWN, Cause.CATCHING_UP, Cause.COPY_STALLED, Cause.NO_MAJORITY}


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("", CauseLabels(Cause.NONE, Cause.NONE)),
        ("NODE_DOWN: n1, n2", CauseLabels(Cause.NONE, Cause.NODE_DOWN)),
        ("CATCHING_UP", CauseLabels(Cause.CATCHING_UP, Cause.NONE)),
        ("CATCHING_UP: CATCHING_UP: n2", CauseLabels(Cause.CATCHING_UP, Cause.NONE)),
        ("JOINT: HEALTH_INTERVAL", CauseLabels(Cause.JOINT, Cause.HEALTH_INTERVAL)),
        ("CATCHING_UP: UNHEALTHY_CLUSTER", CauseLabels(Cause.CATCHING_UP, Cause.HEALTH_INTERVAL)),
        ("what no build says: n1", CauseLabels(Cause.NONE, Cause.OTHER)),
        ("JOINT: NEWER_CAUSE: n1", CauseLabels(Cause.JOINT, Cause.OTHER)),
        ("CATCHING_UP: n2", CauseLabels(Cause.CATCHING_UP, Cause.NONE)),
    ],
)
def test_labels_are_of_the_enumeration_whatever_the_text_says(text: str, labels: CauseLabels) -> None:
    assert labels_of(text) == labels


def test_every_cause_is_read_from_its_own_text() -> None:
    for cause in Cause:
        assert cause_of(cause.text()) is cause
        assert cause_of(cause.text("n1: and more")) is cause
        assert told_cause(f"JOINT: {cause.text('n1')}") is (Cause.JOINT if cause is Cause.NONE else cause)


def test_stages_of_groups_are_causes() -> None:
    assert {stage.name for stage in STAGES} == {stage.value for stage in Stage} - {"NONE"}


@pytest.mark.parametrize("code", list(FailureCode))
def test_each_failure_of_a_step_is_a_cause(code: FailureCode) -> None:
    assert cause_of_failure(ReconfigurationFailure(code, "")) in CAUSES


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (
            ReconfigurationFailure(FailureCode.UNHEALTHY_CLUSTER, "etcd: unhealthy cluster"),
            "waits for etcd's health interval, 5 s [HEALTH_INTERVAL]",
        ),
        (
            ReconfigurationFailure(FailureCode.NO_MAJORITY, "NEXT_MAJORITY"),
            "waits for answers of the group's members [ANSWERS_AWAITED]",
        ),
        (
            ReconfigurationFailure(FailureCode.TIMED_OUT, "FRESH_LIST"),
            "waits for answers of the group's members [ANSWERS_AWAITED]",
        ),
        (ReconfigurationFailure(FailureCode.TIMED_OUT, "no answer within 5 s"), "TIMED_OUT"),
    ],
)
def test_a_step_of_a_normal_move_says_in_words_what_it_waits_for(
    failure: ReconfigurationFailure, said: str
) -> None:
    assert in_words(cause_of_failure(failure).text()) == said


def test_what_calls_for_somebody_stays_a_name() -> None:
    assert in_words("NODE_DOWN: n1") == "NODE_DOWN: n1"
    assert in_words("a stranger's word") == "a stranger's word"
    assert anchor("a stranger's word") == ""


THREE = Assignments(("n1", "n2", "n3"), ("n4",))
ALIVE = frozenset(("n1", "n2", "n3", "n4"))
RUNNING = MemberRecord(MemberState.RUNNING, "http://x:1", "http://x:2")
STARTING = replace(RUNNING, state=MemberState.STARTING)
GROUP = ConfigurationRecord(
    1, "n1", Stage.NONE, {node: ConfiguredMember("1", MemberRole.VOTER, "http://x:1") for node in THREE.peers}
)
SERVING = PartitionView(THREE, THREE, None, None, True, dict.fromkeys(ALIVE, RUNNING), GROUP)
OWNED = StoreOwners(in_sync=("n1", "n2"), effective=("n1",), servers=ALIVE)


@pytest.mark.parametrize(
    ("view", "alive", "count"),
    [
        (SERVING, ALIVE, VoterCount(3, 2)),
        (SERVING, ALIVE - {"n1"}, VoterCount(2, 2)),
        (SERVING, frozenset(("n3", "n4")), VoterCount(1, 2)),
        (
            replace(SERVING, members={**SERVING.members, "n1": STARTING, "n2": STARTING}),
            ALIVE,
            VoterCount(1, 2),
        ),
        (replace(SERVING, members={"n1": RUNNING}), ALIVE, VoterCount(1, 2)),
        (replace(SERVING, pending=Assignments(("n4",))), frozenset(("n4",)), VoterCount(0, 2)),
        (replace(SERVING, configuration=None), frozenset(), None),
        (replace(SERVING, stable=None), ALIVE, None),
        (replace(SERVING, unreadable="RECORD_NOT_READABLE: x"), frozenset(), None),
        (replace(SERVING, owners=OWNED), ALIVE, VoterCount(1, 1)),
        (replace(SERVING, owners=OWNED), ALIVE - {"n1"}, VoterCount(0, 1)),
        (replace(SERVING, owners=replace(OWNED, is_resting=True)), frozenset(), None),
    ],
)
def test_the_majority_is_counted_from_voters_that_live_and_run(
    view: PartitionView, alive: frozenset[str], count: VoterCount | None
) -> None:
    assert voter_count(view, alive) == count
    assert lacks_majority(view, alive) == (count is not None and count.running < count.needed)


@pytest.mark.parametrize(
    ("text", "alive", "held_s", "names_reset"),
    [
        ("PARTITION_LOST: n1, n2", ["n3"], RESET_AFTER_S, True),
        ("PARTITION_LOST: n1, n2", ["n3"], RESET_AFTER_S - 1, False),
        ("PARTITION_LOST: n1, n2", ["n2", "n3"], 3_600.0, False),
        ("NO_MAJORITY: eu-1.a, n2; automatic reset from 2027-01-15T08:00:10Z on", ["n3"], 3_600.0, True),
        ("NO_MAJORITY: eu-1.a, n2", ["eu-1.a"], 3_600.0, False),
        ("NODE_DOWN: n1", [], 3_600.0, False),
    ],
)
def test_a_reset_is_advised_only_after_an_exchange_and_without_the_nodes(
    text: str, alive: list[str], held_s: float, names_reset: bool
) -> None:
    """A cause that passes by itself a moment later must not tempt an operator to give data up."""
    assert ("zonectl recovery" in advice(text, frozenset(alive), held_s)) == names_reset
    row = row_of(text)
    assert row is not None
    assert "reset the" not in row.action
    assert advice(text, frozenset(alive), held_s).startswith(row.action)


def one_of_three(*failed: str, gone: str = "", kept: tuple[str, ...] = ("n1", "n2", "n3")) -> PartitionFacts:
    """A partition that rests: three replicas are asked for, ``kept`` are there, ``failed`` of them broken."""
    nodes = ("n1", "n2", "n3")
    members = {
        node: MemberRecord(
            MemberState.FAILED if node in failed else MemberState.RUNNING, "http://p", "http://c"
        )
        for node in kept
    }
    listed = {node: ConfiguredMember(node, MemberRole.VOTER, "http://p") for node in kept}
    view = PartitionView(
        target=Assignments(kept),
        stable=Assignments(kept),
        pending=None,
        planned=None,
        processed=True,
        members=members,
        configuration=ConfigurationRecord(1, kept[0], Stage.NONE, listed),
        placement=Assignments(nodes),
    )
    return facts_of(view, frozenset(nodes) - {gone})


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (one_of_three(), []),
        (one_of_three(gone="n3"), ["is_degraded"]),
        (one_of_three("n3"), ["is_broken", "is_degraded"]),
        (one_of_three("n2", "n3"), ["is_broken", "is_unserved", "lacks_majority"]),
        (one_of_three(kept=("n1",)), ["is_short"]),
        (one_of_three("n1", kept=("n1",)), ["is_broken", "is_short", "is_unserved", "lacks_majority"]),
    ],
)
def test_what_is_wrong_with_a_partition_is_told_once(facts: PartitionFacts, told: list[str]) -> None:
    """Each has an alert of its own, so one fault should not be two of them."""
    names = ("is_broken", "is_degraded", "is_short", "is_unserved", "lacks_majority")
    assert [name for name in names if getattr(facts, name)] == told
