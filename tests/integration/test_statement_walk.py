"""The role walk goes on: each kind of statement, CALL, question and view, and each command of ``zonectl`` that
asks a server, as each role, compared with the lists of the tests."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import get_args

import httpx
import pytest

from app.cli.main import COMMANDS as PARTS
from app.cli.main import main
from app.sql.views.system_views import SYSTEM_VIEWS
from catalog.core.messages import Command
from parser.queries import Procedure, ShowKind
from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.privilege_model import HELD, Verdict, expected, rows_of
from tests.fixtures.secure_server import SecureServer, password_of, serving_securely

ADMINISTRATOR = "the-administrator"
ZONE = "WALK"
SETUP = """
    CREATE ZONE walk (PARTITIONS 2); CREATE ZONE taken (PARTITIONS 1); ALTER ZONE taken SET DEFAULT;
    CREATE TABLE kept (id INT PRIMARY KEY) ZONE walk; CREATE ROLE haunting; CREATE USER ghost
"""
DROPPED = "CREATE TABLE IF NOT EXISTS dropped (id INT PRIMARY KEY) ZONE walk"
ABSENT = ("ZONE_NOT_FOUND", "TABLE_NOT_FOUND", "VIEW_NOT_FOUND", "OPERATION_NOT_FOUND")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def server(etcd_server: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    directory: Path = tmp_path_factory.mktemp("statements")
    url = f"sqlite:///{directory / 'catalog.sqlite'}"
    with serving_securely(directory, etcd_server, Keyspace("test-statements/"), url) as opened:
        with opened.client(ADMINISTRATOR) as client:
            run(client, SETUP).raise_for_status()
        yield opened


def run(client: httpx.Client, sql: str) -> httpx.Response:
    return client.post("/api/v1/statements", json={"sql": sql})


def verdict(name: str | None) -> Verdict:
    """``name``: of the error that a statement ended with; None: it ended well."""
    if name == "PRIVILEGE_MISSING":
        return Verdict.MISSING
    return Verdict.HIDDEN if name in ABSENT else Verdict.ALLOWED


OTHERWISE = pytest.mark.thorough("REST has each statement and role, unit/test_authorised_statements a driver")


def test_every_kind_of_statement_is_walked() -> None:
    kinds: dict[str, set[str]] = {}
    for kind, name, _, _ in rows_of("statement_privileges.tsv"):
        kinds.setdefault(kind, set()).add(name)
    assert kinds["command"] == {command.__name__ for command in get_args(Command)}
    assert kinds["call"] == {procedure.name for procedure in Procedure}
    assert kinds["show"] == {kind.value for kind in ShowKind}
    assert kinds["view"] == {view.name for view in SYSTEM_VIEWS}


@pytest.mark.thorough("test_role_walk has each route, unit/test_authorised_statements each statement")
@pytest.mark.parametrize("by", ["rest", *(pytest.param(by, marks=OTHERWISE) for by in ("script", "driver"))])
def test_every_statement_as_each_role(server: SecureServer, by: str) -> None:
    """Send every statement as each role, by itself, within a script or as a driver does."""
    wrong, pairs = [], 0
    with server.client(ADMINISTRATOR) as administrator:
        for user, held in HELD.items():
            with server.client(user) as client:
                for _, name, needs, sql in rows_of("statement_privileges.tsv"):
                    if name == "DropTable":
                        run(administrator, DROPPED).raise_for_status()
                    pairs += 1
                    seen = verdict(_error(client, user, sql, by))
                    # A driver's DESCRIBE lists the columns that there are: of an absent table none.
                    is_list = by == "driver" and name == "DescribeTable"
                    model = expected(held, "LOGIN" if is_list else needs, ZONE, [ZONE])
                    if seen is not model:
                        wrong.append((user, sql, seen, model))
    assert wrong == []
    print(f"{pairs} pairs of a statement and a user, {by}")


def _error(client: httpx.Client, user: str, sql: str, by: str) -> str | None:
    """The name of the error that the statement ends with."""
    if by == "driver":
        return _driver_error(client, user, sql)
    answer = run(client, sql if by == "rest" else f"SELECT 1; {sql}")
    assert answer.status_code < 500, answer.text
    return None if answer.status_code == 200 else str(answer.json()["name"])


def _driver_error(client: httpx.Client, user: str, sql: str) -> str | None:
    headers = {"X-Trino-User": user, "X-Trino-Schema": "system"}
    page = client.post("/v1/statement", content=sql, headers=headers).raise_for_status().json()
    while "nextUri" in page:
        page = client.get(page["nextUri"]).raise_for_status().json()
    return str(page["error"]["errorName"]) if "error" in page else None


@pytest.mark.parametrize("user", sorted(HELD))
def test_views_hold_rows_of_seen_zones_alone(server: SecureServer, user: str) -> None:
    sees = expected(HELD[user], "SEE ON ZONE", ZONE, [ZONE]) is Verdict.ALLOWED
    with server.client(user) as client:
        for kind, name, needs, _ in rows_of("statement_privileges.tsv"):
            if kind != "view" or expected(HELD[user], needs) is not Verdict.ALLOWED:
                continue
            answer = run(client, f"SELECT * FROM system.{name}").raise_for_status().json()
            data = json.dumps(answer["results"][0]["data"])
            if not sees:
                assert "WALK" not in data, name
        zones = run(client, "SELECT zone_name FROM system.zones ORDER BY 1").json()["results"][0]["data"]
        assert zones == ([["TAKEN"], ["WALK"]] if sees else [])


def commands() -> list[tuple[str, str]]:
    return [(line, needs) for line, needs in rows_of("command_privileges.tsv")]


def test_every_command_that_asks_a_server_is_walked() -> None:
    """``login`` and ``logout`` are how the walk begins and ends; ``check`` needs no server."""
    walked = {line.split()[0] for line, _ in commands()}
    assert {*PARTS["Client"], "node"} - walked == {"login", "logout", "check"}


@pytest.mark.thorough("test_role_walk has the routes that they ask")
@pytest.mark.parametrize("user", sorted(HELD))
def test_every_command_as_each_role(
    server: SecureServer, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZONEKEEPER_CONTEXTS", str(tmp_path / "contexts.json"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fresh.sql").write_text("CREATE ZONE fresh (PARTITIONS 1)")
    with server.client(ADMINISTRATOR) as client:
        run(client, "DROP ZONE IF EXISTS fresh").raise_for_status()
        zones = {zone["name"]: zone["zone_id"] for zone in client.get("/api/v1/zones").json()["zones"]}
    options = ["--user", user, "--password-stdin", "--ca-file", str(server.ca_file)]
    assert zonectl(["login", server.url, *options], f"{password_of(user)}\n")[0] == 0
    wrong = []
    for line, needs in commands():
        arguments = shlex.split(line.replace("OPERATION", f"{zones[ZONE]}-1"))
        _, shown = zonectl(arguments)
        model = expected(HELD[user], needs, ZONE, [ZONE])
        is_missing = "PRIVILEGE_MISSING" in shown
        is_absent = "does not exist" in shown or "there is no operation" in shown
        is_other = is_missing is not (model is Verdict.MISSING) or (model is Verdict.HIDDEN and not is_absent)
        if is_other or "Traceback" in shown:
            wrong.append((line, model, shown[-600:]))
    assert wrong == []
    print(f"{len(commands())} commands as {user}")
    assert zonectl(["logout"])[0] == 0


def zonectl(arguments: list[str], stdin: str = "") -> tuple[int, str]:
    """Exit code, and all that it prints."""
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(shown), redirect_stderr(shown):
        patch.setattr("sys.stdin", io.StringIO(stdin))
        code = main(arguments)
    return code, shown.getvalue()
