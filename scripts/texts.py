"""Write docs/texts.md, every text that users may see on one page: ``python scripts/texts.py``.

A test compares the page with the code, and refuses words of a list.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import typer

from app.alerts.alert_rows import ALERT_ROWS
from app.api.services import Services
from app.bootstrap.server import build_app
from app.cli.main import app as commands
from app.configuration.settings import Settings
from catalog.core.errors import ErrorKind
from catalog.core.zone_options import ZONE_OPTIONS
from rebalance.core.admission.limit_options import LIMIT_OPTIONS
from rebalance.core.causes.cause_table import CAUSE_GROUPS
from rebalance.ports.metric_rows import Metric

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "texts.md"
PROGRAMS = ("app", "catalog", "parser", "rebalance", "spark")
SHOWN_WHOLE = ("app/console", "app/cli")
"""Folders whose strings are all for people; elsewhere the strings of errors are."""
_UNNAMED = ("paths", "components", "schemas", "parameters", "properties", "schema", "content", "responses")
_WORDS = re.compile(r"[A-Za-z]{2,}[,.:;]? [A-Za-z{(]")
_SCRIPT = re.compile(r"=>|function |=\S+ \w+=|;$")
"""JavaScript, SQL and attributes of elements."""


def page() -> str:
    causes = ((cause.name, cause.value) for group in CAUSE_GROUPS.values() for cause in group)
    sections: dict[str, Iterable[str]] = {
        "API": documented(build_app(cast(Services, None)).openapi(), ("API",)),
        "Commands": helps(typer.main.get_command(commands), "zonectl"),
        "Settings": (f"{name}: {field.description}" for name, field in Settings.model_fields.items()),
        "Limits": (f"{option.name}: {option.title}: {option.text}" for option in LIMIT_OPTIONS),
        "Options of zones": (f"{row.option.value}: {row.text}" for row in ZONE_OPTIONS),
        "Errors": (f"{kind.name}: {kind.value.title}. {kind.value.action}" for kind in ErrorKind),
        "Causes": (
            f"{name}: {row.words} | {row.meaning} | {row.action} {row.last_resort}" for name, row in causes
        ),
        "Alerts": (f"{row.name}: {row.summary}" for row in ALERT_ROWS),
        "Metrics": (f"{metric.row.name}: {metric.row.help}" for metric in Metric),
        "Console's templates": templates(),
        "Messages": messages(),
    }
    seen: set[str] = set()
    made = "<!-- Made by scripts/texts.py from the code; change the text there, not in this file. -->"
    lists = (f"\n## {title}\n{listed(texts, seen)}" for title, texts in sections.items())
    return f"# Texts\n{made}\n\nEvery text that users may see; `{{}}` is a value.\n{''.join(lists)}"


def listed(texts: Iterable[str], seen: set[str]) -> str:
    """List texts, one a line; one that several places have is listed at the first."""
    lines = []
    for each in texts:
        place, _, text = " ".join(each.split()).partition(": ")
        if text not in seen:
            lines.append(f"- {place}: {text}\n")
        seen.add(text)
    return "".join(lines)


def documented(node: Any, place: tuple[str, ...]) -> Iterator[str]:
    """Summaries and descriptions of an OpenAPI document, each after the names on the way to it."""
    if isinstance(node, list):
        for each in node:
            yield from documented(each, place)
    elif isinstance(node, dict):
        here = (*place, node["name"]) if "in" in node else place
        for key, value in node.items():
            if key in ("summary", "description") and isinstance(value, str):
                yield f"{' '.join(here)}: {value}"
            yield from documented(value, here if key in _UNNAMED else (*here, key))


def helps(command: Any, name: str) -> Iterator[str]:
    """Help of a command, of its parameters and of its subcommands."""
    yield f"{name}: {command.help}"
    for parameter in command.params:
        if text := getattr(parameter, "help", None):
            yield f"{name} {max(parameter.opts, key=len)}: {text}"
    for word, each in getattr(command, "commands", {}).items():
        yield from helps(each, f"{name} {word}")


def templates() -> Iterator[str]:
    """Text between the tags of the console's templates, and sentences that their expressions quote."""
    for path in sorted((ROOT / "app/console/templates").glob("*.html")):
        text = path.read_text()
        quoted = filter(_WORDS.search, re.findall(r'"([^"{}%<>]*)"', text))
        plain = re.sub(r"\{%.*?%\}|<[^>]*>", "\n", text, flags=re.S)
        for found in [*re.sub(r"\{\{.*?\}\}", "{}", plain, flags=re.S).splitlines(), *quoted]:
            if re.search(r"[A-Za-z]{2}", found):
                yield f"{path.stem}: {found}"


def messages() -> Iterator[str]:
    """Strings of the console, of the command line, and of errors elsewhere."""
    for path in sorted(each for folder in PROGRAMS for each in (ROOT / folder).rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        tree = ast.parse(path.read_text())
        whole = place.startswith(SHOWN_WHOLE)
        roots = [tree] if whole else [node for node in ast.walk(tree) if is_error(node)]
        yield from (f"{place}: {text}" for root in roots for text in sentences(root))


def is_error(node: ast.AST) -> bool:
    called = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error")
    return called or isinstance(node, ast.Raise)


def sentences(root: ast.AST) -> Iterator[str]:
    """Strings of several words in the code below, in its order, without docstrings."""
    if isinstance(root, ast.JoinedStr | ast.Constant):
        text = shown(root)
        if _WORDS.search(text) and not _SCRIPT.search(text):
            yield text
    elif not (isinstance(root, ast.Expr) and isinstance(root.value, ast.Constant)):
        for child in ast.iter_child_nodes(root):
            yield from sentences(child)


def shown(node: ast.AST) -> str:
    """A string as users see it, with ``{}`` in place of its values."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(shown, node.values))
    if isinstance(node, ast.FormattedValue):
        return "{}"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
