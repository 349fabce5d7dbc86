"""Each condition of a membership step is needed: without it a row of the script says something else."""

from __future__ import annotations

import pytest

from rebalance.core.moves import step_checks
from tests.datadriven.runner import SCRIPTS, read_blocks
from tests.fixtures.membership_steps_script import SCRIPT, execute
from tests.model.step_mutants import StepMutant, step_mutants

ALL = list(step_mutants())
BLOCKS = list(read_blocks(SCRIPTS / SCRIPT))


def test_the_mutants_are_many() -> None:
    names = [each.name for each in ALL]
    assert len(names) == len(set(names)) > 40
    assert all(execute(block, step_checks) == block.expected for block in BLOCKS)


@pytest.mark.row("S3")
@pytest.mark.parametrize("mutant", ALL, ids=lambda each: each.name)
def test_the_script_catches(mutant: StepMutant) -> None:
    """S3."""
    answers: list[str] = []
    checks = mutant.checks()
    for block in BLOCKS:
        try:
            answers.append(execute(block, checks))
        except (AttributeError, KeyError, TypeError):
            answers.append("it breaks")
    assert answers != [block.expected for block in BLOCKS]
