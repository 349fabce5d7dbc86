"""Requests that move data are refused with rebalancing turned off; what was asked for goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.operations_world import OperationsWorld, operations_world


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path) as made:
        await made.run("CREATE ZONE orders (PARTITIONS 4, REPLICAS 1)")
        await made.end_moves()
        await made.look()
        yield made


async def turn(api: OperationsWorld, *, on: bool) -> None:
    answer = await api.http.patch("/rebalance/limits", json={"rebalancing": on})
    assert (answer.status_code, answer.json()["rebalancing"]) == (200, on)


@pytest.mark.row("VOL-097")
async def test_what_moves_data_is_refused_until_it_is_turned_on(api: OperationsWorld) -> None:
    """VOL-097: statements, drains and reverses, each with the way to turn it on; nothing is changed."""
    await api.run("ALTER ZONE orders SET (REPLICAS 3)")
    await api.end_moves()
    await api.look()
    name = (await api.newest())["operation_id"]
    drained = await api.http.put("/nodes/n1/drain", json={"by": "erin"})
    assert drained.status_code == 200
    await turn(api, on=False)
    version = (await api.world.catalog.snapshot()).version
    reversing = f"/operations/{name}/reverse"
    for method, path, body in (
        ("POST", "/statements", {"sql": "ALTER ZONE orders SET (REPLICAS 2)"}),
        ("POST", "/statements", {"sql": "ALTER ZONE orders SET (AUTO SCALE DOWN 5)"}),
        ("PUT", "/nodes/n2/drain", {"by": "erin"}),
        ("DELETE", "/nodes/n1/drain", None),
        ("POST", reversing, {"by": "erin"}),
    ):
        refused = await api.http.request(method, path, json=body)
        found = refused.json()
        found = found.get("error", found)
        assert (refused.status_code, found["name"], found["code"]) == (409, "REBALANCING_DISABLED", 5207), path
        assert "`zonectl rebalance limits --rebalancing` turns it on" in found["detail"]
    assert (await api.world.catalog.snapshot()).version == version
    nodes = {each["name"]: each["drain"] for each in (await api.get("/nodes"))["nodes"]}
    assert [node for node, drain in nodes.items() if drain] == ["n1"]
    await turn(api, on=True)
    assert (await api.http.delete("/nodes/n1/drain")).status_code == 200
    await api.run("ALTER ZONE orders SET (REPLICAS 2)")


@pytest.mark.row("VOL-097")
async def test_what_moves_no_data_and_what_runs_goes_on(api: OperationsWorld) -> None:
    """VOL-097: a new zone, another name, what is already under way."""
    await api.run("ALTER ZONE orders SET (REPLICAS 3)")
    name = (await api.newest())["operation_id"]
    await turn(api, on=False)
    await api.run("CREATE ZONE other (PARTITIONS 2, REPLICAS 1)")
    await api.run("ALTER ZONE orders RENAME TO sales")
    await api.run("ALTER ZONE sales SET (REPLICAS 3)")
    await api.run("DROP ZONE other")
    await api.end_moves()
    await api.look()
    assert (await api.get(f"/operations/{name}"))["state"] == "DONE"


@pytest.mark.row("VOL-097")
async def test_explain_says_that_it_would_be_refused(api: OperationsWorld) -> None:
    """VOL-097: what EXPLAIN asks is what the statement itself would meet."""
    await turn(api, on=False)
    refused = await api.http.post("/statements", json={"sql": "EXPLAIN ALTER ZONE orders SET (REPLICAS 3)"})
    assert "REBALANCING_DISABLED" in refused.text
