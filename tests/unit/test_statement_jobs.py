"""Logged statements with a real log and an engine of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from app.sql.engine.statement_jobs import JobLimits, StatementJobs
from app.sql.statements.results import BIGINT, AnswerColumn, ResultSet, SessionContext
from app.sql.statements.script_reader import ScriptReader
from app.sql.trino.front import TrinoFront
from app.sql.trino.trino_session import TrinoSession
from catalog.core.errors import RefusedError
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.statement_log import NewStatement, StatementState
from catalog.core.zone import ZoneId
from catalog.store import CatalogStore
from catalog.store.statement_log import SqlStatementLog
from tests.fixtures.databases import migrated_file

T = TypeVar("T")
HERE = "http://here"
WAITING = TrinoSession(properties={"wait": "true"})


class Catalog:
    """The store in this thread: a test needs no other."""

    def __init__(self, store: CatalogStore) -> None:
        self.store = store

    async def settled(self) -> None:
        """Each call is done when it returns."""

    async def on_log(self, act: Callable[[SqlStatementLog], T]) -> T:
        return act(self.store.statements)

    async def snapshot(self) -> CatalogSnapshot:
        return self.store.unit_of_work.snapshot()


class Engine:
    """Answers what it is told to; a query blocks until ``go``."""

    def __init__(self) -> None:
        self.executed: list[str] = []
        self.go = asyncio.Event()
        self.rows = 1

    async def execute(self, sql: str, session: SessionContext) -> ResultSet:
        self.executed.append(sql)
        if sql.startswith("CREATE"):
            return ResultSet(update_type="CREATE ZONE", applied=True, zone_id=ZoneId(1), catalog_version=1)
        await self.go.wait()
        return ResultSet((AnswerColumn("n", BIGINT),), [(n,) for n in range(self.rows)])


class Moving:
    """Progress of a zone of four partitions."""

    def __init__(self) -> None:
        self.done = 0

    def __call__(self, zone_id: ZoneId, version: int) -> dict[str, Any]:
        state = "CONVERGED" if self.done == 4 else "MOVING"
        return {"state": state, "partitions": {"done": self.done, "total": 4}, "causes": [{"cause": "C"}]}


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[StatementJobs]:
    url = migrated_file(tmp_path)
    store = CatalogStore.open(url)
    opened = StatementJobs(Catalog(store))
    yield opened
    await opened.close()
    store.close()


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def moving() -> Moving:
    return Moving()


@pytest.fixture
def front(jobs: StatementJobs, engine: Engine, moving: Moving) -> TrinoFront:
    return TrinoFront(jobs, engine, moving, ScriptReader())


async def follow(front: TrinoFront, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Every page after ``body``."""
    pages = []
    while "nextUri" in body:
        statement_id, token = body["nextUri"].split("/")[-2:]
        body = (await front.get(statement_id, int(token), HERE)).body
        pages.append(body)
    return pages


async def test_splits_are_partitions_and_the_end_is_convergence(front: TrinoFront, moving: Moving) -> None:
    first = (await front.post("CREATE ZONE z", WAITING, None, "", HERE)).body
    assert first["updateType"] == "CREATE ZONE"
    assert (first["stats"]["completedSplits"], first["stats"]["totalSplits"]) == (0, 4)
    following = asyncio.create_task(follow(front, first))
    for moving.done in range(1, 5):
        await asyncio.sleep(0.3)
    pages = await following
    assert pages[-1]["stats"]["state"] == "FINISHED"
    assert (pages[-1]["stats"]["completedSplits"], pages[-1]["stats"]["totalSplits"]) == (4, 4)
    assert pages[-1]["data"] == [[True]]


async def test_rows_in_pages_replay_and_what_is_gone(front: TrinoFront, engine: Engine) -> None:
    engine.rows = 2500
    engine.go.set()
    first = (await front.post("SELECT n", TrinoSession(), None, "", HERE)).body
    pages = await follow(front, first)
    assert [len(page["data"]) for page in pages] == [1000, 1000, 500]
    assert (await front.get(first["id"], 3, HERE)).body == pages[-1]
    with pytest.raises(RefusedError, match="read before"):
        await front.get(first["id"], 2, HERE)
    with pytest.raises(RefusedError, match="never offered"):
        await front.get(first["id"], 5, HERE)


async def test_a_status_page_is_repeated_as_it_was(
    front: TrinoFront, engine: Engine, jobs: StatementJobs
) -> None:
    first = (await front.post("SELECT n", TrinoSession(), None, "", HERE)).body
    waiting = (await front.get(first["id"], 1, HERE)).body
    assert waiting["stats"]["state"] == "RUNNING"
    engine.go.set()
    ended = await jobs.wait(first["id"], 60)
    assert ended is not None
    assert ended.state is StatementState.SUCCEEDED
    assert (await front.get(first["id"], 1, HERE)).body == waiting
    assert (await front.get(first["id"], 2, HERE)).body["data"] == [[0]]


async def test_a_query_is_canceled_and_times_out(front: TrinoFront, engine: Engine) -> None:
    first = (await front.post("SELECT n", TrinoSession(), None, "", HERE)).body
    await front.delete(first["id"])
    *_, page = await follow(front, first)
    assert page["error"]["errorName"] == "STATEMENT_CANCELED"
    hasty = TrinoSession(properties={"timeout": "50ms"})
    body = (await front.post("SELECT m", hasty, None, "", HERE)).body
    *_, page = body, *await follow(front, body)
    assert page["error"]["errorName"] == "STATEMENT_TIMED_OUT"


async def test_a_repeated_change_runs_once(front: TrinoFront, engine: Engine) -> None:
    pages = await asyncio.gather(
        *(front.post("CREATE ZONE z", TrinoSession(), key, "", HERE) for key in ("k", "k", None, None))
    )
    assert len({page.body["id"] for page in pages}) == 2
    assert len(engine.executed) == 2
    other = await front.post("CREATE ZONE y", TrinoSession(), "k", "", HERE)
    assert other.body["id"] not in {page.body["id"] for page in pages}


async def test_what_a_dead_server_left_is_ended_by_who_asks(tmp_path: Path) -> None:
    url = migrated_file(tmp_path)
    now_us = 1_000_000
    store = CatalogStore.open(url, lambda: now_us)
    jobs = StatementJobs(Catalog(store), JobLimits(lease_s=10))
    statement = NewStatement("0" * 32, "trino", "CREATE ZONE z", "")
    store.statements.submit(statement, "a dead server", 10, 100)
    running = await jobs.wait("0" * 32, 0)
    assert running is not None
    assert running.state is StatementState.RUNNING
    now_us += 11_000_000
    ended = await jobs.wait("0" * 32, 60)
    assert ended is not None
    assert ended.error is not None
    assert ended.error["name"] == "OUTCOME_UNKNOWN"
    store.close()


async def test_closing_a_server_says_how_its_statements_ended(front: TrinoFront, jobs: StatementJobs) -> None:
    first = (await front.post("CREATE ZONE z", WAITING, None, "", HERE)).body
    await jobs.close()
    (page,) = await follow(front, first)
    assert page["warnings"][0]["warningCode"]["name"] == "WAIT_INTERRUPTED"
