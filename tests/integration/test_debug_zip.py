"""``zonectl debug zip``: what is in it, what is never in it, and that it is whole or not there."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import signal
import stat
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from tests.e2e.installation import without_spark
from tests.fixtures.etcd_server import EtcdServer
from tests.fixtures.up_process import ROOT, SERVED_WITHIN_S, ZONECTL, Up, starting, until

pytestmark = pytest.mark.timeout(600)
PATIENCE_S = 120.0
CANARIES = {name: f"canary-{name}-Zx9'q/8" for name in ("env", "url", "file", "user", "log")}


def environment(directory: Path, **more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("ZONEKEEPER_")}
    return {**own, "ZONEKEEPER_CONTEXTS": str(directory.with_name("contexts.json")), **more}


def zipped(
    directory: Path, file: Path, *options: str, umask: int = -1, **more: str
) -> subprocess.CompletedProcess[str]:
    command = [*ZONECTL, "debug", "zip", str(file), "--data-dir", str(directory), *options]
    return subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=environment(directory, **more),
        umask=umask,
    )


def entries(file: Path) -> dict[str, str]:
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def forms(secret: str) -> set[str]:
    return {
        secret,
        secret.replace("'", "''"),
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        base64.b64encode(secret.encode()).decode().rstrip("="),
    }


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Installation with secrets in each place that may hold one: its environment, statements, the catalog and
    logs."""
    quiet = without_spark(tmp_path_factory.mktemp("quiet"))
    with starting() as run:
        whole = run("--nodes", "1", environment={**quiet, "PGPASSWORD": CANARIES["env"]}).served()
        until(lambda: whole.living() == 1, SERVED_WITHIN_S, whole.printed)
        quoted = CANARIES["user"].replace("'", "''")
        for statement in (
            f"CREATE USER spy PASSWORD '{quoted}'",
            f"ALTER USER spy PASSWORD '{quoted}'",
            f"CREATE USER nobody PASWORD '{quoted}'",
            "CREATE ZONE orders (PARTITIONS 2)",
        ):
            whole.ctl("sql", "-e", statement)
        whole.ctl("kv", "put", "orders", "k", "stored-value-canary")
        yield whole


@pytest.fixture(scope="module")
def secrets(up: Up) -> set[str]:
    """All secrets of the installation, none of which may stand in the archive."""
    token = up.ctl("token", "create", "--days", "1").stdout.strip()
    assert token.startswith("zkt_"), token
    key = (up.directory / "tls" / "api" / "key.pem").read_text()
    log = CANARIES["log"]
    lines = [
        f"Authorization: Bearer {token}",
        f"cannot open postgresql://u:{quote(log, safe='')}@db/zones",
        json.dumps({"event": "refused", "password": log, "sql": f"CREATE USER x PASSWORD '{log}'"}),
        f"environment has {CANARIES['env']} and {CANARIES['file']}",
        key,
    ]
    for name in ("server.log", "n1.log", "etcd.log.1"):
        with (up.directory / "logs" / name).open("a") as stream:
            stream.write("\n".join([*lines, "the last line"]) + "\n")
    keys = {
        line for path in up.directory.glob("tls/*/*key.pem") for line in path.read_text().splitlines()[1:-1]
    }
    assert len(keys) >= 6
    canaries = {form for name in ("env", "url", "file", "user", "log") for form in forms(CANARIES[name])}
    tokens = {(up.directory / name).read_text().strip() for name in ("admin.token", "metrics.token")}
    return canaries | keys | tokens | {token, "stored-value-canary"}


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """Settings of the command, with secrets in them."""
    (tmp_path / "password").write_text(CANARIES["file"] + "\n")
    return {
        "ZONEKEEPER_PASSWORD": CANARIES["env"],
        "ZONEKEEPER_UNKNOWN_TO_ALL": CANARIES["env"],
        "PGPASSWORD": CANARIES["env"],
        "ZONEKEEPER_CATALOG_PASSWORD_FILE": str(tmp_path / "password"),
        "ZONEKEEPER_CATALOG_URL": "postgresql://u@127.0.0.1:1/zones",
        "ZONEKEEPER_JWT_KEYS_URL": f"https://u:{quote(CANARIES['url'], safe='')}@issuer.example/keys",
        "ZONEKEEPER_HTTP_IDLE_TIMEOUT_S": "7",
    }


