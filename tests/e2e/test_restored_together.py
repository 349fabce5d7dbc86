"""Catalog and etcd restored from backups of one moment, while the nodes' disks are as they were: no new zone
shows a lost zone's data, whatever its shape and engine, and nothing of the lost ones is deleted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rebalance.store.core.store_check import check_copy
from rebalance.store.shell.lmdb_disk import stored
from tests.e2e.installation import Installation, wait_for, without_spark
from tests.fixtures.judged_alerts import QUICK_ALERTS

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow("both stores are backed up and restored, and nodes are exchanged"),
    pytest.mark.thorough("integration/test_two_stores restores each store alone"),
]

STORED = "STORAGE PROFILES ['bulk']"
"""Option of zones that store servers keep."""
LOST = {
    "lost_a": "(PARTITIONS 4, REPLICAS 3)",
    "lost_b": f"(PARTITIONS 4, REPLICAS 3) {STORED}",
    "lost_c": "(PARTITIONS 2, REPLICAS 3)",
    "lost_d": f"(PARTITIONS 2, REPLICAS 3) {STORED}",
}
NEW = {
    "new_a": f"(PARTITIONS 2, REPLICAS 3) {STORED}",
    "new_b": "(PARTITIONS 8, REPLICAS 3)",
    "new_c": "(PARTITIONS 4, REPLICAS 3)",
    "new_d": f"(PARTITIONS 8, REPLICAS 2) {STORED}",
}
"""Options of new zones in the order of ids: each of another shape than the lost one, the first two of another
engine."""
KEYS = tuple(f"key-{number}" for number in range(6))


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Installation]:
    """Stopped; its stores are backed up as of a moment at which it had the zone KEPT alone."""
    stage = Installation(tmp_path / "data", environment={**without_spark(tmp_path), **QUICK_ALERTS})
    try:
        stage.start()
        stage.execute("CREATE ZONE kept (PARTITIONS 1, REPLICAS 3)")
        put(stage, "kept")
        stage.stop()
        for store in stores(stage):
            copied(store, tmp_path / "backup" / store.name)
        stage.start()
        for zone, shape in LOST.items():
            stage.execute(f"CREATE ZONE {zone} {shape}")
            put(stage, zone)
        yield stage
    finally:
        stage.kill_up()
        stage.assert_nothing_is_left()


def stores(whole: Installation) -> list[Path]:
    directory = whole.directory
    return [directory / "etcd", *directory.glob("catalog.sqlite*")]


def copied(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


def restore(whole: Installation) -> None:
    """Restore both stores, and nothing else."""
    for store in stores(whole):
        shutil.rmtree(store) if store.is_dir() else store.unlink()
    for store in (whole.directory.parent / "backup").iterdir():
        copied(store, whole.directory / store.name)


def put(whole: Installation, zone: str) -> None:
    for key in KEYS:
        path = f"/api/v1/zones/{zone}/kv/{key}"
        wait_for(
            f"a put to {zone}",
            lambda path=path: whole.request("PUT", path, {"value": zone}).is_success,
        )


def ids(whole: Installation) -> dict[str, int]:
    return {each["name"].lower(): each["zone_id"] for each in whole.get("/api/v1/zones")["zones"]}


def read(whole: Installation, zone: str) -> list[str | None]:
    """Values of the zone's keys; None: the zone serves and does not have the key."""

    def value(key: str) -> Any:
        response = whole.request("GET", f"/api/v1/zones/{zone}/kv/{key}")
        answered = response.status_code in (httpx.codes.OK, httpx.codes.NOT_FOUND)
        return (response.json()["value"] if response.is_success else None,) if answered else ()

    return [wait_for(f"a read of {zone}", lambda key=key: value(key))[0] for key in KEYS]


def disk(whole: Installation, node: str) -> dict[str, Any]:
    """Content of the node's directory: members by directory, with their reservation, and copies of the store by
    zone."""
    directory = whole.directory / "nodes" / node
    members = {
        path.parent.name: (path.parent / "data" / "member" / "wal").is_dir()
        and json.loads(path.read_text())["peer_port"]
        for path in directory.glob("members/*/reservation.json")
    }
    with stored(directory / "store") as reader:
        checks = [check_copy(reader, partition, head) for partition, head in reader.heads().items()]
    copies = {check.partition: (check.rows, check.defects) for check in checks}
    return {"members": members, "copies": copies}


