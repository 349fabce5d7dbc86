"""EXPLAIN and plans show what applying does: the real controllers, over random catalogs and nodes.

Small alphabets on purpose: three zones, four nodes, two regions. Each statement is planned first, alone and as
a part of a script; then it is published, the controllers do their work, and what is stored is compared with
what was said, by plain sets.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.console.plan import PlanGoal, PlanPage, Wish, make_plan
from app.sql.plan.change_plan import ChangePlan, plan_of
from app.sql.plan.forecast import PlannedStatement
from app.sql.views.view_snapshot import SystemSnapshot
from catalog.core.errors import StatementError
from catalog.core.snapshot import CatalogSnapshot, EntryKind, ZoneEntry, apply_command
from catalog.core.zone import ZoneId
from catalog.filters.json_path import JSON_PATH
from parser.to_command import parse_ddl
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.target import StoredTarget, TargetPointer
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.core.moves.drain import Drain
from rebalance.metastore.mirror import KeyspaceMirror
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.examples import examples
from tests.fixtures.timer_world import TimerWorld

NAMES = ("n1", "n2", "n3", "n4")
ZONES = ("A", "B", "C")
Roles = dict[str, str]
"""Roles of the nodes that hold a partition."""

zone_names = st.sampled_from(ZONES)
options = st.lists(
    st.one_of(
        st.integers(1, 5).map(lambda count: f"REPLICAS {count}"),
        st.just("REPLICAS ALL"),
        st.integers(1, 3).map(lambda count: f"QUORUM SIZE {count}"),
        st.sampled_from(["AUTO SCALE UP 0", "AUTO SCALE UP 60", "AUTO SCALE UP OFF"]),
        st.sampled_from(["AUTO SCALE DOWN 0", "AUTO SCALE DOWN 60", "AUTO SCALE DOWN OFF"]),
        st.sampled_from(["$[?(@.region == 'US')]", "$[?(@.region == 'EU')]", "$..*"]).map(
            lambda text: "NODES FILTER '" + text.replace("'", '"') + "'"
        ),
        st.sampled_from(["REBALANCE STRATEGY 'queue'", "REBALANCE STRATEGY 'update'"]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda text: text.rsplit(" ", 1)[0] if "FILTER" not in text else "FILTER",
)
fixed = st.lists(
    st.sampled_from(["DISTRIBUTION ALGORITHM 'balanced'", "CONSISTENCY MODE 'HIGH_AVAILABILITY'"]),
    max_size=2,
    unique=True,
)
creations = st.builds(
    lambda name, maybe, given, more: f"CREATE ZONE {maybe}{name} (PARTITIONS 4, {', '.join([*given, *more])})",
    zone_names,
    st.sampled_from(["", "IF NOT EXISTS "]),
    options,
    fixed,
)
alterations = st.builds(lambda name, given: f"ALTER ZONE {name} SET ({', '.join(given)})", zone_names, options)
statements = st.one_of(
    creations,
    alterations,
    alterations,
    alterations,
    st.builds(lambda name: f"ALTER ZONE IF EXISTS {name} SET (AUTO SCALE UP 0)", zone_names),
    st.builds(lambda name, other: f"ALTER ZONE {name} RENAME TO {other}", zone_names, zone_names),
    st.builds(lambda name: f"ALTER ZONE {name} SET DEFAULT", zone_names),
    st.builds(lambda name, maybe: f"DROP ZONE {maybe}{name}", zone_names, st.sampled_from(["", "IF EXISTS "])),
    st.builds(lambda name: f"CREATE TABLE T (id INT PRIMARY KEY) ZONE {name}", zone_names),
    st.sampled_from(
        [
            "CREATE TABLE U (id INT PRIMARY KEY)",
            "CREATE TABLE IF NOT EXISTS T (id INT PRIMARY KEY)",
            "ALTER TABLE T ADD COLUMN note VARCHAR",
            "ALTER TABLE T DROP COLUMN note",
            "DROP TABLE T",
            "DROP TABLE IF EXISTS U",
        ]
    ),
)
happenings = st.one_of(
    st.tuples(st.just("join"), st.sampled_from(NAMES), st.sampled_from(["US", "EU"])),
    st.tuples(st.just("leave"), st.sampled_from(NAMES)),
    st.tuples(st.just("drain"), st.sampled_from(NAMES)),
    st.tuples(st.just("undrain"), st.sampled_from(NAMES)),
    st.tuples(st.just("wait"), st.integers(1, 90)),
    st.tuples(st.just("run"), st.lists(statements, min_size=1, max_size=3)),
    st.tuples(st.just("run"), st.lists(statements, min_size=1, max_size=3)),
)


class PlannedWorld:
    """A catalog, and the controllers that follow it in a time that only tests move."""

    def __init__(self) -> None:
        self.store = MemoryMetastore()
        self.keyspace = Keyspace("test/")
        self.mirror = KeyspaceMirror(self.store, self.keyspace.prefix)
        self.timers = TimerWorld(self.store, self.keyspace)
        self.catalog = CatalogSnapshot()
        self.now_s = 0

    async def snapshot(self) -> SystemSnapshot:
        revision = (await self.store.range(self.keyspace.prefix)).revision
        assert await self.mirror.wait_until(lambda: self.mirror.revision >= revision, 60)
        return SystemSnapshot(self.catalog, self.mirror.copy(), self.keyspace, self.timers.clock.ms)

    async def happen(self, what: str, *values: object) -> None:
        timers, name = self.timers, str(values[0])
        if what == "join":
            await timers.join(name, region=str(values[1]))
        elif what == "leave":
            await timers.leave(name)
        elif what == "wait":
            assert isinstance(values[0], int)
            self.now_s += values[0]
            await timers.advance(self.now_s)
        else:
            key = self.keyspace.drain(name)
            asked = Put(key, Drain("somebody", "", 1).encode()) if what == "drain" else Delete(key)
            await self.check_nodes(PlanGoal(Wish.OUT if what == "drain" else Wish.IN, nodes=(name,)), asked)

    async def check_nodes(self, asked: PlanGoal, write: Put | Delete) -> None:
        """A drain, or its end, does to every zone what the console's plan said."""
        try:
            plan: PlanPage | None = make_plan(asked, await self.snapshot())
        except StatementError:
            plan = None
        before = await self.targets()
        await self.store.commit(Txn((), (write,)))
        await self.timers.record()
        if plan is None:
            return
        after = await self.targets()
        said = {each.zone_id: each.answer for each in plan.zones}
        for zone_id in before:
            moves = moves_of(before[zone_id], after[zone_id])
            answer = said.get(zone_id)
            flows = {(flow.source, flow.target): flow.replicas for flow in answer.flows} if answer else {}
            assert flows == moves, asked

    async def run(self, texts: Sequence[str]) -> None:
        """Run those of the statements that are valid, one after the other."""
        live = (await self.snapshot()).topology
        planned, catalog = [], self.catalog
        for text in texts:
            (command,) = parse_ddl(text)
            try:
                change = apply_command(catalog, command, live, filters=JSON_PATH)
            except StatementError:
                continue
            planned.append(PlannedStatement(text, catalog, change))
            catalog = catalog.after(change.entries)
        if planned:
            plan = plan_of(planned, await self.snapshot())
            for statement, effects in zip(plan.statements, effects_of(plan), strict=True):
                await self.apply(statement, effects)

    async def apply(self, statement: PlannedStatement, effects: list[dict[str, object]]) -> None:
        before = await self.targets()
        entries = statement.change.entries
        self.catalog = self.catalog.after(entries)
        written = [entry for entry in entries if isinstance(entry, ZoneEntry)]
        for entry in written:
            await self.timers.publish(entry.zone, dropped=entry.kind is EntryKind.DROPPED)
        after = await self.targets()
        expected = Counter[tuple[str, str]]()
        for zone_id in before.keys() | after.keys():
            expected += moves_of(before.get(zone_id, []), after.get(zone_id, []))
        assert said_by(effects) == expected, statement.sql
        nodes = [row["after"] for row in effects if row["section"] == "DATA_NODES"]
        if written and written[0].kind is EntryKind.WRITTEN:
            (wanted,) = nodes
            assert wanted == (await self.timers.nodes(written[0].zone.zone_id)).replace(",", ", ").strip("-")
        assert written or not nodes, "no zone is written"

    async def targets(self) -> dict[ZoneId, list[Roles]]:
        """Stored targets of each zone that is placed."""
        found = {}
        for item in (await self.store.range(self.keyspace.pointers)).items:
            zone_id = ZoneId(int(item.key.removeprefix(self.keyspace.pointers)))
            pointer = TargetPointer.decode(item.value)
            chunks = await self.store.range(self.keyspace.target(zone_id, pointer.event_revision))
            stored = StoredTarget(pointer, tuple(chunk.value for chunk in chunks.items))
            found[zone_id] = [roles_of(each) for each in stored.assignments()]
        return found


