"""The command line itself: usage errors, help, where the URL comes from."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from app.cli.main import COMMANDS as PARTS
from app.cli.main import app, former_variables, main
from app.cli.names import fold_name
from app.cli.options import DEFAULT_DATA_DIR
from app.configuration.settings import DEFAULT_DATA_DIR as SETTINGS_DATA_DIR
from app.configuration.settings import Settings
from tests.fixtures.api_stub import ApiStub, result
from tests.fixtures.ports import free_port

ZONECTL = [sys.executable, "-m", "app.cli"]
ROOT = Path(__file__).parents[3]
COMMANDS = ["up", "demo", "sql", "kv put", "kv get", "status", "serve", "controller", "node", "migrate"]
COMMANDS += ["recovery states", "recovery reset", "recovery restart", "recovery reset-lost"]
COMMANDS += ["rebalance limits", "rebalance pause", "rebalance resume"]
COMMANDS += ["operations", *(f"operations {each}" for each in ("show", "wait", "pause", "resume"))]
COMMANDS += [
    "login",
    "logout",
    "whoami",
    "token create",
    "token list",
    "token revoke",
    "console-link",
    "admin recover",
]
COMMANDS += ["operations cancel", "operations reverse", "audit"]
COMMANDS += ["alerts", *(f"alerts {each}" for each in ("silence", "silences", "unsilence"))]
COMMANDS += ["log levels", "log level", "log reset"]
COMMANDS += ["node drain", "node undrain", "node remove", "node can-stop"]
COMMANDS += ["doctor", "debug zip"]
COMMANDS += ["upgrade status", "upgrade plan", "upgrade finalise"]
COMMANDS += [f"health {part}" for part in ("server", "controller", "node", "port")]


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


@pytest.mark.parametrize("url", ["https://[::1", "http://[::1", "http://zones:a:b"])
def test_a_text_that_is_no_url_is_wrong_usage(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--url", url]) == 64
    assert capsys.readouterr().err == f"{url} is not a URL such as https://zones.example:7443\n"


def test_contexts_that_are_not_text_are_a_plain_refusal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "contexts.json"
    path.touch(mode=0o600)
    path.write_bytes(b"\xff")
    monkeypatch.setenv("ZONEKEEPER_CONTEXTS", str(path))
    assert main(["status"]) == 1
    assert f"{path} is not a file of contexts" in capsys.readouterr().err


def test_a_wrong_setting_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ZONEKEEPER_SPARK_WAIT_S", "soon")
    assert main(["up"]) == 64
    assert "ZONEKEEPER_SPARK_WAIT_S" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("operations --json", "zonectl operations: --json is gone: it is --format json now\n"),
        ("operations show 3-1 --json", "zonectl operations show: --json is gone: it is --format json now\n"),
        ("store fsck . --json", "zonectl store fsck: --json is gone: it is --format json now\n"),
        ("doctor --server=http://x", "zonectl doctor: --server is gone: it is --url now\n"),
        ("debug zip x.zip --server http://x", "zonectl debug zip: --server is gone: it is --url now\n"),
        ("check --server x", "zonectl check: No such option: --server\nTry `zonectl check --help`.\n"),
    ],
)
def test_an_option_of_an_earlier_release_says_what_is_typed_now(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the option to type instead, where the command has one in its place."""
    assert main(line.split()) == 64
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_teaches_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "zonectl " in shown.partition("Usage:")[2].partition("\n")[2]


OF_CONNECTIONS = {
    f"ZONEKEEPER_{name}" for name in ("URL", "DATA_DIR", "CA_FILE", "CATALOG_URL", "METASTORE", "SPARK_MASTER")
}
PROCESSES = {"up", "serve", "controller", "node", "store serve", "migrate"}
DEEDS = {"demo", "leave", "insecure", "help"}
"""Options of processes for what is done, or accepted, by typing it, and not by a file."""


def options_of(group: Any, *words: str) -> Iterator[tuple[str, Any]]:
    """Yield each command's options with its words, those of commands that ``COMMANDS`` leaves out as well."""
    for option in (param for param in group.params if param.param_type_name == "option"):
        yield " ".join(words), option
    for name in getattr(group, "commands", ()):
        yield from options_of(group.commands[name], *words, name)


def test_environment_variables_are_settings_and_arm_no_command() -> None:
    """No variable that a shell has exported changes what a line does, except settings of processes and
    connections."""
    seen = set()
    for command, option in options_of(typer.main.get_command(app)):
        is_process = command in PROCESSES or command.startswith("health ")
        if is_process and option.name not in DEEDS:
            assert str(option.envvar).startswith("ZONEKEEPER_"), f"{command}: {option.name}"
        elif option.envvar is not None:
            assert option.envvar in OF_CONNECTIONS, f"{command}: {option.name}"
        seen.add((command, option.name))
    assert len(seen) > 200
    assert {option.envvar for _, option in options_of(typer.main.get_command(app))} >= OF_CONNECTIONS


