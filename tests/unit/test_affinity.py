"""The ideal assignment of a partition against the one that holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from app.sql.statements.results import SessionContext
from catalog.core.zone import Node, ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import ConfigurationRecord
from rebalance.core.partition_maps.partition_map import (
    CopyState,
    PrimaryStrategy,
    effective,
    preferred_primary,
    surplus_copies,
)
from tests.unit.sql_world import World, opened

NAMES = "abcd"
LETTERS = {"M": CopyState.MOVING, "O": CopyState.OWNING, "R": CopyState.RENTING, "E": CopyState.EVICTED}


def states(text: str) -> dict[str, CopyState]:
    """``a:O b:M``."""
    return {each[0]: LETTERS[each[2]] for each in text.split()}


@pytest.mark.row("PME-079", "PME-081", "PME-083", "PME-084")
@pytest.mark.parametrize(
    ("ideal", "reported", "holds"),
    [
        ("ab", "a:O b:O", "ab"),
        ("ab", "a:O b:M", "ab"),
        ("ab", "a:M b:O", "ba"),
        ("ab", "a:M b:M c:O", "cab"),
        ("ab", "b:O c:O", "ba"),
        ("ab", "a:M c:R", ""),
        ("ab", "a:M b:M", ""),
        ("ab", "a:M b:E", ""),
        ("ab", "", ""),
    ],
)
def test_an_owner_leads(ideal: str, reported: str, holds: str) -> None:
    """PME-079, PME-081, PME-083, PME-084: the ideal assignment while its primary owns its copy, else any owner
    in front of it, the ideal ones first; without an owner there is no primary."""
    assert "".join(effective(ideal, states(reported))) == holds


@pytest.mark.row("PME-086")
@pytest.mark.parametrize(
    ("ideal", "reported", "joined", "holds"),
    [
        ("db", "d:M b:O", "d", "bd"),
        ("db", "d:O b:O", "d", "bd"),
        ("dab", "d:M a:M b:O", "da", "bda"),
        ("d", "d:O", "d", "d"),
        ("d", "d:O c:O", "d", "cd"),
    ],
)
def test_a_joined_node_is_a_backup_first(
    ideal: str, reported: str, joined: Collection[str], holds: str
) -> None:
    """PME-086: where the ideal assignment says primary, for each of the nodes that joined together."""
    assert "".join(effective(ideal, states(reported), PrimaryStrategy.JOIN, joined)) == holds


@pytest.mark.row("PME-082")
def test_owners_outside_go_when_every_ideal_copy_is_there() -> None:
    """PME-082."""
    assert not surplus_copies("db", states("d:M b:O a:O"))
    assert surplus_copies("db", states("d:O b:O a:O c:R")) == {"a"}


REPORTS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(list(CopyState)))
IDEALS = st.permutations(NAMES).flatmap(
    lambda order: st.integers(1, len(NAMES)).map(lambda count: tuple(order[:count]))
)


@pytest.mark.row("PME-079", "PME-080")
@given(IDEALS, REPORTS, st.sampled_from(PrimaryStrategy), st.frozensets(st.sampled_from(NAMES)))
def test_invariants(
    ideal: tuple[str, ...], reported: dict[str, CopyState], strategy: PrimaryStrategy, joined: frozenset[str]
) -> None:
    """PME-079: after every exchange the primary owns its copy. PME-080: with all copies OWNING and no node
    joined, real == ideal."""
    holds = effective(ideal, reported, strategy, joined)
    if holds:
        assert reported[holds[0]] is CopyState.OWNING
        assert [node for node in holds if node in ideal and node != holds[0]] == [
            node for node in ideal if node != holds[0]
        ]
    else:
        assert CopyState.OWNING not in reported.values()
    if (
        all(reported.get(node) is CopyState.OWNING for node in ideal)
        and strategy is PrimaryStrategy.AVAILABILITY
    ):
        assert holds == ideal


@pytest.mark.row("IEP-037")
def test_the_preferred_primary_is_a_living_voter() -> None:
    """IEP-037: the first one that lives, never a learner."""
    assert preferred_primary("abc", "abc") == "a"
    assert preferred_primary("abc", "bc") == "b"
    assert preferred_primary("abc", "d") is None


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path, nodes=[Node(f"n{number}") for number in range(1, 5)]) as made:
        await made.run("CREATE ZONE z (PARTITIONS 6, REPLICAS 3, DISTRIBUTION ALGORITHM 'balanced')")
        await made.serve(1, 6)
        yield made


async def affinity(world: World) -> list[tuple[str, str, str, str, bool]]:
    columns = "ideal, effective, preferred_primary, primary_node, is_ideal"
    found = await world.engine.execute(
        f"SELECT {columns} FROM system.affinity ORDER BY partition_id", SessionContext()
    )
    return list(found.rows)


@pytest.mark.row("PME-076", "PME-080")
async def test_ideal_and_real_are_both_visible(world: World) -> None:
    """PME-076, PME-080: in a full stable topology they are one list, and its first node leads."""
    for ideal, real, preferred, primary, is_ideal in await affinity(world):
        assert real == ideal
        assert preferred == primary == ideal.split(", ")[0]
        assert is_ideal


async def test_a_dead_node_leads_nothing(world: World) -> None:
    """A partition has no leader once its leader's lease is gone, until another is published; answers agree."""
    led = "SELECT DISTINCT node_name FROM system.assignments WHERE is_leader"
    before = {row[3] for row in await affinity(world)}
    assert before == {name for (name,) in (await world.engine.execute(led, SessionContext())).rows}
    survivor = sorted(before)[0]
    await world.set_nodes(*(node for node in world.nodes if node.name == survivor))
    assert {row[3] for row in await affinity(world)} == {survivor, None}
    assert list((await world.engine.execute(led, SessionContext())).rows) == [(survivor,)]
    shown = await world.engine.execute("SHOW PARTITIONS FROM z", SessionContext())
    assert {row[5] for row in shown.rows} == {survivor, None}
    assert {row[1] for row in await affinity(world)} == {""}, "a survivor without a majority serves nothing"
    await world.set_nodes()
    assert {row[3] for row in await affinity(world)} == {None}
    assert list((await world.engine.execute(led, SessionContext())).rows) == []


