"""A zone that store servers keep, in an installation as it comes."""

from __future__ import annotations

import json

import pytest

from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import MemberRecord, MemberState
from tests.e2e.installation import Installation, wait_for, writing
from tests.fixtures.installation_dumps import etcdctl
from zonekeeper_client import BlockingZoneClient, Mode

KEYS = [f"key-{number}" for number in range(30)]

pytestmark = pytest.mark.timeout(600)


@pytest.mark.slow("an installation starts, and each node's store server with it")
def test_a_zone_in_the_profile_bulk_is_created_and_altered(installation: Installation) -> None:
    """More copies on a node than it may have members, and none of them is one."""

    def is_done(kind: str) -> bool:
        operations = installation.get("/api/v1/operations")["operations"]
        return [each["state"] for each in operations if (each["zone"], each["kind"]) == ("KEPT", kind)] == [
            "DONE"
        ]

    installation.sql("CREATE ZONE kept (PARTITIONS 600, REPLICAS 3) STORAGE PROFILES ['bulk']")
    wait_for("its creation", lambda: is_done("CREATE_ZONE"), 120)
    installation.sql("ALTER ZONE kept SET (REPLICAS 2)")
    wait_for("the change", lambda: is_done("ALTER_ZONE"), 120)
    partitions = installation.partitions("kept")
    assert {len(partition["stable"]["peers"]) for partition in partitions} == {2}
    assert not any(partition["members"] for partition in partitions)
    assert strays(installation) == ("0", [])
    zone_id = installation.get("/api/v1/zones/KEPT")["zone_id"]
    stray = MemberRecord(MemberState.RUNNING, "http://127.0.0.1:1", "http://127.0.0.1:2").encode().decode()
    key = Keyspace().member(PartitionId(zone_id, 7), "n9")
    etcdctl(installation, "put", key, stray)
    named = "zone KEPT on node n9: 1"
    wait_for("a build of before is told", lambda: strays(installation) == (named, [named]))
    removed = installation.zonectl("node", "remove", "n9", "--yes", "--wait")
    assert removed.returncode == 0, removed
    assert strays(installation) == ("0", [])
    installation.sql("DROP ZONE kept")


def strays(installation: Installation) -> tuple[str, list[str]]:
    """Members of groups in store zones, as the doctor and the API name them."""
    doctor = installation.zonectl("doctor", "-o", "json", "--data-dir", str(installation.directory))
    values = {check["name"]: check["value"] for check in json.loads(doctor.stdout)["checks"]}
    return values["members of groups in store zones"], installation.get("/api/v1/upgrade")["strays"]


@pytest.mark.thorough("linearizability/test_store_scenes has clients of both ways")
@pytest.mark.slow("programs go on during a move, and while a server is killed")
def test_programs_read_and_write_a_store_zone(installation: Installation) -> None:
    """Read and write by the routing map, through the server and with ``zonectl kv``, before, during and after a
    move; and when a server with primaries is killed."""
    installation.execute("CREATE ZONE stored (PARTITIONS 16, REPLICAS 3) STORAGE PROFILES ['bulk']")
    routing = installation.get("/api/v1/zones/STORED/routing")
    assert routing["engine"] == "store"
    assert {len(partition["voters"]) for partition in routing["partitions"]} == {3}
    servers = [installation.url]
    with (
        BlockingZoneClient(servers, mode=Mode.DIRECT, tls=installation.tls, **installation.login) as direct,
        BlockingZoneClient(servers, **installation.login) as routed,
    ):
        for key in KEYS:
            stored = direct.put("stored", key, f"direct {key}", f"op-{key}")
            assert not stored.repeated
            assert routed.put("STORED", key, "not again", f"op-{key}").repeated
        command = installation.zonectl("kv", "put", "stored", "by command", "its value")
        assert command.returncode == 0, command.stderr
        with writing(installation, "STORED") as during_move:
            wait_for("puts", lambda: len(during_move.acknowledged) > 10)
            installation.execute("ALTER ZONE stored SET (REPLICAS 2)")
            known = len(during_move.acknowledged)
            wait_for("puts after the move", lambda: len(during_move.acknowledged) > known)
        assert not during_move.errors
        during_move.read_back()
        assert {len(partition["copies"]) for partition in installation.partitions("STORED")} == {2}
        verified = installation.zonectl("verify", "stored")
        assert (verified.returncode, "16 partitions, 32 of 32 replicas read" in verified.stdout) == (0, True), (
            verified
        )
        with writing(installation, "STORED") as during_kill:
            leader = installation.partitions("STORED")[0]["leader"]
            (server,) = installation.processes("store serve", f"--name {leader} ")
            server.kill()
            wait_for("another server", lambda: _is_back(installation, leader, server.pid))
            known = len(during_kill.acknowledged)
            wait_for("puts after the kill", lambda: len(during_kill.acknowledged) > known)
            wait_for("all copies", lambda: _states(installation) == {("DONE", "")})
        assert not during_kill.errors
        during_kill.read_back()
        for key in KEYS:
            values = direct.get("STORED", key), routed.get("STORED", key)
            assert [value.value for value in values if value is not None] == [f"direct {key}"] * 2
            assert values[0] == values[1]
        assert direct.get("STORED", "no such key") is routed.get("STORED", "no such key") is None
    answer = installation.zonectl("kv", "get", "stored", "by command", "--format", "json")
    assert json.loads(answer.stdout)["value"] == "its value"
    learner = installation.zonectl("kv", "get", "stored", "by command", "--read", "learner")
    assert (learner.returncode, "read=leader" in learner.stderr) == (1, True), learner
    assert sum(node["copies"] for node in installation.get("/api/v1/nodes")["nodes"]) == 2 * 16
    installation.execute("DROP ZONE stored")


@pytest.mark.thorough("integration/test_store_servers stops all of them")
@pytest.mark.slow("every store server is killed and comes back")
def test_all_servers_are_killed_at_once(installation: Installation) -> None:
    """Kill all servers without a loss or a failed put: puts that come wait, and the zone reports the cause."""
    installation.execute("CREATE ZONE stored (PARTITIONS 4, REPLICAS 3) STORAGE PROFILES ['bulk']")
    with writing(installation, "STORED") as writer:
        wait_for("puts", lambda: len(writer.acknowledged) > 10)
        servers = installation.processes("store serve", "--name n")
        for server in servers:
            server.kill()
        causes = wait_for("a cause", lambda: {cause for _, cause in _states(installation) if cause})
        known_causes = ("SERVER_SILENT: ", "SERVER_DOWN: ", "OWNERS_AWAITED: ", "FILLING: ")
        assert [cause for cause in causes if not cause.startswith(known_causes)] == []
        known = len(writer.acknowledged)
        wait_for("puts after the kill", lambda: len(writer.acknowledged) > known)
        wait_for("all copies", lambda: _states(installation) == {("DONE", "")})
    assert not writer.errors
    writer.read_back()
    installation.execute("DROP ZONE stored")


def _is_back(installation: Installation, node: str, killed: int) -> bool:
    return any(process.pid != killed for process in installation.processes("store serve", f"--name {node} "))


def _states(installation: Installation) -> set[tuple[str, str]]:
    statuses = (partition["status"] for partition in installation.partitions("STORED"))
    return {(status["state"], status["cause"]) for status in statuses}
