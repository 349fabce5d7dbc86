"""Scripts that are larger than a server reads at once: sent in parts that mean the same, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli.main import main
from tests.fixtures.api_stub import ApiStub, Request, result

STATEMENTS = "POST /api/v1/statements"


def sent(api: ApiStub, tmp_path: Path, text: str, *options: str) -> int:
    script = tmp_path / "s.sql"
    script.write_text(text)
    return main(["sql", "-f", str(script), *options])


def test_a_long_script_goes_in_parts(api: ApiStub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(request: Request) -> tuple[int, dict[str, object]]:
        count = request.body["sql"].count("DROP ZONE")
        return 200, {"results": [result(n, "drop") for n in range(1, count + 1)]}

    api.answers[STATEMENTS] = answer
    statements = [f"DROP ZONE a_{n}; -- {n}\n" for n in range(2_500)]
    assert sent(api, tmp_path, "".join(statements), "--format", "jsonl") == 0
    assert [each.body["sql"].count("DROP ZONE") for each in api.requests] == [1_000, 1_000, 500]
    assert "".join(each.body["sql"] for each in api.requests).count("a_2499") == 1
    numbers = [line.split('"n": ')[1].split(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert numbers == [str(n) for n in range(1, 2_501)]


def test_a_refusal_in_a_later_part_has_its_place_in_the_whole(
    api: ApiStub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(request: Request) -> tuple[int, dict[str, object]]:
        if "bad" in request.body["sql"]:
            problem = {"name": "ZONE_NOT_FOUND", "detail": "no", "status": 404}
            return 404, {**problem, "line": 1, "column": 11, "statement": 1, "results": []}
        count = request.body["sql"].count("DROP ZONE")
        return 200, {"results": [result(n, "drop") for n in range(1, count + 1)]}

    api.answers[STATEMENTS] = answer
    text = "DROP ZONE good;\n" * 999 + "DROP ZONE good; DROP ZONE bad; DROP ZONE last"
    assert sent(api, tmp_path, text) == 1
    told = capsys.readouterr().err
    assert "s.sql:1000:27: ZONE_NOT_FOUND" in told
    assert "Statement 1001 was refused; 1000 before it applied" in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DROP ZONE a;" * 1_001 + "SELECT 1", "it holds queries"),
        ("DROP ZONE a;" * 1_500 + "DROP ZONE", "Statement 1501 is invalid; no statement was run."),
        ("DROP ZONE a /*" + "x" * 1_048_576 + "*/ b", "found b"),
        ("CREATE ZONE a (NODES FILTER '" + "x" * 1_048_576 + "')", "one statement is too large"),
    ],
)
def test_what_cannot_be_cut_is_not_sent(
    api: ApiStub, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    assert sent(api, tmp_path, text) == 1
    assert api.requests == []
    assert message in capsys.readouterr().err
