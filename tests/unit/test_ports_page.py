"""``docs/ports.md`` names every setting of an address or a port with its default, and what joins whom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from app.configuration.settings import Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ports.md").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
PREFIX = "ZONEKEEPER_"
BY_THEMSELVES = {"": "the machine's name", 0: "a free one", "127.0.0.1": "127.0.0.1"}
NONE = {
    "node_ports": "none",
    "metrics_host": "with TLS `ZONEKEEPER_NODE_HOST`, else 127.0.0.1",
    "spark_driver_ports": "two free ones",
}
"""Words that the page has for a setting without a value."""


class Row(NamedTuple):
    who: str
    what: str
    place: str
    default: str
    reached_by: str
    asks: str


ROWS = [
    Row(*(cell.strip() for cell in line.strip("|").split("|")))
    for line in PAGE.splitlines()
    if line.startswith("| `")
]


def names(cell: str) -> list[str]:
    """Names that a cell gives as code."""
    return re.findall(r"`([\w.-]+)`", cell)


def services(name: str) -> list[dict[str, Any]]:
    return [service for key, service in COMPOSE.items() if re.fullmatch(rf"{name}\d*", key)]


def fields(cell: str) -> list[str]:
    return [name.removeprefix(PREFIX).lower() for name in names(cell) if name.startswith(PREFIX)]


def test_every_setting_of_a_place_is_on_the_page_and_no_other() -> None:
    places = {name for name in Settings.model_fields if re.search(r"(^|_)(host|ports?)$", name)}
    assert len(places) >= 9
    assert {name for row in ROWS for name in fields(row.place)} == places
    assert {*fields(PAGE)} <= Settings.model_fields.keys()


@pytest.mark.parametrize("row", [row for row in ROWS if fields(row.place)], ids=lambda row: row.what)
def test_the_page_has_the_defaults(row: Row) -> None:
    defaults = {name: Settings.model_fields[name].default for name in fields(row.place)}
    said = [NONE[name] if default is None else BY_THEMSELVES[default] for name, default in defaults.items()]
    assert re.split(r"[,;] (?!else)", row.default) == said


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.who} {row.what}")
def test_whoever_has_to_get_there_is_on_a_network_with_it(row: Row) -> None:
    for name in names(row.who):
        assert services(name)
        for caller in names(row.reached_by):
            assert services(caller)
            for reached in services(name):
                for calling in services(caller):
                    # Of prometheus.yml: the controllers are scraped where somebody opens them.
                    if (caller, name) != ("prometheus", "controller"):
                        assert {*reached["networks"]} & {*calling["networks"]}, (caller, name)


def test_every_process_that_ships_is_on_the_page() -> None:
    said = {name for row in ROWS for name in (*names(row.who), *names(row.reached_by))}
    assert said == {re.sub(r"\d+$", "", name) for name in COMPOSE}


def test_ports_that_ship_are_on_the_page() -> None:
    for name, service in COMPOSE.items():
        words = [str(word) for word in service.get("command", ())]
        given = {words[index + 1] for index, word in enumerate(words) if word == "--port"}
        rows = [row for row in ROWS if re.sub(r"\d+$", "", name) in names(row.who)]
        if name.startswith("spark"):
            assert given
            assert all(any(port in row.place for row in rows) for port in given)
    assert "2379" in COMPOSE["etcd1"]["environment"]["ETCD_LISTEN_CLIENT_URLS"]
    assert "5432" in COMPOSE["serve1"]["environment"]["ZONEKEEPER_CATALOG_URL"]
