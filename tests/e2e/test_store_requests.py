"""Statements and questions that only zones of store servers have, in an installation as it comes."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from rebalance.store.shell.lmdb_disk import stored
from tests.e2e.installation import Installation, wait_for
from zonekeeper_client import BlockingZoneClient

pytestmark = pytest.mark.timeout(600)


def rows(installation: Installation, sql: str) -> list[list[Any]]:
    data: list[list[Any]] = installation.sql(sql)[0]["data"]
    return data


@pytest.mark.row("PME-007", "PME-008")
@pytest.mark.slow("an installation starts, and each node's store server with it")
def test_a_zone_rests_and_wakes_and_its_exchanges_and_copies_are_shown(installation: Installation) -> None:
    """PME-008, PME-007: keys are refused with a code of their own meanwhile, and are all there afterwards."""
    installation.execute(
        "CREATE ZONE quiet (PARTITIONS 8, REPLICAS 2, PARTITION LOSS POLICY 'READ_ONLY_SAFE') "
        "STORAGE PROFILES ['bulk']"
    )
    assert installation.zonectl("kv", "put", "quiet", "key", "value").returncode == 0
    ((name, state, is_changed, exchange, detail),) = rows(installation, "CALL system.deactivate_zone('quiet')")
    assert (name, state, is_changed, detail) == ("QUIET", "DEACTIVATED", True, "")
    refused = installation.zonectl("kv", "get", "quiet", "key")
    assert refused.returncode != 0
    assert "ZONE_DEACTIVATED" in refused.stderr
    state_of = "SELECT zone_state, zone_partition_loss_policy FROM zones WHERE zone_name = 'QUIET'"
    assert rows(installation, state_of) == [["DEACTIVATED", "READ_ONLY_SAFE"]]
    ((_, _, is_changed, _, detail),) = rows(installation, "CALL system.deactivate_zone('quiet')")
    assert (is_changed, detail) == (False, "the zone is DEACTIVATED already; nothing was changed")
    rows(installation, "CALL system.activate_zone('quiet')")
    wait_for("the key", lambda: installation.zonectl("kv", "get", "quiet", "key").stdout.strip() == "value")
    shown = f"SELECT cause, zones, state, type FROM exchanges WHERE exchange = '{exchange}'"
    wait_for("the exchange", lambda: rows(installation, shown) == [["DEACTIVATE", "QUIET", "DONE", "ALL"]])
    copies = "SELECT count(*), count_if(is_primary) FROM store_copies WHERE zone_name = 'QUIET' AND reason = ''"
    wait_for("16 owners", lambda: rows(installation, copies) == [[16, 8]])
    lost = installation.zonectl("recovery", "reset-lost", "quiet")
    assert lost.returncode != 0
    assert "RECOVERY_NOT_NEEDED" in lost.stderr
    installation.sql("DROP ZONE quiet")


def lose(installation: Installation, node: str) -> list[int]:
    """Partitions that only this node had: its store server is killed and its disk is gone. It is back without
    them."""
    partitions = installation.partitions("frail")
    numbers = [each["partition"] for each in partitions if each["stable"]["peers"] == [node]]
    (agent,) = installation.processes("app.cli", " node ", f"--name {node} ")
    (server,) = installation.processes("store serve", f"--name {node} ")
    agent.suspend()
    try:
        server.kill()
        shutil.rmtree(installation.directory / "nodes" / node / "store")
    finally:
        agent.resume()

    def are_lost() -> bool:
        causes = {each["partition"]: each["status"]["cause"] for each in installation.partitions("frail")}
        return {number for number, cause in causes.items() if cause == f"PARTITION_LOST: {node}"} == {*numbers}

    wait_for("the loss", are_lost)
    wait_for("the server", lambda: not installation.get("/readyz")["store_servers_down"])
    assert are_lost()
    return numbers


def reset_by_api(installation: Installation) -> list[tuple[int, str]]:
    answer = installation.request("POST", "/api/v1/zones/FRAIL/recovery/reset-lost", {})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["zone"] == "FRAIL"
    assert {(tuple(each["owners"]), each["detail"]) for each in body["partitions"]} == {(("n1",), "")}
    return [(each["partition"], each["outcome"]) for each in body["partitions"]]


def reset_by_command(installation: Installation) -> list[tuple[int, str]]:
    done = installation.zonectl("recovery", "reset-lost", "frail", "--format", "json")
    assert done.returncode == 0, done.stderr
    return [(each["partition"], each["outcome"]) for each in json.loads(done.stdout)]


def reset_by_call(installation: Installation) -> list[tuple[int, str]]:
    called = rows(installation, "CALL system.reset_lost_partitions('frail')")
    return [(number, outcome) for number, outcome, *_ in called]


@pytest.mark.thorough("integration/test_store_requests resets them")
@pytest.mark.slow("a store server is killed three times and comes back")
def test_lost_partitions_are_reset_by_each_way_there_is(installation: Installation) -> None:
    """Reset partitions of one copy each, whose disk is gone. They are refused until then, and readiness names
    them; afterwards they serve without what was lost, and all else is as it was."""
    installation.execute("CREATE ZONE frail (PARTITIONS 6, REPLICAS 1) STORAGE PROFILES ['bulk']")
    keys = [f"key-{number}" for number in range(24)]
    with BlockingZoneClient([installation.url], **installation.login) as client:
        for reset in (reset_by_api, reset_by_command, reset_by_call):
            partition_of = {key: client.put("FRAIL", key, "v").partition for key in keys}
            numbers = lose(installation, "n1")
            lost = [key for key, partition in partition_of.items() if partition in numbers]
            assert 0 < len(lost) < len(keys)
            refused = installation.zonectl("kv", "get", "frail", lost[0])
            assert "PARTITION_LOST" in refused.stderr
            ready = installation.get("/readyz")
            assert ready["lost_partitions"] == [{"zone": "FRAIL", "partitions": len(numbers)}]
            assert "PARTITION_LOST" in {part["cause"].partition(":")[0] for part in ready["degraded"]}
            states = json.loads(installation.zonectl("recovery", "states", "frail", "--format", "json").stdout)
            assert [each["partition"] for each in states if each["state"] == "UNAVAILABLE"] == numbers
            assert reset(installation) == [(number, "OWNED") for number in numbers]
            wait_for("the zone", lambda: _progress(installation, "FRAIL") == "CONVERGED")
            assert [key for key in keys if client.get("FRAIL", key) is None] == lost
            assert installation.get("/readyz")["lost_partitions"] == []
    records = installation.get("/api/v1/audit?subject=FRAIL")["records"]
    assert [each["action"] for each in records].count("RESET LOST PARTITIONS") == 3
    installation.sql("DROP ZONE frail")


def _progress(installation: Installation, zone: str) -> str:
    progress = installation.get(f"/api/v1/zones/{zone}")["progress"]
    return str(progress["state"])


RIGHT, WRONG = "as it was put: 7f3a9c", "as it was put: 000000"


def flip(installation: Installation, node: str) -> None:
    """Bytes of the value, wherever the file of the node's store server has them."""
    path = installation.directory / "nodes" / node / "store" / "data.mdb"
    content = path.read_bytes()
    at = content.find(RIGHT.encode())
    assert at >= 0
    with path.open("r+b") as file:
        while at >= 0:
            file.seek(at)
            file.write(WRONG.encode())
            at = content.find(RIGHT.encode(), at + 1)


