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


@pytest.mark.row("VOL-013", "VOL-090", "VOL-104", shows="model")
def test_stealing_is_told_twice_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """VOL-013, VOL-090, VOL-104: each line of a run of a controller, batch by batch, with its progress."""
    assert main(["simulate", "--stealing", "--seed", "7", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["seed"], found["broken"], found["failed"]) == (7, None, [])
    assert found["requests"] > 50
    kinds = {line["what"] for line in found["trace"]}
    assert {"Batch", "Step", "UnitBegan", "StoreDone", "Progress", "Committed"} <= kinds
    assert main(["simulate", "--stealing", "--seed", "7"]) == 0
    text = capsys.readouterr().out
    assert text.count("\n") == len(found["trace"]) + 3
    assert "every rule held" in text


def test_a_broken_rule_of_stealing_names_seed_and_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks a donor."""
    target = "rebalance.stealing.simulation.steal_metadata.ServerMetadata.donor_of"
    monkeypatch.setattr(target, lambda self, store, partition: None)
    assert main(["simulate", "--stealing", "--seed", "0", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert "was acknowledged, and a read found" in json.loads(out)["broken"]
    assert "zonectl simulate --stealing --seed 0" in err


def test_stealing_takes_a_seed_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--stealing", "--nodes", "4", "--events", "3"]) == 64
    assert "--nodes, --events: --stealing takes --seed and --format only" in capsys.readouterr().err


def test_store_servers_are_told_twice_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--store", "--seed", "7", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["seed"], document["broken"]) == (7, None)
    assert document["acknowledged_writes"] > 20
    assert main(["simulate", "--store", "--seed", "7"]) == 0
    text = capsys.readouterr().out
    assert text.count("\n") == len(document["trace"]) + 3
    assert "every rule held" in text


def test_a_broken_rule_of_store_servers_names_seed_and_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operation ids are not supplied to copies that are filled."""
    target = "rebalance.store.simulation.store_disk.SimulatedDisk.ids"
    monkeypatch.setattr(target, lambda self, partition, after, limit_bytes: ())
    assert main(["simulate", "--store", "--seed", "0", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["broken"]
    assert "zonectl simulate --store --seed 0" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--nodes", "4"], "--nodes: --store takes --seed and --format only"),
        (["--stealing"], "--stealing, --store: one of them"),
    ],
)
def test_store_takes_a_seed_only(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--store", *flags]) == 64
    assert message in capsys.readouterr().err
