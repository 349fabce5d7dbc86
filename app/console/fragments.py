"""View models to HTML: templates of this package, everything escaped, and the places that show them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from app.console.browser import fill, html
from app.contract.columns import columns_of
from app.contract.nodes import LossBody
from app.contract.system_rows import EventRow
from app.contract.zones import FailureBody, Member, StoreCopy
from app.edge.headers import CONSOLE as PATH
from rebalance.core.causes.cause_table import anchor, words

EMPTY = Markup()
CSS = Path(__file__).with_name("console.css")


def link(*steps: str | int, **query: str | int | None) -> str:
    """The address of a page; what of the query is empty is left out."""
    path = "/".join((PATH, *(quote(str(step), safe="") for step in steps)))
    stated = {key.rstrip("_"): value for key, value in query.items() if value not in (None, "")}
    return f"{path}{'?' if stated else ''}{urlencode(stated)}"


def when(utc: str) -> str:
    """A time of the API as people read it; other texts stay."""
    return _UTC.sub(r"\1 \2", utc)


def utc(time_us: int) -> str:
    """``time_us``: microseconds since 1970."""
    return f"{datetime.fromtimestamp(time_us / 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"


def amount(bytes_: int, unknown: int) -> str:
    """Write the size of copies, of which ``unknown`` have no known size."""
    if not unknown:
        return size(bytes_)
    return f"{size(bytes_)}, {unknown:,} of unknown size" if bytes_ else "sizes not known yet"


_UTC = re.compile(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(Z|\+00:00)$")
_DIGITS = re.compile(r"(\d+)")


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A key that puts n2 before n10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name))


def grouped(number: float) -> str:
    return f"{number:,.0f}"


def size(bytes_: int) -> str:
    """Write a size in a unit that leaves up to four digits."""
    value, units = float(bytes_), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:,.0f} {units[0]}" if units[0] == "bytes" else f"{value:,.1f} {units[0]}"


def shares(counts: Iterable[int]) -> list[float]:
    """Return shares in percent; what is there at all gets a width that can be seen."""
    parts = list(counts)
    total = sum(parts) or 1
    wide = [max(100 * part / total, 1.0) if part else 0.0 for part in parts]
    return [round(100 * width / (sum(wide) or 1), 2) for width in wide]


ROWS = {row.__name__: row for row in (EventRow, FailureBody, LossBody, Member, StoreCopy)}
"""Rows whose tables are templates."""


def titles(row: str, *names: str) -> list[str]:
    """Return the titles of the fields of a row that are named."""
    return [columns_of(ROWS[row])[name].title for name in names]


@lru_cache(1)
def _environment() -> Environment:
    loader = PackageLoader("app.console")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, auto_reload=False
    )
    environment.filters |= {"grouped": grouped, "size": size, "shares": shares, "when": when}
    environment.filters |= {"cause_page": anchor, "cause_words": words}
    environment.globals |= {"amount": amount, "link": link, "titles": titles}
    return environment


@lru_cache(1)
def style_sheet() -> str:
    return CSS.read_text()


def load_templates() -> None:
    """Reads and compiles all of them; takes a part of a second, so call it in a thread."""
    environment = _environment()
    for name in environment.list_templates():
        environment.get_template(name)
    style_sheet()


def render(template: str, **model: object) -> Markup:
    return Markup(_environment().get_template(f"{template}.html").render(**model))


class Fragment:
    """HTML that is sent again only when it has changed."""

    def __init__(self, classes: str = "") -> None:
        self._html = html().classes(classes)
        self._content = EMPTY

    def show(self, content: Markup) -> None:
        if content != self._content:
            self._content = content
            fill(self._html, content)

    def draw(self, template: str, **model: object) -> None:
        """Show what the template makes of ``model``."""
        self.show(render(template, **model))