def of_zones(found: dict[str, Any], zones: set[int]) -> dict[str, Any]:
    return {
        "members": {name: held for name, held in found["members"].items() if int(name.split("-")[0]) in zones},
        "copies": {key: rows for key, rows in found["copies"].items() if key[0] in zones},
    }


def test_nodes_know_more_than_both_restored_stores(whole: Installation) -> None:
    lost = set(ids(whole).values()) - {ids(whole)["kept"]}
    whole.stop()
    before = {node: of_zones(disk(whole, node), lost) for node in ("n1", "n2", "n3")}
    assert all(found["members"] and found["copies"] for found in before.values())
    restore(whole)

    whole.start_diverged()
    reason = "has seen etcd at revision"
    refused = whole.zonectl("sql", "-e", f"CREATE ZONE new_a {NEW['new_a']}")
    assert refused.returncode == 1
    assert "METASTORE_DIVERGED" in refused.stderr
    for shown in (("status",), ("doctor", "-o", "json", "--data-dir", str(whole.directory))):
        said = whole.zonectl(*shown)
        assert said.returncode != 0
        assert reason in said.stdout
    wait_for(
        "the alert",
        lambda: [
            alert
            for alert in whole.get("/api/v1/alerts")["alerts"]
            if alert["name"] == "Divergence" and alert["state"] == "firing" and reason in alert["text"]
        ],
    )

    adopted = whole.zonectl("metastore", "adopt", "--yes", "--format", "json")
    assert adopted.returncode == 0, adopted.stderr
    assert json.loads(adopted.stdout)["dropped"] == []
    wait_for("readiness", whole.is_whole)
    for zone, shape in NEW.items():
        whole.execute(f"CREATE ZONE {zone} {shape}")
    assert min(ids(whole)[zone] for zone in NEW) > max(lost)
    for zone in NEW:
        assert read(whole, zone) == [None] * len(KEYS)
    assert read(whole, "kept") == ["kept"] * len(KEYS)
    assert whole.zonectl("metastore", "status").returncode == 0
    whole.stop()
    assert {node: of_zones(disk(whole, node), lost) for node in before} == before


def test_a_node_that_was_away_has_copies_of_lost_zones_under_new_ids(whole: Installation) -> None:
    """Bring a node back that was away when ids were given, so that its copies of lost zones were unknown; the
    node itself has forgotten how far etcd was."""
    lost = {ids(whole)[zone] for zone in LOST}
    whole.stop()
    nodes, away = whole.directory / "nodes", whole.directory.parent / "away"
    before = of_zones(disk(whole, "n3"), lost)
    nodes.rename(away)
    restore(whole)
    whole.nodes = 2
    launch(whole)
    for zone, shape in NEW.items():
        whole.execute(f"CREATE ZONE {zone} {shape}")
        put(whole, zone)
    assert [ids(whole)[zone] for zone in NEW] == sorted(lost)
    whole.stop()
    whole.nodes = 3
    (away / "n3").rename(nodes / "n3")
    (nodes / "n3" / "node.json").unlink()

    launch(whole)
    log = whole.directory / "logs" / "n3.log"
    for words in ("a copy of another zone is left alone", "in this store are of a lost zone"):
        wait_for(words, lambda words=words: words in log.read_text())
    wait_for("the cause", lambda: "FOREIGN_COPY" in json.dumps(whole.partitions("new_c")))
    for zone in NEW:
        assert read(whole, zone) == [zone] * len(KEYS)
    assert whole.sql("CREATE ZONE above")[0]["zone_id"] == max(lost) + 1
    whole.stop()
    after = disk(whole, "n3")
    assert before["members"].items() <= after["members"].items()
    assert before["copies"].items() <= after["copies"].items()


def launch(whole: Installation) -> None:
    """Start the installation, with zones that are served or not, and wait for its nodes."""
    whole.launch()
    wait_for("nodes", lambda: whole.request("GET", "/readyz").json()["nodes"] >= whole.nodes)
