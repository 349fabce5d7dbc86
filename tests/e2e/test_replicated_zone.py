"""A zone with a replica on every node: a few voters, and learners that serve reads (IEP-133)."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest

from rebalance.groups.calls.data_client import DATUM_PREFIX
from rebalance.kernels.rendezvous import place
from tests.e2e.installation import (
    ANSWER_S,
    MARK,
    ZONECTL,
    Installation,
    wait_for,
    without_spark,
    writing,
)
from tests.fixtures.installation_dumps import endpoint
from tests.fixtures.ports import free_block
from tests.fixtures.recovery_commands import dry_run, reset

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow("nodes come and go one after the other, each with all its moves"),
]
NODES, SSD = 7, 4
"""The first ones have disk=ssd, the others disk=hdd."""
ZONE = "EVERYWHERE"
CREATE = (
    f"CREATE ZONE {ZONE} (PARTITIONS 2, REPLICAS ALL, QUORUM SIZE 2, AUTO SCALE UP 0, AUTO SCALE DOWN {{down}})"
)


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    directory = tmp_path_factory.mktemp("seven")
    topology = directory / "nodes.json"
    topology.write_text(
        json.dumps(
            [
                {"name": f"n{number}", "attributes": {"disk": "ssd" if number <= SSD else "hdd"}}
                for number in range(1, NODES + 1)
            ]
        )
    )
    whole = Installation(directory / "data", NODES, without_spark(directory), ("--topology", str(topology)))
    whole.start()
    yield whole
    for agent in whole.processes("app.cli", " node "):
        agent.resume()
    whole.stop()


def roles(installation: Installation, zone: str = ZONE) -> list[tuple[set[str], set[str]]]:
    """Voters and learners of each partition, by stable."""
    found = installation.partitions(zone)
    return [(set(each["stable"]["peers"]), set(each["stable"]["learners"])) for each in found]


def all_replicas_run(installation: Installation, zone: str = ZONE) -> bool:
    for partition in installation.partitions(zone):
        running = {each["node"] for each in partition["members"] if each["state"] == "RUNNING"}
        wanted = {*partition["stable"]["peers"], *partition["stable"]["learners"]}
        if partition["pending"] or running != wanted:
            return False
    return True


def is_whole(installation: Installation) -> bool:
    sizes = {len(voters) + len(learners) for voters, learners in roles(installation)}
    return sizes == {NODES} and all_replicas_run(installation)


def ask(installation: Installation, key: str, **options: str | int) -> httpx.Response:
    return installation.request("GET", f"/api/v1/zones/{ZONE}/kv/{key}", params=options)


def read(installation: Installation, key: str, **options: str | int) -> dict[str, Any]:
    response = ask(installation, key, **options)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def put(installation: Installation, key: str, value: str) -> int:
    return installation.request("PUT", f"/api/v1/zones/{ZONE}/kv/{key}", {"value": value}).status_code


def kill(installation: Installation, name: str) -> psutil.Process:
    """Kill the node's processes; its agent is frozen first, so that they are not started again."""
    (agent,) = installation.processes("app.cli", " node ", f"--name {name}")
    agent.suspend()
    for process in installation.processes("etcd"):
        if process.ppid() == agent.pid:
            process.kill()
    return agent


