"""The main job as a user runs it: SQL text in, replicas moved by real Raft groups, result visible."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any

import pytest

from rebalance.core.keyspace.keys import Keyspace
from tests.e2e.installation import WITH_SPARK, Installation, wait_for, writing
from tests.fixtures.installation_dumps import (
    all_over,
    catalog_dump,
    endpoint,
    etcd_dump,
    etcdctl,
    etcdctl_command,
)

pytestmark = pytest.mark.timeout(600)


@WITH_SPARK
@pytest.mark.row("I3-006", "I3-028", "I3-034", "I3-050", "I3-059")
def test_alter_moves_replicas_under_a_continuous_writer(installation: Installation) -> None:
    """I3-006, I3-028, I3-034, I3-050, I3-059: no put returns an error, every acknowledged one
    is read back."""
    installation.execute("CREATE ZONE orders (PARTITIONS 4, REPLICAS 1)")
    with writing(installation, "ORDERS") as writer:
        wait_for("writes", lambda: len(writer.acknowledged) > 20)
        installation.execute("ALTER ZONE orders SET (REPLICAS 3)")
        installation.execute("ALTER ZONE orders SET (REPLICAS 1)")
        before = len(writer.acknowledged)
        wait_for("writes after the moves", lambda: len(writer.acknowledged) > before + 20)
    assert writer.errors == []
    writer.read_back()
    print(f"{len(writer.acknowledged)} puts, longest stall {writer.longest_stall_s * 1000:.0f} ms")
    for partition in installation.partitions("orders"):
        assert len(partition["stable"]["peers"]) == 1
        assert partition["pending"] is None
        assert [each["node"] for each in partition["members"]] == partition["stable"]["peers"]
    installation.execute("DROP ZONE orders")
    wait_for("the members' end", lambda: not installation.processes("etcd", "/members/"))


@contextmanager
def watching(installation: Installation, prefix: str) -> Iterator[Callable[[], list[dict[str, str | None]]]]:
    """Every revision below the prefix since the block began, as the end of each changed key and its new value,
    None where the key was deleted. It starts from a revision: what comes before etcdctl watches is seen."""
    before = json.loads(etcdctl(installation, "get", prefix, "--prefix", "-w", "json"))
    since = ("--rev", str(before["header"]["revision"] + 1))
    command = [*etcdctl_command(installation), "watch", "--prefix", prefix, *since, "-w", "json"]
    environment = {**os.environ, "ETCDCTL_API": "3"}
    with (
        TemporaryFile("w+b") as output,
        subprocess.Popen(command, stdout=output, env=environment) as process,
    ):

        def revisions() -> list[dict[str, str | None]]:
            found: dict[int, dict[str, str | None]] = {}
            for line in os.pread(output.fileno(), 1 << 24, 0).splitlines(keepends=True):
                for event in json.loads(line)["Events"] if line.endswith(b"\n") else ():
                    item = event["kv"]
                    key = base64.b64decode(item["key"]).decode().removeprefix(prefix)
                    value = base64.b64decode(item["value"]).decode() if "value" in item else None
                    found.setdefault(item["mod_revision"], {})[key] = value
            return [found[revision] for revision in sorted(found)]

        try:
            yield revisions
        finally:
            process.terminate()


@pytest.mark.row("I3-009", "I3A-001")
def test_a_target_that_comes_during_a_move_is_planned(installation: Installation) -> None:
    """I3-009, I3A-001: a second ALTER while the first one's move runs is stored in planned and waits there,
    however long, with pending as it was. The revision that ends the move makes it pending and nothing else
    does; the second move then starts by itself. The wait is measured."""
    installation.execute("CREATE ZONE queued (PARTITIONS 1, REPLICAS 1)")
    (partition,) = installation.partitions("queued")
    (holder,) = partition["stable"]["peers"]
    zone_id = installation.get("/api/v1/zones/queued")["zone_id"]
    prefix = f"{Keyspace().zone_partitions(zone_id)}0/assignments/"
    agents = installation.processes("app.cli", " node ")
    others = [each for each in agents if holder not in each.cmdline()]

    def key(name: str) -> Any:
        return installation.partitions("queued")[0][name]

    with watching(installation, prefix) as revisions:
        for node in others:
            node.suspend()
        try:
            installation.sql("ALTER ZONE queued SET (REPLICAS 2)")
            first = wait_for("the first target", lambda: key("pending"))
            assert len(first["peers"]) == 2
            wait_for("the watch", lambda: any("pending" in each for each in revisions()))
            (result,) = installation.sql("ALTER ZONE queued SET (REPLICAS 3)")
            begun = time.monotonic()
            second = wait_for("the second target", lambda: key("planned"))
            assert len(second["peers"]) == 3
            with writing(installation, "QUEUED") as writer:
                wait_for("writes meanwhile", lambda: len(writer.acknowledged) > 20)
            assert (key("stable"), key("pending"), key("planned")) == (partition["stable"], first, second)
            resumed = time.monotonic()
        finally:
            for node in others:
                node.resume()
        wait_for("the second move", lambda: key("pending") == second or key("stable") == second)
        waited_s, least_s = time.monotonic() - begun, resumed - begun
        print(f"the second target waited {waited_s:.1f} s in planned, {least_s:.1f} s of it for the nodes")
        wait_for("both moves", lambda: installation.converged(result))
        assert key("stable") == second
        wait_for("both switches", lambda: sum("stable" in each for each in revisions()) == 2)
        seen = revisions()
    stored = next(index for index, each in enumerate(seen) if each.get("planned"))
    moved_on = next(index for index, each in enumerate(seen) if "stable" in each)
    assert stored < moved_on
    planned = seen[stored]["planned"]
    assert planned is not None
    assert json.loads(planned)["peers"] == second["peers"]
    assert all("pending" not in each for each in seen[stored:moved_on])
    switch = {name: seen[moved_on].get(name, "") for name in ("stable", "pending", "planned")}
    assert json.loads(switch["stable"] or "")["peers"] == first["peers"]
    assert (switch["pending"], switch["planned"]) == (planned, None)
    installation.execute("DROP ZONE queued")


@pytest.mark.row("I3-003", "IEP-024", "IEP-026")
@pytest.mark.parametrize(
    ("sql", "name", "sqlstate", "line", "column"),
    [
        ("CREATE ZON z", "SYNTAX_ERROR", "42601", 1, 8),
        ("CREATE ZONE z\n  (PARTITONS 4)", "OPTION_UNKNOWN", "22023", 2, 4),
        ("CREATE ZONE z (PARTITIONS 0)", "OPTION_OUT_OF_RANGE", "22023", 1, 16),
        ("ALTER ZONE nowhere SET (REPLICAS 2)", "ZONE_NOT_FOUND", "42704", 1, 12),
        ("CREATE ZONE z (REPLICAS 1) STORAGE PROFILES ['tape']", "STORAGE_PROFILE_UNKNOWN", "42704", 1, 46),
        ("CREATE ZONE z (REPLICAS 3, QUORUM SIZE 1)", "QUORUM_BELOW_MINIMUM", "22023", 1, 28),
        ("CREATE ZONE z (REPLICAS 3, QUORUM SIZE 3)", "QUORUM_ABOVE_MAXIMUM", "22023", 1, 28),
        ("CREATE ZONE z (PARTITIONS 200, REPLICAS 3)", "NODE_MEMBER_LIMIT", "54000", 1, 16),
        ("ALTER ZONE known SET (PARTITIONS 9)", "PARTITIONS_NOT_ALTERABLE", "0A000", 1, 23),
        ("CREATE ZONE known", "ZONE_ALREADY_EXISTS", "42710", 1, 13),
        ("CREATE ZONE z; DROP", "SYNTAX_ERROR", "42601", 1, 20),
    ],
)
def test_a_bad_statement_changes_nothing(
    installation: Installation, sql: str, name: str, sqlstate: str, line: int, column: int
) -> None:
    """I3-003, IEP-024, IEP-026, S243: code, SQLSTATE, line and column; catalog and etcd stay byte for byte."""
    installation.execute("CREATE ZONE IF NOT EXISTS known (PARTITIONS 1)")
    wait_for("the end of its operation", lambda: all_over(installation))
    catalog, keys = catalog_dump(installation), etcd_dump(installation)
    done = installation.zonectl("sql", "-e", sql, "--format", "json")
    assert done.returncode == 1
    problem = json.loads(done.stderr)
    assert (problem["name"], problem["sqlState"]) == (name, sqlstate), problem
    assert (problem["line"], problem["column"]) == (line, column), problem
    assert problem["code"] >= 1000
    assert catalog_dump(installation) == catalog
    assert etcd_dump(installation) == keys


@pytest.mark.row("I3-007", "I3-008", "I3-010")
def test_other_clients_read_the_documented_keys(installation: Installation) -> None:
    """I3-007, I3-008, I3-010: etcdctl and the package etcd3 read what the keyspace note documents."""
    installation.execute("CREATE ZONE IF NOT EXISTS known (PARTITIONS 1)")
    zone_id = installation.get("/api/v1/zones/known")["zone_id"]
    keys = Keyspace()
    stable_key = f"{keys.zone_partitions(zone_id)}0/assignments/stable"
    with_etcdctl = json.loads(etcdctl(installation, "get", stable_key, "--print-value-only"))
    assert with_etcdctl["v"] == 1
    assert len(with_etcdctl["peers"]) == 1
    # A process of its own: etcd3 needs the pure Python implementation of protobuf.
    script = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "import etcd3, sys\n"
        "names = ('ca_cert', 'cert_cert', 'cert_key')\n"
        "tls = dict(zip(names, sys.argv[4:]))\n"
        "client = etcd3.client(host='127.0.0.1', port=int(sys.argv[1]), **tls)\n"
        "print(client.get(sys.argv[2])[0].decode())\n"
        "print(len(list(client.get_prefix(sys.argv[3]))))\n"
    )
    port = endpoint(installation).rpartition(":")[2]
    tls = installation.tls
    assert tls is not None
    shown = (tls.ca, tls.certificate, tls.key)
    done = subprocess.run(
        [sys.executable, "-c", script, port, stable_key, keys.nodes, *map(str, shown)],
        env={**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"},
        capture_output=True,
        text=True,
        check=True,
    )
    value, nodes = done.stdout.splitlines()
    assert json.loads(value) == with_etcdctl
    assert nodes == "3"


def is_alive(installation: Installation, name: str) -> bool:
    found = {node["name"]: node for node in installation.get("/api/v1/nodes")["nodes"]}
    return bool(found[name]["alive"])


def causes(installation: Installation, zone: str) -> set[str]:
    return {each["status"]["cause"] for each in installation.partitions(zone)}


def test_a_node_that_is_down_is_the_named_cause(installation: Installation) -> None:
    """The wait is named in REST and in ``--wait``; it ends when the node is back."""
    installation.execute("CREATE ZONE waiting (PARTITIONS 2, REPLICAS 1)")
    (node,) = installation.processes("app.cli", " node ", "--name n3")
    node.suspend()
    try:
        wait_for("the end of the node's lease", lambda: not is_alive(installation, "n3"))
        alter = "ALTER ZONE waiting SET (REPLICAS 3)"
        installation.sql(alter)
        # Placement comes first, and has a cause of its own.
        wait_for("the cause", lambda: causes(installation, "waiting") == {"NODE_DOWN: n3"})
        done = installation.zonectl("sql", "-e", alter, "--wait", "--timeout", "2")
        assert done.returncode == 4, done.stderr
        assert "NODE_DOWN: n3" in done.stdout + done.stderr
        assert causes(installation, "waiting") == {"NODE_DOWN: n3"}
    finally:
        node.resume()
    zone = installation.get("/api/v1/zones/waiting")
    wait_for("convergence", lambda: installation.converged(zone))
    installation.execute("DROP ZONE waiting")


def test_a_second_up_on_the_directory_is_refused(installation: Installation) -> None:
    done = installation.zonectl("up", "--data-dir", str(installation.directory))
    assert done.returncode == 1
    assert str(installation.process.pid) in done.stderr + done.stdout


def test_keys_and_values_by_command_line(installation: Installation) -> None:
    installation.execute("CREATE ZONE IF NOT EXISTS known (PARTITIONS 1)")
    assert installation.zonectl("kv", "put", "known", "größe/1", "42 €").returncode == 0
    assert installation.zonectl("kv", "get", "known", "größe/1").stdout.strip().endswith("42 €")
    missing = installation.zonectl("kv", "get", "known", "nothing")
    assert missing.returncode == 1
    assert "KEY_NOT_FOUND" in missing.stderr
