"""``zonectl check``: the catalog's rules without a server."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main

DATA = Path(__file__).parents[1] / "data" / "zone_statements.jsonl"
SERVERS = "fastapi uvicorn grpc aetcd pyspark sqlalchemy httpx pandas numpy rebalance.metastore catalog.store"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "zones.sql"


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code = main(["check", "--format", "jsonl", *arguments])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.row("IEP-033")
def test_one_line_a_statement(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """IEP-033: the example as written, and its consensus."""
    example = "CREATE ZONE 'MY_ZONE' WITH REPLICAS = ALL, QUORUM_SIZE = 2"
    script.write_text(f"-- first\n{example};\nDROP ZONE IF EXISTS a")
    code, found = lines(capsys, str(script))
    assert code == 0
    assert found == [
        {
            "n": 1,
            "sql": "CREATE ZONE 'MY_ZONE' WITH REPLICAS = ALL, QUORUM_SIZE = 2",
            "ok": True,
            "applied": True,
            "effect": {
                "op": "create",
                "zone": "MY_ZONE",
                "params": {
                    "partitions": 25,
                    "replicas": 2147483647,
                    "quorum_size": 2,
                    "auto_scale_up": 0,
                    "auto_scale_down": 2147483647,
                    "nodes_filter": "$..*",
                    "distribution_algorithm": "rendezvous",
                    "storage_profiles": ["default"],
                    "consistency_mode": "STRONG_CONSISTENCY",
                },
            },
            "error": None,
            "warnings": [],
        },
        {
            "n": 2,
            "sql": "DROP ZONE IF EXISTS a",
            "ok": True,
            "applied": False,
            "effect": {"op": "noop"},
            "error": None,
            "warnings": [
                {"name": "NOTHING_CHANGED", "message": "nothing was changed: what it names does not exist"}
            ],
        },
    ]


def test_a_refused_statement_ends_the_script(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text("CREATE ZONE a; CREATE ZONE a;\nCREATE ZONE b")
    code, found = lines(capsys, str(script))
    assert (code, [line["ok"] for line in found]) == (1, [True, False])
    assert found[1]["error"] == {
        "name": "ZONE_ALREADY_EXISTS",
        "code": 4003,
        "sqlstate": "42710",
        "message": "zone A already exists",
        "line": 1,
        "column": 28,
    }
    code, found = lines(capsys, str(script), "--continue-on-error")
    assert (code, [line["ok"] for line in found]) == (1, [True, False, True])


def test_what_does_not_parse_ends_it_before_it_begins(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text("CREATE ZONE a;\n CREATE ZONE (; DROP ZONE a; 'open")
    code, found = lines(capsys, str(script))
    assert code == 1
    assert [(line["n"], line["sql"]) for line in found] == [(2, "CREATE ZONE (")]
    code, found = lines(capsys, str(script), "--continue-on-error")
    assert [line["ok"] for line in found] == [True, False, True, False]
    places = [(line["error"]["line"], line["error"]["column"]) for line in found if line["error"]]
    assert places == [(2, 14), (2, 30)]
    script.write_text("")
    code, found = lines(capsys, str(script))
    assert (code, len(found), found[0]["error"]["name"]) == (1, 1, "SYNTAX_ERROR")


def test_statements_are_judged_not_engines(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Learners, member counts and what is not built: all good here. The topology says who lives."""
    topology = tmp_path / "nodes.json"
    nodes = [{"name": f"n{n}", "attributes": {"tier": n, "fast": True}} for n in range(7)]
    topology.write_text(json.dumps(nodes))
    script.write_text(
        "CREATE ZONE a (PARTITIONS 65000, REPLICAS ALL, QUORUM SIZE 2, AUTO SCALE UP 9); "
        "CREATE ZONE b (REPLICAS 3, NODES FILTER '$[?(@.tier > 4 && @.fast == ''true'')]')"
    )
    code, found = lines(capsys, str(script), "--topology", str(topology))
    assert code == 0
    assert [warning["name"] for warning in found[1]["warnings"]] == [
        "REPLICAS_ABOVE_DATA_NODES",
        "NO_MAJORITY_AFTER_LOSS",
    ]
    topology.write_text("{}")
    assert main(["check", str(script), "--topology", str(topology)]) == 64


