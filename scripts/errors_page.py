"""The table of errors as a page for people: ``python scripts/errors_page.py`` writes it.

A test compares the page with the code, so that neither changes alone.
"""

from __future__ import annotations

from pathlib import Path

from catalog.core.errors import ErrorKind

PAGE = Path(__file__).parents[1] / "catalog" / "tech-notes" / "errors.md"

_HEAD = """# Errors

Generated from `catalog.core.errors.ErrorKind` by `python scripts/errors_page.py`; do not edit.

Every refusal has one of these names, on every way out of the service: in a problem document (`name`, `code`,
`sqlState`, HTTP status), in the SQL protocol (error name, code, SQLSTATE, type) and in the lines of
`zonectl check`. Names and codes never change their meaning. The message beside them says what was found and
what is allowed, with line and column where a text is to blame.

| Name | Code | SQLSTATE | HTTP | Type | What it means | What to do |
|---|---|---|---|---|---|---|
"""


def page() -> str:
    """The whole page, rows by code."""
    rows = (
        f"| {kind.name} | {kind.code} | {kind.sqlstate} | {kind.http_status} | {kind.protocol_type.value} "
        f"| {_cell(kind.value.title)} | {_cell(kind.value.action)} |\n"
        for kind in sorted(ErrorKind, key=lambda kind: kind.code)
    )
    return _HEAD + "".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
