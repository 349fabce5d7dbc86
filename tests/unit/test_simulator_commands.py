"""``python -m simulator`` in this process."""

from __future__ import annotations

import json

import pytest

from simulator.__main__ import app

SMALL = ["control", "--seed", "3", "--nodes", "4", "--partitions", "4", "--events", "4"]

STAYING = ["--staying", "--partitions", "1001"]


def run(arguments: list[str]) -> int:
    """The exit code."""
    with pytest.raises(SystemExit) as end:
        app(arguments, prog_name="python -m simulator")
    return int(end.value.code or 0)


def test_what_happened_is_told_twice_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SMALL, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["seed"], found["nodes"], found["partitions"]) == (3, 4, 4)
    assert found["broken"] is None
    assert found["steps"] > 4
    assert sum(found["events"].values()) == len(found["trace"]) >= 4
    assert run(SMALL) == 0
    text = capsys.readouterr().out
    assert f"digest {found['digest']}" in text
    assert "every invariant held" in text


def test_a_broken_invariant_names_seed_step_and_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The invariants are made to see every trigger go back."""
    monkeypatch.setattr("simulator.control.invariants.decode_trigger", lambda value: -1)
    assert run([*SMALL, "--format", "json"]) == 1
    out, err = capsys.readouterr()
    broken = json.loads(out)["broken"]
    assert broken["invariant"] == "trigger revision never decreases"
    assert f"seed 3, step {broken['step']}, " in err
    assert "python -m simulator control --seed 3 --nodes 4 --partitions 4 --events 4 --strategy queue" in err


@pytest.mark.parametrize("wrong", [["--nodes", "2"], ["--partitions", "0"], ["--strategy", "hope"], STAYING])
def test_wrong_options(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["control", *wrong]) == 2
    assert wrong[0] in capsys.readouterr().err


@pytest.mark.row("VOL-013", "VOL-090", "VOL-104")
def test_stealing_is_told_twice_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """VOL-013, VOL-090, VOL-104: each line of a run of a controller, batch by batch, with its progress."""
    assert run(["stealing", "--seed", "7", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["seed"], found["broken"], found["failed"]) == (7, None, [])
    assert found["requests"] > 50
    kinds = {line["what"] for line in found["trace"]}
    assert {"Batch", "Step", "UnitBegan", "StoreDone", "Progress", "Committed"} <= kinds
    assert run(["stealing", "--seed", "7"]) == 0
    text = capsys.readouterr().out
    assert text.count("\n") == len(found["trace"]) + 3
    assert "every rule held" in text


def test_a_broken_rule_of_stealing_names_seed_and_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule is broken in that no server asks a donor."""
    target = "simulator.stealing.simulation.steal_metadata.ServerMetadata.donor_of"
    monkeypatch.setattr(target, lambda self, store, partition: None)
    assert run(["stealing", "--seed", "0", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert "was acknowledged, and a read found" in json.loads(out)["broken"]
    assert "python -m simulator stealing --seed 0" in err


def test_store_servers_are_told_twice_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["store", "--seed", "7", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["seed"], document["broken"]) == (7, None)
    assert document["acknowledged_writes"] > 20
    assert run(["store", "--seed", "7"]) == 0
    text = capsys.readouterr().out
    assert text.count("\n") == len(document["trace"]) + 3
    assert "every rule held" in text


def test_a_broken_rule_of_store_servers_names_seed_and_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operation ids are not supplied to copies that are filled."""
    target = "simulator.store.store_disk.SimulatedDisk.ids"
    monkeypatch.setattr(target, lambda self, partition, after, limit_bytes: ())
    assert run(["store", "--seed", "0", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["broken"]
    assert "python -m simulator store --seed 0" in err
