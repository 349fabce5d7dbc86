"""Conditions of a membership step, as a script: the listed members, their answers, and what the step waits
for."""

from __future__ import annotations

import pytest

from tests.datadriven.runner import run_script
from tests.fixtures.membership_steps_script import SCRIPT, execute


@pytest.mark.row("S2", "S3")
def test_what_a_step_waits_for() -> None:
    """S2, S3: what each condition asks for, by the row that it alone decides."""
    run_script(SCRIPT, execute)
