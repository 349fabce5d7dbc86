"""Directories of nodes that were swapped, and one that was emptied, under processes that run on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.installation import Installation, wait_for
from zonekeeper_client import BlockingZoneClient

KEYS = tuple(f"key-{number}" for number in range(24))
LIMIT_S = 300

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.thorough("unit/test_directory_owner has what a node finds in such a directory"),
]


def node_of(installation: Installation, name: str) -> int:
    """The pid of its agent."""
    (agent,) = wait_for("the agent", lambda: installation.processes("app.cli", " node ", f"--name {name} "))
    return int(agent.pid)


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def kept(directory: Path) -> list[str]:
    """Files of data in the directory: a store of one file, and those of each member."""
    names = ("store/data.mdb", "members/*/data/member/*/*")
    return sorted(str(path.relative_to(directory)) for name in names for path in directory.glob(name))


def shown(installation: Installation) -> list[str]:
    """Causes of directories that are not used."""
    degraded = installation.get("/readyz")["degraded"]
    return [part["cause"] for part in degraded if part["cause"].startswith("FOREIGN_DIRECTORY: ")]


def read_all(installation: Installation, zones: tuple[str, ...]) -> None:
    with BlockingZoneClient([installation.url], **installation.login) as client:
        for zone in zones:
            values = {key: client.get(zone, key) for key in KEYS}
            assert {item.value if item is not None else None for item in values.values()} == {"v"}, values


@pytest.mark.slow("two nodes are killed, held with each other's directories, and come back")
def test_nodes_with_each_others_directories_wait_until_they_have_their_own(installation: Installation) -> None:
    """Swap two nodes' directories: nothing in them is touched meanwhile, no node is started over and over, and
    all is there at the end."""
    zones = ("GROUPED", "STORED")
    installation.execute("CREATE ZONE grouped (PARTITIONS 2, REPLICAS 3)", LIMIT_S)
    installation.execute("CREATE ZONE stored (PARTITIONS 8, REPLICAS 1) STORAGE PROFILES ['bulk']", LIMIT_S)
    with BlockingZoneClient([installation.url], **installation.login) as client:
        for zone in zones:
            for key in KEYS:
                client.put(zone, key, "v")
    nodes = installation.directory / "nodes"
    owners = {name: json.loads((nodes / name / "owner.json").read_text()) for name in ("n1", "n2", "n3")}
    assert {name: owner["node"] for name, owner in owners.items()} == {"n1": "n1", "n2": "n2", "n3": "n3"}
    assert len({owner["installation"] for owner in owners.values()}) == 1
    members = [path for path in nodes.glob("*/m*s/*") if path.is_dir()] + list(nodes.glob("*/store"))
    assert len(members) >= 9
    for path in members:
        assert json.loads((path / "owner.json").read_text()) == owners[path.relative_to(nodes).parts[0]]
    assert installation.process is not None
    up = next(iter(installation.processes("app.cli", " up ")))
    up.suspend()
    try:
        for name in ("n2", "n3"):
            for process in installation.processes(f"--name {name} "):
                process.kill()
        wait_for("their end", lambda: not installation.processes(str(nodes / "n2"), "--data-dir"))
        swap(nodes / "n2", nodes / "n3")
        before = {name: kept(nodes / name) for name in ("n2", "n3")}
        assert all(before.values())
    finally:
        up.resume()
    causes = wait_for("both causes", lambda: len(found := shown(installation)) == 2 and found)
    status = installation.zonectl("status")
    assert status.stdout.count("FOREIGN_DIRECTORY: ") == 2
    pids = [node_of(installation, name) for name in ("n2", "n3")]
    for cause, name, other in zip(sorted(causes), ("n2", "n3"), ("n3", "n2"), strict=True):
        assert f"is the directory of node {other} of installation " in cause
        assert f"and this is node {name}" in cause
        assert str(nodes / name) in cause
    log = (installation.directory / "logs" / "n2.log").read_text()
    assert log.count("is the directory of node n3 of installation") == 1

    def alive() -> list[str]:
        return [node["name"] for node in installation.get("/api/v1/nodes")["nodes"] if node["alive"]]

    wait_for("the end of their leases", lambda: alive() == ["n1"])
    assert {name: kept(nodes / name) for name in ("n2", "n3")} == before
    assert [node_of(installation, name) for name in ("n2", "n3")] == pids
    swap(nodes / "n2", nodes / "n3")
    wait_for("both nodes", installation.is_whole)
    assert [node_of(installation, name) for name in ("n2", "n3")] == pids
    wait_for("every partition", lambda: not lost_or_away(installation, zones), LIMIT_S)
    read_all(installation, zones)
    assert not shown(installation)
    for zone in zones:
        installation.sql(f"DROP ZONE {zone}")


def lost_or_away(installation: Installation, zones: tuple[str, ...]) -> list[str]:
    """States of partitions that are not whole."""
    states = [
        each["state"]
        for zone in zones
        for each in json.loads(installation.zonectl("recovery", "states", zone, "--format", "json").stdout)
    ]
    return [state for state in states if state != "AVAILABLE"]
