"""``/api/v1/operations``: what it shows, what it does, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.views.keyspace_views import KeyspaceViews
from app.views.operation_views import OperationFilter, OperationViews
from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import ConfigurationRecord, KeptRecord, MemberRecord, MemberState, Stage
from tests.unit.operations_world import VERIFIED, OperationsWorld, operations_world


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path) as made:
        await made.run("CREATE ZONE orders (PARTITIONS 4, REPLICAS 1)")
        await made.end_moves()
        await made.look()
        yield made


async def alter(api: OperationsWorld, replicas: int = 3) -> dict:
    await api.run(f"ALTER ZONE orders SET (REPLICAS {replicas})", {"Zonekeeper-By": "ali%C3%A7e"})
    return await api.newest()


@pytest.mark.row("VOL-087", "VOL-089", "VOL-104")
async def test_a_change_is_an_operation(api: OperationsWorld) -> None:
    """VOL-087, VOL-089, VOL-104: id, description, state, progress and plan; the creation is over."""
    created = await api.newest()
    assert (created["kind"], created["state"], created["over"]) == ("CREATE_ZONE", "DONE", True)
    altered = await alter(api)
    assert (altered["kind"], altered["by"], altered["verified"]) == ("ALTER_ZONE", "aliçe", False)
    assert altered["statement"] == "ALTER ZONE orders SET (REPLICAS 3)"
    assert altered["catalog_version_before"] < altered["catalog_version"]
    await api.look()
    detail = await api.get(f"/operations/{altered['operation_id']}")
    assert detail["state"] == "RUNNING"
    assert detail["progress"]["partitions"] == {"total": 4, "done": 0, "moving": 0, "waiting": 4}
    assert all(each["cause"].startswith("MEMBER_NOT_RESERVED: n") for each in detail["waiting"])
    assert sorted(number for each in detail["waiting"] for number in each["numbers"]) == [0, 1, 2, 3]
    plan = detail["plan"]
    assert sum(unit["copies"] for unit in plan["units"]) == 8
    assert {unit["donor"] for unit in plan["units"]} == {None}, "copies more: nobody loses one"
    assert plan["first_batches"] == [{"batch": 1, "partitions": [0, 1, 2, 3]}]
    await api.end_moves()
    await api.look()
    over = await api.get(f"/operations/{altered['operation_id']}", plan="false")
    assert (over["state"], over["over"], over["progress"]["partitions"]["done"]) == ("DONE", True, 4)
    assert "plan" not in over


async def stable_peers(api: OperationsWorld) -> list[tuple[str, ...]]:
    keys = [api.world.keyspace.partition(PartitionId(ZoneId(1), number)).stable for number in range(4)]
    found = [await api.world.metastore.get(key) for key in keys]
    return [Assignments.decode(item.value).peers for item in found if item is not None]


@pytest.mark.row("VOL-023", "VOL-032", "VOL-087")
async def test_the_plan_names_donors_and_stealers_in_batches(api: OperationsWorld) -> None:
    """VOL-023, VOL-032, VOL-087: a node leaves; what it gives to whom, cut into batches by the limits. For
    each stealer there are donors with their copies, for each batch partitions: exactly what then moves."""
    before = await stable_peers(api)
    await api.world.set_nodes(*[node for node in api.world.nodes if node.name != "n1"])
    await api.run("ALTER ZONE orders SET (NODES FILTER '$[?(@.region == \"EU\")]')")
    await api.http.patch("/rebalance/limits", json={"batch_size": 1})
    detail = await api.get(f"/operations/{(await api.newest())['operation_id']}")
    plan = detail["plan"]
    assert plan["units"]
    assert {unit["donor"] for unit in plan["units"]} == {"n1"}
    assert {unit["stealer"] for unit in plan["units"]} <= {"n2", "n3"}
    assert plan["batch_size"] == 1
    assert plan["batches"] == detail["partitions_to_move"] == sum(unit["copies"] for unit in plan["units"])
    await api.end_moves()
    moves = {
        number: (donor, stealer)
        for number, ((donor,), (stealer,)) in enumerate(zip(before, await stable_peers(api), strict=True))
        if donor != stealer
    }
    units = [(unit["donor"], unit["stealer"]) for unit in plan["units"] for _ in range(unit["copies"])]
    assert sorted(moves.values()) == sorted(units)
    assert plan["first_batches"] == [
        {"batch": batch, "partitions": [number]} for batch, number in enumerate(sorted(moves), 1)
    ]


async def test_the_list_is_filtered_and_paged(api: OperationsWorld) -> None:
    await api.run("CREATE ZONE other (PARTITIONS 2, REPLICAS 1)")
    await alter(api)
    names = [each["operation_id"] for each in (await api.get("/operations"))["operations"]]
    assert len(names) == 3
    paged, token = [], None
    while True:
        page = await api.get("/operations", page_size=1, **({"page_token": token} if token else {}))
        paged += [each["operation_id"] for each in page["operations"]]
        token = page["next_page_token"]
        if token is None:
            break
    assert paged == names
    for query, expected in (
        ({"zone": "other"}, {"OTHER"}),
        ({"kind": "ALTER_ZONE"}, {"ORDERS"}),
        ({"state": ["DONE", "WAITING"], "zone": "orders"}, {"ORDERS"}),
        ({"state": "FAILED"}, set()),
    ):
        found = (await api.get("/operations", **query))["operations"]
        assert {each["zone"] for each in found} == expected, query
    assert (await api.get("/operations", 400, page_token="x"))["name"] == "INVALID_REQUEST"
    assert (await api.get("/operations", 404, zone="nowhere"))["name"] == "ZONE_NOT_FOUND"
    assert (await api.get("/operations", 400, state="SLOW"))["name"] == "INVALID_REQUEST"


async def test_what_there_is_not(api: OperationsWorld) -> None:
    assert (await api.get("/operations/1-99999", 404))["name"] == "OPERATION_NOT_FOUND"
    problem = await api.get("/operations/orders", 400)
    assert "<zone id>-<event revision>" in problem["detail"]
    for action in ("pause", "resume", "cancel", "reverse"):
        assert (await api.post(f"/operations/1-99999/{action}", {}, 404))["name"] == "OPERATION_NOT_FOUND"
        assert (await api.post(f"/operations/1-1/{action}", {"why": "x"}, 400))["name"] == "INVALID_REQUEST"


@pytest.mark.row("VOL-020")
async def test_waiting_ends_with_the_operation(api: OperationsWorld) -> None:
    """VOL-020: a request that waits is answered as soon as it is over, and not before."""
    name = (await alter(api))["operation_id"]
    early = await api.get(f"/operations/{name}", wait_timeout=0.05)
    assert early["over"] is False
    waiting = asyncio.create_task(api.get(f"/operations/{name}", wait_timeout=30))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await api.end_moves()
    await api.look()
    assert (await waiting)["state"] == "DONE"


@pytest.mark.row("VOL-095")
async def test_pause_and_resume(api: OperationsWorld) -> None:
    """VOL-095: with who, why and until when; a verified name wins over what the body says."""
    await api.http.patch("/rebalance/limits", json={"pause": {"by": "night", "reason": "shift"}})
    await api.world.settle()
    name = (await alter(api))["operation_id"]
    body = {"by": "bob", "reason": "backup", "for_s": 600}
    paused = await api.post(f"/operations/{name}/pause", body, headers={VERIFIED: "carol"})
    assert paused["state"] == "PAUSED"
    assert paused["cause"].startswith("PAUSED: the zone, by carol: backup, until 20")
    (zone,) = (await api.get("/rebalance/limits"))["zone_pauses"]
    assert (zone["zone"], zone["by"]) == ("ORDERS", "carol")
    resumed = await api.post(f"/operations/{name}/resume", {"by": "bob"})
    assert resumed["state"] == "WAITING"
    assert (await api.get("/rebalance/limits"))["zone_pauses"] == []
    await api.look()
    assert (await api.get(f"/operations/{name}"))["cause"] == "PAUSED: by night: shift"


@pytest.mark.row("VOL-095")
async def test_partitions_of_an_operation_are_cancelled(api: OperationsWorld) -> None:
    """VOL-095: which stay and which had begun, in the audit and in the history; a partition that the zone does
    not have, and none at all, are refused."""
    await api.http.patch("/rebalance/limits", json={"pause": {"by": "night"}})
    await api.world.settle()
    name = (await alter(api))["operation_id"]
    path = f"/operations/{name}/partitions/cancel"
    found = await api.post(path, {"partitions": [2, 1, 2], "by": "bob", "reason": "bad disk"})
    assert found == {"operation_id": name, "given_up": [1, 2], "going_back": [], "begun": []}
    await api.look()
    detail = await api.get(f"/operations/{name}")
    assert (detail["state"], detail["progress"]["partitions"]["done"]) == ("PAUSED", 2)
    assert [(each["action"], each["by"]) for each in detail["history"]] == [("CANCEL PARTITIONS", "bob")]
    (audited,) = (await api.get("/audit", page_size=1))["records"]
    assert (audited["action"], audited["by"], audited["reason"]) == ("CANCEL PARTITIONS", "bob", "bad disk")
    assert json.loads(audited["details"]) == {"partitions": [2, 1, 2]}
    assert (await api.post(path, {"partitions": [77]}, 400))["name"] == "PARTITION_NOT_FOUND"
    assert (await api.post(path, {"partitions": []}, 400))["name"] == "INVALID_REQUEST"


@pytest.mark.row("VOL-089", "VOL-095")
async def test_who_and_why_of_limits_pauses_and_resumes(api: OperationsWorld) -> None:
    """VOL-089, VOL-095: each reaches the audit and the history of the operations that it concerns, over REST
    and SQL; what changes nothing is not in the history, and what is over is left alone."""
    created = (await api.newest())["operation_id"]
    body = {"cluster_moves": 1, "pause": {"by": "night", "reason": "shift"}, "reason": "load"}
    await api.http.patch("/rebalance/limits", json={**body, "by": "erin"})
    await api.world.settle()
    name = (await alter(api))["operation_id"]
    await api.http.patch("/rebalance/limits", json={"pause": None, "by": "erin", "reason": "disks are in"})
    await api.post(f"/operations/{name}/pause", {"by": "bob", "reason": "backup"})
    for _ in range(2):
        await api.post(f"/operations/{name}/resume", {"by": "carol", "reason": "done"}, headers={VERIFIED: "c"})
    zone_pause = {"orders": {"by": "dan", "reason": "audit"}}
    await api.http.patch("/rebalance/limits", json={"zone_pauses": zone_pause})
    await api.http.patch("/rebalance/limits", json={"zone_pauses": {"orders": None}, "by": "dan"})
    await api.world.settle()
    await api.post(f"/operations/{name}/cancel", {"by": "frank", "reason": "wrong zone"})
    wanted = [
        ("CHANGE LIMITS", "erin", "disks are in"),
        ("PAUSE OPERATION", "bob", "backup"),
        ("RESUME OPERATION", "c", "done"),
        ("CHANGE LIMITS", "dan", "audit"),
        ("CHANGE LIMITS", "dan", ""),
        ("CANCEL OPERATION", "frank", "wrong zone"),
    ]
    history = (await api.get(f"/operations/{name}"))["history"]
    assert [(each["action"], each["by"], each["reason"]) for each in history] == wanted
    assert (await api.get(f"/operations/{created}"))["history"] == []
    sql = f"SELECT history FROM operation_history WHERE operation_id = '{name}'"
    answer = await api.http.post("/statements", json={"sql": sql})
    assert json.loads(answer.json()["results"][0]["data"][0][0]) == history
    audited = (await api.get("/audit", page_size=20))["records"]
    told = [(each["action"], each["by"], each["reason"]) for each in reversed(audited)]
    assert ("CHANGE LIMITS", "erin", "load") in told
    # A resume that has nothing to resume was asked for all the same.
    assert [each for each in told if each in wanted] == [*wanted[:3], *wanted[2:]]
    assert not any("reason" in json.loads(each["details"]) for each in audited if "LIMITS" in each["action"])


@pytest.mark.row("VOL-095")
async def test_cancel(api: OperationsWorld) -> None:
    """VOL-095: under a pause nothing has begun, so nothing moves, and it is over; again it says the same; the
    end of it and what is over otherwise cannot be cancelled."""
    await api.http.patch("/rebalance/limits", json={"pause": {"by": "night"}})
    await api.world.settle()
    name = (await alter(api))["operation_id"]
    await api.post(f"/operations/{name}/pause", {"by": "bob"})
    cancelled = await api.post(f"/operations/{name}/cancel", {"by": "bob", "reason": "wrong zone"})
    assert (cancelled["state"], cancelled["cause"]) == ("CANCELLED", "cancelled by bob: wrong zone")
    assert cancelled["cancelled"] == {"given_up": [0, 1, 2, 3], "going_back": [], "begun": []}
    assert (await api.get("/rebalance/limits"))["zone_pauses"] == [], "its pause ends with it"
    assert (await api.post(f"/operations/{name}/cancel", {"by": "eve"}))["cause"] == cancelled["cause"]
    await api.look()
    over = await api.get(f"/operations/{name}")
    assert (over["state"], over["over"]) == ("CANCELLED", True)
    await api.http.patch("/rebalance/limits", json={"pause": None})
    await api.reconcile()
    pending = [key.replace("stable", "pending") for key in stable_keys(api)]
    assert [await api.world.assignments(key) for key in pending] == [None] * 4
    for action in ("pause", "resume"):
        refused = await api.post(f"/operations/{name}/{action}", {"by": "bob"}, 409)
        assert refused["name"] == "OPERATION_STATE_ILLEGAL"


@pytest.mark.row("VOL-093")
async def test_reverse(api: OperationsWorld) -> None:
    """VOL-093: the zone and its assignment are as before, under a later version, by an operation that names the
    one reversed."""
    stable = [await api.world.assignments(key) for key in stable_keys(api)]
    name = (await alter(api))["operation_id"]
    await api.end_moves()
    await api.look()
    answer = await api.post(f"/operations/{name}/reverse", {"by": "dave", "reason": "slow"}, 202)
    assert answer["reverses"] == name
    assert answer["operation_id"] is None, "no controller runs beside this server"
    again = await api.post(f"/operations/{name}/reverse", {"by": "dave"}, 409)
    assert again["name"] in ("OPERATION_STATE_ILLEGAL", "REVERSE_IMPOSSIBLE")
    await api.reconcile()
    reverse = await api.newest()
    assert (reverse["kind"], reverse["reverses"], reverse["by"]) == ("REVERSE", name, "dave")
    assert (reverse["catalog_version"], reverse["reason"]) == (answer["catalog_version"], "slow")
    assert reverse["statement"] == f"REVERSE OPERATION {name}"
    reversed_ = await api.get(f"/operations/{name}")
    assert (reversed_["state"], reversed_["cause"]) == ("REVERSED", f"reversed by {reverse['operation_id']}")
    await api.end_moves()
    await api.look()
    assert (await api.newest())["state"] == "DONE"
    assert [await api.world.assignments(key) for key in stable_keys(api)] == stable
    assert (await api.get("/zones/orders"))["replicas"] == 1


def stable_keys(api: OperationsWorld) -> list[str]:
    keys = api.world.keyspace
    return [f"{keys.partitions}1/{number}/assignments/stable" for number in range(4)]


@pytest.mark.row("VOL-098")
async def test_a_failed_copy_is_the_cause_and_a_resume_tries_it_again(api: OperationsWorld) -> None:
    """VOL-098: the operation names the partition and its last failure; a resume writes the limits, which is
    what nodes begin anew by, also where they say what they said before."""
    name = (await alter(api))["operation_id"]
    keys = api.world.keyspace
    told = "COPY_FAILED: 3 attempts: MEMBER_NOT_STARTED: n2"
    configuration = ConfigurationRecord(1, "n1", Stage.CATCHING_UP, reason=told)
    await api.world.put(keys.partition(PartitionId(ZoneId(1), 2)).configuration, configuration.encode())
    for node in ("n1", "n2", "n3"):
        member = MemberRecord(MemberState.READY, f"http://{node}:1", f"http://{node}:2")
        await api.world.put(keys.member(PartitionId(ZoneId(1), 2), node), member.encode())
    await api.look()
    waiting = (await api.get(f"/operations/{name}"))["waiting"]
    assert [each["numbers"] for each in waiting if each["cause"] == told] == [[2]]
    revisions = []
    for _ in range(2):
        await api.post(f"/operations/{name}/resume", {"by": "dave"})
        found = await api.world.metastore.get(keys.limits)
        assert found is not None
        revisions.append(found.mod_revision)
    assert revisions[1] > revisions[0]


@pytest.mark.row("VOL-093", "VOL-094")
async def test_kept_copies_are_finalised_last(api: OperationsWorld) -> None:
    """VOL-093, VOL-094: shown with the operation that they were left by; refused while it is not over; then
    those of it and of earlier ones are marked, each once, and a later one's stay."""
    operation = await alter(api)
    name, event = operation["operation_id"], operation["event_revision"]
    keys = api.world.keyspace
    for number, left_at in ((0, event), (1, event - 1), (2, event + 1)):
        kept = KeptRecord(left_at, "http://n9:1").encode()
        await api.world.put(keys.kept(PartitionId(ZoneId(1), number), "n9"), kept)
    await api.look()
    refused = await api.post(f"/operations/{name}/finalise", {"dry_run": True}, 409)
    assert refused["name"] == "OPERATION_STATE_ILLEGAL"
    assert "copies are deleted once it is over" in refused["detail"]
    await api.end_moves()
    await api.look()
    partitions = (await api.get("/zones/orders/partitions"))["partitions"]
    assert partitions[0]["kept"] == [{"node": "n9", "state": "KEPT", "left_by": name}]
    assert partitions[3]["kept"] == []
    # As many as were shown: neither unseen nor after something has changed.
    assert (await api.post(f"/operations/{name}/finalise", {"by": "dave"}, 400))["name"] == "INVALID_REQUEST"
    shown = await api.post(f"/operations/{name}/finalise", {"dry_run": True}, 202)
    assert shown == {"operation_id": name, "dry_run": True, "copies": 2}
    stale = await api.post(f"/operations/{name}/finalise", {"by": "dave", "copies": 1}, 409)
    assert stale["name"] == "SHOWN_STATE_CHANGED"
    partitions = (await api.get("/zones/orders/partitions"))["partitions"]
    assert [each["state"] for found in partitions for each in found["kept"]] == ["KEPT"] * 3
    answer = await api.post(
        f"/operations/{name}/finalise", {"by": "dave", "reason": "good", "copies": shown["copies"]}, 202
    )
    assert answer == {"operation_id": name, "dry_run": False, "copies": 2}
    partitions = (await api.get("/zones/orders/partitions"))["partitions"]
    assert [each["state"] for found in partitions for each in found["kept"]] == ["DELETING", "DELETING", "KEPT"]
    again = await api.post(f"/operations/{name}/finalise", {"by": "dave", "copies": 0}, 202)
    assert again["copies"] == 0
    newest = (await api.get("/audit"))["records"][0]
    assert (newest["action"], newest["subject"]) == ("FINALISE OPERATION", name)
    await api.post("/operations/9-9/finalise", {"copies": 0}, 404)


