"""Off loopback nothing listens without login and TLS, unless the command line accepts what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from app.bootstrap.protection import check_spark
from app.cli.main import main
from app.configuration.settings import Settings
from app.security.protections import (
    is_loopback,
    missing_protections,
    open_links,
    require_links,
    require_protections,
)
from rebalance.hosting.tls import LoadedCertificate

OFF = "192.0.2.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_the_loopback_needs_nothing(host: str) -> None:
    missing = missing_protections(has_login=False, has_tls=False)
    assert require_protections(host, missing, insecure=False) == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", OFF, "2001:db8::1"])
@pytest.mark.parametrize(
    ("has_login", "has_tls", "words"),
    [(False, False, ("no login", "no TLS")), (True, False, ("no TLS",)), (False, True, ("no login",))],
)
def test_other_addresses_need_all_of_it(
    host: str, has_login: bool, has_tls: bool, words: tuple[str, ...]
) -> None:
    missing = missing_protections(has_login=has_login, has_tls=has_tls)
    with pytest.raises(ValueError, match="--insecure") as refused:
        require_protections(host, missing, insecure=False)
    accepted = require_protections(host, missing, insecure=True)
    assert len(accepted) == len(words)
    for word in words:
        assert word in str(refused.value)
        assert word in " ".join(accepted)


def test_other_addresses_are_free_with_all_of_it() -> None:
    assert require_protections(OFF, missing_protections(has_login=True, has_tls=True), insecure=False) == ()
    assert not is_loopback(OFF)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--no-auth", "--host", "0.0.0.0"), "--insecure"),
        (("--host", "0.0.0.0", "--insecure"), "--tls-cert"),
        ((), "--no-auth"),
        (("--auth",), "--tls-cert"),
        (("--tls-cert", "nowhere.pem"), "--tls-key"),
        (("--tls-cert", "nowhere.pem", "--tls-key", "nowhere.key"), "nowhere.pem"),
    ],
)
def test_a_server_that_would_be_open_does_not_start(
    arguments: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No variable of the environment takes the place of ``--insecure``."""
    monkeypatch.setenv("ZONEKEEPER_INSECURE", "true")
    assert main(["serve", "--data-dir", str(tmp_path), *arguments]) == 64
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("node", "--name", "n1", "--ports", "20000-20199", "--host", OFF), ("no TLS between members", OFF)),
        (
            ("node", "--name", "n1", "--ports", "20000-20199", "--metastore", f"{OFF}:2379"),
            ("no TLS to the metastore", OFF),
        ),
        (("controller", "--metastore", f"127.0.0.1:2379,{OFF}:2379"), ("no TLS to the metastore", OFF)),
        (("controller", "--metastore", "nowhere.invalid:2379"), ("no TLS to the metastore", "nowhere.invalid")),
    ],
)
def test_nodes_and_controllers_do_not_speak_in_the_open_unless_it_is_accepted(
    arguments: tuple[str, ...],
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ZONEKEEPER_INSECURE", "true")
    directory = tmp_path / "data"
    assert main([*arguments, "--data-dir", str(directory)]) == 64
    refused = capsys.readouterr().err
    assert [word for word in (*words, "--insecure") if word not in refused] == []
    assert not directory.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("controller",),
        ("serve", "--controllers", "--no-auth"),
        ("up", "--nodes", "1"),
    ],
)
def test_no_controller_drives_an_open_spark_cluster_unless_it_is_accepted(
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ZONEKEEPER_INSECURE", "true")
    monkeypatch.setenv("ZONEKEEPER_SPARK_MASTER", f"spark://127.0.0.1:7077,{OFF}:7077")
    directory = tmp_path / "data"
    for properties, words in (
        ("", (OFF, "no secret of Spark's", "ZONEKEEPER_SPARK_PROPERTIES_FILE", "--insecure")),
        (str(tmp_path / "nowhere"), ("nowhere",)),
    ):
        if properties:
            monkeypatch.setenv("ZONEKEEPER_SPARK_PROPERTIES_FILE", properties)
        assert main([*arguments, "--data-dir", str(directory)]) == 64
        refused = capsys.readouterr().err
        assert [word for word in words if word not in refused] == []
        assert not directory.exists()


def test_an_open_spark_cluster_is_told_where_it_is_accepted() -> None:
    settings = Settings(spark_master=f"spark://{OFF}:7077")
    (accepted,) = check_spark(settings, insecure=True)
    assert accepted.startswith("no secret of Spark's")
    assert check_spark(Settings(spark_master="spark://127.0.0.1:7077"), insecure=False) == ()


@pytest.mark.parametrize("command", ["place", "whatif"])
def test_no_command_computes_on_an_open_spark_cluster(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = tmp_path / "nodes.json"
    nodes.write_text('["n1"]')
    given = {
        "place": ("--nodes", str(nodes), "--partitions", "1", "--replicas", "1"),
        "whatif": ("--assignments", str(nodes), "--candidates", str(nodes)),
    }[command]
    spark = ("--engine", "spark", "--spark-master", f"spark://{OFF}:7077")
    assert main([command, *given, *spark, "--data-dir", str(tmp_path / "data")]) == 64
    refused = capsys.readouterr().err
    assert "--insecure" not in refused
    assert [word for word in (OFF, "no secret of Spark's", "--engine local") if word not in refused] == []


def test_links_that_are_open_are_told_once_where_they_are_accepted() -> None:
    stores = {OFF, "198.51.100.7", "127.0.0.1"}
    links = open_links(members=OFF, has_tls=False, metastore=stores, has_metastore_tls=False)
    members, metastore = require_links(links, insecure=True)
    assert members.startswith("no TLS between members")
    assert metastore.startswith("no TLS to the metastore")
    assert require_links(dict.fromkeys(["127.0.0.1", "localhost", "::1"], "open"), insecure=False) == ()
    assert open_links(members=OFF, has_tls=True, metastore=stores, has_metastore_tls=True) == {}


def test_a_certificate_that_is_not_the_keys_is_refused(tmp_path: Path) -> None:
    authority = trustme.CA()
    paths = tmp_path / "api.pem", tmp_path / "api.key"
    authority.issue_cert("localhost").cert_chain_pems[0].write_to_path(paths[0])
    authority.issue_cert("localhost").private_key_pem.write_to_path(paths[1])
    with pytest.raises(ValueError, match=r"api\.pem"):
        LoadedCertificate(*paths)
