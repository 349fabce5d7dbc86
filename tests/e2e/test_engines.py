"""Storage profiles that name an engine: one that comes with a package of its own keeps a zone's groups."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.installation import ZONECTL, Installation, wait_for, without_spark, writing

pytestmark = pytest.mark.timeout(600)

NODES = ("n1", "n2", "n3")
PACKAGE = """
from rebalance.groups.etcd_group import EtcdGroupHost

class AcmeHost(EtcdGroupHost):
    def engine(self, partition):
        return "acme"

def open_engine(room):
    return AcmeHost(room.data_dir, room.ports, host=room.host, member_limit=room.member_limit)
"""


def package(directory: Path) -> Path:
    """Directory of a package as pip would have installed it."""
    about = directory / "acme_store-1.0.dist-info"
    about.mkdir(parents=True)
    (directory / "acme_store.py").write_text(PACKAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-store\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[zonekeeper.engines]\nacme = acme_store:open_engine\n")
    return directory


@pytest.fixture(scope="module")
def two_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Every node keeps ``default`` by etcd and ``archive`` by the package; n3 keeps ``cold`` by another one."""
    directory = tmp_path_factory.mktemp("engines")
    topology = directory / "nodes.json"
    cold = {"n1": "cold=acme", "n2": "cold=acme", "n3": "cold"}
    topology.write_text(
        json.dumps([{"name": name, "profiles": ["default", "archive=acme", cold[name]]} for name in NODES])
    )
    path = f"{package(directory / 'packages')}:{os.environ.get('PYTHONPATH', '')}"
    environment = {"PYTHONPATH": path, **without_spark(directory)}
    whole = Installation(directory / "data", 3, environment, ("--topology", str(topology)))
    whole.start()
    yield whole
    whole.stop()


def directories(installation: Installation, below: str) -> dict[str, list[str]]:
    """Node -> partitions that it has members of in an engine's directory."""
    nodes = installation.directory / "nodes"
    return {name: sorted(each.name for each in (nodes / name / below).glob("*")) for name in NODES}


@pytest.mark.row("IEP-012")
def test_a_profile_names_what_keeps_its_groups(two_engines: Installation) -> None:
    """IEP-012: groups of both engines are founded, serve and move side by side on the same nodes, each in a
    directory of its engine's own."""
    two_engines.execute("CREATE ZONE plain (PARTITIONS 2, REPLICAS 3)")
    two_engines.execute("CREATE ZONE kept (PARTITIONS 2, REPLICAS 1) STORAGE PROFILES ['archive']")
    with writing(two_engines, "KEPT") as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 20)
        two_engines.execute("ALTER ZONE kept SET REPLICAS 3")
    writer.read_back()
    assert writer.errors == []
    zones = {each["name"]: each["zone_id"] for each in two_engines.get("/api/v1/zones")["zones"]}
    expected = {name: [f"{zones['KEPT']}-0", f"{zones['KEPT']}-1"] for name in NODES}
    assert directories(two_engines, "engines/acme/members") == expected
    assert directories(two_engines, "members")["n1"] == [f"{zones['PLAIN']}-0", f"{zones['PLAIN']}-1"]
    two_engines.execute("DROP ZONE kept")
    assert directories(two_engines, "members")["n1"] == [f"{zones['PLAIN']}-0", f"{zones['PLAIN']}-1"]


@pytest.mark.row("IEP-012")
def test_profiles_of_two_engines_are_refused(two_engines: Installation) -> None:
    """IEP-012: the message names who keeps what; the catalog stays as it was."""
    before = two_engines.get("/api/v1/zones")
    text = "CREATE ZONE torn (REPLICAS 3) STORAGE PROFILES ['default', 'cold']"
    answer = two_engines.request("POST", "/api/v1/statements", {"sql": text}, 30)
    problem = answer.json()
    assert (answer.status_code, problem["name"], problem["sqlState"]) == (
        400,
        "STORAGE_PROFILE_ENGINES",
        "22023",
    )
    assert "acme keeps 'cold' on n1, 'cold' on n2; etcd keeps 'default' on n1" in problem["detail"]
    assert two_engines.get("/api/v1/zones") == before


@pytest.mark.row("IEP-012")
def test_an_engine_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    """IEP-012: the node says which there are, and does not start."""
    command = [*ZONECTL, "node", "--name", "n1", "--profiles", "default=acme", "--ports", "20000-20019"]
    done = subprocess.run(
        [*command, "--data-dir", str(tmp_path), "--metastore", "http://127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode != 0
    assert "there is no engine 'acme'; installed: etcd" in done.stderr
