"""The OpenAPI document is what the server does: schemathesis, every check, coverage phase and fuzzing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.api.problems import EVERYWHERE
from tests.e2e.installation import Installation, without_spark

pytestmark = pytest.mark.timeout(900)

CONFIG = Path(__file__).parents[1] / "data" / "schemathesis.toml"
"""Seed, and what is expected besides the document, each with its reason."""
SEEN_AT_LEAST = 58
LONG_S = 7_200.0
LONG = pytest.param(30, marks=[pytest.mark.soak, pytest.mark.timeout(LONG_S)])


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Of this module's own: limits, drains and pauses are made at random."""
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


def test_each_operation_says_what_any_may_answer(tried: Installation) -> None:
    """And none says what none answers: the framework's own 422, or null for a parameter."""
    document = tried.get("/openapi.json")
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    assert len(operations) >= SEEN_AT_LEAST
    for operation in operations:
        assert set(map(str, EVERYWHERE)) <= set(operation["responses"])
        assert "application/json" not in operation["responses"].get("422", {}).get("content", {})
        for parameter in operation.get("parameters", ()):
            assert {"type": "null"} not in parameter["schema"].get("anyOf", ()), parameter
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_what_is_not_there_has_a_code(tried: Installation) -> None:
    missing = tried.request("GET", "/api/v1/nothing")
    assert (missing.status_code, missing.json()["name"]) == (404, "ADDRESS_NOT_FOUND")
    refused = tried.request("POST", "/api/v1/zones/x/kv/y")
    assert (refused.status_code, refused.json()["name"]) == (405, "METHOD_NOT_ALLOWED")
    assert refused.headers["allow"] == "DELETE, GET, PUT"
    assert refused.headers["content-type"] == "application/problem+json"
