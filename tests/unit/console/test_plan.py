"""Plans: what they say is what the controllers then do, and a plan that is out of date is not run (VOL-009)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from app.console.feed import PartitionFeed
from app.console.operations_page import begun
from app.console.plan import PlanGoal, PlanPage, Wish, make_plan, statement_of
from app.console.plan_page import run_plan
from app.console.shared import Site
from app.requests.context import acting
from catalog.core.audit import Actor, Channel
from catalog.core.errors import ErrorKind, StatementError
from catalog.core.zone import Node, ZoneId
from rebalance.core.admission.move_admission import Limits
from rebalance.core.moves.drain import Drain
from rebalance.core.operations.operation import Operation
from tests.console.stage import services_of
from tests.unit.sql_world import World, opened

PARTITIONS = 12
NODES = tuple(Node(f"n{number}") for number in range(1, 6))
PROFILES = "STORAGE PROFILES ['default']"
ZONES = (
    f"CREATE ZONE a (PARTITIONS {PARTITIONS}, REPLICAS 2) {PROFILES}",
    f"CREATE ZONE b (PARTITIONS {PARTITIONS}, REPLICAS 3, DISTRIBUTION ALGORITHM 'balanced') {PROFILES}",
    f"CREATE ZONE c (PARTITIONS {PARTITIONS}, REPLICAS 1, AUTO SCALE UP 360000000) {PROFILES}",
)


@asynccontextmanager
async def planned(directory: Path) -> AsyncIterator[tuple[World, Site]]:
    """Three zones on n1 to n4; n5 came after them, and zone c waits for years until it takes it."""
    async with opened(directory, nodes=NODES[:4]) as world, services_of(world) as services:
        for at, sql in enumerate(ZONES, start=1):
            await world.run(sql)
            await world.serve(ZoneId(at), PARTITIONS)
        await world.set_nodes(*NODES)
        yield world, Site(services, PartitionFeed(world.mirror, world.keyspace))


async def made(site: Site, asked: PlanGoal) -> PlanPage:
    return make_plan(asked, await site.snapshot())


def holders(site: Site, zone: int) -> list[frozenset[tuple[str, str]]]:
    """Nodes of each partition by the newest target, with their roles: another role is another copy."""
    placed = site.services.views.placed(ZoneId(zone))
    assert placed is not None
    return [
        frozenset({*((node, "votes") for node in each.peers), *((node, "learns") for node in each.learners)})
        for each in placed.targets
    ]


def nodes_of(held: frozenset[tuple[str, str]]) -> frozenset[str]:
    return frozenset(node for node, _ in held)


@pytest.mark.row("VOL-009")
@pytest.mark.parametrize("zone", [1, 2])
@pytest.mark.parametrize("replicas", [1, 4])
async def test_a_plan_says_what_the_controllers_do(tmp_path: Path, zone: int, replicas: int) -> None:
    """Units by donor and stealer add up to exactly the copies that the next target makes and ends (VOL-009)."""
    async with planned(tmp_path) as (world, site):
        before = holders(site, zone)
        plan = await made(site, PlanGoal(Wish.REPLICAS, "ABC"[zone - 1], replicas))
        await world.run(plan.statement)
        pairs = list(zip(before, holders(site, zone), strict=True))
        assert plan.total("copied") == sum(len(new - old) for old, new in pairs)
        assert plan.total("ended") == sum(max(0, len(old) - len(new)) for old, new in pairs)
        assert plan.total("partitions_touched") == sum(old != new for old, new in pairs)
        (one,) = plan.zones
        for node in NODES:
            gained = sum(flow.replicas for flow in one.answer.flows if flow.target == node.name)
            assert gained == sum(node.name in nodes_of(new - old) for old, new in pairs)


async def test_batches_are_those_of_the_limits(tmp_path: Path) -> None:
    async with planned(tmp_path) as (world, site):
        asked = PlanGoal(Wish.OUT, nodes=("n1",))
        whole = await made(site, asked)
        assert [each.batches for each in whole.zones] == [1] * len(whole.zones)
        await world.put(world.keyspace.limits, Limits(batch_size=5).encode())
        await world.settle()
        cut = await made(site, asked)
        assert [each.batches for each in cut.zones] == [
            -(-each.answer.partitions_touched // 5) for each in whole.zones
        ]
        assert replace(cut, zones=whole.zones, batch_size=None) == whole


async def test_nodes_out_leave_every_zone_and_nodes_in_come_back(tmp_path: Path) -> None:
    async with planned(tmp_path) as (world, site):
        out = await made(site, PlanGoal(Wish.OUT, nodes=("n1",)))
        assert [each.answer.zone for each in out.zones] == ["A", "B", "C"]
        for each in out.zones:
            held = sum("n1" in nodes_of(row) for row in holders(site, each.zone_id))
            assert sum(flow.replicas for flow in each.answer.flows if flow.source == "n1") == held
            assert all(flow.target != "n1" for flow in each.answer.flows)
        await world.put(world.keyspace.drain("n5"), Drain("grace", "disks", 0).encode())
        await world.settle()
        back = await made(site, PlanGoal(Wish.IN, nodes=("n5",)))
        assert [each.answer.zone for each in back.zones] == ["A", "B"]


async def test_evening_out_takes_nodes_that_a_timer_holds_back(tmp_path: Path) -> None:
    async with planned(tmp_path) as (_, site):
        plan = await made(site, PlanGoal(Wish.EVEN, "C"))
        (one,) = plan.zones
        assert {flow.target for flow in one.answer.flows} == {"n5"}
        assert plan.statement == 'ALTER ZONE "C" SET (AUTO SCALE UP 0)'


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (PlanGoal(Wish.REPLICAS, "nowhere", 3), "zone nowhere does not exist"),
        (PlanGoal(Wish.REPLICAS, "A", 0), "REPLICAS"),
        (PlanGoal(Wish.OUT, nodes=("n9",)), "there is no node n9; known nodes: n1, n2"),
        (PlanGoal(Wish.OUT, nodes=("n1", "n2", "n3", "n4", "n5")), "would have no data node"),
        (PlanGoal(Wish.IN, nodes=("n1",)), "node n1 is not leaving; nodes that are: none"),
    ],
)
async def test_what_cannot_be_planned_says_why(tmp_path: Path, asked: PlanGoal, said: str) -> None:
    async with planned(tmp_path) as (_, site):
        with pytest.raises(StatementError, match=said):
            await made(site, asked)


async def test_a_plan_that_would_be_another_now_is_not_run(tmp_path: Path) -> None:
    async with planned(tmp_path) as (world, site):
        plan = await made(site, PlanGoal(Wish.REPLICAS, "A", 3))
        await world.run("ALTER ZONE b SET (REPLICAS 2)")
        version = (await site.catalog()).version
        with pytest.raises(StatementError) as refused:
            await run_plan(site, plan, "ada", "more copies")
        assert refused.value.kind is ErrorKind.PLAN_CHANGED
        assert (await site.catalog()).version == version


@pytest.mark.row("VOL-009")
async def test_running_leads_to_the_operation(tmp_path: Path) -> None:
    """The second button: the statement is run with name and reason, and its operation is found (VOL-009). The
    address is known at once, while no controller has named the operation yet."""
    async with planned(tmp_path) as (world, site):
        plan = await made(site, PlanGoal(Wish.REPLICAS, "A", 3))
        with acting(Actor("ada", False, Channel.CONSOLE).because("more copies")):
            address = urlsplit(await run_plan(site, plan, "ada", "more copies"))
        assert address.path == "/console/operations/begun"
        query = parse_qs(address.query)
        assert query["zone"] == ["A"]
        after = int(query["after"][0])
        assert begun(site, ZoneId(1), after) == ""
        await world.relay.relay_once()
        assert await world.zones.reconcile([ZoneId(1)]) == {}
        await world.settle()
        operation = begun(site, ZoneId(1), after)
        found = world.mirror.get(world.keyspace.operation(operation))
        assert found is not None
        assert operation.startswith("1-")
        opened = Operation.decode(found.value)
        assert statement_of(plan.goal).removeprefix("ALTER") in opened.statement
        assert opened.by == "ada"
        assert opened.reason == "more copies"