@pytest.mark.row("VOL-094")
async def test_what_cannot_be_reversed(api: OperationsWorld) -> None:
    """VOL-094: with the reason, and nothing is changed: the creation, one that was overtaken, over or not, one
    whose zone the catalog has changed since."""
    created = (await api.newest())["operation_id"]
    first = (await alter(api, 2))["operation_id"]
    await api.end_moves()
    await api.look()
    second = (await alter(api, 3))["operation_id"]
    third = (await alter(api, 2))["operation_id"]
    await api.end_moves()
    version = (await api.world.catalog.snapshot()).version
    for name, reason in (
        (created, "a CREATE_ZONE has no assignment before it"),
        (first, f"the newest operation of its zone is {third}"),
        (second, f"it is SUPERSEDED: superseded by {third}"),
    ):
        refused = await api.post(f"/operations/{name}/reverse", {"by": "dave"}, 409)
        assert refused["name"] == "REVERSE_IMPOSSIBLE"
        assert reason in refused["detail"]
    assert (await api.world.catalog.snapshot()).version == version
    answer = await api.http.post("/statements", json={"sql": "ALTER ZONE orders SET (REPLICAS 1)"})
    assert answer.status_code == 200
    refused = await api.post(f"/operations/{third}/reverse", {"by": "dave"}, 409)
    assert "the catalog has moved on: replicas is 1" in refused["detail"]


