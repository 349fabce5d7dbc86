"""However large the installation, a scrape stays small, and is not what counts partitions."""

from __future__ import annotations

import asyncio

from app.counts.partition_count import PartitionCount
from app.metrics.exposition import Exposition
from app.metrics.gauges import PartitionGauges
from app.metrics.outcomes import AnswerOutcome
from app.security.policy import ROUTES
from app.security.statement_policy import COMMANDS
from catalog.core.errors import ErrorKind
from catalog.core.zone import Zone, ZoneId, ZoneIntent
from rebalance.controllers.ring_mirror import RingReader
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import ProcessRole
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metric_rows import Metric
from simulator.control.memory_metastore import MemoryMetastore
from tests.fixtures.scraped import samples, text, value

ZONES = 10_000
PARTITIONS = 65_000
SERIES_MAX = 5_000
BYTES_MAX = 1_000_000
PUTS = 100
KINDS = [*(command.__name__ for command in COMMANDS), "SELECT", "SHOW", "DESCRIBE", "EXPLAIN", "CALL", "SCRIPT"]


def busy(exposition: Exposition) -> None:
    """Every route was asked, every kind of statement has ended in every way, and many errors were seen."""
    errors = list(ErrorKind)
    for method, route in ROUTES:
        for status in ("200", "400", "403", "503"):
            exposition.count(Metric.HTTP_REQUESTS, route, method, status)
    for area in ("api", "console", "sql", "health"):
        exposition.observe(Metric.HTTP_REQUEST_SECONDS, 0.1, area)
    for kind in KINDS:
        for outcome in AnswerOutcome:
            exposition.observe(Metric.STATEMENT_SECONDS, 0.1, kind, outcome.value)
        for error in errors:
            exposition.count(Metric.STATEMENTS, kind, AnswerOutcome.REFUSED.value, error.name)
    for error in errors:
        exposition.count(Metric.PUTS, AnswerOutcome.REFUSED.value, error.name)
        exposition.count(Metric.REFUSALS, error.name)


async def test_ten_thousand_zones_are_few_series() -> None:
    store, keyspace = MemoryMetastore(), Keyspace()
    mirror = KeyspaceMirror(store, keyspace.prefix)
    watching = asyncio.create_task(mirror.run())
    extra = PARTITIONS - ZONES * (PARTITIONS // ZONES)
    puts = []
    for number in range(ZONES):
        partitions = PARTITIONS // ZONES + (extra if number == 0 else 0)
        zone = Zone(ZoneId(number + 1), f"ZONE_{number:05d}", partitions, 3, 2, ("default",))
        puts.append(Put(keyspace.intent(zone.zone_id), ZoneIntent(1, zone).encode()))
    for start in range(0, len(puts), PUTS):
        await store.commit(Txn((), tuple(puts[start : start + PUTS])))
    exposition = Exposition((ProcessRole.SERVER, ProcessRole.CONTROLLER), "1.2.3")
    busy(exposition)
    count = PartitionCount(mirror, keyspace, RingReader(mirror, keyspace))
    exposition.ask(PartitionGauges(count, exposition).probe)
    counting = asyncio.create_task(count.run())
    try:
        async with asyncio.timeout(120):
            while value(exposition, "zonekeeper_zones") != ZONES:
                await asyncio.sleep(0.5)
        assert value(exposition, "zonekeeper_partitions", state="WAITING") == PARTITIONS
        written = text(exposition)
        assert len(samples(exposition)) <= SERIES_MAX
        assert len(written) <= BYTES_MAX
        assert b'zone="_other"' in written
    finally:
        counting.cancel()
        watching.cancel()
        await asyncio.gather(counting, watching, return_exceptions=True)
