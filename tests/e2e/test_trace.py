"""The order in which the keys of one partition change during a move, as any watcher of etcd sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import ConfigurationRecord, MemberRecord, MemberState, Stage
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.ports.metastore import KeyEvent, WatchReset
from tests.e2e.installation import Installation, wait_for
from tests.fixtures.installation_dumps import endpoint

pytestmark = pytest.mark.timeout(600)
KEYS = Keyspace()
Steps = list[tuple[str, int]]


async def record(installation: Installation, events: list[KeyEvent], watching: asyncio.Event) -> None:
    metastore = EtcdMetastore([endpoint(installation)], tls=installation.tls)
    try:
        async for change in metastore.watch(KEYS.prefix):
            if isinstance(change, WatchReset):
                watching.set()
            else:
                events.extend(change.events)
    finally:
        await metastore.close()


async def steps_of(
    installation: Installation, statement: str, partition: PartitionId, has_all: Callable[[Steps], bool]
) -> Steps:
    """The steps of ``partition`` while ``statement`` is executed and converges, and until it ``has_all``:
    nodes report on their own account, and so perhaps later."""
    events: list[KeyEvent] = []
    watching = asyncio.Event()
    recording = asyncio.create_task(record(installation, events, watching))
    try:
        async with asyncio.timeout(240):
            await watching.wait()
            await asyncio.to_thread(installation.execute, statement)
            while not has_all(list(steps(events, partition))):
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
                yield f"member gone {parsed[1]}", event.mod_revision
            elif parsed[0] == partition and value is not None:
                state = MemberRecord.decode(value).state
                if state is not MemberState.STARTING:
                    yield f"member {state.value} {parsed[1]}", event.mod_revision


def first(trace: Steps, step: str) -> int:
    return next(index for index, (name, _) in enumerate(trace) if name.startswith(step))


def told(trace: Steps, step: str) -> set[str]:
    """The nodes that ``step`` came from: one may write its record again, with another reason."""
    return {name.rpartition(" ")[2] for name, _ in trace if name.startswith(step)}


def phases(installation: Installation, partition: PartitionId) -> dict[str, str]:
    shown = installation.get(f"/api/v1/zones/traced/partitions/{partition.partition}")["phases"]
    return {each["phase"]: each["state"] for each in shown}


@pytest.mark.row("I3-001", "I3-036", "I3-045", "I3A-028")
async def test_the_steps_of_a_move_come_in_order(installation: Installation) -> None:
    """I3-001, I3-036, I3-045, I3A-028: catalog change, pending, new members, change of peers, one transaction
    for stable and pending, clean-up."""
    await asyncio.to_thread(installation.execute, "CREATE ZONE traced (PARTITIONS 1, REPLICAS 1)")
    zone_id = ZoneId(installation.get("/api/v1/zones/traced")["zone_id"])
    partition = PartitionId(zone_id, 0)

    old = set(installation.partitions("traced")[0]["stable"]["peers"])

    def joined(trace: Steps) -> bool:
        return len(told(trace, "member RUNNING") - old) == 2

    steps_up = await steps_of(installation, "ALTER ZONE traced SET (REPLICAS 3)", partition, joined)
    grown = [(name, revision) for name, revision in steps_up if name.rpartition(" ")[2] not in old]
    assert first(grown, "intent 3") < first(grown, "pending 3") < first(grown, "member READY")
    assert first(grown, "member READY") < first(grown, "stage CATCHING_UP") < first(grown, "member RUNNING")
    assert first(grown, "member RUNNING") < first(grown, "stable 3")
    assert dict(grown)["stable 3"] == dict(grown)["pending removed"], "one transaction"

    def left(trace: Steps) -> bool:
        return len(told(trace, "member gone")) == 2

    shrunk = await steps_of(installation, "ALTER ZONE traced SET (REPLICAS 1)", partition, left)
    assert first(shrunk, "intent 1") < first(shrunk, "pending 1") < first(shrunk, "stage JOINT")
    assert first(shrunk, "stage JOINT") < first(shrunk, "stable 1")
    assert first(shrunk, "stable 1") < first(shrunk, "member gone")
    done = {
        "WRITE_INTENTION": "DONE",
        "MOVE_GROUP": "NOT_BEGUN",
        "SWITCH_STABLE": "DONE",
        "CLEAN_UP": "DONE",
    }
    await asyncio.to_thread(wait_for, "the clean-up", lambda: phases(installation, partition) == done)
    shown = installation.get("/api/v1/zones/traced/partitions/0")
    phase = {each["phase"]: each for each in shown["phases"]}
    (kept,) = shown["stable"]["peers"]
    assert phase["WRITE_INTENTION"]["trigger"] == f"an event of revision {shown['trigger_revision']}"
    assert phase["WRITE_INTENTION"]["steps"][:2] == [f"target: {kept}", f"stable: {kept}"]
    assert phase["SWITCH_STABLE"]["result"] == "stable is what the group is"
    assert phase["CLEAN_UP"]["result"] == "1 members run, none is redundant"
    assert all(each["trigger"] and each["result"] for each in shown["phases"])
    assert dict(shrunk)["stable 1"] == dict(shrunk)["pending removed"], "one transaction"
    await asyncio.to_thread(installation.execute, "DROP ZONE traced")
