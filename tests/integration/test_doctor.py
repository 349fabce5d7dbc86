"""``zonectl doctor`` on real installations: it names what is wrong, waits for nothing, and changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import create_server
from typing import Any

import psutil
import pytest

from app.security.local_authority import LocalAuthority
from catalog.store.migrate import migrate
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.metastore.etcd import EtcdMetastore
from tests.e2e.installation import without_spark
from tests.fixtures.etcd_server import CALL_S, EtcdServer, running_etcd
from tests.fixtures.ports import free_port
from tests.fixtures.up_process import ROOT, SERVED_WITHIN_S, ZONECTL, Up, starting, until, until_gone

pytestmark = pytest.mark.timeout(600)
PATIENCE_S = 60.0
"""Far more than the doctor's own limit, on a machine that is busy; a hanging probe would take for ever."""
INSTALLATION = ("version of the server", "certificate that the server shows")
STORES = ("alarms of etcd", "leases of nodes", "schema of the catalog")


class Findings:
    """Results that one run of the doctor reported."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        assert done.stdout, done.stderr
        body = json.loads(done.stdout)
        self.code = done.returncode
        self.verdict: str = body["verdict"]
        self.seconds: float = body["seconds"]
        self.checks: dict[str, dict[str, Any]] = {check["name"]: check for check in body["checks"]}

    def failed(self) -> set[str]:
        return {name for name, check in self.checks.items() if check["verdict"] == "fail"}


def examined(directory: Path, *options: str, **environment: str) -> Findings:
    own = {name: value for name, value in os.environ.items() if not name.startswith("ZONEKEEPER_")}
    contexts = {"ZONEKEEPER_CONTEXTS": str(directory.with_name("contexts.json"))}
    command = [*ZONECTL, "doctor", "--data-dir", str(directory), "-o", "json", *options]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**own, **contexts, **environment}
    )
    return Findings(done)


def examined_when_ok(
    names: Sequence[str], directory: Path, *options: str, also: str = "", **environment: str
) -> Findings:
    """The findings once these checks are ok, and ``also`` is among them: a busy machine may not answer within
    the doctor's limit."""
    runs: list[Findings] = []

    def is_ok() -> bool:
        runs.append(examined(directory, *options, **environment))
        checks = runs[-1].checks
        return (not also or also in checks) and all(
            checks.get(name, {}).get("verdict") == "ok" for name in names
        )

    until(is_ok, SERVED_WITHIN_S, lambda: str(runs[-1].checks))
    return runs[-1]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Up]]:
    quiet = without_spark(tmp_path_factory.mktemp("quiet"))
    with starting() as run:
        yield lambda: run("--nodes", "1", environment=quiet)