@pytest.mark.row("IEP-001..006", "IEP-034", "IEP-045..047")
def test_voters_and_learners_as_nodes_come_and_go(seven: Installation) -> None:
    """IEP-001, IEP-002, IEP-003, IEP-004, IEP-005, IEP-006, IEP-034, IEP-045, IEP-046, IEP-047; S056, S057,
    S180, S181: place three voters and four learners of each partition on seven nodes. A learner that goes
    changes no other role, a voter that goes is replaced by a learner; a node that comes back is a replica
    again, without any ALTER."""
    seven.execute(CREATE.format(down=0))
    assert [(len(voters), len(learners)) for voters, learners in roles(seven)] == [(3, 4)] * 2
    everybody = {f"n{number}" for number in range(1, NODES + 1)}
    assert all(voters | learners == everybody for voters, learners in roles(seven))
    with writing(seven, ZONE) as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 20)
        wait_for("every replica", lambda: all_replicas_run(seven))
        before = roles(seven)
        spare = set.intersection(*(learners for _, learners in before))
        learner = sorted(spare)[0]
        agent = kill(seven, learner)
        wait_for("the others", lambda: all(learner not in learners for _, learners in roles(seven)))
        assert [voters for voters, _ in roles(seven)] == [voters for voters, _ in before]
        agent.resume()
        wait_for("its return", lambda: all_replicas_run(seven) and roles(seven) == before)

        voter = sorted(before[0][0])[0]
        agent = kill(seven, voter)
        wait_for("a promotion", lambda: voter not in roles(seven)[0][0] and all_replicas_run(seven))
        voters, learners = roles(seven)[0]
        assert len(voters) == 3
        assert len(learners) == 3
        assert voters - before[0][0] <= before[0][1], "the new voter was a learner"
        agent.resume()
        wait_for(
            "seven replicas", lambda: all_replicas_run(seven) and sum(map(len, roles(seven)[0])) == NODES, 120
        )
    assert writer.errors == []
    writer.read_back()
    for key, value in list(writer.acknowledged.items())[-20:]:
        newest = read(seven, key)["revision"]
        assert read(seven, key, read="learner", at_revision=newest)["value"] == value
        assert read(seven, key, read="learner")["value"] == value
    seven.execute(f"DROP ZONE {ZONE}")
    wait_for("the end of all replicas", lambda: not seven.processes("etcd", "/members/"))
    wait_for("the end of all mirrors", lambda: not seven.processes("etcd", "/mirrors/"))


@pytest.mark.row("IEP-049", "IEP-050", "IEP-051", "IEP-059", "IEP-060", "IEP-061")
@pytest.mark.soak
def test_a_lost_majority_promotes_nobody_and_a_reset_keeps_what_is_known(seven: Installation) -> None:
    """IEP-049, IEP-050, IEP-051, IEP-059, IEP-060, IEP-061: two of three voters are killed at once. No learner
    is promoted and no put is taken, however long it lasts; reads of what is known go on at learners. A reset
    makes the survivor the group, which takes puts again and has every acknowledged one; those of the dead come
    back as nothing more than ordinary replicas."""
    seven.execute(CREATE.format(down=0).replace("PARTITIONS 2", "PARTITIONS 1"))
    wait_for("every replica", lambda: all_replicas_run(seven))
    written = {f"k{number}": f"v{number}" for number in range(50)}
    for key, value in written.items():
        assert put(seven, key, value) == 200
    # A learner that is far behind refuses.
    wait_for("the last one at a learner", lambda: ask(seven, "k49", read="learner").status_code == 200)
    assert read(seven, "k49", read="learner")["value"] == "v49"
    voters, learners = roles(seven)[0]
    survivor, *lost = sorted(voters)
    agents = [kill(seven, name) for name in lost]
    states = f"/api/v1/zones/{ZONE}/recovery/states"

    def state() -> str:
        (partition,) = seven.get(states)["partitions"]
        return str(partition["state"])

    wait_for("no majority", lambda: state() not in ("AVAILABLE", "DEGRADED"))
    assert put(seven, "refused", "v") in (503, 504)
    committed = seven.partitions(ZONE)[0]
    assert {each["node"] for each in committed["members"] if each["role"] == "VOTER"} >= {survivor}
    assert not learners & {each["node"] for each in committed["members"] if each["role"] == "VOTER"}

    plan = dry_run(seven, ZONE)
    assert {each["node"] for each in plan["candidates"]} == {survivor, *learners}
    assert sorted(plan["to_confirm"]) == lost
    reset(seven, ZONE)
    wait_for("puts are taken", lambda: put(seven, "after", "the reset") == 200)
    for key, value in written.items():
        assert read(seven, key)["value"] == value
    for agent in agents:
        agent.resume()
    wait_for("all seven", lambda: is_whole(seven))
    assert read(seven, "after")["value"] == "the reset"
    for key, value in written.items():
        assert read(seven, key)["value"] == value


