"""One catalog for all: what one user sends keeps no other user from it, neither from logging in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.requests.context import acting
from catalog.core.audit import Actor
from catalog.core.statement_batch import CommandScript, ScriptRun, fair_round
from parser.to_command import parse_ddl
from tests.unit.sql_world import World, opened

LIMIT_S = 60.0
HARMLESS = "; ".join(f"DROP ZONE IF EXISTS zz{number}" for number in range(300))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path) as made:
        yield made


async def test_reads_and_logins_do_not_wait_for_scripts(world: World) -> None:
    await world.engine.run_script("CREATE USER anna")
    release = threading.Event()
    busy = asyncio.ensure_future(world.catalog.on_log(lambda _: release.wait(LIMIT_S)))
    try:
        async with asyncio.timeout(LIMIT_S / 2):
            assert (await world.catalog.grants()).user("anna") is not None
            assert await world.catalog.token("0" * 64) is None
            assert await world.catalog.on_sessions(lambda rows: rows.by_digest("0" * 64)) is None
            assert (await world.catalog.snapshot()).version == 1
    finally:
        release.set()
        await busy


async def test_long_scripts_of_one_user_leave_room_for_another(world: World) -> None:
    ended: list[str] = []

    async def run(name: str, sql: str) -> None:
        with acting(Actor(name, address="192.0.2.1")):
            await world.catalog.run(parse_ddl(sql), ())
        ended.append(name)

    release = threading.Event()
    busy = asyncio.ensure_future(world.catalog.on_log(lambda _: release.wait(LIMIT_S)))
    attack = [asyncio.create_task(run("mallory", HARMLESS)) for _ in range(10)]
    await asyncio.sleep(0)
    other = asyncio.create_task(run("anna", "CREATE USER orla"))
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(busy, other, *attack)
    assert ended.index("anna") == 0


async def test_what_nobody_waits_for_any_more_is_done_before_the_catalog_is_settled(world: World) -> None:
    """Though others come before it, who have had less."""
    release = threading.Event()
    with acting(Actor("anna")):
        busy = asyncio.ensure_future(world.catalog.on_log(lambda _: release.wait(LIMIT_S)))
        await asyncio.sleep(0)
        change = asyncio.create_task(world.catalog.run(parse_ddl("CREATE USER orla"), ()))
    await asyncio.sleep(0)
    for _ in range(2):
        change.cancel()
        await asyncio.sleep(0)
    settled = asyncio.ensure_future(world.catalog.settled())
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(busy, settled)
    assert change.cancelled()
    assert (await world.catalog.grants()).user("orla") is not None


def run_of(name: str, commands: int, base_version: int | None = None) -> ScriptRun:
    script = parse_ddl("; ".join(f"DROP ZONE z{number}" for number in range(commands)))
    return ScriptRun(CommandScript(script, (), tuple(map(str, range(commands))), Actor(name), base_version))


def test_a_round_is_shared_by_users_and_not_by_scripts() -> None:
    runs = [run_of("mallory", 100), run_of("mallory", 100), run_of("anna", 1), run_of("ben", 40)]
    chosen = fair_round(runs, 60)
    assert [(run.script.actor.name, run.at_once) for run in chosen] == [
        ("mallory", 20),
        ("anna", 1),
        ("ben", 20),
    ]
    assert [run.at_once for run in fair_round([run_of("anna", 1) for _ in range(30)], 20)] == [1] * 20


def test_what_was_planned_on_a_version_goes_on_alone() -> None:
    planned, other = run_of("anna", 100, 7), run_of("ben", 1)
    assert fair_round([other, planned], 64) == [other, planned]
    planned.done.extend(planned.done or [None] * 32)  # type: ignore[list-item]  # only their number counts
    assert fair_round([other, planned], 64) == [planned]
    assert planned.at_once == 64