@pytest.mark.thorough("simulation/test_store_refills fills it again")
@pytest.mark.slow("a copy is emptied and filled again")
def test_a_damaged_copy_is_repaired_from_the_others(installation: Installation) -> None:
    """Repair a damaged copy from the others. Its value is wrong in each read until the copy leaves the in-sync
    set; then all copies are right again. The only copy in sync is left alone."""

    def value() -> str:
        return installation.zonectl("kv", "get", "mended", "key").stdout.strip()

    def copy_on(node: str) -> str | None:
        with stored(installation.directory / "nodes" / node / "store") as reader:
            row = reader.row((zone_id, 0), b"key")
        return row.value.decode() if row is not None and row.value is not None else None

    installation.execute("CREATE ZONE mended (PARTITIONS 1, REPLICAS 3) STORAGE PROFILES ['bulk']")
    installation.execute("CREATE ZONE single (PARTITIONS 1, REPLICAS 1) STORAGE PROFILES ['bulk']")
    assert installation.zonectl("kv", "put", "mended", "key", RIGHT).returncode == 0
    (partition,) = installation.partitions("mended")
    primary = partition["stable"]["peers"][0]
    ((zone_id,),) = rows(installation, "SELECT zone_id FROM zones WHERE zone_name = 'MENDED'")
    flip(installation, primary)
    assert value() == WRONG
    repair = ("recovery", "restart", "mended", "-p", "0", "--node", primary, "--cleanup")
    plan = installation.zonectl(*repair, "--dry-run", "--format", "json")
    assert json.loads(plan.stdout) == [{"partition": 0, "nodes": [primary], "cleanup": True}]
    assert copy_on(primary) == WRONG
    done = installation.zonectl(*repair, "--wait")
    assert done.returncode == 0, done.stderr
    wait_for("the right value everywhere", lambda: {copy_on(node) for node in ("n1", "n2", "n3")} == {RIGHT})
    copies = "SELECT count_if(copy_state = 'OWNING') FROM store_copies WHERE zone_name = 'MENDED'"
    wait_for("three owners", lambda: rows(installation, copies) == [[3]])
    assert value() == RIGHT
    (alone,) = installation.partitions("single")
    (owner,) = alone["stable"]["peers"]
    refused = installation.zonectl("recovery", "restart", "single", "--node", owner, "--cleanup")
    assert refused.returncode == 1
    assert "NOT_ENOUGH_ALIVE_NODES" in refused.stderr
    assert f"nobody else who lives is in sync in partition 0: the data of {owner} is needed" in refused.stderr
    records = installation.get("/api/v1/audit?subject=MENDED")["records"]
    assert [each["action"] for each in records].count("RESTART PARTITIONS") == 1
    installation.sql("DROP ZONE mended")
    installation.sql("DROP ZONE single")