def test_text_for_people(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text("CREATE ZONE a (REPLICAS 9);\n\tALTER ZONE a SET (QUORUM SIZE 9)")
    assert main(["check", str(script)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "1: ok (create): CREATE ZONE a (REPLICAS 9)",
        "  warning REPLICAS_ABOVE_DATA_NODES: REPLICAS 9, but 3 data nodes match now: "
        "each partition has 3 replicas until more nodes join",
        "2: refused: ALTER ZONE a SET (QUORUM SIZE 9)",
        f"  {script}:2:20: QUORUM_ABOVE_MAXIMUM (3002, 22023): "
        "with REPLICAS 9 QUORUM SIZE must be from 2 to 5, not 9",
        "            ALTER ZONE a SET (QUORUM SIZE 9)",
        "                              ^~~~~~",
    ]


def test_usage(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(script)]) == 64
    assert main(["check"]) == 64
    assert "zones.sql" in capsys.readouterr().err


def run(program: str, given: str = "") -> tuple[float, subprocess.CompletedProcess[str]]:
    """Seconds of processor time that a Python takes for ``program``, and what it said."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done


def test_it_answers_at_once_and_loads_no_server() -> None:
    """Measured 30 times what a Python takes that does nothing, at any load: 0.4 s of an idle processor. Both
    take longer on a machine that is busy."""
    program = (
        "import sys; from app.cli.main import main; code = main(['check', '-'])\n"
        f"loaded = [name for name in {SERVERS.split()!r} if name in sys.modules]\n"
        "print(loaded, file=sys.stderr); sys.exit(code)"
    )
    idle, used = [], []
    for _ in range(3):
        idle.append(run("")[0])
        used_s, done = run(program, "CREATE ZONE a (REPLICAS 3, NODES FILTER '$.region'); DROP ZONE a")
        assert done.stderr.strip() == "[]"
        assert done.stdout.count("ok") == 2
        used.append(used_s)
    assert min(used) < 45 * min(idle)


def test_the_known_statements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each row of the statements with known outcomes, as a script of its own: ok or not, and the effect."""
    cases = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    topology = tmp_path / "nodes.json"
    topology.write_text(
        json.dumps(
            [
                {"name": "n1", "attributes": {"region": "US", "storage": "SSD", "tier": 10},
                 "profiles": ["default", "rocks"]},
                {"name": "n2", "attributes": {"region": "EU", "storage": "SSD"},
                 "profiles": ["default", "rocks"]},
                {"name": "n3", "attributes": {"region": "EU", "storage": "HDD", "tier": 4},
                 "profiles": ["default", "rocks", "archive"]},
            ]
        )
    )  # fmt: skip
    script = tmp_path / "case.sql"
    differing = []
    for case in cases:
        script.write_text(";\n".join([*case["setup"], case["sql"]]))
        _, found = lines(capsys, "--topology", str(topology), "--continue-on-error", str(script))
        own = found[len(case["setup"]) :]
        effects = [
            line["effect"] if "rows" in line["effect"] else {**line["effect"], "applied": line["applied"]}
            for line in own
            if line["ok"]
        ]
        if case["error_kind"] and case["api"] == "script":
            effects = effects[:1]
        expected = case["effect"] and case["effect"].get("results", [case["effect"]])
        text = json.dumps(expected).replace('"AUTO"', "25")
        agrees = all(line["ok"] for line in own) == case["ok"]
        if not agrees or (expected and json.loads(text) != effects):
            differing.append(case["id"])
    # An algorithm that does not exist, and parameters beside the text, of which a script has none.
    assert differing == ["Z044", "Z368"]


def test_questions_are_answered_from_the_catalog_of_the_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "asks.sql"
    script.write_text(
        "CREATE ZONE a (REPLICAS 2);\nSELECT zone_name, zone_replicas FROM zones;\n"
        "SELECT 1,\n x FROM zones; SHOW CREATE ZONE a"
    )
    code, found = lines(capsys, "--continue-on-error", str(script))
    assert code == 1
    assert [line["ok"] for line in found] == [True, True, False, False]
    assert found[1]["effect"] == {"op": "rows", "rows": [["A", 2]]}
    assert (found[2]["error"]["line"], found[2]["error"]["column"]) == (4, 2)
    assert found[3]["error"]["line"] == 4
