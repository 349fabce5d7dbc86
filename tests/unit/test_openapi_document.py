"""Answers that the OpenAPI document gives for all operations, and what has no place in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.api.problems import EVERYWHERE
from app.bootstrap.server import build_app
from tests.fixtures.partial_services import services_with
from tests.unit.operations_world import OperationsWorld, operations_world

SEEN_AT_LEAST = 58


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path) as world:
        yield world


def test_each_operation_says_what_any_may_answer() -> None:
    """And none says what none answers: the framework's own 422, or null for a parameter."""
    document = build_app(services_with()).openapi()
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    assert len(operations) >= SEEN_AT_LEAST
    for operation in operations:
        assert set(map(str, EVERYWHERE)) <= set(operation["responses"])
        assert "application/json" not in operation["responses"].get("422", {}).get("content", {})
        for parameter in operation.get("parameters", ()):
            assert {"type": "null"} not in parameter["schema"].get("anyOf", ()), parameter
    assert "HTTPValidationError" not in document["components"]["schemas"]


async def test_what_is_not_there_has_a_code(api: OperationsWorld) -> None:
    missing = await api.http.get("/nothing")
    assert (missing.status_code, missing.json()["name"]) == (404, "ADDRESS_NOT_FOUND")
    refused = await api.http.post("/zones/x/kv/y")
    assert (refused.status_code, refused.json()["name"]) == (405, "METHOD_NOT_ALLOWED")
    assert refused.headers["allow"] == "DELETE, GET, PUT"
    assert refused.headers["content-type"] == "application/problem+json"
