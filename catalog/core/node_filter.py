"""The catalog's port to NODES FILTER, without knowing its language: this folder is pure.

The language (JSONPath) is behind ``NodeFilters``, which the composition hands in; see ``catalog.filters``.
"""

from __future__ import annotations

from typing import Protocol

from catalog.core.engine_options import has_options
from catalog.core.zone import Node, Zone


class FilterError(ValueError):
    """The text is not a filter; the message says why."""


class NodeFilters(Protocol):
    """Evaluates filters. Pure: the same filter and node have the same answer for ever."""

    def matches(self, expression: str, node: Node) -> bool:
        """Check that the filter selects the node. Raises FilterError, and does so for every node or for
        none."""
        ...

    def negated_attributes(self, expression: str) -> tuple[str, ...]:
        """Attributes that the filter compares negatively, as ``@.region != 'US'``, so that nodes without the
        attribute match too, sorted. Raises FilterError."""
        ...


def may_use(zone: Zone, node: Node, filters: NodeFilters) -> bool:
    """Check that a zone may use a node: its filter, and all of its profiles, kept by an engine that has the
    zone's options (IEP-012). Raises FilterError."""
    has_profiles = node.holds_profiles(zone.storage_profiles) and has_options(zone, node)
    return has_profiles and filters.matches(zone.nodes_filter, node)
