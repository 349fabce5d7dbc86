"""The tables of the console's pages and controls say what the lists of this test say; every cell matters."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest

from app.security.policy import (
    CONTROLS,
    LOGIN_ROUTES,
    PAGES,
    SOCKET_EVENTS,
    Guard,
    Need,
    Subject,
    check_console,
)
from catalog.core.authorisation import Privilege

LISTED = Path(__file__).parents[2] / "data" / "page_privileges.tsv"
"""Path and needs of each page, which the role walk uses, too."""
LISTED_PAGES: dict[str, str] = dict(line.split("\t") for line in LISTED.read_text().splitlines())
LISTED_CONTROLS = {
    "DRAIN_NODE": "OPERATE ON SYSTEM",
    "CHECK_STOP": "SEE ON SYSTEM; SEE ON ALL_ZONES",
    "CHANGE_LIMITS": "OPERATE ON SYSTEM",
    "REMOVE_NODE": "OPERATE ON SYSTEM; SEE ON ALL_ZONES",
    "SILENCE_ALERTS": "OPERATE ON SYSTEM",
    "REST_ZONE": "OPERATE ON ZONE",
    "CREATE_ZONE": "CREATE ON ALL_ZONES",
    "ALTER_ZONE": "ALTER ON ZONE",
    "OPERATE_OPERATION": "OPERATE ON ZONE",
    "REVERSE_OPERATION": "OPERATE ON ZONE; ALTER ON ZONE",
    "RECOVER_ZONE": "RECOVER ON ZONE",
    "READ_STATEMENTS": "AUDIT ON SYSTEM",
    "MANAGE_USERS": "ADMIN ON SYSTEM",
    "END_OWN_LOGIN": "LOGIN",
}


NEEDED = {path: page.needs for path, page in PAGES.items()}
NAMED_CONTROLS = {control.name: needs for control, needs in CONTROLS.items()}


def text_of(needs: tuple[Need, ...]) -> str:
    return "; ".join(f"{privilege.value} ON {subject.name}" for privilege, subject in needs) or "LOGIN"


def differences(table: Mapping[str, tuple[Need, ...]], listed: Mapping[str, str]) -> set[str]:
    return {key for key in table.keys() | listed.keys() if text_of(table.get(key, ())) != listed.get(key)}


def unnoticed(table: Mapping[str, tuple[Need, ...]], listed: Mapping[str, str]) -> list[tuple[str, str]]:
    """Cells that can be changed, or left out, without the list being another one."""
    missed: list[tuple[str, str]] = []
    for key, needs in table.items():
        for at, need in enumerate(needs):
            others: list[tuple[Need, ...]] = [(one,) for one in product(Privilege, Subject) if one != need]
            rows = [(*needs[:at], *other, *needs[at + 1 :]) for other in [(), *others]]
            missed += [(key, text_of(row)) for row in rows if differences({**table, key: row}, listed) != {key}]
    return missed


def test_the_tables_are_the_lists() -> None:
    assert differences(NEEDED, LISTED_PAGES) == set()
    assert differences(NAMED_CONTROLS, LISTED_CONTROLS) == set()


def test_each_flipped_cell_is_noticed() -> None:
    assert unnoticed(NEEDED, LISTED_PAGES) == []
    assert unnoticed(NAMED_CONTROLS, LISTED_CONTROLS) == []


def test_only_the_login_page_is_open() -> None:
    is_open = {key for key, (guard, _) in LOGIN_ROUTES.items() if guard is Guard.OPEN}
    files = {("GET", f"/console/login{ending}") for ending in ("", ".js", ".css")}
    assert is_open == files | {("POST", "/console/login")}


@pytest.mark.parametrize(
    ("pages", "events", "named"),
    [
        ([*PAGES, "/secrets"], SOCKET_EVENTS, "/secrets"),
        ([page for page in PAGES if page != "/audit"], SOCKET_EVENTS, "/audit"),
        (PAGES, [*SOCKET_EVENTS, "upload"], "upload"),
        (PAGES, SOCKET_EVENTS - {"ack"}, "ack"),
    ],
)
def test_a_page_or_event_without_a_row_stops_the_start(pages: list[str], events: list[str], named: str) -> None:
    check_console(PAGES, SOCKET_EVENTS)
    with pytest.raises(RuntimeError, match=named):
        check_console(pages, events)
