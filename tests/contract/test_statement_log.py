"""The statement log on both databases: who runs a statement, how it ends, what others see."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from app.sql.engine.statement_jobs import TRINO, outcome_of_abandoned
from catalog.core.statement_log import REPEAT_PREFIX, LoggedOutcome, NewStatement, StatementState, part_id
from catalog.core.zone import Node
from catalog.service import CatalogService
from catalog.store import CatalogStore
from catalog.store.statement_log import SqlStatementLog, pack
from tests.fixtures.script_runner import script_of

LEASE_S = 10.0
KEPT_S = 100.0
NODES = (Node("n1"),)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def __call__(self) -> int:
        return int(self.now_s * 1_000_000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(catalog_url: str, clock: Clock) -> Iterator[CatalogStore]:
    opened = CatalogStore.open(catalog_url, clock)
    yield opened
    opened.close()


@pytest.fixture
def log(store: CatalogStore) -> SqlStatementLog:
    return store.statements


def new(statement_id: str, key: str | None = None, sql: str = "SELECT 1") -> NewStatement:
    return NewStatement(statement_id, TRINO, sql, "hash", key)


def submit(log: SqlStatementLog, statement: NewStatement, owner: str = "me") -> tuple[str, bool]:
    row, created = log.submit(statement, owner, LEASE_S, KEPT_S)
    return row.statement_id, created


DONE = LoggedOutcome(
    StatementState.SUCCEEDED,
    ({"columns": [["a", "bigint"]], "row_count": 1},),
    ((1, 0, pack([[7]])),),
    warnings=({"name": "W", "message": "m"},),
)


def test_a_key_decides_who_runs(log: SqlStatementLog) -> None:
    assert submit(log, new("one", "key")) == ("one", True)
    assert submit(log, new("two", "key")) == ("one", False)
    assert submit(log, new("three")) == ("three", True)
    assert submit(log, new("four")) == ("four", True)


def test_of_many_at_once_one_runs(log: SqlStatementLog) -> None:
    answers: list[tuple[str, bool]] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(submit(log, new(f"s{n}", "key")))) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(created for _, created in answers) == 1
    assert len({statement_id for statement_id, _ in answers}) == 1


def test_an_outcome_is_read_back(log: SqlStatementLog) -> None:
    submit(log, new("one"))
    assert log.finish("one", "me", DONE, KEPT_S)
    row = log.read("one")
    assert row is not None
    assert (row.state, row.heads, row.warnings) == (DONE.state, DONE.heads, DONE.warnings)
    assert log.page("one", 1, 0) == [[7]]
    assert log.page("one", 1, 1) is None
    assert not log.finish("one", "me", DONE, KEPT_S)


def test_only_the_owner_ends_a_statement_and_only_an_abandoned_one_is_taken(
    log: SqlStatementLog, clock: Clock
) -> None:
    submit(log, new("one"))
    assert not log.finish("one", "other", DONE, KEPT_S)
    assert not log.take_over("one", "other", LEASE_S)
    clock.now_s += LEASE_S - 1
    log.renew("me", LEASE_S)
    clock.now_s += LEASE_S - 1
    assert not log.take_over("one", "other", LEASE_S)
    clock.now_s += 2
    assert log.take_over("one", "other", LEASE_S)
    assert not log.take_over("one", "third", LEASE_S)
    assert not log.finish("one", "me", DONE, KEPT_S)
    assert log.finish("one", "other", DONE, KEPT_S)


def test_a_wish_to_cancel_reaches_the_owner(log: SqlStatementLog) -> None:
    submit(log, new("one"))
    submit(log, new("two"), "other")
    log.request_cancel("one")
    assert log.renew("other", LEASE_S) == frozenset()
    assert log.renew("me", LEASE_S) == {"one"}


def test_a_token_is_answered_once(log: SqlStatementLog) -> None:
    submit(log, new("one"))
    assert log.advance("one", 1, {"page": 0})
    assert not log.advance("one", 1, {"page": 5})
    assert not log.advance("one", 3, {"page": 5})
    row = log.read("one")
    assert row is not None
    assert (row.token, row.token_answer) == (1, {"page": 0})
    log.rewind("one")
    assert log.advance("one", 1, {"page": 0})


def test_a_made_up_key_is_given_up_when_read_refused_or_old(log: SqlStatementLog, clock: Clock) -> None:
    key = f"{REPEAT_PREFIX}x"
    submit(log, new("one", key))
    assert submit(log, new("two", key)) == ("one", False)
    log.advance("one", 1, {"page": 0})
    assert submit(log, new("three", key)) == ("three", True)
    log.finish("three", "me", LoggedOutcome(StatementState.FAILED, error={}), KEPT_S)
    assert submit(log, new("four", key)) == ("four", True)
    log.release(TRINO, key, 60)
    assert submit(log, new("five", key)) == ("four", False)
    clock.now_s += 61
    log.release(TRINO, key, 60)
    assert submit(log, new("six", key)) == ("six", True)


def test_what_has_expired_is_removed_with_its_pages(log: SqlStatementLog, clock: Clock) -> None:
    submit(log, new("one", "key"))
    log.finish("one", "me", DONE, KEPT_S)
    submit(log, new("two"))
    clock.now_s += KEPT_S - 1
    log.renew("me", LEASE_S)
    assert log.purge() == 0
    clock.now_s += 2
    assert log.purge() == 1
    assert log.read("one") is None
    assert log.page("one", 1, 0) is None
    assert log.read("two") is not None
    assert submit(log, new("three", "key")) == ("three", True)


def test_closing_removes_results_but_not_the_key(log: SqlStatementLog) -> None:
    submit(log, new("one", "key"))
    log.close("one")
    row = log.read("one")
    assert row is not None
    assert row.state is StatementState.RUNNING
    log.finish("one", "me", DONE, KEPT_S)
    log.close("one")
    assert log.page("one", 1, 0) is None
    assert submit(log, new("two", "key")) == ("one", False)


def test_history_says_how_an_abandoned_change_ended(store: CatalogStore, log: SqlStatementLog) -> None:
    """A change in the history has happened, and is not run again."""
    sql = "CREATE ZONE z"
    submit(log, new("one", sql=sql))
    submit(log, new("two", sql="CREATE ZONE y"))
    script = script_of(sql, NODES, statement_ids=[part_id("one", 1)])
    (run,) = CatalogService(store.unit_of_work).execute_together([script])
    assert run.error is None
    row = log.read("one")
    assert row is not None
    outcome = outcome_of_abandoned(row, log.committed("one"), 1)
    assert outcome.state is StatementState.SUCCEEDED
    assert outcome.heads[0]["catalog_version"] == 1
    other = log.read("two")
    assert other is not None
    lost = outcome_of_abandoned(other, log.committed("two"), 1)
    assert lost.state is StatementState.FAILED
    assert lost.error is not None
    assert lost.error["name"] == "OUTCOME_UNKNOWN"
    assert "not in the catalog's history" in lost.error["detail"]
