"""Statements and questions that only zones of store servers have, in an installation as it comes."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from app.client.blocking import BlockingZoneClient
from tests.e2e.installation import Installation, wait_for

pytestmark = pytest.mark.timeout(600)


def rows(installation: Installation, sql: str) -> list[list[Any]]:
    data: list[list[Any]] = installation.sql(sql)[0]["data"]
    return data


@pytest.mark.row("PME-007", "PME-008", shows="service")
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


@pytest.mark.slow("a store server is killed three times and comes back")
def test_lost_partitions_are_reset_by_each_way_there_is(installation: Installation) -> None:
    """Of one copy each, whose disk is gone. They are refused until then, and readiness names them; afterwards
    they serve without what was lost, and all else is as it was."""
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
