"""The client as a distribution of its own, in a program that has a package ``app`` already."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.fixtures.api_stub import ApiStub, serve
from zonekeeper_client.version import VERSION

SOURCE = Path(__file__).parents[3] / "clients" / "python"
PROGRAM = """
import json, sys
given = json.loads(sys.argv[1])
sys.path += given["places"]

import app
from zonekeeper_client import BlockingZoneClient

with BlockingZoneClient([given["url"]]) as client:
    revision = client.put("ORDERS", "k", app.VALUE).revision
    value = client.get("ORDERS", "k").value
loaded = {name.partition(".")[0] for name in sys.modules}
print(json.dumps({"told": [revision, value], "loaded": sorted(loaded)}))
"""
PRODUCT = {"catalog", "parser", "rebalance", "spark", "migrations", "grpc", "google", "aetcd"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has the distribution and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-index"]
    where = ["--no-deps", "--no-build-isolation", "--target", str(folder / "lib")]
    subprocess.run([*pip, *where, str(source)], check=True, capture_output=True, text=True)
    return folder / "lib"


def test_a_program_with_a_package_of_the_same_name(installed: Path, tmp_path: Path) -> None:
    """The client needs none of the server's packages, so ``app`` may be another one; gRPC is for direct reads
    of groups alone."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("VALUE = 'of another app'\n")
    path, stub = "/api/v1/zones/ORDERS/kv/k", ApiStub()
    body = {"partition": 5, "value": "of another app", "revision": 9, "repeated": False}
    stub.answers |= {f"PUT {path}": (200, body), f"GET {path}": (200, body)}
    server = serve(stub)
    # -S: a folder of packages that is only a place to look in; what is installed editable is not there.
    places = [str(tmp_path), str(installed), sysconfig.get_path("purelib")]
    given = json.dumps({"places": places, "url": stub.url})
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", PROGRAM, given], capture_output=True, text=True, check=False
        )
    finally:
        server.shutdown()
        server.server_close()
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["told"] == [9, "of another app"]
    assert not PRODUCT.intersection(told["loaded"])


def test_what_is_installed(installed: Path) -> None:
    """The distribution holds its own package, with types, has the server's version, and needs few others."""
    (metadata,) = installed.glob("*.dist-info")
    distribution = Distribution.at(metadata)
    assert distribution.version == VERSION
    needs = sorted(Requirement(text).name for text in distribution.requires or ())
    assert needs == ["grpcio", "httpx", "mmh3", "msgspec"]
    assert {path.parts[0] for path in distribution.files or ()} == {"zonekeeper_client", metadata.name}
    assert (installed / "zonekeeper_client" / "py.typed").exists()