def test_it_describes_the_installation_and_holds_no_secret(
    up: Up, secrets: set[str], settings: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "made.zip"
    done = zipped(up.directory, file, umask=0, **settings)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = entries(file)
    assert json.loads(found["manifest.json"])["left_out"] == {}
    assert "views/refused.json" not in found, found["views/refused.json"]
    endpoint = up.run_file()["addresses"]["etcd"].replace(":", "-")
    assert found.keys() >= {
        *("doctor.json", "versions.json", "settings.json", "keyspace.csv", "manifest.json"),
        *("server/readiness.json", "views/zones.csv", "views/users.csv", "views/audit.csv"),
        *(
            "logs/server.log",
            "logs/n1.log",
            "logs/etcd.log.1",
            f"metrics/etcd-{endpoint}.txt",
            "metrics/server.txt",
            "metrics/n1.txt",
        ),
    }
    everything = "\n".join([*found, *found.values(), done.stdout, done.stderr])
    assert [secret for secret in secrets if secret in everything] == []
    # What nobody hides is there, or the search above proves nothing.
    assert "ORDERS" in found["views/zones.csv"]
    assert 'zonekeeper_build_info{role="node"' in found["metrics/n1.txt"]
    assert "spy" in found["views/users.csv"]
    assert found["logs/etcd.log.1"].endswith("the last line\n")
    assert "\nthe last line\n" in found["logs/n1.log"]
    assert json.loads(found["settings.json"])["this process"]["ZONEKEEPER_HTTP_IDLE_TIMEOUT_S"] == "7"
    rows = list(csv.DictReader(io.StringIO(found["keyspace.csv"])))
    assert int(next(row for row in rows if row["key"] == "zonekeeper/nodes/n1")["bytes"]) > 0
    assert {check["name"] for check in json.loads(found["doctor.json"])["checks"]} >= {
        "server",
        "alarms of etcd",
    }
    for name in (name for name in found if name.endswith(".json")):
        json.loads(found[name])


@pytest.mark.thorough("unit/test_diagnosis: test_bundle_answers and test_rounds have what never answers")
def test_an_etcd_and_a_server_that_stand_still_are_left_out(up: Up, tmp_path: Path) -> None:
    stopped = [psutil.Process(pid) for pid in (up.process.pid, up.pid_of("server"), up.pid_of("etcd"))]
    for process in stopped:
        process.suspend()
    try:
        done = zipped(up.directory, tmp_path / "made.zip")
    finally:
        for process in reversed(stopped):
            process.resume()
    assert done.returncode == 0, done.stderr
    found = entries(tmp_path / "made.zip")
    assert {"doctor.json", "settings.json", "logs/server.log"} <= found.keys()
    assert json.loads(found["manifest.json"])["left_out"].keys() >= {"answers of the server", "keyspace"}


@pytest.mark.thorough("unit/test_diagnosis/test_rounds has probes that fail")
def test_everything_may_be_down(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    (directory / "logs").mkdir(parents=True)
    (directory / "state.json").write_text(json.dumps({"v": 1, "api": 1, "etcd_client": 2, "etcd_peer": 3}))
    (directory / "logs" / "server.log").write_text("it ended\n")
    done = zipped(directory, tmp_path / "made.zip")
    assert done.returncode == 0, done.stderr
    found = entries(tmp_path / "made.zip")
    assert found["logs/server.log"] == "it ended\n"
    assert json.loads(found["doctor.json"])["verdict"] == "fail"
    assert json.loads(found["manifest.json"])["left_out"].keys() >= {"server", "keyspace"}


@pytest.mark.thorough("test_it_describes_the_installation_and_holds_no_secret writes one")
def test_a_file_that_is_there_stays_unless_forced(tmp_path: Path) -> None:
    file = tmp_path / "made.zip"
    file.write_text("mine")
    refused = zipped(tmp_path / "data", file)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"{file} exists: choose another file, or add --force\n"
    assert file.read_text() == "mine"
    assert zipped(tmp_path / "data", file, "--force").returncode == 0
    assert "doctor.json" in entries(file)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.thorough("unit/test_diagnosis/test_bundle_files")
def test_a_long_log_is_cut_at_a_line(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    (directory / "logs").mkdir(parents=True)
    (directory / "state.json").write_text("{}")
    (directory / "logs" / "n1.log").write_text("".join(f"{line:07}\n" for line in range(300_000)))
    (directory / "logs" / "n2.log").write_text("one line\n")
    assert zipped(directory, tmp_path / "made.zip").returncode == 0
    found = entries(tmp_path / "made.zip")
    assert json.loads(found["manifest.json"])["cut"] == ["logs/n1.log"]
    assert found["logs/n2.log"] == "one line\n"
    assert found["logs/n1.log"].endswith("0299999\n")
    assert {len(line) for line in found["logs/n1.log"].splitlines()} == {7}


def test_ctrl_c_leaves_no_file(own_etcd: EtcdServer, tmp_path: Path) -> None:
    command = [*ZONECTL, "debug", "zip", str(tmp_path / "made.zip"), "--data-dir", str(tmp_path / "data")]
    own = environment(tmp_path / "data", ZONEKEEPER_METASTORE=own_etcd.endpoint)
    etcd = psutil.Process(own_etcd.process.pid)
    etcd.suspend()
    try:
        running = subprocess.Popen(command, cwd=ROOT, env=own)
        # It waits for etcd by now.
        until(lambda: len(psutil.Process(running.pid).net_connections()) > 0, PATIENCE_S)
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE_S) == 130
    finally:
        etcd.resume()
    assert list(tmp_path.iterdir()) == []
