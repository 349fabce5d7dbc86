"""The way of a statement: how many functions of ours lie between a route and the commit, and how often a text
is read."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx
from sqlalchemy import Connection, Engine, event

from app.requests.context import acting
from app.sql.statements.results import ScriptError
from catalog.core.audit import Actor
from catalog.core.errors import ErrorKind
from tests.fixtures.served_app import served
from tests.unit.operations_world import OperationsWorld, operations_world
from tests.unit.sql_world import opened

ROOT = Path(__file__).parents[2]
PACKAGES = tuple(str(ROOT / name) for name in ("app", "parser", "catalog", "rebalance", "spark"))
FRAMES_MAX = 9
ROUTE = "run_statements"
ALTER = "ALTER ZONE orders SET (REPLICAS 2)"


def is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(PACKAGES)


def thread_stack(frame: FrameType | None) -> list[CodeType]:
    """The frames of this thread from ``frame`` outwards, the outermost first."""
    codes: list[CodeType] = []
    while frame is not None:
        codes.insert(0, frame.f_code)
        frame = frame.f_back
    return codes


def awaiting_stack(coroutine: Any) -> list[CodeType]:
    """The coroutines that wait for each other, the outermost first."""
    codes: list[CodeType] = []
    while hasattr(coroutine, "cr_code"):
        codes.append(coroutine.cr_code)
        coroutine = coroutine.cr_await
    return codes


def way_to_commit(loop: asyncio.AbstractEventLoop, before: set[asyncio.Task[Any]]) -> list[str]:
    """Functions of ours from the route to the commit, on each side: tasks that wait in the event loop, and this
    thread.

    A task in which nothing but the connection is watched is on no way: it neither waits for a statement nor is
    waited for when that commits.
    """
    sides: list[list[CodeType]] = []
    for task in asyncio.all_tasks(loop) - before:
        codes = [code for code in awaiting_stack(task.get_coro()) if is_ours(code)]
        names = [code.co_name for code in codes]
        if ROUTE in names:
            sides.insert(0, codes[names.index(ROUTE) :])
        elif codes and Path(codes[0].co_filename).is_relative_to(ROOT / "app/sql"):
            sides.append(codes)
    sides.append([code for code in thread_stack(inspect.currentframe()) if is_ours(code)])
    return [f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_qualname}" for side in sides for code in side]


@contextmanager
def at_commits(probe: Any) -> Iterator[None]:
    """``probe`` is called in the thread of each commit of any database, just before it."""
    event.listen(Engine, "commit", probe)
    try:
        yield
    finally:
        event.remove(Engine, "commit", probe)


async def test_an_alter_passes_at_most_nine_functions_from_its_route_to_the_commit(tmp_path: Path) -> None:
    """Functions on each side of the thread's border count; those of libraries in between do not."""
    ways: list[list[str]] = []
    loop = asyncio.get_running_loop()
    before = asyncio.all_tasks()

    def probe(_connection: Connection) -> None:
        ways.append(way_to_commit(loop, before))

    async with operations_world(tmp_path) as api, served(api.app) as http:
        await api.post("/statements", {"sql": "CREATE ZONE orders (PARTITIONS 2)"})
        with at_commits(probe):
            answer = await http.post("/api/v1/statements", json={"sql": ALTER})
        assert answer.json()["results"][0]["effect"]["op"] == "alter"
        (way,) = ways
        print(f"\nALTER, from its route to the commit: {len(way)} frames", *way, sep="\n  ")
        assert way[0] == f"app/api/statements.py:{ROUTE}"
        assert way[-1] == "catalog/store/repository.py:SqlUnitOfWork.commit"
        assert "catalog/service.py:CatalogService.execute_round" in way
        assert len(way) <= FRAMES_MAX


def holding(begun: threading.Event, release: threading.Event) -> Callable[[object], bool]:
    """Work that keeps the catalog's thread until it is released."""

    def hold(_: object) -> bool:
        begun.set()
        return release.wait(60)

    return hold


