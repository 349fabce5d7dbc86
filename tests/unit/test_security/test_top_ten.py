"""The OWASP API Security Top 10 of 2023: what no other test shows of it, and the table in the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel

from app.api.callers import routes_of
from app.bootstrap.server import build_app
from app.security.policy import ROUTES
from tests.fixtures.partial_services import services_with

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "security.md").read_text()
TABLE = DOCUMENT.split("## OWASP API Security Top 10 of 2023")[1].split("\n## ")[0]
REFERENCES = sorted(set(re.findall(r"`([\w/]*test_\w+\.py)(?:::(\w+))?`", DOCUMENT)))
UNDOCUMENTED = ("/v1/", "/docs", "/livez", "/healthz", "/readyz")
"""Paths of drivers, and of the document itself; health checks may be in it or not."""


def models() -> Iterator[tuple[str, type[BaseModel]]]:
    """The bodies of all requests, with the route of each."""
    for route in routes_of(build_app(services_with())):
        if isinstance(route, APIRoute) and route.body_field is not None:
            body = route.body_field.field_info.annotation
            if isinstance(body, type) and issubclass(body, BaseModel):
                yield route.path, body


def test_no_body_takes_an_unknown_property() -> None:
    """API3: whose something is, and who asks, no request can set."""
    bodies = dict(models())
    assert len(bodies) > 15
    for path, body in bodies.items():
        assert body.model_config.get("extra") == "forbid", path
        assert not body.model_fields.keys() & {"owner", "principal", "roles", "verified", "grants"}, path


def test_no_body_takes_an_address() -> None:
    """API7: nothing that a request says is fetched."""
    names = {name for _, body in models() for name in body.model_fields}
    assert {name for name in names if re.search("url|uri|host|address|endpoint|callback|hook", name)} == set()


def test_the_document_and_the_table_are_one_inventory() -> None:
    """API9: by method and path, as the application has them."""
    paths = build_app(services_with()).openapi()["paths"]
    documented = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    rows = {(method, re.sub(r":\w+}", "}", path)) for method, path in ROUTES}
    assert documented <= rows
    assert {path for _, path in rows - documented if not path.startswith(UNDOCUMENTED)} == set()


def test_each_of_the_ten_risks_has_a_row() -> None:
    rows = re.findall(r"^\| API(\d+) [^|]+\| [^|]{20,}\| `[^|]+ \|$", TABLE, re.MULTILINE)
    assert [int(number) for number in rows] == list(range(1, 11))


@pytest.mark.parametrize(("path", "name"), REFERENCES)
def test_the_documentation_names_tests_that_exist(path: str, name: str) -> None:
    files = [ROOT / path] if "/" in path else list((ROOT / "tests").rglob(path))
    texts = [file.read_text() for file in files if file.exists()]
    assert texts
    assert any(re.search(rf"^ *(async )?def {name}", text, re.MULTILINE) for text in texts)
