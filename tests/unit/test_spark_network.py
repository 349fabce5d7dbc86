"""Access to a Spark cluster, and the ports by which its driver is reached."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.configuration.settings import Settings
from app.configuration.spark_settings import open_spark, spark_network
from spark.cluster_network import SHARED, SparkNetwork, check_properties, master_hosts, network_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark.md").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
SECRET = "spark.authenticate.secret=" + 32 * "x"
OFF = "spark://192.0.2.1:7077"


def properties(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines))
    return path


def whole(path: Path) -> Path:
    return properties(path, SECRET, *(f"{name} = {value}" for name, value in SHARED.items()))


@pytest.mark.parametrize("lacking", [*SHARED, "spark.authenticate.secret"])
def test_properties_that_leave_something_open_are_refused(lacking: str, tmp_path: Path) -> None:
    path = whole(tmp_path / "spark.properties")
    check_properties(path)
    text = path.read_text()
    for changed in (
        re.sub(rf"^{re.escape(lacking)} ?=.*$", "", text, flags=re.M),
        re.sub(rf"^{re.escape(lacking)} ?=.*$", f"{lacking}\tno", text, flags=re.M),
        re.sub(rf"^{re.escape(lacking)} ?=", f"# {lacking} =", text, flags=re.M),
    ):
        path.write_text(changed)
        with pytest.raises(ValueError, match=rf"spark\.properties: add {re.escape(lacking)} "):
            check_properties(path)


def test_properties_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for content in (None, b"\xff", b"#" * (1 << 17)):
        path = tmp_path / "spark.properties"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ValueError, match=re.escape(str(path))):
            spark_network(Settings(spark_master=OFF, spark_properties_file=path))


@pytest.mark.parametrize(
    ("master", "hosts"),
    [
        ("local[*]", ()),
        ("yarn", ()),
        ("spark://a:7077", ("a",)),
        ("spark://a:7077,192.0.2.1:7078", ("a", "192.0.2.1")),
        ("spark://[::1]:7077", ("::1",)),
    ],
)
def test_masters_are_known_by_their_hosts(master: str, hosts: tuple[str, ...]) -> None:
    assert master_hosts(master) == set(hosts)


def test_a_driver_asks_for_a_secret_wherever_there_is_one(tmp_path: Path) -> None:
    """Spark makes the secret of a local driver, as yarn and k8s do; a cluster's is in the file."""
    asked = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    file = whole(tmp_path / "spark.properties")
    for master, path in (("local[2]", None), ("yarn", None), (OFF, file)):
        assert asked.items() <= network_settings(master, SparkNetwork(path)).items()
    assert not asked.keys() & network_settings(OFF, SparkNetwork()).keys()
    assert open_spark(Settings(spark_master=OFF, spark_properties_file=file)) == {}
    assert list(open_spark(Settings(spark_master=OFF))) == ["192.0.2.1"]
    assert open_spark(Settings(spark_master="local[*]")) == {}


def test_a_drivers_ports_are_those_of_its_range() -> None:
    settings = Settings(spark_master=OFF, spark_driver_host="192.0.2.7", spark_driver_ports="7100-7104")
    given = network_settings(OFF, spark_network(settings))
    tries = int(given["spark.port.maxRetries"]) + 1
    first, second = int(given["spark.driver.port"]), int(given["spark.driver.blockManager.port"])
    of_driver, of_blocks = range(first, first + tries), range(second, second + tries)
    assert {*of_driver, *of_blocks} <= {*range(7100, 7105)}
    assert not {*of_driver} & {*of_blocks}
    assert given["spark.driver.host"] == given["spark.driver.bindAddress"] == "192.0.2.7"
    with pytest.raises(ValueError, match="the Spark driver's ports as FIRST-LAST"):
        spark_network(Settings(spark_master=OFF, spark_driver_ports="7100"))


def test_a_driver_of_a_master_that_only_this_machine_reaches_is_reached_by_nobody_else() -> None:
    assert spark_network(Settings(spark_master="spark://127.0.0.1:7077")).host == "127.0.0.1"
    assert spark_network(Settings(spark_master=f"spark://127.0.0.1:7077,{OFF[8:]}")).host == ""


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)


def test_the_documented_file_closes_what_is_open(tmp_path: Path) -> None:
    subprocess.run(["bash", "-euc", blocks()[0]], cwd=tmp_path, check=True)
    check_properties(tmp_path / "spark.properties")
    assert (tmp_path / "spark.properties").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("role", ["master", "worker"])
def test_the_documented_commands_are_those_that_ship(role: str) -> None:
    """`tests/integration/test_spark_cluster.py` runs the ones that ship."""
    words = [shlex.split(line) for line in blocks()[1].replace("\\\n", " ").splitlines()]
    ((program, *documented),) = (line for line in words if f".{role}." in " ".join(line))
    shipped = COMPOSE[f"spark-{role}"]
    assert shipped["entrypoint"] == [program]
    assert [word for word in documented if word.startswith(("--", "org."))] == [
        word for word in shipped["command"] if word.startswith(("--", "org."))
    ]
    (exported,) = (line[1:] for line in words if line[0] == "export")
    assert shipped["environment"] == dict(pair.split("=") for pair in exported)
