"""Processes below the level in force end, say so in one line, and are not started again; those of builds that
know of no levels are named, and given nothing."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from app.cli.exits import ExitCode
from app.security.local_authority import LocalAuthority
from catalog.core.level import LEVEL
from catalog.core.zone import Node
from catalog.store.migrate import known_schemas, migrate
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import NodeRecord
from tests.e2e.installation import without_spark
from tests.fixtures.api_server import PLAIN, ApiServer, serving
from tests.fixtures.etcd_server import EtcdServer
from tests.fixtures.ports import free_block
from tests.fixtures.up_process import Up, starting, until, until_gone

pytestmark = pytest.mark.timeout(600)

PATIENCE_S = 120.0
ABOVE = {"v": 2, "epoch": 1, "halted": "", "level": LEVEL + 1}


def put(endpoint: str, key: str, value: bytes) -> None:
    body = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value).decode()}
    url = f"http://{endpoint}/v3/kv/put"
    httpx.post(url, json=body, trust_env=False, timeout=30, verify=PLAIN).raise_for_status()


def put_as(up: Up, key: str, value: str) -> None:
    """Put a value into the installation's etcd with the certificates that its processes show."""
    tls = LocalAuthority.of_machines(up.directory).files
    assert tls is not None
    files = ["--cacert", str(tls.ca), "--cert", str(tls.certificate), "--key", str(tls.key)]
    command = ["etcdctl", "--endpoints", up.run_file()["addresses"]["etcd"], *files, "put", key, value]
    subprocess.run(command, env={**os.environ, "ETCDCTL_API": "3"}, capture_output=True, check=True)


def ended(
    directory: Path, etcd: EtcdServer, keyspace: Keyspace, *command: str, catalog: str = ""
) -> tuple[int, str]:
    settings = {
        "ZONEKEEPER_METASTORE": etcd.endpoint,
        "ZONEKEEPER_METASTORE_PREFIX": keyspace.prefix,
        "ZONEKEEPER_CATALOG_URL": catalog or f"sqlite:///{directory / 'catalog.sqlite'}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", *command, "--data-dir", str(directory / "data")],
        env={**os.environ, **settings, **without_spark(directory)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("what", "command"),
    [
        ("this server", ("serve", "--no-auth", "--migrate")),
        ("this controller", ("controller",)),
        ("node n1", ("node", "--name", "n1")),
    ],
)
def test_a_process_below_the_level_in_force_ends(
    own_etcd: EtcdServer, keyspace: Keyspace, tmp_path: Path, what: str, command: tuple[str, ...]
) -> None:
    put(own_etcd.endpoint, keyspace.epoch, json.dumps(ABOVE).encode())
    port, *others = free_block(3)
    places = {
        "serve": ("--port", str(port)),
        "node": ("--ports", f"{others[0]}-{others[1]}"),
        "controller": (),
    }
    code, said = ended(tmp_path, own_etcd, keyspace, *command, *places[command[0]])
    line = f"zonectl: {what} is of release level {LEVEL}, and this installation is at level {LEVEL + 1}"
    assert (code, [text for text in said.splitlines() if text.startswith(line)]) == (
        ExitCode.BELOW_LEVEL,
        [said.strip().splitlines()[-1]],
    )


