"""The table of routes is complete, says what the list of the tests says, and every cell of it matters."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from app.api.callers import check_routes, routes_of
from app.bootstrap.server import build_app
from app.security.policy import ROUTES, Guard, Need, Row, Subject, check_complete
from catalog.core.authorisation import Privilege
from tests.fixtures.partial_services import services_with

LISTED = Path(__file__).parents[2] / "data" / "route_privileges.tsv"


def listed() -> dict[tuple[str, str], str]:
    """Written apart from the table: method, path and needs of each route."""
    lines = (line.split("\t") for line in LISTED.read_text().splitlines())
    return {(method, path): needs for method, path, needs in lines}


def text_of(row: Row) -> str:
    guard, needs = row
    return "; ".join(f"{privilege.value} ON {subject.name}" for privilege, subject in needs) or guard.name


def differences(table: dict[tuple[str, str], Row]) -> set[tuple[str, str]]:
    expected = listed()
    shown = {key: text_of(row) for key, row in table.items()}
    return {key for key in expected.keys() | shown.keys() if expected.get(key) != shown.get(key)}


def test_the_table_is_the_list() -> None:
    assert differences(ROUTES) == set()


def flips() -> list[tuple[tuple[str, str], Row]]:
    """Every row with one cell of it changed, and without its row."""
    changed: list[tuple[tuple[str, str], Row]] = []
    for key, (guard, needs) in ROUTES.items():
        for at, (privilege, subject) in enumerate(needs):
            others: list[Need] = [
                other
                for other in product(Privilege, Subject)
                if other != (privilege, subject) and (other[0] is privilege or other[1] is subject)
            ]
            changed += [(key, (guard, (*needs[:at], other, *needs[at + 1 :]))) for other in others]
            changed.append((key, (guard, (*needs[:at], *needs[at + 1 :]))))
        if not needs:
            changed.append((key, (Guard.LOGIN if guard is Guard.OPEN else Guard.OPEN, ())))
    return changed


def test_each_flipped_cell_is_noticed() -> None:
    every = flips()
    assert len(every) > 500
    unnoticed = [(key, text_of(row)) for key, row in every if differences({**ROUTES, key: row}) != {key}]
    assert unnoticed == []


def test_the_application_has_a_row_for_each_of_its_routes() -> None:
    """Routes that no document shows have one, too."""
    app = build_app(services_with())
    paths = {route.path for route in routes_of(app)}
    assert {"/v1/statement", "/docs", "/openapi.json", "/docs/files", "/api/v1/zones"} <= paths
    check_routes(app)


@pytest.mark.parametrize("key", [("GET", "/api/v1/zones"), ("POST", "/v1/statement"), ("GET", "/docs")])
def test_a_route_without_a_row_stops_the_start(key: tuple[str, str]) -> None:
    routes = [*ROUTES.keys(), ("GET", "/api/v1/new")]
    with pytest.raises(RuntimeError, match="/api/v1/new"):
        check_complete(routes, ())
    with pytest.raises(RuntimeError, match=key[1]):
        check_complete(ROUTES.keys() - {key}, ())
    with pytest.raises(RuntimeError, match="/more-files"):
        check_complete(ROUTES.keys(), ["/more-files"])
    check_complete(ROUTES.keys(), ["/docs/files"])


def test_a_new_route_of_the_application_stops_the_start() -> None:
    app = build_app(services_with())

    @app.get("/api/v1/secrets")
    def secrets() -> None:
        return

    with pytest.raises(RuntimeError, match="/api/v1/secrets"):
        check_routes(app)


def test_every_route_asks_the_table() -> None:
    """The guard is a dependency of all of them: none is added past it."""
    app = build_app(services_with())
    names = {dependency.dependency.__name__ for dependency in app.router.dependencies if dependency.dependency}
    assert "authorise" in names
