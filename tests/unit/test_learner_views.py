"""Learners as people and programs see them: views, REST, EXPLAIN, progress."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from app.contract.columns import columns_of
from app.contract.zones import Member, MirrorBody, ZoneBody
from app.sql.query.sandbox_pool import QueryLimits, SandboxPool
from app.sql.statements.results import SessionContext
from app.views.keyspace_views import KeyspaceViews
from catalog.core.zone import Node, ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import ConfigurationRecord, MemberRecord, MemberState, MirrorRecord
from tests.unit.sql_world import World, opened

NODES = tuple(Node(f"n{number}") for number in range(1, 6))
P0 = PartitionId(ZoneId(1), 0)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    pool = SandboxPool(QueryLimits())
    yield pool
    asyncio.run(pool.close())


@pytest.fixture
async def world(tmp_path: Path, sandbox: SandboxPool) -> AsyncIterator[World]:
    """One zone: WIDE with three voters and two learners in each of 2 partitions, all running."""
    async with opened(tmp_path, sandbox, NODES) as running:
        await running.run("CREATE ZONE wide (PARTITIONS 2, REPLICAS ALL, QUORUM SIZE 2)")
        await running.serve(1, 2)
        yield running


async def objects(world: World, sql: str) -> list[dict[str, Any]]:
    found = await world.engine.execute(sql, SessionContext())
    return [dict(zip((column.name for column in found.columns), row, strict=True)) for row in found.rows]


async def learner_of(world: World) -> str:
    stable = await world.assignments(world.keyspace.partition(P0).stable)
    assert stable is not None
    assert (len(stable.peers), len(stable.learners)) == (3, 2)
    return stable.learners[0]


async def set_mirror(world: World, node: str, mirror: MirrorRecord) -> None:
    await world.put(world.keyspace.member(P0, node), MemberRecord.of_mirror(mirror).encode())
    await world.settle()


@pytest.mark.row("IEP-011")
async def test_what_a_learner_waits_for_is_said_everywhere(world: World) -> None:
    """IEP-011: role, state, address and safe revision of each learner, and the cause of a wait."""
    node = await learner_of(world)
    (shown,) = await objects(world, f"SELECT * FROM learners WHERE partition_id = 0 AND node_name = '{node}'")
    assert shown == {
        **{"NODE_NAME": node, "ZONE_NAME": "WIDE", "ZONE_ID": 1, "PARTITION_ID": 0, "STATE": "RUNNING"},
        **{"CLIENT_URL": f"http://{node}:3", "SAFE_REVISION": 12, "REASON": ""},
    }
    rows = await objects(world, "SELECT * FROM learners")
    assert len(rows) == 4
    members: Any = KeyspaceViews(world.mirror, world.keyspace).partition(P0)["members"]
    mirrors = [(member["node"], member["mirror"]) for member in members if member["mirror"] is not None]
    fields = {name: column.about.sql for name, column in columns_of(MirrorBody).items()}
    of_first = [row for row in rows if row["PARTITION_ID"] == 0]
    assert [(row["NODE_NAME"], {name: row[sql] for name, sql in fields.items()}) for row in of_first] == mirrors
    (zone,) = await objects(world, "SHOW ZONES")
    assert (zone["VOTERS"], zone["LEARNERS"]) == (3, 2)
    snapshot = await world.catalog.snapshot()
    listed = KeyspaceViews(world.mirror, world.keyspace).zone(snapshot.zones[0], snapshot)
    assert (listed["voters"], listed["learners"]) == (3, 2)
    assert TypeAdapter(ZoneBody).validate_python(listed) == listed
    (state,) = await objects(world, "SELECT * FROM global_zone_partition_states WHERE partition_id = 0")
    assert state["PARTITION_STATE"] == "AVAILABLE"
    assert await objects(world, "SELECT * FROM operations") == []

    await set_mirror(world, node, MirrorRecord(MemberState.STARTING, reason="copying"))
    (state,) = await objects(
        world, f"SELECT * FROM local_zone_partition_states WHERE partition_id = 0 AND node_name = '{node}'"
    )
    assert state["PARTITION_STATE"] == "INSTALLING_SNAPSHOT"
    (operation,) = await objects(world, "SELECT * FROM operations")
    assert json.loads(operation["CAUSES"]) == [
        {"cause": f"LEARNER_STARTING: {node} (copying)", "partitions": 1}
    ]

    await set_mirror(world, node, MirrorRecord(MemberState.FAILED, reason="NODE_MEMBER_LIMIT: 1"))
    body = KeyspaceViews(world.mirror, world.keyspace).partition(P0)
    cause = f"LEARNER_FAILED: {node} (NODE_MEMBER_LIMIT: 1)"
    assert body["status"] == {"state": "WAITING", "cause": cause, "since": None}
    (reasons,) = [
        row["REASON"] for row in await objects(world, "EXPLAIN PARTITION wide.0") if row["NODE_NAME"] == node
    ]
    assert "its mirror is FAILED: NODE_MEMBER_LIMIT: 1" in reasons


async def test_a_member_and_a_mirror_of_one_node_are_both_told(world: World) -> None:
    node = await learner_of(world)
    views = KeyspaceViews(world.mirror, world.keyspace)
    (alone,) = [each for each in views.partition(P0)["members"] if each["node"] == node]
    mirror = {"state": "RUNNING", "client_url": f"http://{node}:3", "safe_revision": 12, "reason": ""}
    assert alone == {
        **{"node": node, "state": "RUNNING", "role": "LEARNER", "peer_url": "", "reason": "", "mirror": mirror},
        "client_url": f"http://{node}:3",
    }
    both = MemberRecord(
        MemberState.STARTING, "http://p", "http://c", mirror=MirrorRecord(MemberState.RUNNING, "m")
    )
    await world.put(world.keyspace.member(P0, node), both.encode())
    await world.settle()
    (told,) = [each for each in views.partition(P0)["members"] if each["node"] == node]
    assert (told["state"], told["role"], told["client_url"]) == ("STARTING", "LEARNER", "http://c")
    assert told["mirror"]["client_url"] == "m"
    for each in views.partition(P0)["members"]:
        assert TypeAdapter(Member).validate_python(each) == each


@pytest.mark.row("IEP-037")
async def test_a_learner_is_never_the_primary(world: World) -> None:
    """IEP-037: with every voter down a learner's copy is complete, and the partition has no leader."""
    stable = await world.assignments(world.keyspace.partition(P0).stable)
    assert stable is not None
    ideal = ", ".join((*stable.peers, *stable.learners))
    (row,) = await objects(world, "SELECT * FROM affinity WHERE partition_id = 0")
    assert (row["IDEAL"], row["EFFECTIVE"], row["IS_IDEAL"]) == (ideal, ideal, True)
    await world.set_nodes(*(node for node in NODES if node.name not in stable.peers))
    (row,) = await objects(world, "SELECT * FROM affinity WHERE partition_id = 0")
    assert (row["EFFECTIVE"], row["PREFERRED_PRIMARY"]) == ("", None)
    (state,) = await objects(world, "SELECT * FROM global_zone_partition_states WHERE partition_id = 0")
    assert state["PARTITION_STATE"] == "READ_ONLY"


@pytest.mark.row("IEP-031")
async def test_a_change_of_roles_counts_as_bytes(world: World) -> None:
    """IEP-031: QUORUM SIZE 3 makes both learners of each partition vote, and each vote is a new copy."""
    keys = world.keyspace.partition(P0)
    found = await world.metastore.get(keys.configuration)
    assert found is not None
    record = replace(ConfigurationRecord.decode(found.value), size_bytes=4096)
    await world.put(keys.configuration, record.encode())
    await world.settle()
    rows = await objects(world, "EXPLAIN ALTER ZONE wide SET (QUORUM SIZE 3)")
    promoted = [row for row in rows if row["SECTION"] == "ROLE"]
    assert {(row["BEFORE"], row["AFTER"]) for row in promoted} == {("LEARNER", "VOTER")}
    assert sum(row["REPLICAS"] for row in promoted) == 4
    assert sum(row["BYTES"] for row in promoted) == 2 * 4096
    assert [row["NOTE"] for row in rows if row["SECTION"] == "MOVE"] == []