async def test_statements_that_wait_together_are_one_commit(tmp_path: Path) -> None:
    """Each with its own version, actor and answer, in the order of arrival; one that fails fails alone."""
    texts = [f"CREATE ZONE z{number} (PARTITIONS 1)" for number in range(15)]
    texts.insert(7, "DROP ZONE nowhere")
    commits: list[str] = []

    async with opened(tmp_path) as world:
        begun, release = threading.Event(), threading.Event()
        busy = asyncio.ensure_future(world.catalog.on_log(holding(begun, release)))
        assert await asyncio.to_thread(begun.wait, 60)

        async def run(number: int, text: str) -> Sequence[Any]:
            with acting(Actor(f"person {number}")):
                return await world.engine.run_script(text)

        tasks = [asyncio.create_task(run(*numbered)) for numbered in enumerate(texts)]
        # Nothing of it waits for anything before it waits for the catalog's thread.
        await asyncio.sleep(0)
        with at_commits(lambda _: commits.append("")):
            release.set()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert await busy
        assert len(commits) == 1
        refused = answers.pop(7)
        assert isinstance(refused, ScriptError)
        assert refused.kind is ErrorKind.ZONE_NOT_FOUND
        versions = [result.catalog_version for (result,) in answers if not isinstance(result, BaseException)]
        assert versions == list(range(1, 16))
        history = await world.catalog.history(15)
        people = [f"person {number}" for number in range(16) if number != 7]
        assert [(record.version, record.by) for record in history] == list(enumerate(people, start=1))
        assert len({record.statement_id for record in history}) == 15


async def test_whoever_leaves_the_line_is_carried_out_nevertheless(tmp_path: Path) -> None:
    """Work that has begun comes to its end; after one cancellation of its task its result is there."""
    async with opened(tmp_path) as world:
        begun, release = threading.Event(), threading.Event()
        busy = asyncio.ensure_future(world.catalog.on_log(holding(begun, release)))
        assert await asyncio.to_thread(begun.wait, 60)
        texts = ("CREATE ZONE a", "CREATE ZONE b", "CREATE ZONE c")
        once, twice, never = (asyncio.create_task(world.engine.run_script(text)) for text in texts)
        await asyncio.sleep(0)
        for task in (once, twice, twice):
            task.cancel()
            await asyncio.sleep(0)
        release.set()
        await asyncio.wait([once, twice, never])
        assert await busy
        assert twice.cancelled()
        assert [task.result()[0].catalog_version for task in (once, never)] == [1, 3]
        assert [zone.name for zone in (await world.catalog.snapshot()).zones] == ["A", "B", "C"]


READINGS = frozenset({"split_script", "read_command", "prepare_query"})
"""The parser's work: a text is cut into statements, a change is read, a query is read."""


@asynccontextmanager
async def counted(directory: Path) -> AsyncIterator[tuple[OperationsWorld, Counter[str]]]:
    """The parser's work, of all threads that begin inside."""
    calls: Counter[str] = Counter()

    def profile(frame: FrameType, kind: str, _argument: object) -> None:
        code = frame.f_code
        if kind == "call" and code.co_name in READINGS and code.co_filename.startswith(str(ROOT / "parser")):
            calls[code.co_name] += 1

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        async with operations_world(directory) as api:
            await api.post("/statements", {"sql": "CREATE ZONE orders (PARTITIONS 2)"})
            calls.clear()
            yield api, calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # None ends it, as sys.setprofile's does


async def test_each_text_is_read_once(tmp_path: Path) -> None:
    """Cut once into statements; then each is read once, and travels as what it was read into."""
    async with counted(tmp_path) as (api, calls):

        async def read_for(path: str, status: int = 200, headers: Any = None, **body: Any) -> dict[str, int]:
            calls.clear()
            answer: httpx.Response = await api.http.post(path, json=body, headers=headers)
            assert answer.status_code == status, answer.text
            return dict(calls)

        one_change = {"split_script": 1, "read_command": 1}
        two_changes = {"split_script": 1, "read_command": 2}
        assert await read_for("/statements", sql=ALTER) == one_change
        assert await read_for("/statements", sql="SELECT zone_name FROM zones") == {
            "split_script": 1,
            "prepare_query": 1,
        }
        mixed = "CREATE ZONE a (PARTITIONS 1); SELECT zone_name FROM zones; SHOW ZONES; DROP ZONE a"
        assert await read_for("/statements", sql=mixed) == {**two_changes, "prepare_query": 1}
        script = "CREATE ZONE b (PARTITIONS 1); ALTER ZONE b SET (REPLICAS 2)"
        plan = await api.post("/plan", {"sql": script})
        assert await read_for("/plan", sql=script, plan_id=plan["plan_id"]) == two_changes
        assert await read_for("/statements", sql=script, validate_only=True) == two_changes
        assert await read_for("/statements", sql=script, plan_id=plan["plan_id"]) == two_changes
        version = {"If-Match": str(plan["catalog_version"] + 2)}
        assert await read_for("/statements", sql="DROP ZONE b", headers=version) == one_change
        logged = {"Idempotency-Key": "once"}
        dropped = await read_for("/statements", sql="DROP ZONE orders", headers=logged, wait_timeout=50)
        assert dropped == one_change
