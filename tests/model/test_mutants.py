"""Each guard, comparison and write of the decisions is needed: without it a script or the model says so."""

from __future__ import annotations

import asyncio
from functools import cache

import pytest

from rebalance.core.assignments.assignment import Strategy
from tests.datadriven.runner import SCRIPTS, Block, read_blocks
from tests.fixtures.guarded_write_script import ENDING_SCRIPTS, PROTOCOL_SCRIPTS, execute
from tests.fixtures.model_exploration import explore
from tests.model.mutants import Mutant, mutants
from tests.model.scopes import endings, small
from tests.model.world import REAL, Decisions

ALL = list(mutants())


@cache
def blocks() -> list[Block]:
    return [block for name in (*PROTOCOL_SCRIPTS, *ENDING_SCRIPTS) for block in read_blocks(SCRIPTS / name)]


def caught_by_behaviour(decisions: Decisions) -> bool:
    """A script commits each decision to a store, and reads the keys back, also after somebody interfered."""

    async def differs() -> bool:
        for block in blocks():
            try:
                if await execute(block, decisions) != block.expected:
                    return True
            except (AttributeError, KeyError, TypeError, ValueError):
                return True  # what was changed no longer handles an absent key, or what it finds in one
        return False

    return asyncio.run(differs())


def caught_by_model(decisions: Decisions) -> str:
    """The rule that is broken first, or ""."""
    for strategy in Strategy:
        for name, scope in (*small(strategy), *endings(strategy)):
            try:
                violation = explore(scope, decisions).violation
            except (AttributeError, AssertionError, KeyError, TypeError, ValueError) as error:
                return f"{strategy.value}, {name}: {error!r}"
            if violation is not None:
                return f"{strategy.value}, {name}: {violation.rule}"
    return ""


def test_the_mutants_are_many() -> None:
    """Guards, writes and comparisons of every decision; what is not changed is not caught by mistake."""
    names = [each.name for each in ALL]
    assert len(names) == len(set(names)) > 150
    assert not caught_by_behaviour(REAL)


@pytest.mark.row(
    "I3-016..025",
    "I3-036",
    "I3-037",
    "I3A-004..010",
    "I3A-014..027",
    "VOL-095",
    "M1",
    "M2",
    "M8",
    "M10",
)
@pytest.mark.parametrize("mutant", ALL, ids=lambda each: each.name)
def test_behaviour_catches(mutant: Mutant) -> None:
    """I3-016..025, I3-036, I3-037, I3A-004..010, I3A-014..027, M1, M2, M8, M10, VOL-095: nothing of
    a decision can be left out unseen."""
    assert caught_by_behaviour(mutant.decisions())


@pytest.mark.soak
def test_what_the_model_catches() -> None:
    """The same mutants against the model alone. What it does not see is listed with the reason in
    ``rebalance/tech-notes/protocol-model.md``: it protects from writers that the model does not have."""
    missed = []
    for mutant in ALL:
        rule = caught_by_model(mutant.decisions())
        print(f"{'-' if rule else 'MISSED'} {mutant.name}: {rule}", flush=True)
        if not rule:
            missed.append(mutant.name)
    print(f"{len(ALL) - len(missed)} of {len(ALL)} are caught by the model; the scripts catch all")
    assert len(missed) < len(ALL) / 2
