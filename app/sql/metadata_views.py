"""The metadata relations that SQL clients read, as views of the query engine."""

from __future__ import annotations

from collections.abc import Iterable

from app.sql.metadata import Relation, SystemTable, relations
from app.sql.results import AnswerColumn
from app.sql.system_views import SYSTEM_VIEWS, SystemView, ViewRegistry


def registry_with_metadata(views: Iterable[SystemView] = SYSTEM_VIEWS) -> ViewRegistry:
    """The views themselves, and ``information_schema``, ``system.jdbc`` and ``system.metadata`` about them."""
    views = tuple(views)
    described = [
        SystemTable(
            view.name.lower(),
            tuple(AnswerColumn(column.name.lower(), column.type) for column in view.columns),
            view.schema.lower(),
        )
        for view in views
    ]
    metadata = (_view(name, relation) for name, relation in relations(described).items())
    return ViewRegistry((*views, *metadata))


def _view(qualified_name: str, relation: Relation) -> SystemView:
    columns, rows = relation
    *_, schema, name = qualified_name.upper().split(".")
    upper = tuple(AnswerColumn(column.name.upper(), column.type) for column in columns)
    return SystemView(name, upper, lambda _snapshot: rows, schema)