def test_a_format_that_one_command_lacks_breaks_none(
    api: ApiStub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ZONEKEEPER_FORMAT was a variable of all commands."""
    monkeypatch.setenv("ZONEKEEPER_FORMAT", "csv")
    assert main(["status"]) != 64
    assert "csv" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "line", "instead"),
    [
        ("FORMAT", "kv get orders k", ["ZONEKEEPER_FORMAT is ignored; type --format VALUE"]),
        ("FORMAT", "kv get orders k --format json", []),
        ("FORMAT", "kv get orders k --format=json", []),
        ("PRUNE YES", "plan x", ["ZONEKEEPER_PRUNE is ignored; type --prune ZONES"]),
        (
            "CONFIRM_DEAD",
            "recovery reset orders",
            ["ZONEKEEPER_CONFIRM_DEAD is ignored; type --confirm-dead NODE,..."],
        ),
        ("CONFIRM_DEAD EMPTY URL", "status", []),
        ("CHECK_FORMAT", "check x.sql", ["ZONEKEEPER_CHECK_FORMAT is ignored; type --format VALUE"]),
        ("NAME NODE_HOST HOST", "node", ["ZONEKEEPER_NAME is ignored; type --name VALUE"]),
        ("FORCE", "debug zip", ["ZONEKEEPER_FORCE is ignored; type --force"]),
        ("TOKEN TOKEN_FILE CA_FILE CONTEXTS CATALOG_PASSWORD_FILE", "token create x", []),
    ],
)
def test_a_variable_that_sets_nothing_any_more_is_named(variables: str, line: str, instead: list[str]) -> None:
    """A former variable is named where the command has the option, and the option is not typed."""
    command = typer.main.get_command(app)
    environment = {f"ZONEKEEPER_{name}": "secret" for name in variables.split()}
    found = former_variables(command, line.split(), environment)
    assert [f"{variable} is ignored; type {option}" for variable, option in found] == instead


def test_a_former_variable_leaves_output_and_exit_code_as_they_are(
    api: ApiStub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers["GET /api/v1/zones/ORDERS/kv/k"] = (200, {"value": "v"})
    line = ["kv", "get", "orders", "k"]
    assert main(line) == 0
    assert capsys.readouterr() == ("v\n", "")
    monkeypatch.setenv("ZONEKEEPER_AT_REVISION", "2")
    assert main(line) == 0
    warning = "zonectl: ZONEKEEPER_AT_REVISION is ignored; type --at-revision N\n"
    assert capsys.readouterr() == ("v\n", warning)


def test_defaults_agree_with_the_settings() -> None:
    assert DEFAULT_DATA_DIR == SETTINGS_DATA_DIR
    assert Settings().host == "127.0.0.1"
    assert Settings().metastore == "127.0.0.1:2379"
    assert Settings().spark_master == "local[*]"


HELP_PACKAGES = {"typer", "shellingham", "annotated_doc"}
SLOW = {"asyncio", "concurrent", "email", "http", "json", "logging", "multiprocessing", "ssl", "sqlite3"}


def test_help_imports_the_parser_of_options_and_nothing_else() -> None:
    """No command, no client, no drawing: rich, httpx and pydantic come with the command that needs them."""
    code = "import sys; from app.cli.main import main; main(['--help']); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    modules = done.stdout.splitlines()[-1].split()
    packages = {name.partition(".")[0] for name in modules}
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sorted(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    installed = {
        name
        for name in packages - {name.partition(".")[0] for name in bare.stdout.split()}
        if name not in sys.stdlib_module_names and not name.startswith("_")
    }
    assert installed == HELP_PACKAGES | {"app"}
    assert packages & SLOW == set()
    assert [name for name in modules if name.startswith("app.")] == [
        *("app.cli", "app.cli.command_help", "app.cli.exits", "app.cli.main")
    ]


def test_a_store_server_imports_nothing_of_statements_and_logins() -> None:
    """A server's zones stand still until it is back: for 1.3 s of processor time longer with these modules."""
    code = "import sys, app.bootstrap.store; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    unwanted = {
        "sqlglot",
        "sqlalchemy",
        "numpy",
        "uvicorn",
        "app.bootstrap.protection",
        "app.sql.engine.executor",
    }
    assert unwanted & set(done.stdout.split()) == set()


def test_help_takes_few_times_as_long_as_an_empty_program() -> None:
    """Measured 0.09 s of processor time where an empty program takes 0.02 s; the least of five of each."""
    help_s = min(_processor_s("from app.cli.main import main; main(['--help'])") for _ in range(5))
    empty_s = min(_processor_s("pass") for _ in range(5))
    assert help_s < max(0.15, 9 * empty_s)


def _processor_s(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_every_command_has_a_line_of_help_in_its_part(capsys: pytest.CaptureFixture[str]) -> None:
    """The list comes from a table; each of its names is a command that can be built."""
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    root: Any = typer.main.get_command(app)
    for part, commands in PARTS.items():
        listed = shown.partition(f"\n{part}:\n")[2].partition("\n\n")[0]
        for name, (_, summary) in commands.items():
            assert root.commands[name].name == name
            line = next(line for line in listed.splitlines() if line.split()[0] == name)
            assert line.split(maxsplit=1)[1] == summary


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
        ('"Orders"', '"Orders"'),
        ('"ORDERS"', "ORDERS"),
        ('"a ""b"""', '"a ""b"""'),
        ("straße", "STRASSE"),
        ("a b", "A B"),
    ],
)
def test_zone_names_fold_as_in_sql(text: str, name: str) -> None:
    assert fold_name(text) == name


def test_a_command_of_an_earlier_release_says_what_is_there_instead(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "7"]) == 64
    assert capsys.readouterr().err == (
        "zonectl simulate is gone: it is `python -m simulator` in a checkout of the source now\n"
    )


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_no_marks_of_the_library_and_whole_summaries(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--help"]) == 0
    usage, _, rest = capsys.readouterr().out.partition("\n")
    assert not set("{}<>") & set(usage), usage
    assert "[[" not in usage
    options = rest.partition("\nOptions:")[2]
    assert re.findall(r"<(?:int|str|float|path|file|bool)\b|x[<>]=|default: \(|\.\.\.$", options) == []


def test_a_list_of_commands_says_what_each_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kv", "--help"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "  put     Store VALUE under KEY.",
        "  delete  Delete KEY.",
        "  get     Print the value of KEY.",
    ]
