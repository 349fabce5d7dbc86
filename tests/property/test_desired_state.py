"""A plan leads from any catalog to the desired one, and there is nothing to plan afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.sql.plan.desired_state import (
    CatalogPlan,
    DdlFile,
    DdlFileError,
    DesiredAction,
    desired_catalog,
    plan_changes,
    read_files,
)
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.quorum import default_quorum
from catalog.core.snapshot import CatalogSnapshot, ZoneDefaults, apply_command, data_nodes_of
from catalog.core.zone import Node, Zone
from catalog.filters.json_path import JSON_PATH
from parser.to_command import parse_ddl
from tests.fixtures.examples import examples

NODES = tuple(
    Node(f"n{number}", (("region", "EU" if number % 2 else "US"),), ("default", "rocks")) for number in range(7)
)
DEFAULTS = ZoneDefaults()

NAMES = st.sampled_from(["A", "B", '"c d"'])
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "REPLICAS": st.sampled_from(["1", "2", "3", "5", "ALL"]),
        "QUORUM SIZE": st.sampled_from(["1", "2", "3"]),
        "NODES FILTER": st.sampled_from(["'$..*'", "'$[?(@.region == \"EU\")]'"]),
        "AUTO SCALE UP": st.sampled_from(["OFF", "0", "5"]),
        "REBALANCE STRATEGY": st.sampled_from(["'queue'", "'update'", "'default'"]),
        "PARTITION LOSS POLICY": st.sampled_from(["'IGNORE'", "'READ_ONLY_ALL'", "'default'"]),
    },
)


@st.composite
def statements(draw: st.DrawFn, kinds: tuple[str, ...]) -> str:
    name = draw(NAMES)
    kind = draw(st.sampled_from(kinds))
    if kind in ("create", "alter"):
        given_options = draw(OPTIONS)
        options = ", ".join(f"{key} {value}" for key, value in given_options.items()) or "REPLICAS 1"
        verb = f"CREATE ZONE {name}" if kind == "create" else f"ALTER ZONE {name} SET"
        return f"{verb} ({options})"
    table = draw(st.sampled_from(["T", "U"]))
    column = draw(st.sampled_from(["X", "Y"]))
    return {
        "drop": f"DROP ZONE {name}",
        "default": f"ALTER ZONE {name} SET DEFAULT",
        "table": f"CREATE TABLE {table} (ID INT PRIMARY KEY, {column} VARCHAR(9))"
        + draw(st.sampled_from(["", f" ZONE {name}"])),
        "add": f"ALTER TABLE {table} ADD COLUMN {column} INT",
        "drop table": f"DROP TABLE {table}",
    }[kind]


def scripts(*kinds: str) -> st.SearchStrategy[list[str]]:
    return st.lists(statements(kinds), max_size=8)


LIVE = scripts("create", "create", "alter", "drop", "default", "table", "add", "drop table")
DESIRED = scripts("create", "create", "alter", "default", "table", "add")


def ran(snapshot: CatalogSnapshot, texts: list[str]) -> tuple[CatalogSnapshot, list[str]]:
    """The catalog after those that are good, and which they were."""
    good = []
    for text in texts:
        try:
            change = apply_command(snapshot, parse_ddl(text)[0], NODES, DEFAULTS, filters=JSON_PATH)
        except RefusedError:
            continue
        snapshot = snapshot.after(change.entries)
        good.append(text)
    return snapshot, good


def quorum_of(zone: Zone) -> int:
    return zone.quorum_size or default_quorum(zone.replicas, len(data_nodes_of(zone, NODES, JSON_PATH)))


def planned(live: CatalogSnapshot, files: list[DdlFile], *, prune: bool) -> tuple[CatalogPlan, CatalogSnapshot]:
    desired = desired_catalog(read_files(files), live, NODES, DEFAULTS)
    return plan_changes(live, desired, quorum_of, prune=("*",) if prune else ()), desired


def creates(zone: Zone, texts: list[str]) -> bool:
    return any(text.startswith(f"CREATE ZONE {zone.name} ") for text in texts)


def seen(zone: Zone) -> Zone:
    """Zone as people see it: without its id, and without the origin of its quorum."""
    return replace(zone, zone_id=0, quorum_size=quorum_of(zone))


@settings(max_examples=examples(600), deadline=None)
@given(LIVE, DESIRED, st.booleans())
def test_a_plan_leads_to_what_the_files_say(live_texts: list[str], texts: list[str], prune: bool) -> None:
    live, _ = ran(CatalogSnapshot(), live_texts)
    base = CatalogSnapshot(next_zone_id=live.next_zone_id, next_table_id=live.next_table_id)
    default = live.default_zone
    made = default is not None and creates(default, texts)
    if default is not None and not made:
        base = replace(base, zones=(default,), default_zone_id=live.default_zone_id)
    wanted, good = ran(base, texts)
    # Refused, it is not among what the files say: then they begin with the default zone that there is.
    assume(default is None or made == creates(default, good))
    if not good:
        with pytest.raises(DdlFileError, match="hold no statement"):
            planned(live, [DdlFile("f.sql", "-- nothing")], prune=prune)
        return
    takes_default = any(text.endswith("SET DEFAULT") for text in good)
    if base.default_zone is not None and takes_default and wanted.default_zone_id != base.default_zone_id:
        with pytest.raises(DdlFileError, match="must create it"):
            planned(live, [DdlFile("f.sql", ";\n".join(good))], prune=prune)
        return
    plan, desired = planned(live, [DdlFile("f.sql", ";\n".join(good))], prune=prune)
    assert plan.catalog_version == live.version
    if plan.conflicts:
        return
    after, done = ran(live, [change.sql for change in plan.changes])
    assert len(done) == len(plan.changes), plan
    for zone in desired.zones:
        found = after.zone(zone.name)
        assert found is not None
        assert seen(found) == seen(zone)
    for table in desired.tables:
        kept = after.table(table.name)
        assert kept is not None
        assert after.zone_of(kept).name == desired.zone_of(table).name
        assert set(kept.columns) == set(table.columns)
    again, _ = planned(after, [DdlFile("f.sql", ";\n".join(good))], prune=prune)
    assert again.changes == ()
    if prune:
        keeps = {zone.name for zone in desired.zones} | {zone.name for zone in [after.default_zone] if zone}
        assert {zone.name for zone in after.zones} == keeps
        assert {table.name for table in after.tables} == {table.name for table in desired.tables}
    else:
        assert not [change for change in plan.changes if change.action is DesiredAction.DROP]
        assert {zone.name for zone in live.zones} <= {zone.name for zone in after.zones}


DECLARED = (
    "CREATE ZONE a (REPLICAS 2)",
    "ALTER ZONE a SET (AUTO SCALE UP 5)",
    "CREATE ZONE b; ALTER ZONE b SET DEFAULT",
    "CREATE TABLE t (id INT PRIMARY KEY) ZONE a",
    "ALTER TABLE t ADD COLUMN x INT",
    "CREATE TABLE u (id INT PRIMARY KEY)",
    "CREATE TABLE v (id INT PRIMARY KEY) ZONE events",
    "ALTER ZONE events SET (REPLICAS 2); CREATE TABLE w (id INT PRIMARY KEY) ZONE b",
)


@settings(max_examples=examples(200), deadline=None)
@given(st.permutations(DECLARED), st.permutations(range(len(DECLARED))), st.booleans())
def test_files_have_no_order(texts: list[str], handed: list[int], prune: bool) -> None:
    """The plan is the same for any names and any order of the files, but for the order of
    statements that do not name each other."""
    live, _ = ran(CatalogSnapshot(), ["CREATE ZONE events (REPLICAS 1)", "CREATE ZONE old"])
    files = [DdlFile(f"{number}.sql", text) for number, text in enumerate(texts)]
    plan, _ = planned(live, [files[at] for at in handed], prune=prune)
    straight, _ = planned(live, [DdlFile("all.sql", ";".join(DECLARED))], prune=prune)
    assert planned(live, files, prune=prune)[0] == plan
    assert {change.sql for change in plan.changes} == {change.sql for change in straight.changes}
    assert (set(plan.unmanaged), plan.conflicts) == (set(straight.unmanaged), ())
    after, done = ran(live, [change.sql for change in plan.changes])
    assert len(done) == len(plan.changes)
    assert planned(after, files, prune=prune)[0].changes == ()


def test_a_zone_of_the_catalog_is_used_and_one_of_nowhere_is_refused() -> None:
    live, _ = ran(CatalogSnapshot(), ["CREATE ZONE events"])
    plan, _ = planned(live, [DdlFile("t.sql", "CREATE TABLE t (id INT PRIMARY KEY) ZONE events")], prune=True)
    assert [(change.action, change.name) for change in plan.changes] == [(DesiredAction.CREATE, "T")]
    with pytest.raises(DdlFileError) as refused:
        planned(live, [DdlFile("t.sql", "CREATE TABLE t (id INT PRIMARY KEY)\n ZONE nowhere")], prune=False)
    assert (refused.value.file.name, refused.value.cause.kind) == ("t.sql", ErrorKind.ZONE_NOT_FOUND)
    assert (refused.value.cause.line, refused.value.cause.column) == (2, 7)
