"""An installation goes from etcd 3.4 to 3.5 to 3.6, one process at a time: its metastore, and its groups."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from tests.e2e.installation import Writer, wait_for, writing
from tests.fixtures.cut_installation import NODES, SITES, STORES, SpreadInstallation
from tests.fixtures.cut_nodes import CLIENT_PORT, LoopbackSites
from tests.fixtures.etcd_programs import BUILT, MINORS, program

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

KEYS = tuple(f"key-{number}" for number in range(50))
CONVERGED_S = 300.0
ON_FIRST = f'$[?(@.name == "{NODES[0]}")]'
OLDER = f'$[?(@.not_{NODES[0]} == "yes")]'
"""Filters: the node that goes up first, and all others."""


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[SpreadInstallation]:
    """All of it on 3.4, with a zone of three replicas that has ``KEYS``."""
    for minor in MINORS:
        program(minor)
    spread = SpreadInstallation(LoopbackSites(*SITES), tmp_path)
    for site in (*STORES, *NODES):
        spread.sites.programs[site] = program(MINORS[0])
    try:
        spread.start()
        spread.execute("CREATE ZONE kept (PARTITIONS 2, REPLICAS 3)", CONVERGED_S)
        put(spread, "KEPT")
        yield spread
    finally:
        spread.stop()


def put(whole: SpreadInstallation, zone: str) -> None:
    for key in KEYS:
        answer = whole.request("PUT", f"/api/v1/zones/{zone}/kv/{key}", {"value": f"value of {key}"})
        assert answer.status_code == 200, answer.text


def read_back(whole: SpreadInstallation, *zones: str) -> None:
    for zone in zones:
        values = {key: whole.get(f"/api/v1/zones/{zone}/kv/{key}")["value"] for key in KEYS}
        assert values == {key: f"value of {key}" for key in KEYS}


def versions_of(url: str) -> tuple[str, str]:
    """Versions of the program and of its cluster: major and minor."""
    told = httpx.get(f"{url}/version", trust_env=False, timeout=30).raise_for_status().json()
    return told["etcdserver"].rpartition(".")[0], told["etcdcluster"].rpartition(".")[0]


def of_metastore(whole: SpreadInstallation) -> list[tuple[str, str]]:
    return [versions_of(f"http://{whole.sites.networks.address(site)}:{CLIENT_PORT}") for site in STORES]


def of_members(whole: SpreadInstallation) -> list[tuple[str, str]]:
    """Versions of all running members of groups, sorted."""
    flag = "--listen-client-urls="
    words = [word for process in whole.processes("etcd", "/members/") for word in process.cmdline()]
    return sorted(versions_of(word.removeprefix(flag)) for word in words if word.startswith(flag))


def go_up(whole: SpreadInstallation, node: str, minor: str) -> None:
    """Upgrade the node in order, so that no partition loses its majority."""
    wait_for(f"{node} may stop", lambda: may_stop(whole, node))
    whole.sites.end(node)
    whole.sites.programs[node] = program(minor)
    whole.start_nodes(node)


def create(whole: SpreadInstallation, zone: str, picked: str) -> None:
    """Create a zone of one replica on a node that ``picked`` matches, with ``KEYS``."""
    whole.execute(f"CREATE ZONE {zone} (PARTITIONS 1, REPLICAS 1, NODES FILTER '{picked}')", CONVERGED_S)
    put(whole, zone)


def may_stop(whole: SpreadInstallation, node: str) -> bool:
    return whole.zonectl("node", "can-stop", node).returncode == 0


@contextmanager
def served(whole: SpreadInstallation, what: str) -> Iterator[Writer]:
    """Puts go on for the length of the block: each is acknowledged, and is there afterwards."""
    begun = time.monotonic()
    with writing(whole, "KEPT") as writer:
        yield writer
        count = len(writer.acknowledged)
        wait_for("a put after the last step", lambda: len(writer.acknowledged) > count)
    assert writer.errors == []
    writer.read_back()
    print(
        f"{what}: {time.monotonic() - begun:.0f} s, {len(writer.acknowledged)} puts, the slowest "
        f"{writer.longest_stall_s:.2f} s"
    )


@pytest.mark.slow("six restarts of a member, each with statements and puts")
def test_an_installation_serves_while_its_metastore_goes_up(whole: SpreadInstallation) -> None:
    """Statements and puts are answered with one member of the next version, with two, and with all."""
    zones = 0
    for older, minor in pairwise(MINORS):
        assert of_metastore(whole) == [(older, older)] * len(STORES)
        with served(whole, f"metastore {older} to {minor}"):
            for number, site in enumerate(STORES, 1):
                whole.sites.end(site)
                whole.sites.programs[site] = program(minor)
                whole.start_metastore()
                told = sorted(server for server, _ in of_metastore(whole))
                assert told == [older] * (len(STORES) - number) + [minor] * number
                zones += 1
                whole.execute(f"CREATE ZONE at_{zones} (PARTITIONS 1, REPLICAS 1)", CONVERGED_S)
                whole.execute(f"ALTER ZONE at_{zones} SET (REPLICAS 3)", CONVERGED_S)
        reached = [(minor, minor)] * len(STORES)
        wait_for(f"a metastore of {minor}", lambda reached=reached: of_metastore(whole) == reached)
        wait_for("all nodes", whole.is_whole)
        read_back(whole, "KEPT")
        assert len(whole.get("/api/v1/zones")["zones"]) == zones + 1


@pytest.mark.slow("six restarts of a node, each with puts, and copies between two versions")
def test_a_zone_serves_while_its_nodes_go_up(whole: SpreadInstallation) -> None:
    """Upgrade nodes one after another: groups have members of two versions for a while, and one on older nodes
    gets replicas on a newer one."""
    zones, groups = ["KEPT"], 2
    for older, minor in pairwise(MINORS):
        begun = [(older, older)] * groups * len(NODES)
        wait_for(f"members of {older}", lambda begun=begun: of_members(whole) == begun)
        with served(whole, f"nodes {older} to {minor}"):
            for number, name in enumerate(NODES, 1):
                go_up(whole, name, minor)
                told = [older] * groups * (len(NODES) - number) + [minor] * groups * number
                wait_for(
                    f"members of {minor} on {number} nodes",
                    lambda told=told: [server for server, _ in of_members(whole)] == told,
                )
                if number == 1:
                    zones.append(f"AT_{len(zones)}")
                    create(whole, zones[-1], OLDER)
                    whole.execute(f"ALTER ZONE {zones[-1]} SET (REPLICAS 3, NODES FILTER '$..*')", CONVERGED_S)
                    # Not without a write after the last change of members (``docs/etcd-versions.md``).
                    put(whole, zones[-1])
                    groups += 1
                read_back(whole, *zones)
    wait_for("groups of the last version", lambda: set(of_members(whole)) == {(MINORS[-1], MINORS[-1])})
    wait_for("all nodes", whole.is_whole)
    read_back(whole, *zones)


@pytest.mark.slow("three restarts of a node, and a member that is given up twice")
def test_a_group_on_a_newer_node_waits_for_older_nodes_to_go_up(
    whole: SpreadInstallation,
) -> None:
    """Let a zone serve with the replicas that it has while older nodes are not upgraded: etcd takes no member
    that is older than all others."""
    go_up(whole, NODES[0], "3.5")
    wait_for("all nodes", whole.is_whole)
    create(whole, "NEWER", ON_FIRST)
    (altered,) = whole.sql("ALTER ZONE newer SET (REPLICAS 3, NODES FILTER '$..*')")
    text = "joiners are gone, the move goes on without them"
    wait_for("an older node is given up", lambda: text in whole.sites.log(NODES[0]).read_text())
    assert not whole.converged(altered)
    read_back(whole, "KEPT", "NEWER")
    for name in NODES[1:]:
        whole.sites.end(name)
        whole.sites.programs[name] = program("3.5")
        whole.start_nodes(name)
        wait_for("all nodes", whole.is_whole)
    wait_for("three replicas", lambda: whole.converged(altered))
    read_back(whole, "KEPT", "NEWER")


def test_a_node_refuses_an_older_minor_version(whole: SpreadInstallation) -> None:
    """Refuse an older version also where etcd itself would still take the node back, as the other members are
    of the older version."""
    name = NODES[0]
    whole.sites.end(name)
    whole.sites.programs[name] = program("3.5")
    whole.start_nodes(name)
    wait_for("all nodes", whole.is_whole)
    remembered = whole.sites.data_dir(name) / "etcd.json"
    wait_for("it is remembered", lambda: json.loads(remembered.read_text())["version"][:2] == [3, 5])
    whole.sites.end(name)
    whole.sites.programs[name] = program("3.4")
    whole.start_nodes(name)
    wait_for("its end", lambda: not whole.sites.runs(name))
    said = f"was written by etcd {BUILT['3.5']}"
    assert said in whole.sites.log(name).read_text()
    whole.sites.programs[name] = program("3.5")
    whole.start_nodes(name)
    wait_for("all nodes", whole.is_whole)
    read_back(whole, "KEPT")
