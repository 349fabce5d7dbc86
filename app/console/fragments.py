"""View models to HTML: templates of this package, everything escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from app.edge.policies import CONSOLE as PATH

CSS = Path(__file__).with_name("console.css")


def link(*steps: str | int, **query: str | int | None) -> str:
    """The address of a page; what of the query is empty is left out."""
    path = "/".join((PATH, *(quote(str(step), safe="") for step in steps)))
    given = {key.rstrip("_"): value for key, value in query.items() if value not in (None, "")}
    return f"{path or PATH}{'?' if given else ''}{urlencode(given)}"


def moment(at_ms: int) -> str:
    """Milliseconds since 1970 as a short time in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def when(utc: str) -> str:
    """A time of the API as people read it; other texts stay."""
    return _UTC.sub(r"\1 \2", utc)


def amount(bytes_: int, unknown: int) -> str:
    """Of copies, of which ``unknown`` have no known size."""
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
    """In a unit that leaves up to four digits."""
    value, units = float(bytes_), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:,.0f} {units[0]}" if units[0] == "bytes" else f"{value:,.1f} {units[0]}"


def shares(counts: Iterable[int]) -> list[float]:
    """In percent; what is there at all gets a width that can be seen."""
    found = list(counts)
    total = sum(found)
    wide = [max(100 * each / total, 1.0) if each else 0.0 for each in found] if total else [0.0 for _ in found]
    return [round(100 * each / (sum(wide) or 1), 2) for each in wide]


@lru_cache(1)
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("app.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        auto_reload=False,
    )
    found.filters |= {"grouped": grouped, "size": size, "moment": moment, "shares": shares, "when": when}
    found.globals["amount"] = amount
    found.globals["link"] = link
    return found


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
