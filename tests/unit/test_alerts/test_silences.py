"""Silences: which alerts they hold back, who hears of an end, when they end, and what the API takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from app.alerts.silences import check_silenced
from app.core.alerts import FOR_S_MAX, SILENCES_MAX, Alert, AlertState, Silence, is_told, silence_of
from app.process.logs import utc_now_ms
from catalog.core.codec import RecordNotReadableError
from catalog.core.errors import ErrorKind, RefusedError
from tests.fixtures.alert_faults import DOWN, LOST, OVER, STUCK
from tests.fixtures.judging_server import Judged, judging, running
from tests.unit.operations_world import OperationsWorld, operations_world
from tests.unit.sql_world import DEFAULT_NODES

OF_NODE = Silence("NodeDown", (("node", "n3"),), 10, 20, "alice", "new disks")
OF_ZONE = Silence("", (("zone", "ORDERS"),), 10, 30, "bob", "load test")
HOUR_MS = 3_600_000
PATIENCE_S = 60.0


@pytest.mark.parametrize(
    ("silence", "covered"),
    [
        (OF_NODE, [DOWN]),
        (OF_ZONE, [LOST]),
        (replace(OF_NODE, labels=()), [DOWN]),
        (replace(OF_NODE, labels=(("node", "n4"),)), []),
        (replace(OF_NODE, name="NoController"), []),
        (replace(OF_NODE, labels=(("node", "n3"), ("zone", "ORDERS"))), []),
        (replace(OF_NODE, name="RelayLag", labels=()), [OVER]),
    ],
)
def test_a_silence_covers_alerts_of_its_name_with_all_of_its_labels(
    silence: Silence, covered: list[Alert]
) -> None:
    assert [alert for alert in (LOST, STUCK, DOWN, OVER) if silence.covers(alert)] == covered


def test_an_alert_is_silenced_as_long_as_the_longest_silence_of_it() -> None:
    longer = replace(OF_NODE, labels=(), until_ms=40)
    assert silence_of(DOWN, [OF_NODE, longer, OF_ZONE]) is longer
    assert silence_of(LOST, [OF_NODE, longer]) is None
    assert silence_of(OVER, [replace(OF_NODE, name="RelayLag", labels=())]) is None, "it is over"


@pytest.mark.parametrize(
    ("starts_ms", "ends_ms", "told"),
    [(5, 0, False), (15, 0, False), (5, 15, True), (15, 16, False)],
    ids=["fires since before", "begins in it", "ends, and was told before", "begins and ends in it"],
)
def test_receivers_hear_the_end_of_what_they_know(starts_ms: int, ends_ms: int, told: bool) -> None:
    state = AlertState.RESOLVED if ends_ms else AlertState.FIRING
    alert = Alert("NodeDown", (("node", "n3"),), state, 1, "gone", starts_ms, ends_ms)
    assert is_told(alert, [OF_NODE]) is told
    assert is_told(alert, [OF_ZONE])
    assert is_told(alert, [])


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        (None, {}, "name an alert, a label, or both"),
        ("NodeGone", {}, "there is no alert NodeGone; there is CatalogUnreachable,"),
        ("NodeDown", {"zone": "ORDERS"}, "NodeDown has the label node, not zone"),
        ("NoController", {"node": "n1"}, "NoController has no label, not node"),
        (None, {"disk": "sda"}, "alerts have the labels node, operation, process, zone, not disk"),
        ("NoServer", {}, "there is no alert NoServer"),
    ],
)
def test_what_no_alert_has_is_not_silenced(name: str | None, labels: dict[str, str], message: str) -> None:
    """Prometheus's own alerts neither."""
    with pytest.raises(RefusedError, match=message):
        check_silenced(name, labels)


@pytest.fixture
async def judged(tmp_path: Path) -> AsyncIterator[Judged]:
    async with judging(tmp_path) as made:
        yield made


def lasting(silence: Silence, for_ms: int = HOUR_MS) -> Silence:
    """The silence for the given milliseconds from now on."""
    now_ms = utc_now_ms()
    return replace(silence, since_ms=now_ms, until_ms=now_ms + for_ms)


async def sends(judged: Judged, names: dict[str, AlertState]) -> None:
    """Wait until exactly these alerts, in these states, have been sent; fails after PATIENCE_S."""
    async with asyncio.timeout(PATIENCE_S):
        while not judged.sent or {alert.name: alert.state for alert in judged.sent[-1]} != names:
            judged.sent.clear()
            await judged.settle()
            await judged.watch.look()
            await asyncio.sleep(0.02)


async def test_what_is_silenced_is_not_sent_but_its_end_is_where_receivers_know_it(judged: Judged) -> None:
    """The state is what it is without a silence, on every server, also on one that has just started."""
    degraded, down = "PartitionDegraded", "NodeDown"
    fires, over = AlertState.FIRING, AlertState.RESOLVED
    async with running(judged.watch):
        await judged.world.set_nodes(*DEFAULT_NODES[:2])
        await sends(judged, {degraded: fires, down: fires})
        silence = await judged.watch.silences.begin(lasting(OF_NODE))
        await sends(judged, {degraded: fires})
        assert (await judged.firing()).keys() == {degraded, down}
        assert judged.server("s2").silences.now() == (silence,)
        await judged.world.set_nodes(*DEFAULT_NODES)
        await sends(judged, {degraded: over, down: over})
        await judged.world.set_nodes(*DEFAULT_NODES[:2])
        await sends(judged, {degraded: fires})
        await judged.world.set_nodes(*DEFAULT_NODES)
        await sends(judged, {degraded: over})
        await judged.world.set_nodes(*DEFAULT_NODES[:2])
        await sends(judged, {degraded: fires})
        assert await judged.server("s2").silences.end(silence.silence_id, lambda _: True) == silence
        await sends(judged, {degraded: fires, down: fires})