def group_voters(installation: Installation, zone: str) -> set[str]:
    """Voters of the zone's only partition that a member of the group itself lists."""
    (partition,) = installation.partitions(zone)
    url = next(each["client_url"] for each in partition["members"] if each["role"] == "VOTER")
    listed = f"{url}/v3/cluster/member/list"
    answer = httpx.post(listed, json={}, timeout=ANSWER_S, verify=installation.machines).raise_for_status()
    return {each["name"] for each in answer.json()["members"] if not each.get("isLearner", False)}


@pytest.mark.thorough("simulation/test_learners has these targets")
@pytest.mark.row("IEP-031")
def test_alter_between_all_and_a_number_and_to_other_quorums(seven: Installation) -> None:
    """IEP-031: ALTER ZONE from a number to ALL, to a larger quorum, to a smaller one, and back to a number.
    Each time the catalog has the parameters, stable the roles, and the group the voters that follow; who is
    promoted was a learner, who is demoted learns; a writer sees no error."""
    seven.execute("CREATE ZONE altered (PARTITIONS 1, REPLICAS 3)")
    everybody = {f"n{number}" for number in range(1, NODES + 1)}
    with writing(seven, "ALTERED") as writer:
        before, learning = roles(seven, "ALTERED")[0]
        assert (len(before), learning) == (3, set())
        for options, replicas, quorum, voting in (
            ("REPLICAS ALL, QUORUM SIZE 2", "ALL", 2, 3),
            ("QUORUM SIZE 3", "ALL", 3, 5),
            ("QUORUM SIZE 2", "ALL", 2, 3),
            ("REPLICAS 4", 4, 2, 3),
        ):
            seven.execute(f"ALTER ZONE altered SET ({options})")
            wait_for(f"replicas of {options}", lambda: all_replicas_run(seven, "ALTERED"))
            zone = seven.get("/api/v1/zones/altered")
            assert (zone["replicas"], zone["quorum_size"]) == (replicas, quorum)
            voters, learners = roles(seven, "ALTERED")[0]
            assert len(voters) == voting
            assert voters >= before or voters <= before
            assert group_voters(seven, "ALTERED") == voters
            if replicas == "ALL":
                assert voters | learners == everybody
            else:
                assert len(voters | learners) == replicas
            assert voters - before <= learning
            before, learning = voters, learners
    assert writer.errors == []
    writer.read_back()
    seven.execute("DROP ZONE altered")


