"""Answers that are read from the mirror say as of when they are so while the metastore is silent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.views.mirror_freshness import MetastoreSilence, MirrorFreshness, ServingAnswer
from catalog.core.zone import ZoneId
from rebalance.core.admission.move_admission import utc
from rebalance.core.keyspace.keys import PartitionId
from tests.unit.operations_world import OperationsWorld, operations_world

SINCE_MS, HEARD_MS = 1_700_000_000_000, 1_600_000_000_000
ANSWERS = (
    "/zones",
    "/zones/orders",
    "/zones/orders/partitions",
    "/zones/orders/partitions/0",
    "/zones/orders/recovery/states",
    "/progress/1",
    "/nodes",
    "/nodes/n1/can-stop",
    "/operations",
    "/operations/{operation}",
)


class Told:
    """Silence of a server's metastore, as far as the server knows."""

    silence: MetastoreSilence | None = None

    async def ask(self) -> MetastoreSilence | None:
        return self.silence


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def api(tmp_path: Path, told: Told) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path, MirrorFreshness(lambda _: HEARD_MS, told.ask)) as made:
        await made.run("CREATE ZONE orders (PARTITIONS 3, REPLICAS 3)")
        await made.end_moves()
        await made.look()
        yield made


async def test_answers_say_as_of_when_they_are(api: OperationsWorld, told: Told) -> None:
    (operation,) = (await api.get("/operations"))["operations"]
    for silence, since in ((None, None), (MetastoreSilence(SINCE_MS), utc(SINCE_MS))):
        told.silence = silence
        for path in ANSWERS:
            answer = await api.get(path.format(operation=operation["operation_id"]))
            assert answer["metastore_silent_since"] == since, path


async def test_nobody_can_tell_then_whether_a_node_can_stop(api: OperationsWorld, told: Told) -> None:
    assert (await api.get("/nodes/n1/can-stop"))["can_stop"]
    told.silence = MetastoreSilence(SINCE_MS)
    assert not (await api.get("/nodes/n1/can-stop"))["can_stop"]


async def test_partitions_say_since_when_they_are_so(api: OperationsWorld) -> None:
    shown = (await api.get("/zones/orders/partitions"))["partitions"]
    assert [each["status"]["since"] for each in shown] == [utc(HEARD_MS)] * 3
    one = await api.get("/zones/orders/partitions/1")
    assert one["status"]["since"] == utc(HEARD_MS)


async def test_who_was_asked_says_whether_it_serves(api: OperationsWorld, told: Told) -> None:
    zone = ZoneId(1)
    answers = {
        PartitionId(zone, 0): ServingAnswer(serves=True, since_ms=SINCE_MS + 1_000),
        PartitionId(zone, 1): ServingAnswer(serves=False, since_ms=SINCE_MS + 2_000),
    }
    told.silence = MetastoreSilence(SINCE_MS, answers)
    shown = (await api.get("/zones/orders/recovery/states"))["partitions"]
    assert [(each["state"], each["since"]) for each in shown] == [
        ("SERVING", utc(SINCE_MS + 1_000)),
        ("NOT_SERVING", utc(SINCE_MS + 2_000)),
        ("UNKNOWN", utc(SINCE_MS)),
    ]
    assert {replica["state"] for each in shown for replica in each["replicas"]} == {"UNKNOWN"}
