"""Warnings about a zone that was accepted. Programs can rely on the names of warnings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from catalog.core.node_filter import NodeFilters
from catalog.core.quorum import consensus_size, majority
from catalog.core.versions import StatementWarning, Surroundings, Topology
from catalog.core.zone import STORE_ENGINE, Node, Zone, zone_engine
from catalog.core.zone_options import Given

NAMES_SHOWN_MAX = 5


OF_REPLICAS = ("replicas", "quorum_size", "nodes_filter")
"""Options that say how many replicas there are, and how many of them vote."""


def zone_warnings(
    zone: Zone,
    given: Given,
    data_nodes: tuple[str, ...],
    surroundings: Surroundings,
    quorum: int,
    *,
    stood_loss: bool,
) -> tuple[StatementWarning, ...]:
    """The warnings of one CREATE or ALTER, only about what the statement itself says. ``quorum``: the zone's
    effective one. ``stood_loss``: until now a partition had a majority after the loss of one node."""
    about_replicas = any(option in given for option in OF_REPLICAS)
    engine = zone_engine(zone, surroundings.topology)
    return tuple(
        warning
        for warning in (
            _fewer_nodes(zone, len(data_nodes)) if about_replicas else None,
            _no_majority_after_loss(zone, quorum, len(data_nodes), stood_loss)
            if about_replicas and engine != STORE_ENGINE
            else None,
            _no_data_nodes(zone, data_nodes, surroundings.topology),
            _negative_filter(given.get("nodes_filter"), surroundings.topology, surroundings.filters),
        )
        if warning
    )


def survives_loss(zone: Zone, quorum: int, data_nodes: int) -> bool:
    """Check that a partition still has a majority when one of its voters is gone."""
    voters = consensus_size(quorum, zone.replicas, data_nodes)
    return voters - 1 >= majority(voters)


def _no_majority_after_loss(
    zone: Zone, quorum: int, data_nodes: int, stood_loss: bool
) -> StatementWarning | None:
    """One replica is what a zone is created with, and asks for no such thing."""
    if not data_nodes or survives_loss(zone, quorum, data_nodes) or (zone.replicas == 1 and not stood_loss):
        return None
    voters = consensus_size(quorum, zone.replicas, data_nodes)
    voting = "1 replica votes" if voters == 1 else f"{voters} replicas vote"
    message = f"in each partition {voting}: without one of them it has no majority, and takes no writes"
    return StatementWarning("NO_MAJORITY_AFTER_LOSS", message)


def _fewer_nodes(zone: Zone, data_nodes: int) -> StatementWarning | None:
    if zone.all_replicas or zone.replicas <= data_nodes:
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
