"""The command line itself: usage errors, help, where the URL comes from."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from app.cli.main import app, main
from app.cli.names import fold_name
from app.cli.options import DEFAULT_DATA_DIR
from app.configuration.settings import DEFAULT_DATA_DIR as SETTINGS_DATA_DIR
from app.configuration.settings import Settings
from tests.fixtures.api_stub import ApiStub, result
from tests.fixtures.ports import free_port

ZONECTL = [sys.executable, "-m", "app.cli"]
ROOT = Path(__file__).parents[3]
COMMANDS = ["up", "demo", "sql", "kv put", "kv get", "status", "serve", "controller", "node", "migrate"]
COMMANDS += ["recovery states", "recovery reset", "recovery restart"]
COMMANDS += ["rebalance limits", "rebalance pause", "rebalance resume"]
COMMANDS += ["operations", *(f"operations {each}" for each in ("show", "wait", "pause", "resume"))]
COMMANDS += ["operations cancel", "operations reverse", "audit"]
COMMANDS += ["node drain", "node undrain", "node can-stop"]


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "sql --nonsense",
        "sql",
        "sql -e X -f y",
        "sql -e X -",
        "sql x",
        "sql -f no-such-file.sql",
        "sql -e X --format xml",
        "sql -e X --wait --timeout soon",
        "kv put orders key",
        "kv put",
        "kv",
        "kv nonsense",
        "kv get 'a\"b' key",
        "up --nodes 0",
        "up --nodes many",
        "up --port 65536",
        "up --exit",
        "up --topology no-such-file",
        "status --format csv",
        "demo --keys 0",
        "",
    ],
)
def test_wrong_usage_is_64_and_says_so(line: str, api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["kv", "get", 'a"b', "key"] if "'" in line else line.split()
    assert main(arguments) == 64
    assert capsys.readouterr().err.strip() or not line or line == "kv"
    assert api.requests == []


def test_a_wrong_setting_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ZONEKEEPER_SPARK_WAIT_S", "soon")
    assert main(["up"]) == 64
    assert "ZONEKEEPER_SPARK_WAIT_S" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_teaches_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "zonectl " in shown.partition("Usage:")[2].partition("\n")[2]


def test_every_option_has_an_environment_variable() -> None:
    root = typer.main.get_command(app)
    seen = []
    for command in COMMANDS:
        node: Any = root
        for word in command.split():
            node = node.commands[word]
        for option in (param for param in node.params if param.param_type_name == "option"):
            seen.append(option.name)
            if option.name != "help":
                assert str(option.envvar).startswith("ZONEKEEPER_"), f"{command}: {option.name}"
    assert len(seen) > 40


def test_defaults_agree_with_the_settings() -> None:
    assert DEFAULT_DATA_DIR == SETTINGS_DATA_DIR
    assert Settings().host == "127.0.0.1"
    assert Settings().metastore == "127.0.0.1:2379"
    assert Settings().spark_master == "local[*]"


def test_help_is_fast_and_imports_nothing_heavy() -> None:
    """Measured 0.2 s of processor time, however busy the machine is; the limit leaves room for slow cores."""
    code = (
        "import sys; from app.cli.main import main; main(['--help']); "
        "print([m for m in ('grpc','pyspark','httpx','sqlglot','sqlalchemy','pydantic','pandas') "
        "if m in sys.modules])"
    )
    used = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert done.stdout.splitlines()[-1] == "[]"
    assert min(used) < 0.6


def test_no_known_server_says_how_to_start_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "-e", "DROP ZONE a", "--data-dir", str(tmp_path)]) == 3
    message = capsys.readouterr().err
    assert "zonectl up" in message
    assert "--url" in message


def test_nobody_at_the_url_is_3(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    for command in (["sql", "-e", "DROP ZONE a", "--wait"], ["kv", "get", "a", "b"], ["status"], ["demo"]):
        assert main([*command, "--url", url]) == 3
        assert url in capsys.readouterr().err


def test_the_url_comes_from_run_json(
    api: ApiStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ZONEKEEPER_URL")
    monkeypatch.setenv("ZONEKEEPER_DATA_DIR", str(tmp_path))
    (tmp_path / "run.json").write_text(json.dumps({"url": api.url}))
    api.answers["POST /api/v1/statements"] = (200, {"results": [result(1, "drop")]})
    assert main(["sql", "-e", "DROP ZONE orders"]) == 0
    (tmp_path / "run.json").write_text("{}")
    assert main(["sql", "-e", "DROP ZONE orders"]) == 3
    assert "run.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("orders", "ORDERS"),
        ('"Orders"', "Orders"),
        ('"a ""b"""', 'a "b"'),
        ("straße", "STRASSE"),
        ("a b", "A B"),
    ],
)
def test_zone_names_fold_as_in_sql(text: str, name: str) -> None:
    assert fold_name(text) == name
