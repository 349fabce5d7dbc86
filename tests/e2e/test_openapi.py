"""The OpenAPI document is what the server does: schemathesis, every check, coverage phase and fuzzing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.installation import Installation, without_spark

pytestmark = pytest.mark.timeout(900)

CONFIG = Path(__file__).parents[1] / "data" / "schemathesis.toml"
"""Seed, and what is expected besides the document, each with its reason."""
SEEN_AT_LEAST = 58
LONG_S = 7_200.0
LONG = pytest.param(30, marks=[pytest.mark.soak, pytest.mark.timeout(LONG_S)])


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Installation of this module's own, as limits, drains and pauses are made at random."""
    directory = tmp_path_factory.mktemp("openapi")
    whole = Installation(directory / "data", 2, without_spark(directory))
    try:
        whole.start()
        whole.execute("CREATE ZONE orders (PARTITIONS 2, REPLICAS 2)")
        yield whole
    finally:
        whole.stop()


@pytest.mark.thorough("test_request_fuzz sends a slice of such requests")
@pytest.mark.slow("thousands of requests, one after the other")
@pytest.mark.parametrize(
    "examples", [2, pytest.param(30, marks=[pytest.mark.soak, pytest.mark.timeout(LONG_S)])]
)
def test_the_document_is_what_the_server_does(tried: Installation, tmp_path: Path, examples: int) -> None:
    """``examples``: made up for each operation, after those that cover its schema."""
    program = Path(sys.executable).with_name("schemathesis")
    options = ("--max-examples", str(examples))
    done = subprocess.run(
        [program, *("--config-file", CONFIG), "run", "--no-color", *options, f"{tried.url}/openapi.json"],
        env={
            **os.environ,
            "AUTHORIZATION": tried.access.headers["Authorization"],
            "CA_FILE": tried.access.settings["ZONEKEEPER_CA_FILE"],
        },
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=800 if examples == 2 else LONG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    assert f"{SEEN_AT_LEAST} selected / {SEEN_AT_LEAST} total" in done.stdout
    assert tried.request("GET", "/healthz").status_code == 200