@pytest.fixture(scope="module")
def up(start: Callable[[], Up]) -> Up:
    whole = start().served()
    until(lambda: whole.living() == 1, SERVED_WITHIN_S, whole.printed)
    return whole


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    process = psutil.Process(pid)
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def files_of(directory: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, time of the last change and digest of each file and directory, by path."""
    found = {}
    for path in (directory, *directory.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = status.st_mode, status.st_mtime_ns, hashlib.sha256(content).hexdigest()
    return found


def test_an_installation_that_runs_passes(up: Up) -> None:
    # Disks and limits are this machine's; all else is the installation's.
    named = (*INSTALLATION, *STORES, "processes of `zonectl up`", "port of etcd", "port of API over HTTPS")
    # Without a Java.
    found = examined_when_ok((*named, "server"), up.directory, also="spark: SPARK_DOWN")
    assert found.checks["spark: SPARK_DOWN"]["verdict"] == "warn"
    endpoint = up.run_file()["addresses"]["etcd"]
    for name in (f"version of etcd {endpoint}", f"size of etcd {endpoint}", f"leader of etcd {endpoint}"):
        assert found.checks[name]["verdict"] in ("ok", "warn"), found.checks[name]
    assert f"fsync time of {up.directory}" in found.checks
    assert "clock of the server" in found.checks
    assert found.code == {"ok": 0, "warn": 1, "fail": 2}[found.verdict]


def test_a_url_asks_that_server_and_looks_at_no_directory(up: Up, tmp_path: Path) -> None:
    run = up.run_file()
    login = {"ZONEKEEPER_TOKEN_FILE": run["token_file"], "ZONEKEEPER_CA_FILE": run["authority"]}
    found = examined_when_ok(INSTALLATION, tmp_path / "nothing", "--url", run["url"], **login)
    assert not {"schema of the catalog", "alarms of etcd", "processes of `zonectl up`"} & set(found.checks)


def test_an_etcd_that_stands_still_is_named_and_not_waited_for(up: Up) -> None:
    endpoint = up.run_file()["addresses"]["etcd"]
    with standing_still(up.pid_of("etcd")):
        found = examined_when_ok(["schema of the catalog"], up.directory)
    assert found.code == 2
    assert found.failed() >= {f"etcd {endpoint}", "alarms of etcd, leases of nodes"}
    assert found.seconds < PATIENCE_S


def test_a_server_that_stands_still_is_named_and_not_waited_for(up: Up) -> None:
    with standing_still(up.process.pid), standing_still(up.pid_of("server")):
        found = examined_when_ok(["leases of nodes"], up.directory)
    assert found.code == 2
    assert found.failed() >= {"server", "version of the server"}
    assert found.seconds < PATIENCE_S


@pytest.mark.thorough("what stands still is named above, and each check is in unit/test_diagnosis")
@pytest.mark.slow("an installation is killed, started again and stopped")
def test_what_was_killed_is_named_and_nothing_is_changed(start: Callable[[], Up], up: Up) -> None:
    """Name what was killed and change nothing: the catalog's log stays, though opening the database for writing
    would remove it."""
    until(lambda: up.living() == 1, SERVED_WITHIN_S, up.printed)
    tree = up.tree()
    up.process.kill()
    up.process.wait()
    until_gone(tree)
    assert (up.directory / "catalog.sqlite-wal").exists()
    before = files_of(up.directory)
    found = examined(up.directory)
    assert files_of(up.directory) == before
    assert found.code == 2
    assert found.failed() >= {"server", "processes of `zonectl up`", "port of etcd"}
    assert found.checks["schema of the catalog"]["verdict"] == "ok"
    again = start().served()
    again.stop()
    before = files_of(up.directory)
    found = examined(up.directory)
    assert files_of(up.directory) == before
    assert found.checks["schema of the catalog"]["verdict"] == "ok"
    assert "no server to connect to" in found.checks["server"]["value"]


async def test_no_key_of_etcd_is_changed(own_etcd: EtcdServer, tmp_path: Path) -> None:
    keyspace = Keyspace()
    store = EtcdMetastore([own_etcd.endpoint], CALL_S)
    try:
        lease = await store.grant_lease(3_600)
        await store.commit(Txn((), (Put(keyspace.node("n7"), b"{}", lease),)))
        before = await store.range(keyspace.prefix)
        found = examined(tmp_path / "nothing", ZONEKEEPER_METASTORE=own_etcd.endpoint)
        assert await store.range(keyspace.prefix) == before
    finally:
        await store.close()
    assert found.checks["leases of nodes"]["value"].startswith("n7 ")
    assert found.checks[f"size of etcd {own_etcd.endpoint}"]["verdict"] == "ok"
    assert found.checks["server"]["verdict"] == "fail"


def test_a_full_etcd_has_an_alarm(tmp_path: Path) -> None:
    with running_etcd("--quota-backend-bytes", str(1 << 20)) as small:
        fill(small)
        found = examined(tmp_path / "nothing", ZONEKEEPER_METASTORE=small.endpoint)
    assert "NOSPACE" in found.checks["alarms of etcd"]["value"]
    assert found.failed() >= {"alarms of etcd", f"size of etcd {small.endpoint}"}


def fill(etcd: EtcdServer) -> None:
    """Fill etcd until it takes no more."""
    value = b64encode(os.urandom(200_000)).decode()
    for number in range(100):
        body = {"key": b64encode(str(number).encode()).decode(), "value": value}
        try:
            urllib.request.urlopen(
                f"http://{etcd.endpoint}/v3/kv/put", json.dumps(body).encode(), CALL_S
            ).close()
        except urllib.error.HTTPError as error:
            error.close()
            return
    raise AssertionError("20 MB were taken")


def test_a_certificate_that_has_expired_fails_in_the_file_and_as_it_is_served(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    LocalAuthority.of_api(directory).renewed(datetime.now(UTC) - timedelta(days=500))
    (directory / "state.json").write_text(json.dumps({"v": 1, "api": free_port()}))
    with serving_tls(directory) as port:
        found = examined(directory, "--url", f"https://127.0.0.1:{port}")
        assert found.checks["certificate that the server shows"]["value"].startswith("expired at ")
        assert "server" in found.failed()
    found = examined(directory)
    assert found.checks["certificate of the API"]["value"].startswith("expired at ")
    assert {"certificate of the API"} <= found.failed()
    assert found.checks["authority of the API"]["verdict"] == "ok"


@contextmanager
def serving_tls(directory: Path) -> Iterator[int]:
    """Handshakes, and nothing after them."""
    files = LocalAuthority.of_api(directory).files
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    plain, _ = listening.accept()
                except OSError:
                    return
                with suppress(OSError), context.wrap_socket(plain, server_side=True):
                    pass

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(2)


def test_a_catalog_of_another_schema_fails(tmp_path: Path) -> None:
    database = tmp_path / "catalog.sqlite"
    url = f"sqlite:///{database}"
    migrate(url)
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0009'")
    found = examined(tmp_path / "nothing", ZONEKEEPER_CATALOG_URL=url)
    assert found.checks["schema of the catalog"]["action"] == "Run `zonectl migrate`."
    gone = examined(tmp_path / "nothing", ZONEKEEPER_CATALOG_URL="postgresql://u:canary-pw@127.0.0.1:1/zones")
    check = gone.checks["schema of the catalog"]
    assert check["value"].startswith("zones at 127.0.0.1 does not answer")
    assert "canary-pw" not in json.dumps(gone.checks)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small file system")
def test_a_full_disk_fails(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(directory)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this machine mounts no file system")
    try:
        with suppress(OSError):
            (directory / "filling").write_bytes(bytes(1 << 20))
        found = examined(directory)
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)
    assert found.failed() >= {f"free space of {directory}", f"fsync time of {directory}"}
    assert "No space left" in found.checks[f"fsync time of {directory}"]["value"]


def test_a_table_says_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "app.cli", "doctor", "--data-dir", str(tmp_path / "nothing")]
    own = {name: value for name, value in os.environ.items() if not name.startswith("ZONEKEEPER_")}
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**own, "ZONEKEEPER_CONTEXTS": str(tmp_path / "contexts.json")},
    )
    assert done.returncode == 2
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["verdict", "check", "value", "threshold"]
    (server,) = (number for number, line in enumerate(lines) if line.startswith("FAIL: server: "))
    assert "no server to connect to" in lines[server]
    assert lines[server + 1].startswith("  Start it (`zonectl up`")
    assert lines[-1].endswith(" 1 fail")
