"""The order in which the keys of one partition change during a move, as any watcher of etcd sees it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.core.assignments import Assignments
from rebalance.core.keys import Keyspace, PartitionId
from rebalance.core.records import ConfigurationRecord, MemberRecord, MemberState, Stage
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.ports.metastore import KeyEvent, WatchReset
from tests.e2e.installation import Installation, wait_for

pytestmark = pytest.mark.timeout(300)
KEYS = Keyspace()


async def record(endpoint: str, events: list[KeyEvent], watching: asyncio.Event) -> None:
    metastore = EtcdMetastore([endpoint])
    try:
        async for change in metastore.watch(KEYS.prefix):
            if isinstance(change, WatchReset):
                watching.set()
            else:
                events.extend(change.events)
    finally:
        await metastore.close()


async def steps_of(
    installation: Installation, statement: str, partition: PartitionId, reports: str, count: int
) -> list[tuple[str, int]]:
    """The steps of ``partition`` while ``statement`` is executed and converges, and until ``reports``, which a
    node writes on its own account and so perhaps later, has come ``count`` times."""
    state = json.loads((installation.directory / "state.json").read_text())
    events: list[KeyEvent] = []
    watching = asyncio.Event()
    recording = asyncio.create_task(record(f"127.0.0.1:{state['etcd_client']}", events, watching))
    try:
        async with asyncio.timeout(60):
            await watching.wait()
            await asyncio.to_thread(installation.execute, statement)
            while [name for name, _ in steps(events, partition)].count(reports) < count:
                await asyncio.sleep(0.1)
    finally:
        recording.cancel()
        await asyncio.gather(recording, return_exceptions=True)
    return list(steps(events, partition))


def steps(events: list[KeyEvent], partition: PartitionId) -> Iterator[tuple[str, int]]:
    """The events of one partition in the words of the algorithm, each with its revision."""
    keys = KEYS.partition(partition)
    for event in events:
        value = event.current.value if event.current is not None else None
        if event.key == KEYS.intent(partition.zone_id) and value is not None:
            yield f"intent {ZoneIntent.decode(value).zone.replicas}", event.mod_revision
        elif event.key in (keys.stable, keys.pending):
            name = event.key.rpartition("/")[2]
            shown = len(Assignments.decode(value).peers) if value is not None else "removed"
            yield f"{name} {shown}", event.mod_revision
        elif event.key == keys.configuration and value is not None:
            found = ConfigurationRecord.decode(value)
            if found.stage is not Stage.NONE:
                yield f"stage {found.stage.value}", event.mod_revision
        elif parsed := KEYS.parse_member(event.key):
            if parsed[0] == partition and value is None:
                yield "member gone", event.mod_revision
            elif parsed[0] == partition and value is not None:
                state = MemberRecord.decode(value).state
                if state is not MemberState.STARTING:
                    yield f"member {state.value}", event.mod_revision


def first(trace: list[tuple[str, int]], step: str) -> int:
    return next(index for index, (name, _) in enumerate(trace) if name == step)


def phases(installation: Installation, partition: PartitionId) -> dict[str, str]:
    shown = installation.get(f"/api/v1/zones/traced/partitions/{partition.partition}")["phases"]
    return {each["phase"]: each["state"] for each in shown}


async def test_the_steps_of_a_move_come_in_order(installation: Installation) -> None:
    """I3-001, I3-036, I3-045, I3A-028: catalog change, pending, new members, change of peers, one transaction
    for stable and pending, clean-up."""
    await asyncio.to_thread(installation.execute, "CREATE ZONE traced (PARTITIONS 1, REPLICAS 1)")
    zone_id = ZoneId(installation.get("/api/v1/zones/traced")["zone_id"])
    partition = PartitionId(zone_id, 0)

    grown = await steps_of(installation, "ALTER ZONE traced SET (REPLICAS 3)", partition, "member RUNNING", 2)
    assert first(grown, "intent 3") < first(grown, "pending 3") < first(grown, "member READY")
    assert first(grown, "member READY") < first(grown, "stage CATCHING_UP") < first(grown, "member RUNNING")
    assert first(grown, "stage CATCHING_UP") < first(grown, "stage JOINT") < first(grown, "stable 3")
    assert [name for name, _ in grown].count("member RUNNING") == 2
    assert dict(grown)["stable 3"] == dict(grown)["pending removed"], "one transaction"

    shrunk = await steps_of(installation, "ALTER ZONE traced SET (REPLICAS 1)", partition, "member gone", 2)
    assert first(shrunk, "intent 1") < first(shrunk, "pending 1") < first(shrunk, "stable 1")
    assert first(shrunk, "stable 1") < first(shrunk, "member gone")
    assert [name for name, _ in shrunk].count("member gone") == 2
    done = {
        "WRITE_INTENTION": "DONE",
        "MOVE_GROUP": "NOT_BEGUN",
        "SWITCH_STABLE": "DONE",
        "CLEAN_UP": "DONE",
    }
    await asyncio.to_thread(wait_for, "the clean-up", lambda: phases(installation, partition) == done, 30)
    assert dict(shrunk)["stable 1"] == dict(shrunk)["pending removed"], "one transaction"
    await asyncio.to_thread(installation.execute, "DROP ZONE traced")