def effects_of(plan: ChangePlan) -> list[list[dict[str, object]]]:
    return [rows or [] for rows in plan.effects_json()]


def said_by(effects: list[dict[str, object]]) -> Counter[tuple[str, str]]:
    """Replicas by (donor, stealer) of the rows of EXPLAIN."""
    found = Counter[tuple[str, str]]()
    for row in effects:
        section, name, count = row["section"], str(row["name"]), row["replicas"]
        if section not in ("MOVE", "ADD", "REMOVE", "ROLE") or not name:
            continue
        donor, _, stealer = name.partition(" -> ")
        pairs = {"ADD": ("", donor), "REMOVE": (donor, ""), "ROLE": (donor, donor), "MOVE": (donor, stealer)}
        assert isinstance(count, int)
        found[pairs[str(section)]] += count
    return found


def roles_of(held: Assignments) -> Roles:
    return {**dict.fromkeys(held.peers, "VOTER"), **dict.fromkeys(held.learners, "LEARNER")}


def moves_of(before: list[Roles], after: list[Roles]) -> Counter[tuple[str, str]]:
    """Moves by plain sets; a zone that does not exist has no replica."""
    found = Counter[tuple[str, str]]()
    for old, new in zip_longest(before, after, fillvalue={}):
        losers, gainers = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        found += Counter(zip_longest(losers, gainers, fillvalue=""))
        found += Counter((node, node) for node in old.keys() & new.keys() if old[node] != new[node])
    return found


@pytest.mark.row("VOL-087")
@settings(max_examples=examples(80), deadline=None)
@given(st.lists(creations, min_size=2, max_size=4), st.lists(happenings, min_size=3, max_size=10))
def test_what_is_said_is_what_applying_does(begin: list[str], course: list[tuple[object, ...]]) -> None:
    """VOL-087: every kind of statement, alone and in scripts, and drains; nodes that died, leave, are filtered
    out or waiting for a timer."""

    async def go() -> None:
        world = PlannedWorld()
        watching = asyncio.create_task(world.mirror.run())
        await world.mirror.loaded()
        for name, region in zip(NAMES[:3], ("US", "EU", "US"), strict=True):
            await world.timers.join(name, region=region)
        await world.timers.start()
        try:
            await world.run(begin)
            for what, *values in course:
                if what == "run":
                    (texts,) = values
                    assert isinstance(texts, list)
                    await world.run(texts)
                else:
                    await world.happen(str(what), *values)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await world.store.close()

    asyncio.run(go())