@pytest.mark.row("PME-076", "PME-084")
async def test_an_owner_stands_in_for_a_lost_primary(world: World) -> None:
    """PME-076, PME-084: the lost node's partitions have another owner for primary; the ideal stays."""
    before = await affinity(world)
    lost = before[0][0].split(", ")[0]
    await world.set_nodes(*(node for node in world.nodes if node.name != lost))
    for (ideal, real, preferred, _, is_ideal), (was, *_) in zip(await affinity(world), before, strict=True):
        assert ideal == was
        order = ideal.split(", ")
        assert preferred == next(node for node in order if node != lost)
        assert real.split(", ") == [preferred, *(node for node in order if node != preferred)]
        assert is_ideal == (order[0] != lost)


@pytest.mark.row("PME-076")
async def test_a_leader_that_is_not_the_preferred_one_is_seen(world: World) -> None:
    """PME-076: what leads is shown beside who should."""
    keys = world.keyspace.partition(PartitionId(ZoneId(1), 2))
    found = await world.metastore.get(keys.configuration)
    assert found is not None
    record = ConfigurationRecord.decode(found.value)
    ideal = (await affinity(world))[2][0].split(", ")
    moved = ConfigurationRecord(2, ideal[1], record.stage, record.members)
    await world.put(keys.configuration, moved.encode())
    await world.settle()
    shown = await affinity(world)
    assert shown[2][2:] == (ideal[0], ideal[1], False)
    assert all(row[4] for number, row in enumerate(shown) if number != 2)
