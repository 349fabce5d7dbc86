"""The runbook has a page for each alert, and its commands are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.alerts.alert_rows import ALERT_ROWS, AlertRow
from app.cli.main import COMMANDS

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "runbook"
HEADINGS = ["What it means", "How to confirm", "What to do", "How to know that it is over"]
ROOTS = {name for part in COMMANDS.values() for name in part}
LABELS = {"zone", "node", "operation", "process"}
EARLIER = {"nodes", "member", "certificate", "host:port"}
"""Placeholders that the line before fills, or that are the operator's own file or address."""


@pytest.mark.parametrize("row", ALERT_ROWS, ids=lambda row: row.name)
def test_each_alert_has_a_page_with_four_parts_that_say_something(row: AlertRow) -> None:
    text = (ROOT / row.page).read_text()
    assert text.startswith(f"# {row.name}\n")
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    assert [part.partition("\n")[0] for part in parts] == HEADINGS
    assert all(part.partition("\n")[2].strip() for part in parts)


@pytest.mark.parametrize("row", ALERT_ROWS, ids=lambda row: row.name)
def test_a_line_that_is_a_command_is_shown_as_one(row: AlertRow) -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / row.page).read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^(?:zonectl|etcdctl|openssl) .*", text, flags=re.MULTILINE) == []


def test_there_is_no_page_without_an_alert() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == {row.name for row in ALERT_ROWS} | {"README"}


@pytest.mark.parametrize("row", ALERT_ROWS, ids=lambda row: row.name)
def test_commands_exist_and_placeholders_come_from_somewhere(row: AlertRow) -> None:
    text = (ROOT / row.page).read_text()
    assert set(re.findall(r"zonectl ([a-z-]+)", text)) <= ROOTS
    placeholders = set(re.findall(r"<([\w:]+)>", text))
    assert placeholders <= LABELS | EARLIER
    own = placeholders & LABELS
    # A page may tell how to look at any zone, but the alert's own label is what it begins with.
    assert not row.label or row.label in own | {"instance"}
