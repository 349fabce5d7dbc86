"""``zonectl rebalance``: what it says and sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.cli.limits import bytes_of, seconds_of, summary
from app.cli.main import main
from tests.fixtures.api_stub import ApiStub
from tests.unit.test_cli.pauses import NONE, PAUSE_LINES, PAUSED

LIMITS = "/api/v1/rebalance/limits"
WINDOWED = {**NONE, "windows": ["22:00-04:00", "Sat,Sun 00:00-24:00"]}


def test_limits_are_shown(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"GET {LIMITS}"] = (200, PAUSED)
    assert main(["rebalance", "limits"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["limit", "value", "meaning"]
    assert lines[1].split()[:2] == ["cluster_moves", "8"]
    assert lines[2].split()[:2] == ["zone_moves", "none"]
    assert lines[-2:] == PAUSE_LINES
    assert main(["rebalance", "limits", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == PAUSED


def test_windows_are_shown(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"GET {LIMITS}"] = (200, WINDOWED)
    assert main(["rebalance", "limits"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[-2:]] == [["window", "22:00-04:00"], ["window", "Sat,Sun"]]


@pytest.mark.row("VOL-097", "VOL-098", "VOL-099")
def test_what_is_set_is_shown_and_what_is_not_is_left_out(
    api: ApiStub, capsys: pytest.CaptureFixture[str]
) -> None:
    """VOL-097, VOL-098, VOL-099: as rows with their meaning, and in a line each of `zonectl status`."""
    everything = {
        **WINDOWED,
        "rebalancing": False,
        "keep_copies": True,
        "copy_attempts": 5,
        "copy_s": 7_200,
        "joiner_s": 300,
        "ha_reset_s": 20,
        "cluster_bytes_s": 104_857_600,
        "node_bytes_s": 512,
    }
    api.answers[f"GET {LIMITS}"] = (200, everything)
    assert main(["rebalance", "limits"]) == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()[1:]]
    values = {row[0]: next(filter(None, row[1:])).strip() for row in rows if row[0] != "window"}
    shown = {name: value for name, value in values.items() if value != "none"}
    assert shown == {
        "copy_attempts": "5",
        "copy_s": "7200",
        "joiner_s": "300",
        "ha_reset_s": "20",
        "cluster_bytes_s": "100 MiB/s",
        "node_bytes_s": "512 B/s",
        "keep_copies": "yes",
        "rebalancing": "no",
    }
    assert summary(everything) == [
        "limits of moves: cluster_bytes_s 104857600, node_bytes_s 512",
        "rebalancing is turned off",
        "copies are kept until they are finalised",
        "moves begin in windows: 22:00-04:00, Sat,Sun 00:00-24:00 UTC",
    ]
    assert summary(NONE) == []


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("limits --cluster-moves 8 --receiver-moves 2", {"cluster_moves": 8, "receiver_moves": 2}),
        ("limits --zone-moves none --batch-size NONE", {"zone_moves": None, "batch_size": None}),
        (
            "limits --window 22:00-04:00 --window sat,Sun.00:00-24:00",
            {"windows": ["22:00-04:00", "Sat,Sun 00:00-24:00"]},
        ),
        ("limits --copy-attempts 5 --copy-time 2h", {"copy_attempts": 5, "copy_s": 7200}),
        ("limits --copy-attempts none --copy-time none", {"copy_attempts": None, "copy_s": None}),
        ("limits --joiner-timeout 5m", {"joiner_s": 300}),
        ("limits --joiner-timeout none", {"joiner_s": None}),
        ("limits --ha-reset 20", {"ha_reset_s": 20}),
        ("limits --ha-reset 1m", {"ha_reset_s": 60}),
        ("limits --ha-reset 0", {"ha_reset_s": 0}),
        ("limits --ha-reset none", {"ha_reset_s": None}),
        (
            "limits --cluster-bandwidth 100MiB --node-bandwidth 500kb",
            {"cluster_bytes_s": 104_857_600, "node_bytes_s": 500_000},
        ),
        ("limits --cluster-bandwidth NONE --node-bandwidth 7", {"cluster_bytes_s": None, "node_bytes_s": 7}),
        ("limits --keep-copies", {"keep_copies": True}),
        ("limits --delete-copies --any-operations", {"keep_copies": False, "one_operation": False}),
        ("limits --no-rebalancing", {"rebalancing": False}),
        ("limits --rebalancing", {"rebalancing": True}),
        ("limits --window none", {"windows": []}),
        ("pause --by bob", {"pause": {"by": "bob", "reason": "", "for_s": None}}),
        (
            "pause --by bob --reason disks --for 1h30m --zone orders",
            {"zone_pauses": {"ORDERS": {"by": "bob", "reason": "disks", "for_s": 5400}}},
        ),
        ("resume", {"pause": None}),
        ("resume --zone orders", {"zone_pauses": {"ORDERS": None}}),
        ("resume --by bob --reason done", {"pause": None, "by": "bob", "reason": "done"}),
        ("limits --zone-moves 2 --reason load", {"zone_moves": 2, "reason": "load"}),
    ],
)
def test_changes(line: str, sent: dict[str, Any], api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"PATCH {LIMITS}"] = (200, NONE)
    assert main(["rebalance", *(word.replace(".", " ") for word in line.split())]) == 0
    assert [each.body for each in api.requests] == [sent]
    assert "cluster_moves" in capsys.readouterr().out


@pytest.mark.row("H2")
def test_nodes_that_do_not_keep_to_the_time_of_resets_are_named(
    api: ApiStub, capsys: pytest.CaptureFixture[str]
) -> None:
    """H2: the nodes are named only while the limit is set."""
    api.answers[f"GET {LIMITS}"] = (200, {**NONE, "ha_reset_s": 9, "ha_reset_waits_for": ["n2", "n3"]})
    assert main(["rebalance", "limits"]) == 0
    told = "ha_reset_s is not in force yet on n2, n3: they have not published that they keep to it"
    assert capsys.readouterr().out.splitlines()[-1] == told
    api.answers[f"GET {LIMITS}"] = (200, {**NONE, "ha_reset_s": None, "ha_reset_waits_for": ["n2"]})
    assert main(["rebalance", "limits"]) == 0
    assert "n2" not in capsys.readouterr().out


def test_the_user_pauses(api: ApiStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "carol")
    api.answers[f"PATCH {LIMITS}"] = (200, NONE)
    assert main(["rebalance", "pause"]) == 0
    assert api.requests[0].body["pause"]["by"] == "carol"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("limits --cluster-moves 0", "--cluster-moves is a whole number from 1 on, or none, not '0'"),
        ("limits --donor-moves -3", "--donor-moves is a whole number from 1 on, or none, not '-3'"),
        ("limits --batch-size many", "--batch-size is a whole number from 1 on, or none, not 'many'"),
        ("limits --window 9-17", "--window: '9-17' is not a window: it is written 22:00-04:00"),
        ("limits --window 22:00-04:00 --window none", "--window: 'none' is not a window"),
        ("limits --node-bandwidth fast", "--node-bandwidth takes bytes a second as 500kB, 20MiB or 1.5GiB"),
        ("limits --cluster-bandwidth 0", "--cluster-bandwidth takes bytes a second"),
        ("limits --joiner-timeout 9", "--joiner-timeout takes a time as 90s, 10m, 1h30m or 2d, not '9'"),
        ("limits --ha-reset soon", "--ha-reset takes a time as 90s, 10m, 1h30m or 2d, not 'soon'"),
        ("limits --ha-reset -1", "--ha-reset takes a time"),
        ("limits --copy-time 9", "--copy-time takes a time as 90s, 10m, 1h30m or 2d, not '9'"),
        ("limits --operation-time 9", "--operation-time takes a time"),
        (f"limits --cluster-moves {'9' * 4301}", "--cluster-moves is a whole number from 1 on, or none"),
        (
            f"limits --ha-reset {'9' * 19}",
            f"--ha-reset takes a time as 90s, 10m, 1h30m or 2d, not '{'9' * 19}'",
        ),
        (f"pause --for {'9' * 4301}d", "--for takes a time"),
        ("pause --for 10", "--for takes a time as 90s, 10m, 1h30m or 2d, not '10'"),
        ("pause --for 0s", "--for takes a time"),
        ("limits --format csv", "'csv' is not one of 'table', 'json', 'jsonl'"),
    ],
)
def test_what_cannot_be_meant(line: str, told: str, api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rebalance", *line.split()]) == 64
    assert told in capsys.readouterr().err
    assert api.requests == []


def test_sizes() -> None:
    """Powers of 1,000, and of 1,024 with an i; a unit may be written in any case."""
    texts = ("1", "2B", "500kB", "3K", "20MiB", "1.5gib", "2TB", "0.001kB")
    found = [bytes_of(text, "--node-bandwidth") for text in texts]
    assert found == [1, 2, 500_000, 3_000, 20 << 20, 3 << 29, 2 * 10**12, 1]


def test_times() -> None:
    assert [seconds_of(text) for text in ("90s", "10m", "1h30m", "2D", "1d1h1m1s")] == [
        90,
        600,
        5400,
        172800,
        90061,
    ]


def test_a_refusal(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.problem(f"PATCH {LIMITS}", 404, "ZONE_NOT_FOUND", "zone X does not exist", sqlState="42704")
    assert main(["rebalance", "pause", "--zone", "x"]) == 1
    assert capsys.readouterr().err == "ZONE_NOT_FOUND (42704): zone X does not exist\n"