@pytest.mark.thorough("test_a_process_below_the_level_in_force_ends")
def test_a_server_of_a_catalog_that_it_cannot_write_ends_likewise(
    own_etcd: EtcdServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    file = tmp_path / "catalog.sqlite"
    migrate(f"sqlite:///{file}")
    with sqlite3.connect(file) as catalog:
        catalog.execute("UPDATE alembic_version SET version_num = '9999'")
        catalog.execute("UPDATE schema_writers SET oldest = '9999'")
    port = free_block(1)[0]
    code, said = ended(tmp_path, own_etcd, keyspace, "serve", "--no-auth", "--port", str(port))
    assert code == ExitCode.BELOW_LEVEL
    assert f"schema 9999, which is newer than this build's {known_schemas()[0]}" in said


@pytest.mark.thorough("each process ends by itself above, and unit/test_supervisor_loop restarts children")
def test_up_ends_with_what_may_not_run_and_starts_nothing_in_a_loop() -> None:
    with starting() as start:
        up = start("--nodes", "1", "--no-auth").served()
        tree = up.tree()
        put_as(up, Keyspace().epoch, json.dumps(ABOVE))
        until(lambda: up.process.poll() is not None, PATIENCE_S, up.printed)
        assert up.process.returncode == ExitCode.BELOW_LEVEL
        assert "ended with exit code 6, and is not started again" in up.printed()
        assert "restarting in" not in up.printed()
        until_gone(tree)


@pytest.mark.thorough("unit/test_level names it")
def test_a_node_of_a_build_without_levels_is_named_and_given_nothing(
    own_etcd: EtcdServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """The installation is new, so that its level is this build's."""
    catalog = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    with serving(tmp_path, own_etcd, keyspace, catalog) as (server,):
        until(lambda: upgrade(server)["level_in_force"] == LEVEL, PATIENCE_S)
        put(own_etcd.endpoint, keyspace.node("old"), NodeRecord(Node("old"), "i").encode())
        old = "node old (version not known, release level 0)"
        until(lambda: upgrade(server)["refused"] == [old], PATIENCE_S)
        ready = httpx.get(f"{server.url}/readyz", trust_env=False, timeout=60).json()
        assert [notice for notice in ready["upgrade"] if notice.startswith(old)]


def test_an_installation_of_before_stays_at_its_level_until_it_is_finalised(
    own_etcd: EtcdServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """Keep a catalog that 0.2.0's builds may write at its level until the upgrade is finalised. An older node
    hinders that, by name, until it is gone and forgotten; then the level is in force, once, in both stores."""
    file = tmp_path / "catalog.sqlite"
    migrate(f"sqlite:///{file}")
    with sqlite3.connect(file) as catalog:
        catalog.execute("UPDATE schema_writers SET oldest = '0007'")
    put(own_etcd.endpoint, keyspace.epoch, EpochRecord().encode())
    with serving(tmp_path, own_etcd, keyspace, f"sqlite:///{file}") as (server,):
        put(own_etcd.endpoint, keyspace.node("old"), NodeRecord(Node("old"), "i").encode())
        until(lambda: older_is_noted(own_etcd, keyspace), PATIENCE_S)
        assert upgrade(server)["state"] == "MIXED"
        assert upgrade(server)["inactive"] != []
        answer = finalise(server)
        assert (answer.status_code, answer.json()["name"]) == (409, "UPGRADE_NOT_READY")
        assert "node old (version not known, release level 0) cannot read" in answer.json()["detail"]
        delete(own_etcd.endpoint, keyspace.node("old"))
        until(lambda: "was seen less than 10 minutes ago" in str(upgrade(server)["hindrances"]), PATIENCE_S)
        assert finalise(server).status_code == 409
        assert level_of_stores(file, own_etcd, keyspace) == ("0007", 1)
        delete(own_etcd.endpoint, keyspace.older_build)
        until(lambda: upgrade(server)["state"] == "READY", PATIENCE_S)
        assert finalise(server).json() == {"finalised": True, "level_in_force": LEVEL}
        assert level_of_stores(file, own_etcd, keyspace) == (known_schemas()[0], 2)
        assert finalise(server).json() == {"finalised": False, "level_in_force": LEVEL}
        audit = httpx.get(f"{server.url}/api/v1/audit", trust_env=False, timeout=60).json()["records"]
        assert [record["subject"] for record in audit if record["action"] == "FINALISE UPGRADE"] == [
            f"level {LEVEL}"
        ]


def upgrade(server: ApiServer) -> dict[str, object]:
    answer = httpx.get(f"{server.url}/api/v1/upgrade", trust_env=False, timeout=60)
    body: dict[str, object] = answer.raise_for_status().json()
    return body


def finalise(server: ApiServer) -> httpx.Response:
    return httpx.post(f"{server.url}/api/v1/upgrade/finalise", json={}, trust_env=False, timeout=60)


def value(endpoint: str, key: str) -> bytes | None:
    body = {"key": base64.b64encode(key.encode()).decode()}
    answer = httpx.post(f"http://{endpoint}/v3/kv/range", json=body, trust_env=False, timeout=30, verify=PLAIN)
    found = answer.raise_for_status().json().get("kvs", ())
    return base64.b64decode(found[0]["value"]) if found else None


def delete(endpoint: str, key: str) -> None:
    body = {"key": base64.b64encode(key.encode()).decode()}
    url = f"http://{endpoint}/v3/kv/deleterange"
    httpx.post(url, json=body, trust_env=False, timeout=30, verify=PLAIN).raise_for_status()


def older_is_noted(etcd: EtcdServer, keyspace: Keyspace) -> bool:
    return value(etcd.endpoint, keyspace.older_build) is not None


def level_of_stores(file: Path, etcd: EtcdServer, keyspace: Keyspace) -> tuple[str, int]:
    """The oldest schema whose builds may write the catalog, and the format of the key that holds the level."""
    with sqlite3.connect(file) as catalog:
        (oldest,) = catalog.execute("SELECT oldest FROM schema_writers").fetchone()
    epoch = value(etcd.endpoint, keyspace.epoch)
    assert epoch is not None
    return oldest, json.loads(epoch)["v"]