async def test_a_silence_ends_by_itself_though_its_key_stays(judged: Judged) -> None:
    """The key stays where the lease outlives the silence, because the metastore had another leader."""
    short, world = lasting(OF_NODE, 3_000), judged.world
    await world.put(world.keyspace.silence(short.silence_id), short.encode())
    await judged.settle()
    silences = judged.watch.silences
    assert silences.now() == (short,)
    async with asyncio.timeout(PATIENCE_S):
        while silences.now():
            await asyncio.sleep(0.05)
    assert utc_now_ms() >= short.until_ms
    assert world.mirror.value(world.keyspace.silence(short.silence_id)) is not None
    assert await silences.end(short.silence_id, lambda _: True) is None


async def test_a_key_goes_with_its_lease_and_a_second_silence_has_a_new_one(judged: Judged) -> None:
    silences, world = judged.watch.silences, judged.world
    first = await silences.begin(lasting(OF_NODE, 1_000))
    longer = lasting(OF_NODE, 2_500)
    second = await silences.begin(longer)
    assert second == replace(longer, since_ms=first.since_ms), "it goes on"
    assert silences.now() == (second,)
    key = world.keyspace.silence(first.silence_id)
    async with asyncio.timeout(PATIENCE_S):
        while await world.metastore.get(key) is not None:
            await asyncio.sleep(0.05)
    assert utc_now_ms() >= first.until_ms + 500, "it was not the first one's lease that took it"


async def test_what_cannot_be_read_silences_nothing_and_is_not_overwritten(judged: Judged) -> None:
    silences, world = judged.watch.silences, judged.world
    await world.put(world.keyspace.silence(OF_NODE.silence_id), b'{"v":2}')
    await judged.settle()
    assert silences.now() == ()
    other = await silences.begin(lasting(OF_ZONE))
    assert silences.now() == (other,)
    with pytest.raises(RecordNotReadableError):
        await silences.begin(lasting(OF_NODE))
    with pytest.raises(RecordNotReadableError):
        await silences.end(OF_NODE.silence_id, lambda _: True)


async def test_too_many_silences_are_refused(judged: Judged) -> None:
    """A refused silence takes no lease: the next lease has the next number."""
    silences, metastore = judged.watch.silences, judged.world.metastore
    for number in range(SILENCES_MAX):
        await silences.begin(lasting(replace(OF_NODE, labels=(("node", f"n{number}"),))))
    before = await metastore.grant_lease(1)
    with pytest.raises(RefusedError, match=f"{SILENCES_MAX} silences"):
        await silences.begin(lasting(OF_ZONE))
    assert await metastore.grant_lease(1) == before + 1
    await silences.begin(lasting(OF_NODE))


async def test_the_api_begins_lists_ends_and_records(tmp_path: Path) -> None:
    async with operations_world(tmp_path) as api:
        await api.run("CREATE ZONE orders (PARTITIONS 1)")
        asked = {"labels": {"zone": "orders"}, "for_s": 7_200, "by": "alice", "reason": "load test"}
        begun = await api.post("/alerts/silences", asked, 201)
        assert begun.pop("alerts") == 0, "nothing fires"
        assert (begun["alert"], begun["labels"], begun["by"], begun["reason"]) == (
            *(None, {"zone": "ORDERS"}),
            *("alice", "load test"),
        )
        assert await api.get("/alerts/silences") == {"silences": [begun]}
        path = f"/alerts/silences/{begun['silence_id']}"
        for changed in (True, False):
            ended = (await api.http.delete(path)).json()
            assert ended == {"silence_id": begun["silence_id"], "changed": changed}
        assert await api.get("/alerts/silences") == {"silences": []}
        records = (await api.get("/audit"))["records"][:2]
        told = [(record["action"], record["subject"], record["by"], record["reason"]) for record in records]
        assert told == [
            ("UNSILENCE ALERTS", "zone=ORDERS", None, ""),
            ("SILENCE ALERTS", "zone=ORDERS", "alice", "load test"),
        ]


@pytest.mark.parametrize(
    ("wrong", "status", "name"),
    [
        ({"alert": "NodeGone"}, 400, ErrorKind.INVALID_REQUEST),
        ({"labels": {}}, 400, ErrorKind.INVALID_REQUEST),
        ({"labels": {"disk": "sda"}}, 400, ErrorKind.INVALID_REQUEST),
        ({"labels": {"zone": "nowhere"}}, 404, ErrorKind.ZONE_NOT_FOUND),
        ({"labels": {"operation": "x"}}, 400, ErrorKind.INVALID_REQUEST),
        ({"alert": "NodeDown", "for_s": FOR_S_MAX + 1}, 400, ErrorKind.INVALID_REQUEST),
        ({"alert": "NodeDown", "for_s": 0}, 400, ErrorKind.INVALID_REQUEST),
        ({"alert": "NodeDown", "reason": " "}, 400, ErrorKind.REASON_REQUIRED),
    ],
)
async def test_what_is_wrong_silences_nothing(
    refusing: OperationsWorld, wrong: dict[str, object], status: int, name: ErrorKind
) -> None:
    answer = await refusing.post("/alerts/silences", {"for_s": 60, "reason": "x", **wrong}, status)
    assert answer["name"] == name.name
    assert await refusing.get("/alerts/silences") == {"silences": []}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def refusing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path_factory.mktemp("refusing")) as api:
        yield api
