"""A server that judges, over real stores: what it finds, what it stores, and what it takes over from there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from app.alerts.alert_rows import STALE_S
from app.core.alerts import Alert, AlertRecord, AlertState
from app.metrics.exposition import Exposition
from app.metrics.gauges import PartitionGauges
from app.sql.engine.sql_engine import SqlEngine
from app.sql.statements.results import SessionContext
from app.sql.views.view_snapshot import ViewSources
from catalog.core.errors import ErrorKind, StoreError
from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.guarded_write import decode_trigger, encode_trigger
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import EngineRecord, MemberRecord, MemberState, ProcessRecord, ProcessRole
from rebalance.core.keyspace.txn import Delete, Txn, TxnResult
from rebalance.core.moves.drain import Drain
from rebalance.core.operations.operation import STUCK_MS, Movement, Operation, OperationKind, OperationState
from rebalance.hosting.background import Background
from rebalance.hosting.tls import loaded
from rebalance.metastore.registered_process import ProcessReport
from rebalance.ports.metastore import MetastoreUnavailableError, Newest
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.judging_server import Judged, judging, running
from tests.fixtures.scraped import value
from tests.fixtures.tls_files import tls_files
from tests.unit.sql_world import DEFAULT_NODES, World

ONE_DOWN = {"NodeDown": {"node": "n3"}, "PartitionDegraded": {"zone": "ORDERS"}}
PATIENCE_S = 60.0


class SilentMetastore(MemoryMetastore):
    """One that cannot be reached."""

    async def commit(self, txn: Txn) -> TxnResult:
        raise MetastoreUnavailableError("nobody answers")


class AheadMetastore(MemoryMetastore):
    """One that is at revision ``at``, by keys of ours."""

    at = 0

    async def commit(self, txn: Txn) -> TxnResult:
        return TxnResult(True, self.at, ())

    async def newest(self, prefix: str) -> Newest:
        return Newest(1, self.at)


@pytest.fixture
async def judged(tmp_path: Path) -> AsyncIterator[Judged]:
    async with judging(tmp_path) as made:
        yield made


async def until(condition: Awaitable[bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await condition


async def test_an_installation_that_is_well_has_no_alert(judged: Judged) -> None:
    assert await judged.firing() == {}
    assert judged.watch.alerts == []
    assert judged.watch.judged_ms > 0


async def test_two_nodes_that_are_gone_take_the_majority_along(judged: Judged) -> None:
    await judged.world.set_nodes(*DEFAULT_NODES[:2])
    assert (await judged.facts()).without_majority == {}
    assert await judged.firing() == ONE_DOWN
    await judged.world.set_nodes(*DEFAULT_NODES[:1])
    facts = await judged.facts()
    assert facts.without_majority == {"ORDERS": 4}
    assert facts.absent_nodes == {"n2": 4, "n3": 4}
    await judged.world.set_nodes(*DEFAULT_NODES)
    assert await judged.firing() == {}
    assert {alert.state for alert in judged.watch.alerts} == {AlertState.RESOLVED}


async def test_nothing_is_said_of_partitions_before_they_were_counted(judged: Judged) -> None:
    await judged.world.set_nodes(*DEFAULT_NODES[:1])
    await judged.world.put(judged.world.keyspace.engine_status, EngineRecord("down", "no Java").encode())
    await judged.world.settle()
    facts = await judged.reader.facts()
    assert (facts.without_majority, facts.absent_nodes, facts.full_disks) == (None, None, None)
    await judged.watch.look()
    assert {alert.name for alert in judged.watch.alerts} == {"SparkAway"}, "the others do not wait"
    assert (await judged.firing()).keys() == {"SparkAway", "NodeDown", "PartitionWithoutMajority"}
    assert (await judged.facts()).unserved == {"ORDERS": 4}


async def test_gauges_say_what_alerts_are_judged_by(judged: Judged) -> None:
    await judged.world.set_nodes(*DEFAULT_NODES[:1])
    facts, gauges = await judged.facts(), Exposition((ProcessRole.SERVER,))
    gauges.ask(PartitionGauges(judged.count, gauges).probe)
    assert facts.without_majority == {
        "ORDERS": value(gauges, "zonekeeper_zone_partitions_without_majority", zone="ORDERS")
    }
    down = [node.name for node in DEFAULT_NODES if value(gauges, "zonekeeper_node_up", node=node.name) == 0]
    assert down == sorted(facts.absent_nodes or ())


async def test_what_a_reset_has_left_short_is_counted_by_zone(judged: Judged) -> None:
    """Replicas count as missing until the partition is filled up; one that has failed counts as broken."""
    keys, partition = judged.world.keyspace, PartitionId(ZoneId(1), 2)
    names = keys.partition(partition)
    facts = await judged.facts()
    assert (facts.replicas_missing, facts.replicas_broken) == ({}, {})
    asked = await judged.world.assignments(names.stable)
    assert asked is not None
    trigger = await judged.world.metastore.get(names.trigger)
    assert trigger is not None
    await judged.world.put(names.trigger, encode_trigger(decode_trigger(trigger.value) + 1))
    await judged.world.put(names.stable, Assignments((asked.primary,)).encode())
    failed = MemberRecord(MemberState.FAILED, "http://p", "http://c", reason="EXIT 2: x")
    await judged.world.put(keys.member(PartitionId(ZoneId(1), 3), "n1"), failed.encode())
    facts, gauges = await judged.facts(), Exposition((ProcessRole.SERVER,))
    assert (facts.replicas_missing, facts.replicas_broken) == ({"ORDERS": 1}, {"ORDERS": 1})
    gauges.ask(PartitionGauges(judged.count, gauges).probe)
    for what in ("missing", "broken"):
        assert value(gauges, f"zonekeeper_zone_partitions_replicas_{what}", zone="ORDERS") == 1
        assert value(gauges, f"zonekeeper_partitions_replicas_{what}") == 1
    await judged.world.put(names.stable, asked.encode())
    assert (await judged.facts()).replicas_missing == {}


async def test_a_member_that_does_not_run_does_not_vote(judged: Judged) -> None:
    """Their nodes live all the same; one of two is out of space."""
    keys = judged.world.keyspace
    for node, reason in (("n1", "EXIT 1: x"), ("n2", "DISK_FULL: the member ended with code 1")):
        record = MemberRecord(MemberState.FAILED, "http://p", "http://c", reason=reason)
        await judged.world.put(keys.member(PartitionId(ZoneId(1), 2), node), record.encode())
    facts = await judged.facts()
    assert facts.without_majority == {"ORDERS": 1}
    assert facts.full_disks == {"n2": 1}
    assert facts.absent_nodes == {}


async def test_a_node_that_is_drained_is_not_missed(judged: Judged) -> None:
    await judged.world.put(judged.world.keyspace.drain("n3"), Drain("me", "", 1).encode())
    await judged.world.set_nodes(*DEFAULT_NODES[:2])
    assert (await judged.facts()).absent_nodes == {}


async def test_a_zone_that_is_dropped_is_no_longer_counted(judged: Judged) -> None:
    await judged.world.set_nodes()
    assert (await judged.facts()).without_majority == {"ORDERS": 4}
    for number in range(4):
        partition = judged.world.keyspace.partition(PartitionId(ZoneId(1), number))
        await removed(judged.world, partition.stable)
    assert (await judged.facts()).without_majority == {}


async def test_no_controller_and_no_spark(judged: Judged) -> None:
    keys = judged.world.keyspace
    await judged.world.put(keys.engine_status, EngineRecord("down", "no Java").encode())
    assert await judged.firing() == {"SparkAway": {}}
    await removed(judged.world, keys.controller_leader)
    assert await judged.firing() == {"NoController": {}}, "nobody knows of Spark then"


async def test_a_move_without_progress_for_ten_minutes_is_stuck_unless_it_is_held_or_over(
    judged: Judged,
) -> None:
    now_ms = time.time_ns() // 1_000_000
    long_ago = Movement(1, 0, now_ms - STUCK_MS - 5_000)
    moving = Operation(
        OperationKind.ALTER_ZONE,
        ZoneId(1),
        "ORDERS",
        12,
        2,
        now_ms,
        state=OperationState.RUNNING,
        movement=long_ago,
    )
    others = [
        replace(moving, event_revision=13, movement=replace(long_ago, held=True)),
        replace(moving, event_revision=14, movement=replace(long_ago, at_ms=now_ms)),
        replace(moving, event_revision=15, ended_ms=now_ms),
    ]
    for operation in (moving, *others):
        await judged.world.put(judged.world.keyspace.operation(operation.operation_id), operation.encode())
    (stuck,) = (await judged.facts()).stuck_moves.items()
    assert stuck[0] == "1-12"
    assert stuck[1] >= STUCK_MS / 1_000 + 5
    assert await judged.firing() == {"MoveStuck": {"operation": "1-12"}}
    still_s = value(judged.metrics, "zonekeeper_operation_still_seconds", operation="1-12")
    assert still_s is not None
    assert still_s >= STUCK_MS / 1_000 + 5
    done = replace(moving, movement=replace(long_ago, stages=2, at_ms=time.time_ns() // 1_000_000))
    await judged.world.put(judged.world.keyspace.operation(done.operation_id), done.encode())
    assert await judged.firing() == {}
    assert value(judged.metrics, "zonekeeper_operation_still_seconds", operation="1-12") is None


async def test_a_catalog_that_fails_is_told_in_a_line(judged: Judged) -> None:
    judged.catalog_error = StoreError(ErrorKind.CATALOG_UNAVAILABLE, "gone\nfor good")
    assert (await judged.facts()).catalog == "StoreError: CATALOG_UNAVAILABLE: gone"
    assert await judged.firing() == {"CatalogUnreachable": {}}


async def test_the_sender_stores_what_it_judged_and_a_restart_changes_no_begin(judged: Judged) -> None:
    keys = judged.world.keyspace
    await judged.world.set_nodes(*DEFAULT_NODES[:2])
    await judged.settle()
    async with running(judged.watch):
        await until(appears(judged.world, keys.alerts))
    stored = AlertRecord.decode(judged.world.mirror.value(keys.alerts) or b"")
    alert, degraded = stored.alerts
    assert (alert.name, alert.labels, alert.state) == ("NodeDown", (("node", "n3"),), AlertState.FIRING)
    assert degraded.name == "PartitionDegraded"
    assert judged.sent[-1] == (alert, degraded)
    restarted = judged.server("s2")
    await asyncio.sleep(0.01)
    await restarted.look()
    assert [(each.key, each.starts_ms) for each in restarted.alerts] == [
        (each.key, each.starts_ms) for each in (alert, degraded)
    ]
    assert restarted.alerts[0].fingerprint == alert.fingerprint


async def test_what_ended_is_kept_for_servers_that_start_later(judged: Judged) -> None:
    """Each end once, however often it is looked at; also after it is no longer among the alerts."""
    running = asyncio.create_task(judged.watch.run())
    try:
        for nodes in (DEFAULT_NODES[:2], DEFAULT_NODES, DEFAULT_NODES[:2], DEFAULT_NODES):
            await judged.world.set_nodes(*nodes)
            await until(_fires(judged, nodes != DEFAULT_NODES))
        await until(_ended(judged, 2))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    later = [alert for alert in judged.server("s2").ended if alert.name == "NodeDown"]
    assert [dict(alert.labels) for alert in later] == [{"node": "n3"}] * 2
    assert later[0].ends_ms > later[1].ends_ms > 0


async def _fires(judged: Judged, does: bool) -> bool:
    while (await judged.firing() != {}) != does:
        await asyncio.sleep(0.02)
    return True


async def _ended(judged: Judged, count: int) -> bool:
    while [alert.name for alert in judged.server("s3").ended].count("NodeDown") < count:
        await judged.firing()
        await asyncio.sleep(0.02)
    return True


async def test_only_the_holder_of_the_lease_sends(judged: Judged) -> None:
    keys = judged.world.keyspace
    async with running(judged.watch):
        await until(appears(judged.world, keys.alert_sender))
        while not judged.sent:
            await judged.watch.look()
        sent: list[tuple[Alert, ...]] = []
        await judged.server("s2", sent).look()
        assert sent == []


async def test_without_a_metastore_each_server_sends_and_nothing_that_it_said_changes(judged: Judged) -> None:
    await judged.world.set_nodes(*DEFAULT_NODES[:2])
    assert await judged.firing() == ONE_DOWN
    assert judged.sent == [], "nobody holds the lease"
    judged.reader = judged.reading(SilentMetastore())
    silent = judged.server("s2")
    await silent.look()
    (sent,) = judged.sent
    assert [(alert.name, alert.state) for alert in sent] == [("MetastoreUnreachable", AlertState.FIRING)]


async def test_a_mirror_ages_while_it_does_not_reach_what_the_metastore_has(judged: Judged) -> None:
    ahead, gauges = AheadMetastore(), Exposition((ProcessRole.SERVER,))
    reader = replace(judged.reader, metastore=ahead, measures=gauges)
    ahead.at = judged.world.mirror.revision
    assert (await reader.facts()).mirror_age_s < STALE_S
    assert value(gauges, "zonekeeper_mirror_lag_revisions") == 0
    ahead.at += 1
    async with asyncio.timeout(PATIENCE_S):
        while (await reader.facts(seen_s=0.01)).mirror_age_s < 0.5:
            await asyncio.sleep(0.01)
        assert value(gauges, "zonekeeper_mirror_lag_revisions") == 1
        await judged.world.put(f"{judged.world.keyspace.prefix}key", b"value")
        while (await reader.facts(seen_s=0.01)).mirror_age_s >= 0.5:
            await asyncio.sleep(0.01)
    assert value(gauges, "zonekeeper_mirror_lag_revisions") == 0
    assert value(gauges, "zonekeeper_catalog_up") == 1
    judged.catalog_error = StoreError(ErrorKind.CATALOG_UNAVAILABLE, "away")
    await reader.facts()
    assert value(gauges, "zonekeeper_catalog_up") == 0


async def test_a_certificate_is_known_by_what_its_process_has_loaded(judged: Judged, tmp_path: Path) -> None:
    """Whichever process that is: the file that was replaced counts once it is loaded, by itself."""
    world, day = judged.world, timedelta(days=1)
    tls = tls_files(tmp_path / "tls", trustme.CA(), ends=datetime.now(UTC) + day)
    others = Background(), None, 0, (loaded(tls),)
    report = ProcessReport(world.metastore, world.keyspace, "n1 store", ProcessRecord("node"), *others)
    async with running(report):
        await until(appears(world, world.keyspace.process("n1 store")))
        file, left_s = (await judged.facts()).certificates["n1 store"]
        assert file == str(tls.certificate)
        assert day.total_seconds() - 600 < left_s <= day.total_seconds()
        assert await judged.firing() == {"CertificateExpires": {"process": "n1 store"}}
        later = tls_files(tmp_path / "later", trustme.CA(), ends=datetime.now(UTC) + 90 * day)
        for name in ("ca", "certificate", "key"):
            getattr(later, name).replace(getattr(tls, name))
        async with asyncio.timeout(PATIENCE_S):
            while await judged.firing():
                await asyncio.sleep(0.1)


async def test_the_view_shows_what_the_server_judges(judged: Judged) -> None:
    await judged.world.set_nodes(*DEFAULT_NODES[:2])
    await judged.firing()
    world = judged.world
    engine = SqlEngine(
        world.catalog,
        ViewSources(world.mirror, world.keyspace, alerts=lambda: judged.watch.alerts),
        world.sandbox,
        PATIENCE_S,
    )
    query = (
        "SELECT alert_name, state, is_known, severity, labels, runbook, starts_at IS NULL FROM system.alerts"
    )
    try:
        row, degraded = (await engine.execute(query, SessionContext())).rows
    finally:
        engine.close()
    assert row[:4] == ("NodeDown", "firing", True, "ticket")
    assert row[5:] == ("docs/runbook/NodeDown.md", False)
    assert degraded[0] == "PartitionDegraded"


async def removed(world: World, key: str) -> None:
    await world.metastore.commit(Txn((), (Delete(key),)))


async def appears(world: World, key: str) -> bool:
    return await world.mirror.wait_until(lambda: world.mirror.value(key) is not None, PATIENCE_S)
