"""What allows a membership step, as a script: who is listed, who has answered what, what the step waits for."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from rebalance.core import step_checks
from rebalance.core.group_steps import AddLearner, Promote, Remove
from tests.datadriven.runner import Block, run_script

SCRIPT = "membership_steps.txt"
LEADER, TERM, CLUSTER = "a", 5, 77
ASKED_S, LISTED_S, ANSWERED_S = 9.5, 10.0, 10.2
"""Of the leader's status, of the list, and of the calls to all members."""
STEPS = {"add": AddLearner, "promote": Promote, "remove": Remove}


def names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def pairs(text: str) -> dict[str, str]:
    return {name: value for name, _, value in (each.partition(":") for each in names(text))}


def answer(checks: ModuleType, name: str, asked_s: float, wrong: str = "", applied: int = 0) -> Any:
    """As of a member that follows a; ``wrong``: the one thing that is otherwise."""
    return checks.MemberAnswer(
        ord(name) if wrong != "id" else ord("z"),
        CLUSTER if wrong != "cluster" else CLUSTER + 1,
        ord(LEADER) if wrong != "leader" else ord("b"),
        TERM if wrong != "term" else TERM + 1,
        {"early": LISTED_S - 0.01, "at_once": LISTED_S}.get(wrong, asked_s),
        applied,
    )


def execute(block: Block, checks: ModuleType = step_checks) -> str:
    given = block.arguments
    answered, wrong = names(given.get("answered", "")), pairs(given.get("wrong", ""))
    applied, learners = pairs(given.get("applied", "")), names(given.get("learners", ""))
    members = tuple(
        checks.CheckedMember(
            *(ord(name), name, name in learners, name in names(given.get("announced", ""))),
            answer(checks, name, ANSWERED_S, wrong.get(name, ""), int(applied.get(name, 0)))
            if name in (*answered, *wrong)
            else None,
        )
        for name in (*names(given["voters"]), *learners)
    )
    evidence = checks.StepEvidence(
        TERM,
        answer(checks, LEADER, ASKED_S, given.get("first", "")),
        LISTED_S,
        members,
        given.get("outcome", "known") == "known",
        {ord(name): int(index) for name, index in pairs(given.get("awaited", "")).items()},
    )
    step = STEPS[block.command](given["member"])
    verdict = checks.check_step(step, evidence, LISTED_S + float(given.get("after", 0.3)))
    if isinstance(verdict, checks.NotYet):
        return (
            f"waits for {verdict.condition.value}"
            + (": " if verdict.silent else "")
            + ", ".join(verdict.silent)
        )
    return f"send within {verdict.send_by_s - LISTED_S:.1f} s, over after {verdict.until_s - LISTED_S:.1f} s"


@pytest.mark.row("S2", "S3", shows="core")
def test_what_a_step_waits_for() -> None:
    """S2, S3: what each condition asks for, by the row that it alone decides."""
    run_script(SCRIPT, execute)
