"""``zonectl sql``: sources, formats, errors and --wait, against a real HTTP server."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from app.cli.follow import BarView, FollowedChange, FollowProgress
from app.cli.main import main
from tests.fixtures.api_stub import ApiStub, progress, result, serve
from tests.fixtures.ports import free_port

STATEMENTS = "POST /api/v1/statements"
PROGRESS = "GET /api/v1/progress/1?version=3"
ROOT = Path(__file__).parents[3]


def accept(api: ApiStub, *results: dict[str, Any]) -> None:
    api.answers[STATEMENTS] = (200, {"results": list(results) or [result(1, "create", partitions=8)]})


def test_three_sources(api: ApiStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accept(api)
    script = tmp_path / "s.sql"
    script.write_bytes(b"\xef\xbb\xbfDROP ZONE b")
    assert main(["sql", "-e", "DROP ZONE a"]) == 0
    assert main(["sql", "-f", str(script)]) == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"DROP ZONE c")))
    assert main(["sql", "-"]) == 0
    assert [request.body["sql"] for request in api.requests] == ["DROP ZONE a", "DROP ZONE b", "DROP ZONE c"]


def test_a_password_on_the_command_line_is_warned_of(
    api: ApiStub, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    accept(api)
    script = tmp_path / "users.sql"
    for text, is_warned in (
        ("CREATE USER a PASSWORD 'long enough'", True),
        ("SHOW USERS LIKE 'PASSWORD'", False),
    ):
        script.write_text(text)
        assert main(["sql", "-f", str(script)]) == 0
        assert capsys.readouterr().err == ""
        assert main(["sql", "-e", text]) == 0
        assert capsys.readouterr().err.startswith("warning: other users of this machine") is is_warned


def test_a_piped_table_is_plain_text(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    warned = result(2, "alter", replicas=2_147_483_647, auto_scale_down=2_147_483_647)
    warned["warnings"] = [{"name": "FEW_NODES", "message": "3 nodes [of many]"}]
    accept(api, result(1, "create", partitions=8, storage_profiles=["default", "ssd"]), warned)
    assert main(["sql", "-e", "x"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "n  operation  zone    applied  version  parameters",
        "1  create     ORDERS  yes      3        partitions=8 storage_profiles=default,ssd",
        "2  alter      ORDERS  yes      3        replicas=ALL auto_scale_down=OFF",
    ]
    assert shown.err == "warning: FEW_NODES: 3 nodes [of many]\n"


def test_json_jsonl_csv(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    results = [result(1, "create", partitions=8), result(2, "drop")]
    accept(api, *results)
    assert main(["sql", "-e", "x", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == results
    assert main(["sql", "-e", "x", "--format", "jsonl"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == results
    assert main(["sql", "-e", "x", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["n"], row["op"], row["zone"], row["applied"]) for row in rows] == [
        ("1", "create", "ORDERS", "true"),
        ("2", "drop", "ORDERS", "true"),
    ]
    assert json.loads(rows[0]["params"]) == {"partitions": 8}


def refuse(api: ApiStub, **more: Any) -> None:
    api.problem(
        STATEMENTS,
        400,
        "OPTION_UNKNOWN",
        "REPLIKAS is not an option; allowed: REPLICAS",
        **{"code": 1004, "sqlState": "42000", "line": 2, "column": 17, "statement": 2, **more},
    )


def test_a_refused_statement_points_at_the_text(
    api: ApiStub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "bad.sql"
    script.write_text("DROP ZONE x;\nCREATE ZONE 数 (\tREPLIKAS 3)\n")
    refuse(api, results=[result(1, "drop")])
    assert main(["sql", "-f", str(script), "--wait"]) == 1
    shown = capsys.readouterr()
    assert "drop" in shown.out
    first, source, caret, stopped = shown.err.splitlines()
    assert stopped == "Statement 2 was refused; 1 before it applied, those after it not run."
    assert first.startswith(f"{script}:2:17: OPTION_UNKNOWN (1004, 42000): REPLIKAS is not an option")
    assert source.endswith("REPLIKAS 3)")
    # One column later on the terminal than in the string: the zone's name is one wide character.
    assert caret.rstrip() == " " * (source.index("REPLIKAS") + 1) + "^" + "~" * 7


def test_an_error_beyond_the_text_has_no_caret(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    refuse(api, line=9)
    assert main(["sql", "-e", "x"]) == 1
    assert capsys.readouterr().err.splitlines()[0].startswith("-e:9:17: OPTION_UNKNOWN")
    refuse(api, line=None, column=None)
    assert main(["sql", "-e", "x"]) == 1
    assert capsys.readouterr().err.startswith("-e: OPTION_UNKNOWN")


def test_in_json_modes_an_error_is_one_object(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    refuse(api, results=[result(1, "drop")])
    assert main(["sql", "-e", "x", "--format", "jsonl"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["effect"]["op"] == "drop"
    error = json.loads(shown.err)
    assert (error["name"], error["code"], error["sqlState"], error["line"], error["column"], error["file"]) == (
        "OPTION_UNKNOWN",
        1004,
        "42000",
        2,
        17,
        "-e",
    )


def test_wait_follows_every_touched_zone(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    other = {**result(3, "create", "OTHER", version=5), "zone_id": 2}
    noop = {**result(4, "drop", "NONE"), "applied": False, "zone_id": None, "catalog_version": None}
    accept(api, result(1, "create", version=2), result(2, "alter", version=3), other, noop)
    steps = iter([progress(5, waiting=1, cause="NODE_DOWN: n3"), progress(7), progress(8)])
    api.answers[PROGRESS] = lambda _: (200, next(steps, progress(8)))
    api.answers["GET /api/v1/progress/2?version=5"] = (200, progress(0, 0))
    assert main(["sql", "-e", "x", "--wait"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert "ORDERS: moving, 5/8 done, 2 moving, 1 waiting: NODE_DOWN: n3 (1)" in lines
    assert "OTHER: converged, 0/0 done, 0 moving, 0 waiting" in lines
    assert lines[-1] == "ORDERS: converged, 8/8 done, 0 moving, 0 waiting"
    assert len(lines) == 4  # one a change, nothing repeated


def test_wait_gives_up_after_its_limit(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    accept(api)
    api.answers[PROGRESS] = (200, progress(5))
    assert main(["sql", "-e", "x", "--wait", "--timeout", "0.6"]) == 4
    assert "not converged after 0.6 s" in capsys.readouterr().err


def test_wait_fails_where_the_server_refuses_to_tell(api: ApiStub) -> None:
    accept(api)
    api.problem(PROGRESS, 404, "ZONE_NOT_FOUND", "no zone 1")
    assert main(["sql", "-e", "x", "--wait"]) == 1


def test_wait_outlives_a_restart_of_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    stub, port = ApiStub(), free_port()
    accept(stub)
    stub.answers[PROGRESS] = (200, progress(5))
    first = serve(stub, port)
    codes: list[int] = []

    def until_asked_again() -> None:
        seen, deadline = len(stub.requests), time.monotonic() + 60
        while len(stub.requests) == seen and time.monotonic() < deadline:
            time.sleep(0.01)

    def restart() -> None:
        until_asked_again()
        until_asked_again()
        first.shutdown()
        first.server_close()
        stub.problem(PROGRESS, 503, "METASTORE_UNAVAILABLE", "etcd does not answer")
        time.sleep(0.6)
        servers.append(serve(stub, port))
        until_asked_again()
        stub.answers[PROGRESS] = (200, progress(8))

    servers = [first]
    thread = threading.Thread(target=restart)
    thread.start()
    codes.append(main(["sql", "-e", "x", "--wait", "--url", stub.url]))
    thread.join()
    servers[-1].shutdown()
    servers[-1].server_close()
    said = capsys.readouterr().err
    assert codes == [0]
    assert said.count("still asking") == 1
    assert said.count("the server answers again") == 1


def test_ctrl_c_while_waiting_is_130(api: ApiStub) -> None:
    accept(api)
    api.answers[PROGRESS] = (200, progress(5))
    command = [sys.executable, "-m", "app.cli", "sql", "-e", "x", "--wait", "--url", api.url]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as client:
        assert client.stderr is not None
        assert "moving" in client.stderr.readline()
        client.send_signal(signal.SIGINT)
        assert client.wait(60) == 130
        assert "Traceback" not in client.stderr.read()


def test_an_answer_that_is_not_ours_is_3(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[STATEMENTS] = lambda _: (200, [1])
    assert main(["sql", "-e", "x"]) == 3
    assert "no Zonekeeper answers" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_traceback(api: ApiStub) -> None:
    accept(api, *[result(n, "drop") for n in range(5000)])
    command = f"{sys.executable} -m app.cli sql -e x --format jsonl --url {api.url} | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_terminal_gets_bars() -> None:
    out = io.StringIO()
    change = FollowedChange(1, "[bold]", 3)
    with BarView(Console(file=out, force_terminal=True, width=160, color_system=None)) as view:
        view.update(change, FollowProgress.from_body("[bold]", progress(5, waiting=1, cause="NODE_DOWN: n3")))
        view.note("still [asking]")
        view.update(change, FollowProgress.from_body("[bold]", progress(0, 0)))
    shown = out.getvalue()
    assert "[bold]" in shown  # a name is never markup
    assert "2 moving, 1 waiting NODE_DOWN: n3 (1)" in shown
    assert "still [asking]" in shown
    assert "1/1" in shown  # a dropped zone is done, not 0/0
    assert "converged" in shown


def answer(n: int = 1) -> dict[str, Any]:
    """A question's result as the API gives it."""
    return {
        "n": n,
        "sql": "SELECT",
        "applied": None,
        "effect": None,
        "zone_id": None,
        "catalog_version": 3,
        "warnings": [],
        "columns": [{"name": "ZONE_NAME", "type": "varchar"}, {"name": "N", "type": "bigint"}],
        "data": [["A", 1], ["[B]", None]],
    }


def test_rows_of_a_question(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    accept(api, answer())
    shown: dict[str, str] = {}
    for form in ("table", "json", "jsonl", "csv"):
        assert main(["sql", "-e", "x", "--format", form, "--wait"]) == 0
        shown[form] = capsys.readouterr().out
    assert shown["table"].splitlines() == ["ZONE_NAME  N", "A          1", "[B]"]
    rows = [{"ZONE_NAME": "A", "N": 1}, {"ZONE_NAME": "[B]", "N": None}]
    assert json.loads(shown["json"]) == rows
    assert [json.loads(line) for line in shown["jsonl"].splitlines()] == rows
    assert shown["csv"] == "ZONE_NAME,N\nA,1\n[B],\n"


def test_questions_among_changes(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    results = [result(1, "create", partitions=8), answer(2), result(3, "drop")]
    accept(api, *results)
    assert main(["sql", "-e", "x"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["n", "1", "ZONE_NAME", "A", "[B]", "n", "3"]
    assert main(["sql", "-e", "x", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == results
