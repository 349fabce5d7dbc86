"""What a person should know about a zone that was accepted. Programs can rely on the names of warnings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from catalog.core.node_filter import NodeFilters
from catalog.core.versions import StatementWarning, Surroundings, Topology
from catalog.core.zone import Node, Zone
from catalog.core.zone_options import Given

NAMES_SHOWN_MAX = 5


def zone_warnings(
    zone: Zone, given: Given, data_nodes: tuple[str, ...], surroundings: Surroundings
) -> tuple[StatementWarning, ...]:
    """The warnings of one CREATE or ALTER, only about what the statement itself says."""
    return tuple(
        warning
        for warning in (
            _fewer_nodes(zone, given, len(data_nodes)),
            _no_data_nodes(zone, data_nodes, surroundings.topology),
            _negative_filter(given.get("nodes_filter"), surroundings.topology, surroundings.filters),
        )
        if warning
    )


def _fewer_nodes(zone: Zone, given: Given, data_nodes: int) -> StatementWarning | None:
    if "replicas" not in given or zone.all_replicas or zone.replicas <= data_nodes:
        return None
    nodes = "node matches" if data_nodes == 1 else "nodes match"
    message = (
        f"REPLICAS {zone.replicas}, but {data_nodes} data {nodes} now: "
        f"each partition has {data_nodes} replicas until more nodes join"
    )
    return StatementWarning("REPLICAS_ABOVE_DATA_NODES", message)


def _no_data_nodes(zone: Zone, data_nodes: tuple[str, ...], topology: Topology) -> StatementWarning | None:
    """Each profile is somewhere and the filter matches somewhere, but on no node all of it."""
    if data_nodes or not topology:
        return None
    message = (
        f"no live node has all of the profiles {', '.join(zone.storage_profiles)} and matches the filter: "
        f"zone {zone.name} has no data node until one joins"
    )
    return StatementWarning("NO_DATA_NODES", message)


def _negative_filter(
    expression: str | None, topology: Topology, filters: NodeFilters
) -> StatementWarning | None:
    """A comparison as ``@.region != 'US'`` is true of a node that has no region at all."""
    if expression is None:
        return None
    for attribute in filters.negated_attributes(expression):
        if not any(filters.matches(expression, node) for node in _without(attribute, topology)):
            continue
        lacking = [node.name for node in topology if attribute not in dict(node.attributes)]
        matched = [node.name for node in topology if node.name in lacking and filters.matches(expression, node)]
        names = ", ".join(matched[:NAMES_SHOWN_MAX]) + (", ..." if len(matched) > NAMES_SHOWN_MAX else "")
        now = f" (now: {names})" if matched else ""
        message = (
            f"the filter also matches nodes without the attribute {attribute}{now}; "
            f"to exclude them, add: @['{attribute}'] &&"
        )
        return StatementWarning("FILTER_MATCHES_MISSING_ATTRIBUTE", message)
    return None


def _without(attribute: str, topology: Topology) -> Iterator[Node]:
    """Nodes to try the filter on: one with nothing, and each live one as if it lacked the attribute."""
    yield Node("nothing")
    for node in topology:
        yield replace(node, attributes=tuple(pair for pair in node.attributes if pair[0] != attribute))
