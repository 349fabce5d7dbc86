"""Statements of ``docs/etcd-versions.md`` about etcd itself: three members, between 3.4, 3.5 and 3.6."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.installation import wait_for
from tests.fixtures.etcd_cluster import MEMBERS, EtcdCluster
from tests.fixtures.etcd_programs import MINORS, program

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1_200),
    pytest.mark.slow("members are restarted with other versions, one after the other"),
]

FORGOTTEN = "Removing zombie member from v3store"
REMOVED = "the member has been permanently removed from the cluster"
NOT_READ = "detected disallowed v2 WAL for stage --v2-deprecation=write-only"
TOO_OLD = "invalid downgrade; server version is lower than determined cluster version"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    """Cluster on 3.4, without a key."""
    for minor in MINORS:
        program(minor)
    started = EtcdCluster(tmp_path, "--logger", "zap", "--log-outputs", "stderr", program=program("3.4"))
    yield started
    started.stop()


def call(cluster: EtcdCluster, member: int, path: str, body: dict[str, Any]) -> Any:
    """Raises what ``wait_for`` repeats."""
    url = f"http://{cluster.endpoints[member]}{path}"
    answer = httpx.post(url, json=body, trust_env=False, timeout=30)
    answer.raise_for_status()
    return answer.json()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def put(cluster: EtcdCluster, member: int, key: str) -> None:
    """Through that member, as soon as it takes it."""
    body = {"key": encoded(key), "value": encoded(f"value of {key}")}
    wait_for(f"a put through member {member}", lambda: call(cluster, member, "/v3/kv/put", body))


def read(cluster: EtcdCluster, member: int, key: str) -> str:
    (found,) = call(cluster, member, "/v3/kv/range", {"key": encoded(key)})["kvs"]
    return base64.b64decode(found["value"]).decode()


def version(cluster: EtcdCluster, member: int) -> dict[str, str]:
    answer = httpx.get(f"http://{cluster.endpoints[member]}/version", trust_env=False, timeout=30)
    return dict(answer.raise_for_status().json())


def swap(cluster: EtcdCluster, member: int, minor: str, *options: str) -> None:
    """The member's program; returns at once."""
    cluster.end(member)
    cluster.program = program(minor)
    cluster.start(member, *options)


def move(cluster: EtcdCluster, minor: str, *options: str) -> None:
    """All members, each once the one before it takes puts."""
    for member in range(MEMBERS):
        swap(cluster, member, minor, *options)
        put(cluster, member, f"{minor} {member}")


def wait_for_version(cluster: EtcdCluster, minor: str, what: str = "etcdcluster") -> None:
    told = [f"{minor}.0"] * MEMBERS
    wait_for(
        f"{what} {minor}",
        lambda: [version(cluster, member).get(what) for member in range(MEMBERS)] == told,
    )


def assert_ends(cluster: EtcdCluster, member: int, minor: str, text: str) -> None:
    """Check that the member ends by itself with that program, with an error code and that text in its log."""
    swap(cluster, member, minor)
    wait_for(f"the end of {minor}", lambda: cluster.ended(member) is not None)
    assert cluster.ended(member) != 0
    assert text in cluster.log(member).read_text()


def forgetful(cluster: EtcdCluster) -> list[int]:
    return [member for member in range(MEMBERS) if FORGOTTEN in cluster.log(member).read_text()]


def test_a_member_without_a_write_since_its_list_changed_forgets_the_others(cluster: EtcdCluster) -> None:
    """3.5 says so when it starts, and serves; 3.6 ends those who were forgotten, on 3.5 already or once they
    are on 3.6: a write between is a matter of luck."""
    move(cluster, "3.5")
    wait_for_version(cluster, "3.5")
    assert forgetful(cluster) == [0]
    for member in range(MEMBERS):
        swap(cluster, member, "3.6")
    wait_for(
        "the end of one that was forgotten",
        lambda: any(REMOVED in cluster.log(member).read_text() for member in (1, 2)),
    )


def test_a_forgetful_member_is_replaced_under_3_5(cluster: EtcdCluster) -> None:
    move(cluster, "3.5")
    wait_for_version(cluster, "3.5")
    assert forgetful(cluster) == [0]
    (own,) = (
        entry for entry in call(cluster, 1, "/v3/cluster/member/list", {})["members"] if entry["name"] == "m0"
    )
    cluster.end(0)
    wait_for("its removal", lambda: call(cluster, 1, "/v3/cluster/member/remove", {"ID": own["ID"]}))
    cluster.data(0).rename(cluster.data(0).with_name("m0-before"))
    added = {"peerURLs": own["peerURLs"]}
    wait_for("its addition", lambda: call(cluster, 1, "/v3/cluster/member/add", added))
    cluster.start(0, "--initial-cluster-state", "existing")
    put(cluster, 0, "again")

    move(cluster, "3.6")
    wait_for_version(cluster, "3.6")
    for member in range(MEMBERS):
        assert read(cluster, member, "again") == "value of again"
        assert REMOVED not in cluster.log(member).read_text()


def test_health_asked_of_3_4_stops_3_6_until_3_5_has_written_a_snapshot(cluster: EtcdCluster) -> None:
    put(cluster, 0, "first")
    httpx.get(f"http://{cluster.endpoints[1]}/health", trust_env=False, timeout=30).raise_for_status()
    move(cluster, "3.5")
    wait_for_version(cluster, "3.5")
    assert forgetful(cluster) == []
    assert_ends(cluster, 0, "3.6", NOT_READ)
    swap(cluster, 0, "3.5")
    put(cluster, 0, "again on 3.5")

    move(cluster, "3.5", "--snapshot-count", "1")
    for number in range(4):
        put(cluster, 0, f"more {number}")
    for member in range(MEMBERS):
        snapshots = cluster.data(member) / "member" / "snap"
        wait_for(f"a snapshot of {member}", lambda snapshots=snapshots: list(snapshots.glob("*.snap")))
    move(cluster, "3.6")
    wait_for_version(cluster, "3.6")
    for member in range(MEMBERS):
        assert read(cluster, member, "first") == "value of first"


def test_the_way_back_ends_with_the_last_member_and_3_6_alone_can_be_asked_for_it(cluster: EtcdCluster) -> None:
    put(cluster, 0, "first")
    for older, minor in (("3.4", "3.5"), ("3.5", "3.6")):
        swap(cluster, 0, minor)
        put(cluster, 0, f"mixed {minor}")
        swap(cluster, 0, older)
        put(cluster, 0, f"back {older}")
        move(cluster, minor)
        wait_for_version(cluster, minor)
        assert_ends(cluster, 0, older, TOO_OLD)
        swap(cluster, 0, minor)
        put(cluster, 0, f"again {minor}")

    etcdctl = Path(program("3.6")).with_name("etcdctl")
    asked = [str(etcdctl), "--endpoints", cluster.endpoints[0], "downgrade", "enable", "3.5"]
    subprocess.run(asked, check=True, capture_output=True, timeout=60)
    wait_for_version(cluster, "3.5", "storage")
    move(cluster, "3.5")
    for member in range(MEMBERS):
        assert version(cluster, member)["etcdserver"].startswith("3.5.")
        assert read(cluster, member, "first") == "value of first"
    older_ctl = str(Path(program("3.5")).with_name("etcdctl"))
    refused = subprocess.run(
        [older_ctl, "downgrade", "enable", "3.4"], capture_output=True, text=True, check=False
    )
    assert 'unknown command "downgrade"' in refused.stderr
