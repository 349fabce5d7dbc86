"""Statements and what Trino answers (``tests/data/trino_answers.tsv``): name and type of the first column, and
the value of the first row as drivers get it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from app.sql.statements.results import SessionContext
from app.sql.trino.pages import LowerCaseNames, wire_value
from tests.unit.sql_world import opened

DATA = Path(__file__).parents[1] / "data" / "trino_answers.tsv"


def rows() -> list[dict[str, str]]:
    with DATA.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


async def test_each_statement_has_trinos_answer(tmp_path: Path) -> None:
    """All of them in one query engine, which takes longer to start than all of them to run."""
    answers = []
    async with opened(tmp_path) as world:
        await world.run("CREATE ZONE orders (PARTITIONS 1, REPLICAS 1)")
        engine = LowerCaseNames(world.engine)
        for row in rows():
            answer = await engine.execute(row["sql"], SessionContext())
            column = answer.columns[0]
            value = wire_value(answer.rows[0][0], column)
            answers.append({**row, "column": column.name, "type": column.type.value, "value": value})
    assert answers == [{**row, "value": json.loads(row["value"])} for row in rows()]