async def test_a_target_on_a_node_that_is_leaving_is_not_restored(api: OperationsWorld) -> None:
    await api.run("ALTER ZONE orders SET (NODES FILTER '$[?(@.region == \"EU\")]')")
    name = (await api.newest())["operation_id"]
    await api.end_moves()
    drained = await api.http.put("/nodes/n1/drain", json={"by": "erin", "reason": "disks"})
    assert drained.status_code == 200, drained.text
    await api.world.settle()
    refused = await api.post(f"/operations/{name}/reverse", {"by": "dave"}, 409)
    assert refused["name"] == "REVERSE_IMPOSSIBLE"
    assert "n1 is leaving: `zonectl node undrain`" in refused["detail"]


@pytest.mark.row("VOL-089")
async def test_sql_shows_the_same(api: OperationsWorld) -> None:
    """VOL-089: those under way, and the history."""
    name = (await alter(api))["operation_id"]
    found = await api.world.run("SELECT OPERATION_ID, KIND, REQUESTED_BY FROM SYSTEM.OPERATIONS")
    assert list(found.rows) == [(name, "ALTER_ZONE", "aliçe")]
    history = await api.world.run("SELECT OPERATION_ID, STATE, PARTITIONS FROM OPERATION_HISTORY")
    views = OperationViews(
        api.world.mirror, api.world.keyspace, KeyspaceViews(api.world.mirror, api.world.keyspace)
    )
    assert [row[0] for row in history.rows] == [
        operation.operation_id for operation, _ in views.listed(OperationFilter())
    ]
    assert {row[2] for row in history.rows} == {4}
