"""The guarded writes against a script: each decision is committed to a store, and the keys are read back."""

from __future__ import annotations

import asyncio

import pytest

from tests.datadriven.runner import run_script
from tests.fixtures.guarded_write_script import PROTOCOL_SCRIPTS, execute


@pytest.mark.row("I3-010", "I3-016..026", "I3-036", "I3-037", "I3A-004..010", "I3A-014..027", "M5", "M7", "M13")
@pytest.mark.parametrize("script", PROTOCOL_SCRIPTS)
def test_script(script: str) -> None:
    """I3-010, I3-016..026, I3-036, I3-037, I3A-004..010, I3A-014..027: every branch, and the guards of each;
    decisions 7, 8, 9, 10, 11."""
    run_script(script, lambda block: asyncio.run(execute(block)))


@pytest.mark.row("VOL-095")
def test_withdrawal() -> None:
    """VOL-095: what an operation has not begun goes back to what is stable; with a move that begins at the same
    time, one of the two wins."""
    run_script("withdrawal.txt", lambda block: asyncio.run(execute(block)))


@pytest.mark.row("M8", "M10")
def test_call_back() -> None:
    """M8, M10: what an operation has begun goes back until a voter of before was removed; each key that was
    looked at is guarded."""
    run_script("call_back.txt", lambda block: asyncio.run(execute(block)))


@pytest.mark.row("M1", "M2")
def test_giving_up() -> None:
    """M1, M2: a move goes on without joiners that are gone, or with what is planned; who was given up is
    recorded; each key that was looked at is guarded."""
    run_script("give_up.txt", lambda block: asyncio.run(execute(block)))
