"""CALL of procedures: what is read and done, and each refusal's place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.sql.query.sandbox_pool import QueryLimits, SandboxPool
from app.sql.statements.results import SessionContext
from catalog.core.errors import ErrorKind, ParseError, StatementError
from catalog.core.zone import Node, ZoneId
from parser.queries import Call, Procedure, parse_statement
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.partition_maps.topology_version import DiscoveryEvent, TopologyVersion, Trigger, ZoneSpec
from rebalance.exchange.core.exchange_messages import PartitionOutcome
from rebalance.store.core.ring_records import RingRecord, encode_event
from tests.fixtures.ring_world import RingWorld
from tests.unit.sql_world import DEFAULT_NODES, World, opened


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    pool = SandboxPool(QueryLimits())
    yield pool
    asyncio.run(pool.close())


@pytest.fixture
async def world(tmp_path: Path, sandbox: SandboxPool) -> AsyncIterator[World]:
    """ORDERS: 2 partitions of 3 replicas, all running."""
    async with opened(tmp_path, sandbox) as made:
        await made.run("CREATE ZONE orders (PARTITIONS 2, REPLICAS 3)")
        await made.serve(1, 2)
        yield made


BULK = ZoneId(2)


async def open_store_zone(world: World, *lost: int) -> None:
    """BULK, 3 partitions kept by a store server, of which these are lost."""
    store = Node("s1", profiles=("bulk",), engines=(("bulk", "store"),))
    await world.set_nodes(*DEFAULT_NODES, store)
    await world.run("CREATE ZONE bulk (PARTITIONS 3) STORAGE PROFILES ['bulk']")
    ring = RingWorld(world.metastore, world.keyspace)
    opened = DiscoveryEvent(TopologyVersion(0, 1), Trigger.ZONE_START, zones=(ZoneSpec(BULK, 3, 1),))
    await world.put(world.keyspace.exchange_event(1), encode_event(RingRecord(1, opened)))
    outcome = PartitionOutcome(("s1",), effective=("s1",))
    away = PartitionOutcome(("s1",), is_lost=True)
    await ring.conclude({number: away if number in lost else outcome for number in range(3)}, BULK)
    await world.settle()


async def triggers(world: World) -> list[tuple[Trigger, tuple[ZoneId, ...]]]:
    records = await RingWorld(world.metastore, world.keyspace).records()
    return [(each.event.trigger, tuple(zone.zone_id for zone in each.event.zones)) for each in records[1:]]


async def test_zones_of_store_servers_rest_and_wake(world: World) -> None:
    """The servers carry it out later: there is none here that could."""
    await open_store_zone(world)
    rows = [
        (await world.engine.execute(f"CALL system.{name}('bulk')", SessionContext())).rows[0]
        for name in ("activate_zone", "deactivate_zone", "deactivate_zone", "activate_zone")
    ]
    goes_on = "its exchange goes on: see SYSTEM.EXCHANGES"
    assert rows == [
        ("BULK", "ACTIVE", False, None, "the zone is ACTIVE already; nothing was changed"),
        ("BULK", "DEACTIVATED", True, "0.2", goes_on),
        ("BULK", "DEACTIVATED", False, None, "the zone is DEACTIVATED already; nothing was changed"),
        ("BULK", "ACTIVE", True, "0.3", goes_on),
    ]
    assert await triggers(world) == [(Trigger.DEACTIVATE, (BULK,)), (Trigger.ACTIVATE, (BULK,))]
    states = "SELECT zone_name, zone_state FROM zones ORDER BY zone_name"
    assert (await world.run(states)).rows == [("BULK", "ACTIVE"), ("ORDERS", "ACTIVE")]
    await world.run("CALL system.deactivate_zone('bulk')")
    assert (await world.run(states)).rows == [("BULK", "DEACTIVATED"), ("ORDERS", "ACTIVE")]
    audited = await world.engine.execute("SELECT action FROM audit ORDER BY audit_number", SessionContext())
    assert [row[0] for row in audited.rows][-3:] == ["DEACTIVATE ZONE", "ACTIVATE ZONE", "DEACTIVATE ZONE"]


async def test_lost_partitions_are_reset(world: World) -> None:
    await open_store_zone(world, 0, 2)
    done = await world.engine.execute("CALL system.reset_lost_partitions('bulk')", SessionContext())
    assert [column.name for column in done.columns] == ["PARTITION_ID", "OUTCOME", "OWNERS", "DETAIL"]
    assert [row[:3] for row in done.rows] == [(0, "REQUESTED", None), (2, "REQUESTED", None)]
    assert await triggers(world) == [(Trigger.LOSS_RESET, (BULK,))]


@pytest.mark.parametrize(
    ("sql", "kind", "message"),
    [
        (
            "CALL system.deactivate_zone('orders')",
            ErrorKind.ENGINE_UNSUPPORTED,
            "zone ORDERS is kept by the engine etcd, or by none yet; accepted: a zone of the engine store",
        ),
        (
            "CALL system.reset_lost_partitions('orders')",
            ErrorKind.ENGINE_UNSUPPORTED,
            "zone ORDERS is kept by the engine etcd, or by none yet; accepted: a zone of the engine store",
        ),
        (
            "CALL system.reset_partitions('bulk')",
            ErrorKind.ENGINE_UNSUPPORTED,
            "the engine store of zone BULK has no groups; accepted: system.reset_lost_partitions, where "
            "partitions are lost",
        ),
        (
            "CALL system.reset_lost_partitions('bulk')",
            ErrorKind.RECOVERY_NOT_NEEDED,
            "no partition of zone BULK is lost; 3 wait for servers that are away: s1. Start these; if they are "
            "known to be dead, confirm all that a partition waits for",
        ),
        ("CALL system.activate_zone('ghost')", ErrorKind.ZONE_NOT_FOUND, "zone ghost does not exist"),
    ],
)
async def test_refusals_by_engine(world: World, sql: str, kind: ErrorKind, message: str) -> None:
    """A call that is refused writes nothing."""
    await open_store_zone(world)
    before = await world.dump()
    error = await refused(world, sql)
    assert (error.kind, error.message) == (kind, message)
    assert error.line == 1
    assert await world.dump() == before


async def test_a_zone_that_the_store_servers_have_not_opened_yet(world: World) -> None:
    store = Node("s1", profiles=("bulk",), engines=(("bulk", "store"),))
    await world.set_nodes(*DEFAULT_NODES, store)
    await world.run("CREATE ZONE bulk (PARTITIONS 3) STORAGE PROFILES ['bulk']")
    error = await refused(world, "CALL system.deactivate_zone('bulk')")
    assert error.kind is ErrorKind.CLUSTER_NOT_IDLE


def read(text: str) -> tuple[Procedure, str, list[int], list[str]]:
    call = parse_statement(text).statement
    assert isinstance(call, Call)
    numbers, nodes = [each.value for each in call.partitions], [each.value for each in call.nodes]
    return call.procedure, call.zone.value, numbers, nodes


def test_what_is_read() -> None:
    reset, restart = Procedure.RESET_PARTITIONS, Procedure.RESTART_PARTITIONS
    assert read("CALL system.reset_partitions('orders', ARRAY[0, 17])") == (reset, "orders", [0, 17], [])
    assert read("call Reset_Partitions ( 'Orders' ) -- all") == (reset, "Orders", [], [])
    text = "CALL system.restart_partitions('z', ARRAY[], ARRAY['n1', 'N-2'])"
    assert read(text) == (restart, "z", [], ["n1", "N-2"])
    for procedure in Procedure:
        assert read(f"CALL {procedure.value.lower()}('z')") == (procedure, "z", [], [])


@pytest.mark.parametrize(
    ("text", "kind", "column", "message"),
    [
        ("CALL", ErrorKind.SYNTAX_ERROR, 5, "expected system.reset_partitions or"),
        ("CALL system.drop_all('z')", ErrorKind.STATEMENT_NOT_SUPPORTED, 6, "unknown procedure"),
        ("CALL system.reset_partitions 'z'", ErrorKind.SYNTAX_ERROR, 30, "expected (, found 'z'"),
        ("CALL reset_partitions(z)", ErrorKind.SYNTAX_ERROR, 23, "expected a zone's name in single quotes"),
        ("CALL reset_partitions('z', 0)", ErrorKind.SYNTAX_ERROR, 28, "expected ARRAY[...], found 0"),
        ("CALL reset_partitions('z', ARRAY[-1])", ErrorKind.SYNTAX_ERROR, 34, "a partition's number"),
        ("CALL reset_partitions('z', ARRAY[1.5])", ErrorKind.SYNTAX_ERROR, 34, "it has digits only"),
        ("CALL reset_partitions('z', ARRAY[1)", ErrorKind.SYNTAX_ERROR, 35, "expected ], found )"),
        ("CALL reset_partitions('z', ARRAY[1], 'n')", ErrorKind.SYNTAX_ERROR, 38, "expected ARRAY[...]"),
        (
            "CALL restart_partitions('z', ARRAY[1], ARRAY['n'], 'n')",
            ErrorKind.SYNTAX_ERROR,
            50,
            "expected ), found ,",
        ),
        ("CALL activate_zone('z', ARRAY[1])", ErrorKind.SYNTAX_ERROR, 23, "expected ), found ,"),
        ("CALL reset_lost_partitions()", ErrorKind.SYNTAX_ERROR, 28, "a zone's name in single quotes"),
        ("CALL reset_partitions('z') x", ErrorKind.SYNTAX_ERROR, 28, "the end of the statement, found x"),
    ],
)
def test_what_is_not_read(text: str, kind: ErrorKind, column: int, message: str) -> None:
    """The place is that of the word that does not fit."""
    with pytest.raises(ParseError) as error:
        parse_statement(text)
    assert error.value.kind is kind
    assert (error.value.line, error.value.column) == (1, column)
    assert message in error.value.message


async def refused(world: World, sql: str) -> StatementError:
    with pytest.raises(StatementError) as caught:
        await world.engine.execute(sql, SessionContext())
    return caught.value


@pytest.mark.row("IEP-059", "R1")
async def test_a_reset(world: World) -> None:
    """IEP-059, S211, R1: pending is forced, a row for each partition says on whom. The voters that are dead are
    named, and the copy may be."""
    await world.serve(1, 2, down=("n2", "n3"))
    await world.set_nodes(DEFAULT_NODES[0])
    lacking = await refused(world, "CALL system.reset_partitions('orders', ARRAY[1], ARRAY['n2'])")
    assert lacking.kind is ErrorKind.LOSS_NOT_CONFIRMED
    assert (lacking.line, lacking.column) == (1, 56)
    assert lacking.message.endswith("confirm exactly n2, n3")
    unknown = "CALL system.reset_partitions('orders', ARRAY[1], ARRAY['n2', 'n3'], 'n2')"
    assert (await refused(world, unknown)).kind is ErrorKind.NODE_SET_ILLEGAL
    sql = "CALL system.reset_partitions('orders', ARRAY[1], ARRAY['n2', 'n3'])"
    done = await world.engine.execute(sql, SessionContext())
    names = [column.name for column in done.columns]
    row = dict(zip(names, done.rows[0], strict=True))
    assert (row["PARTITION_ID"], row["OUTCOME"], row["SURVIVOR"], row["PLANNED"]) == (1, "RESET", "n1", None)
    assert row["POSSIBLY_LOST_ENTRIES"] == 2
    pending = await world.assignments(world.keyspace.partition(PartitionId(ZoneId(1), 1)).pending)
    assert pending == Assignments(("n1",))
    assert pending.forced
    assert await world.assignments(world.keyspace.partition(PartitionId(ZoneId(1), 0)).pending) is None


async def test_a_restart(world: World) -> None:
    """The call may stand in a script, between other statements."""
    sql = "SHOW ZONES; CALL system.restart_partitions('ORDERS', ARRAY[0], ARRAY['n2'])"
    (_, done) = await world.engine.run_script(sql)
    assert done.to_json()["data"] == [[0, "n2"]]
    asked = world.keyspace.restart(PartitionId(ZoneId(1), 0), "n2")
    assert await world.metastore.get(asked) is not None


@pytest.mark.parametrize(
    ("sql", "kind", "place"),
    [
        ("CALL system.reset_partitions('ghost')", ErrorKind.ZONE_NOT_FOUND, (1, 30)),
        ("CALL system.reset_partitions('orders')", ErrorKind.RECOVERY_NOT_NEEDED, (1, 6)),
        ("CALL system.reset_partitions('orders', ARRAY[0])", ErrorKind.RECOVERY_NOT_NEEDED, (1, 6)),
        ("CALL system.reset_partitions('orders', ARRAY[0,\n 7])", ErrorKind.PARTITION_NOT_FOUND, (2, 2)),
        ("CALL restart_partitions('orders', ARRAY[0], ARRAY['x'])", ErrorKind.NODE_NOT_FOUND, (1, 51)),
    ],
)
async def test_refusals(world: World, sql: str, kind: ErrorKind, place: tuple[int, int]) -> None:
    """S211: a code, a SQLSTATE, and the place of the argument that is to blame; nothing is written."""
    before = await world.dump()
    error = await refused(world, sql)
    assert error.kind is kind
    assert len(error.kind.sqlstate) == 5
    assert (error.line, error.column) == place
    assert await world.dump() == before


async def test_not_in_a_transaction(world: World) -> None:
    session = SessionContext(in_transaction=True)
    with pytest.raises(StatementError) as caught:
        await world.engine.execute("CALL system.reset_partitions('orders')", session)
    assert caught.value.kind is ErrorKind.TRANSACTION_NOT_SUPPORTED
