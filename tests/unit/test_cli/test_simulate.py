"""``zonectl simulate`` in this process."""

from __future__ import annotations

import json

import pytest

from app.cli.main import main

SMALL = ["simulate", "--seed", "3", "--nodes", "4", "--partitions", "4", "--events", "4"]


def test_what_happened_is_told_twice_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["seed"], found["nodes"], found["partitions"]) == (3, 4, 4)
    assert found["broken"] is None
    assert found["steps"] > 4
    assert sum(found["events"].values()) == len(found["trace"]) >= 4
    assert main(SMALL) == 0
    text = capsys.readouterr().out
    assert f"digest {found['digest']}" in text
    assert "every invariant held" in text


def test_a_broken_invariant_names_seed_step_and_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the invariants every trigger seems to go back."""
    monkeypatch.setattr("rebalance.simulation.invariants.decode_trigger", lambda value: -1)
    assert main([*SMALL, "--format", "json"]) == 1
    out, err = capsys.readouterr()
    broken = json.loads(out)["broken"]
    assert broken["invariant"] == "trigger revision never decreases"
    assert f"seed 3, step {broken['step']}, " in err
    assert "zonectl simulate --seed 3 --nodes 4 --partitions 4 --events 4 --strategy queue" in err


@pytest.mark.parametrize("wrong", [["--nodes", "2"], ["--partitions", "0"], ["--strategy", "hope"]])
def test_wrong_options(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *wrong]) == 64
    assert wrong[0] in capsys.readouterr().err
