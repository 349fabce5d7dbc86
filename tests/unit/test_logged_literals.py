"""Literals of statements are in no line of the log above debug."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from structlog.testing import capture_logs

from catalog.store.connections import open_engine, parse_url
from tests.unit.operations_world import operations_world

CANARY = "canary4711"
STATEMENTS = (
    f"SELECT '{CANARY}'",
    f"SELECT CAST('{CANARY}' AS INTEGER)",
    f"SELECT 1/0, '{CANARY}' FROM nowhere",
    f"SELECT * FROM system.zones WHERE ZONE_ID = '{CANARY}'",
    f"CREATE ZONE orders (PARTITIONS 1, NODES FILTER '$[?(@.region == \"{CANARY}\")]')",
    f"CREATE ZONE orders (PARTITIONS 1, NODES FILTER '{CANARY}')",
    f"CREATE ZONE orders (PARTITIONS '{CANARY}')",
    f"ALTER ZONE orders SET '{CANARY}'",
    f"CREATE USER carla WITH PASSWORD '{CANARY}'",
    f"'{CANARY}",
)


async def test_statements_that_run_or_fail_leave_no_literal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with operations_world(tmp_path) as api:
        with capture_logs() as lines:
            answers = [await api.http.post("/statements", json={"sql": each}) for each in STATEMENTS]
    assert {answer.is_success for answer in answers} == {True, False}
    assert CANARY not in "".join(str(line) for line in lines if line["log_level"] != "debug")
    assert CANARY not in caplog.text


def test_errors_of_the_database_have_no_parameters(tmp_path: Path) -> None:
    engine = open_engine(parse_url(f"sqlite:///{tmp_path / 'catalog.sqlite'}"))
    with engine.connect() as connection, pytest.raises(SQLAlchemyError) as refused:
        connection.execute(text("INSERT INTO nowhere VALUES (:value)"), {"value": CANARY})
    engine.dispose()
    assert "INSERT INTO nowhere" in str(refused.value)
    assert CANARY not in str(refused.value)
