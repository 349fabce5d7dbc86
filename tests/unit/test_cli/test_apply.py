"""``zonectl apply`` while another user changes the catalog: the plan made after that decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from tests.fixtures.api_stub import ApiStub, Request

CONFLICT = {
    "name": "CATALOG_VERSION_CONFLICT",
    "detail": "version 2, not 1",
    "sqlState": "40001",
    "status": 409,
}


def change(name: str, before: str, after: str = "3") -> dict[str, Any]:
    return {
        "action": "change",
        "kind": "zone",
        "name": name,
        "sql": f"ALTER ZONE {name} SET (REPLICAS {after})",
        "differences": [{"property": "REPLICAS", "before": before, "after": after}],
        "effects": [],
        "warnings": [],
    }


def planned(version: int, *changes: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 200, {
        "catalog_version": version,
        "changes": changes,
        "conflicts": [],
        "unmanaged": [],
        "plan_id": None,
    }


@pytest.mark.parametrize(
    ("then", "code", "sent"),
    [
        ((), 0, 1),
        ((change("A", "1"), change("B", "1")), 0, 3),
        ((change("B", "1"),), 0, 2),
        ((change("A", "5"), change("B", "1")), 1, 1),
        ((change("A", "1"), change("B", "1"), change("C", "1")), 1, 1),
    ],
    ids=[
        "all of it was done",
        "another zone was changed",
        "half of it was done",
        "the same zone",
        "more to do",
    ],
)
def test_what_somebody_else_changed_meanwhile(
    api: ApiStub,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    then: tuple[dict[str, Any], ...],
    code: int,
    sent: int,
) -> None:
    """The rest is run while it is what was planned, or a part of that; the last one never wins in silence."""
    plans = [planned(1, change("A", "1"), change("B", "1")), planned(2, *then)]
    api.answers["POST /api/v1/plan"] = lambda _: plans.pop(0)
    statements: list[str] = []

    def run(request: Request) -> tuple[int, dict[str, Any]]:
        statements.append(request.body["sql"])
        if len(statements) == 1:
            return 409, CONFLICT
        done = {"n": 1, "sql": statements[-1], "applied": True, "catalog_version": 1 + len(statements)}
        return 200, {"results": [{**done, "zone_id": 1, "effect": {"op": "alter"}, "warnings": []}]}

    api.answers["POST /api/v1/statements"] = run
    (tmp_path / "zones.sql").write_text("CREATE ZONE a (REPLICAS 3); CREATE ZONE b (REPLICAS 3)")
    assert main(["apply", str(tmp_path), "--url", api.url]) == code
    assert len(statements) == sent
    assert ("PLAN_CHANGED (6005, 40001)" in capsys.readouterr().err) == (code == 1)