@contextmanager
def joined(installation: Installation, name: str, disk: str) -> Iterator[None]:
    """One more node for the length of the block."""
    ports = free_block(20)
    directory = installation.directory.parent / name
    command = [*ZONECTL, "node", "--name", name, "--attributes", json.dumps({"disk": disk})]
    command += ["--metastore", endpoint(installation), "--data-dir", str(directory)]
    command += ["--ports", f"{ports.start}-{ports.stop - 1}"]
    environment = {**os.environ, **installation.of_services, MARK: installation.mark}
    with (installation.directory.parent / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        wait_for(f"node {name}", lambda: is_alive(installation, name))
        yield
    finally:
        process.terminate()
        process.wait(120)


def is_alive(installation: Installation, name: str) -> bool:
    nodes = installation.get("/api/v1/nodes")["nodes"]
    return any(each["name"] == name and each["alive"] for each in nodes)


@pytest.mark.row("IEP-003", "IEP-010")
def test_a_joined_node_gets_learners_where_it_matches(seven: Installation) -> None:
    """IEP-003, IEP-010: two zones with REPLICAS ALL and the filter disk=ssd; a node with disk=ssd, which
    placement ranks behind the voters of each partition, and one with disk=hdd join. Where the scale-up timer
    is 0 the first one gets a learner at once, in the catalog's version of before; where it is an hour it has
    none even then; once that is over, it has one of every partition, with the data, and no other role
    changes. The other one gets no member in any."""
    # Its learners come to every node, also to the two that join here.
    seven.execute(f"DROP ZONE IF EXISTS {ZONE}")
    ssd = [f"n{number}" for number in range(1, SSD + 1)]
    new = learner_everywhere(ssd)
    for name, up in (("prompt", 0), ("tardy", 3600)):
        seven.execute(
            f"CREATE ZONE {name} (PARTITIONS 2, REPLICAS ALL, QUORUM SIZE 2, AUTO SCALE UP {up}, "
            """NODES FILTER '$[?(@.disk == "ssd")]')"""
        )
    before, version = roles(seven, "TARDY"), seven.get("/api/v1/zones")["catalog_version"]
    assert are_everywhere(seven, "TARDY", {*ssd})
    keys = [f"k{number}" for number in range(20)]
    for key in keys:
        put = seven.request("PUT", f"/api/v1/zones/TARDY/kv/{key}", {"value": key})
        assert put.status_code == 200
    after = [(voters, learners | {new}) for voters, learners in before]
    with joined(seven, "hdd-0", "hdd"), joined(seven, new, "ssd"):
        wait_for("the prompt zone", lambda: roles(seven, "PROMPT") == after)
        assert seven.get("/api/v1/zones")["catalog_version"] == version
        assert roles(seven, "TARDY") == before
        assert are_everywhere(seven, "TARDY", {*ssd})
        seven.execute("ALTER ZONE tardy SET (AUTO SCALE UP 1)")
        wait_for("the tardy zone", lambda: are_everywhere(seven, "TARDY", {*ssd, new}))
        assert roles(seven, "TARDY") == after
        wait_for("its copies", lambda: copied(seven, "TARDY", new) == set(keys))
        assert seven.processes("etcd", f"={seven.directory.parent / new}/")
        assert not seven.processes("etcd", f"={seven.directory.parent / 'hdd-0'}/")
        for zone in ("PROMPT", "TARDY"):
            seven.execute(f"DROP ZONE {zone}")


def learner_everywhere(nodes: list[str]) -> str:
    """A name that comes after three of the nodes in partitions 0 and 1."""
    for name in (f"ssd-{number}" for number in range(100)):
        if len(nodes) not in place([*nodes, name], range(2), len(nodes) + 1)[:, :3]:
            return name
    raise AssertionError("no such name")


def copied(installation: Installation, zone: str, node: str) -> set[str]:
    """The keys that the node's own replicas hold."""
    keys = set()
    asked = {"key": encoded(DATUM_PREFIX), "range_end": encoded(DATUM_PREFIX[:-1] + b"0"), "serializable": True}
    for partition in installation.partitions(zone):
        (url,) = (each["client_url"] for each in partition["members"] if each["node"] == node)
        answer = httpx.post(f"{url}/v3/kv/range", json=asked, timeout=ANSWER_S, verify=installation.machines)
        kvs = answer.raise_for_status().json()["kvs"]
        keys |= {base64.b64decode(each["key"]).removeprefix(DATUM_PREFIX).decode() for each in kvs}
    return keys


def encoded(key: bytes) -> str:
    return base64.b64encode(key).decode()


def are_everywhere(installation: Installation, zone: str, nodes: set[str]) -> bool:
    """Every partition has a running replica on these nodes, and on no other."""
    by_stable = [voters | learners for voters, learners in roles(installation, zone)]
    return all(each == nodes for each in by_stable) and all_replicas_run(installation, zone)
