"""Words that the SQL editor offers: of statements, options of zones, views with their columns, and zones.

Made of the tables that parser, catalog and views have, so that a new option or view is offered by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from app.security.statement_policy import COMMANDS, EXPLAIN_PARTITION
from app.sql.statements.statement_meter import kind_of_type
from app.sql.views.view_registry import SCHEMA, ViewRegistry
from catalog.core.messages import Name
from catalog.core.principals import ObjectKind, Privilege
from catalog.core.zone_options import ZONE_OPTIONS
from parser.calls import Procedure
from parser.principal_rules import USER_OPTIONS
from parser.queries import QUERY_WORDS, QUESTION_WORDS, ShowKind
from parser.render_principals import render_name
from parser.rules import RESERVED

ZONES_MAX = 2_000
"""Names of so many zones are offered, the first by name."""
OF_NO_STATEMENT = frozenset(
    ["CHECK", "CONSTRAINT", "DELETE", "FOREIGN", "INDEX", "INSERT", "INTO", "MERGE", "REFERENCES", "UPDATE"]
)
"""Reserved for what other databases have."""


@dataclass(frozen=True, slots=True)
class OfferedWord:
    """``kind``: the editor's own word for it, which chooses a sign. ``views``: of a column, those that have it:
    it is offered where one of them is named."""

    label: str
    kind: str
    detail: str = ""
    info: str = ""
    views: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the word as CodeMirror takes it."""
        body = {"label": self.label, "type": self.kind, "detail": self.detail, "info": self.info}
        return {name: text for name, text in body.items() if text} | {"views": list(self.views)}


def offered_words(registry: ViewRegistry) -> list[OfferedWord]:
    """All but the names of zones: views first, then columns, options and words of statements."""
    views = [view for view in registry if view.schema == SCHEMA]
    having: dict[str, list[str]] = {}
    for view in views:
        for column in view.columns:
            having.setdefault(column.name, []).append(view.name)
    return [
        *(OfferedWord(view.name.lower(), "class", "view") for view in views),
        *(OfferedWord(column.lower(), "property", "column", views=tuple(of)) for column, of in having.items()),
        *(OfferedWord(row.option.value, "property", "option", row.text) for row in ZONE_OPTIONS),
        *(OfferedWord(f"'{name}'", "constant") for row in ZONE_OPTIONS for name in row.choice_names),
        *(OfferedWord(procedure.value.lower(), "function", "procedure") for procedure in Procedure),
        *(OfferedWord(word, "keyword") for word in sorted(_words())),
    ]


def _words() -> set[str]:
    commands = (kind_of_type(kind).split("_") for kind in COMMANDS)
    kinds = (value for kind in (ShowKind, ObjectKind, Privilege) for value in kind)
    return {
        *(RESERVED | QUERY_WORDS | QUESTION_WORDS) - OF_NO_STATEMENT,
        *(word for words in commands if words[0] in RESERVED for word in words),
        *(word for kind in kinds for word in str(kind.value).split()),
        *USER_OPTIONS,
        *EXPLAIN_PARTITION.split(),
    }


def zone_words(names: Iterable[str]) -> list[str]:
    """Return the zones' names as statements write them."""
    return [render_name(Name(name)) for name in sorted(names)[:ZONES_MAX]]
