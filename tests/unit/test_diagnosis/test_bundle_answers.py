"""Debug zip of a server that answers now and then, and of one that does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from app.diagnosis.bundle import BundleEntry, views


class Server:
    """Each statement about a view fails ``failures`` times before it is answered."""

    def __init__(self, failures: Mapping[str, int], error: Exception) -> None:
        self.asked: Counter[str] = Counter()
        self._failures = failures
        self._error = error

    def query(self, sql: str) -> Mapping[str, Any]:
        name = sql.removeprefix("SELECT * FROM SYSTEM.")
        self.asked[name] += 1
        if self.asked[name] <= self._failures.get(name, 0):
            raise self._error
        return {"columns": [{"name": "NAME"}], "data": [[name]]}


def collected(server: Server) -> tuple[dict[str, BundleEntry], Exception | None]:
    entries = {}
    try:
        for entry in views(server.query):
            entries[entry.name] = entry
    except OSError as error:
        return entries, error
    return entries, None


def test_a_view_without_an_answer_is_asked_for_once_more_after_the_others() -> None:
    server = Server({"ZONES": 1}, OSError("no answer"))
    entries, error = collected(server)
    assert error is None
    assert [*entries][-1] == "views/zones.csv"
    assert entries["views/zones.csv"].text == "NAME\nZONES\n"
    assert len(entries) == len(server.asked)
    assert +(server.asked - Counter(list(server.asked))) == Counter(["ZONES"])


def test_a_view_that_never_answers_keeps_no_other_one_away() -> None:
    server = Server({"ZONES": 99}, OSError("no answer"))
    entries, error = collected(server)
    assert str(error) == "no answer"
    assert len(entries) == len(server.asked) - 1
    assert server.asked["ZONES"] == 2


@pytest.mark.parametrize("name", ["ZONES", "AUDIT"])
def test_a_refusal_is_final_and_told(name: str) -> None:
    server = Server({name: 1}, RuntimeError("not for you"))
    entries, error = collected(server)
    assert error is None
    assert entries["views/refused.json"].text == f'{{\n  "{name}": "not for you"\n}}'
    assert server.asked[name] == 1
    assert f"views/{name.lower()}.csv" not in entries
    assert len(entries) == len(server.asked)
