"""Judgements in the tests of cut networks: what they let pass, and what they do not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.cut_judgement import CONVERGENCE_S, READINESS, SETTLED_S, Judgement, Look, issues

WELL = Look({}, serves=True)
NAMED = Look({"partition 0": "NO_MAJORITY: n3"})
ALL = frozenset({"n1", "n2", "n3"})


def partition(state: str, cause: str, *voters: str) -> dict[str, Any]:
    return {"partition": 0, "status": {"state": state, "cause": cause}, "stable": {"peers": list(voters)}}


def test_what_is_well_in_time_needs_no_name() -> None:
    judgement = Judgement()
    assert not judgement.is_well(Look(None), 1)
    assert not judgement.is_well(Look({"partition 0": ""}), SETTLED_S - 1)
    assert not judgement.is_well(Look({}, serves=False), SETTLED_S - 1)
    assert judgement.is_well(WELL, SETTLED_S - 0.1)
    assert judgement.named == ()


def test_what_is_named_in_time_may_be_well_later() -> None:
    judgement = Judgement()
    assert not judgement.is_well(NAMED, SETTLED_S + 0.1)
    assert not judgement.is_well(Look({"partition 0": ""}), SETTLED_S + 1)
    assert judgement.is_well(WELL, CONVERGENCE_S - 1)
    assert judgement.named == ("partition 0: NO_MAJORITY: n3",)


@pytest.mark.parametrize(
    ("look", "said"),
    [
        (Look(None), "the server does not answer"),
        (Look({}), "takes no put"),
        (Look({"partition 0": "NO_MAJORITY: n3", "partition 1": ""}), "no cause is shown for partition 1"),
        (Look({READINESS: "a node lacks", "partition 0": ""}), "no cause is shown for partition 0"),
    ],
)
def test_what_has_no_name_in_time_is_refused(look: Look, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        Judgement().is_well(look, SETTLED_S + 0.1)


def test_what_is_named_and_never_well_is_refused() -> None:
    judgement = Judgement()
    assert not judgement.is_well(NAMED, SETTLED_S + 0.1)
    with pytest.raises(AssertionError, match="NO_MAJORITY: n3"):
        judgement.is_well(NAMED, CONVERGENCE_S)


def test_a_partition_that_is_done_with_other_voters_needs_a_cause() -> None:
    done = partition("DONE", "", *ALL)
    assert issues("", [done], ALL) == {}
    assert issues("a node lacks", [done], ALL) == {READINESS: "a node lacks"}
    assert issues("", [partition("DONE", "", "n1", "n2")], ALL) == {"partition 0": ""}
    assert issues("", [partition("MOVING", "CATCHING_UP", *ALL)], ALL) == {"partition 0": "CATCHING_UP"}
