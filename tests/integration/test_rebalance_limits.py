"""``/api/v1/rebalance/limits`` and ``zonectl rebalance`` against a real server and a real controller.

Nodes are only keys, so that what begins never ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.main import main
from catalog.core.zone import Node
from rebalance.core.admission.limit_options import LIMIT_OPTIONS
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import Delete, Put, Txn
from rebalance.core.topology.fencing import FenceRecord
from rebalance.ports.metastore import Metastore
from tests.fixtures.api_server import ApiServer, serving
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.fault_rig import Controllers

pytestmark = pytest.mark.slow("moves wait for each other under limits")

DEADLINE_S = 120.0
FENCES = {"a": ("1", 5_000), "b": ("1", 6_000), "c": ("0", 5_000), "d": None}
"""Incarnation and milliseconds of the fence that each further node keeps to; None: it has no fence."""


@pytest.fixture(scope="module")
def keyspace() -> Keyspace:
    return Keyspace(f"test-limits-{os.getpid()}/")


@pytest.fixture(scope="module")
def shared_server(
    etcd_server: Etcd, keyspace: Keyspace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    directory = tmp_path_factory.mktemp("limits")
    url = f"sqlite:///{directory / 'catalog.sqlite'}"
    with serving(directory, etcd_server, keyspace, url) as servers:
        yield servers[0]


@pytest.fixture
async def server(
    shared_server: ApiServer, metastore: Metastore, keyspace: Keyspace
) -> AsyncIterator[ApiServer]:
    """Server without zones and limits, with nodes n1 to n3; what a test leaves is taken away."""
    yield shared_server
    keys = (keyspace.limits, *map(keyspace.node, FENCES))
    await metastore.commit(Txn((), tuple(map(Delete, keys))))
    assert await asyncio.to_thread(zonectl, shared_server, "sql", "-e", "DROP ZONE IF EXISTS orders") == 0


@pytest.fixture
def controller(etcd_server: Etcd, keyspace: Keyspace, tmp_path: Path) -> Iterator[Controllers]:
    processes = Controllers([etcd_server.endpoint], keyspace, tmp_path, lease_s=5)
    processes.start()
    yield processes
    processes.stop()


def zonectl(server: ApiServer, *arguments: str) -> int:
    return main([*arguments, "--url", server.url])


def statuses(server: ApiServer, zone: str = "orders") -> list[tuple[bool, str]]:
    """Pair of each partition: True if it moves, and the cause."""
    answer = httpx.get(f"{server.url}/api/v1/zones/{zone}/partitions", trust_env=False, timeout=60)
    answer.raise_for_status()
    found = answer.json()["partitions"]
    return [(each["pending"] is not None, each["status"]["cause"]) for each in found]


def until(server: ApiServer, condition: Callable[[list[tuple[bool, str]]], Any]) -> list[tuple[bool, str]]:
    deadline = time.monotonic() + DEADLINE_S
    while not condition(found := statuses(server)):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def moving(found: list[tuple[bool, str]]) -> int:
    return sum(moves for moves, _ in found)


@pytest.mark.usefixtures("controller")
def test_limits_while_it_runs(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Paused, nothing begins and says why; then two at a time; then everything."""
    assert zonectl(server, "sql", "-e", "CREATE ZONE orders (PARTITIONS 8, REPLICAS 1)") == 0
    until(server, lambda found: all("PLACEMENT" not in cause and "TARGET" not in cause for _, cause in found))
    assert zonectl(server, "rebalance", "pause", "--by", "alice", "--reason", "new disks") == 0
    assert zonectl(server, "sql", "-e", "ALTER ZONE orders SET (REPLICAS 3)") == 0
    paused = until(server, lambda found: {cause for _, cause in found} == {"PAUSED: by alice: new disks"})
    assert moving(paused) == 0
    assert zonectl(server, "rebalance", "limits", "--cluster-moves", "2") == 0
    assert zonectl(server, "rebalance", "resume") == 0
    two = until(server, lambda found: moving(found) == 2)
    until(server, lambda found: [cause for _, cause in found].count("CLUSTER_CAP: 2/2") == 6)
    assert moving(two) == 2
    capsys.readouterr()
    assert zonectl(server, "status") == 0
    assert "limits of moves: cluster_moves 2" in capsys.readouterr().out.splitlines()
    assert zonectl(server, "rebalance", "limits", "--cluster-moves", "none", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["cluster_moves"] is None
    until(server, lambda found: moving(found) == 8)


def test_the_resource(server: ApiServer) -> None:
    """ETag and If-Match; what is not named stays; zones by name; everything refused with what is allowed."""
    url = f"{server.url}/api/v1/rebalance/limits"
    with httpx.Client(trust_env=False, timeout=60) as http:
        assert zonectl(server, "sql", "-e", "CREATE ZONE orders (PARTITIONS 1)") == 0
        first = http.get(url)
        assert (first.status_code, first.headers["etag"]) == (200, '"0"')
        assert first.json() == {
            **dict.fromkeys(option.name for option in LIMIT_OPTIONS if option.is_number),
            "pause": None,
            "one_operation": False,
            "windows": [],
            "rebalancing": True,
            "keep_copies": False,
            "ha_reset_waits_for": ["n1", "n2", "n3"],
            "zone_pauses": [],
        }
        pause = {"by": "alice", "reason": "r", "for_s": 600}
        changed = http.patch(url, json={"cluster_moves": 3, "zone_pauses": {"orders": pause}})
        assert changed.status_code == 200, changed.text
        (zone,) = changed.json()["zone_pauses"]
        assert (zone["zone"], zone["by"], zone["reason"]) == ("ORDERS", "alice", "r")
        assert zone["until"] > zone["since"]
        etag = changed.headers["etag"]
        again = http.patch(url, json={"batch_size": 5}, headers={"If-Match": etag})
        assert (again.json()["cluster_moves"], again.json()["batch_size"]) == (3, 5)
        assert again.json()["zone_pauses"] == [zone]
        late = http.patch(url, json={"batch_size": None}, headers={"If-Match": etag})
        assert (late.status_code, late.json()["name"]) == (412, "LIMITS_CHANGED")
        assert http.get(url).json() == again.json()
        assert http.get(url).headers["etag"] == again.headers["etag"]
        ended = http.patch(url, json={"zone_pauses": {"ORDERS": None}, "batch_size": None})
        assert (ended.json()["zone_pauses"], ended.json()["batch_size"]) == ([], None)
        for body, status, name in (
            ({"cluster_moves": 0}, 400, "INVALID_REQUEST"),
            ({"ha_reset_s": 0}, 400, "INVALID_REQUEST"),
            ({"ha_reset_s": -1}, 400, "INVALID_REQUEST"),
            ({"ha_reset_s": 2**31}, 400, "INVALID_REQUEST"),
            ({"speed": 3}, 400, "INVALID_REQUEST"),
            ({"pause": {"reason": "nobody"}}, 400, "INVALID_REQUEST"),
            ({"pause": {**pause, "for_s": -1}}, 400, "INVALID_REQUEST"),
            ({"zone_pauses": {"nowhere": pause}}, 404, "ZONE_NOT_FOUND"),
        ):
            refused = http.patch(url, json=body)
            assert (refused.status_code, refused.json()["name"]) == (status, name), body
        assert http.get(url).json() == ended.json()


@pytest.mark.row("H2")
async def test_the_time_of_automatic_resets(
    server: ApiServer, metastore: Metastore, keyspace: Keyspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """H2, S219: nodes' leases (5 s) and 4 s at least; who does not keep to it yet is named."""
    url = f"{server.url}/api/v1/rebalance/limits"
    for name, fence in FENCES.items():
        record = NodeRecord(Node(name, (), ("default",)), "1")
        await metastore.commit(Txn((), (Put(keyspace.node(name), record.encode()),)))
        if fence is not None:
            await metastore.commit(Txn((), (Put(keyspace.fence(name), FenceRecord(*fence).encode()),)))
    assert await asyncio.to_thread(zonectl, server, "rebalance", "limits", "--ha-reset", "8") == 1
    assert "ha_reset_s takes whole seconds from 9 on, or null for the default, not 8" in capsys.readouterr().err
    assert await asyncio.to_thread(zonectl, server, "rebalance", "limits", "--ha-reset", "9") == 0
    assert "ha_reset_s is not in force yet on b, c, d, n1, n2, n3:" in capsys.readouterr().out
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        shown = (await http.get(url)).json()
        assert (shown["ha_reset_s"], shown["ha_reset_waits_for"]) == (9, ["b", "c", "d", "n1", "n2", "n3"])
        changed = (await http.patch(url, json={"ha_reset_s": None})).json()
        assert (changed["ha_reset_s"], changed["ha_reset_waits_for"]) == (None, ["c", "d", "n1", "n2", "n3"])
