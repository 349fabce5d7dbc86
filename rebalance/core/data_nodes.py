"""Which nodes a zone uses, and the quorum size that follows (decision 1; timers come with the protocol).

For now a node that joins with all of the zone's profiles and matches its filter is a data node at once, and one
that left stays, unless the filter was altered: a new filter recalculates from what lives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from catalog.core.node_filter import NodeFilters, may_use
from catalog.core.quorum import consensus_size, default_quorum, effective_replicas
from catalog.core.zone import EVERY_NODE, DistributionAlgorithm, Node, Zone, ZoneIntent

DATA_NODES_FORMAT = 1
DEFAULT_WEIGHT = 1.0
OWN_DOMAIN = "node:"
"""Prefix of the failure domain of a node that names none."""


@dataclass(frozen=True, slots=True)
class DataNodes:
    """Data nodes of a zone in name order, and its effective quorum size.

    ``replicas`` and ``nodes_filter`` are what they were chosen for: others in the intent mean to derive anew.
    ``weights`` and ``domains`` have one entry a node in balanced zones; empty where all weights are equal
    or no node names a failure domain: there they decide nothing.
    Nothing else of a zone is in here, so that a version which touches no placement parameter writes nothing
    (decision 12).
    """

    nodes: tuple[str, ...]
    quorum: int
    replicas: int
    nodes_filter: str = EVERY_NODE
    weights: tuple[float, ...] = ()
    domains: tuple[str, ...] = ()

    def encode(self) -> bytes:
        document = {"v": DATA_NODES_FORMAT, **asdict(self)}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> DataNodes:
        """Raises ValueError for a format that this build does not know."""
        found = json.loads(value)
        if found["v"] != DATA_NODES_FORMAT:
            raise ValueError(
                f"data nodes format {found['v']} is not known; this build reads {DATA_NODES_FORMAT}"
            )
        weights, domains = tuple(found.get("weights", ())), tuple(found.get("domains", ()))
        nodes = tuple(found["nodes"])
        return cls(nodes, found["quorum"], found["replicas"], found["nodes_filter"], weights, domains)

    def traits(self, name: str) -> tuple[float | None, str | None]:
        """Weight and failure domain of a data node, each None where it decides nothing. Raises ValueError for
        another node."""
        at = self.nodes.index(name)
        weight = self.weights[at] if self.weights else None
        domain = self.domains[at] if self.domains else None
        return weight, None if domain is None else domain.removeprefix(OWN_DOMAIN)

    def are_chosen_for(self, zone: Zone) -> bool:
        """False while ``zone`` has parameters that these data nodes do not know yet."""
        return (
            self.replicas == zone.replicas
            and self.nodes_filter == zone.nodes_filter
            and zone.quorum_size in (None, self.quorum)
        )


def compute_data_nodes(
    previous: DataNodes | None, live: Iterable[Node], intent: ZoneIntent, filters: NodeFilters
) -> DataNodes:
    """The zone's data nodes now: every living node with all of its profiles that matches its filter, and those
    it had that do not live.

    A node that lives and does not match (any more) leaves at once (IEP-012); one that does not live stays, for
    nothing is known of it, until the filter is altered, which recalculates from the living nodes. The derived
    quorum is derived anew when REPLICAS or the filter are altered, and else only grows with the nodes: no
    departure lowers it (decision 1). Raises FilterError for a filter that is none, which no catalog holds.
    """
    zone = intent.zone
    live = tuple(live)
    nodes = {node.name for node in live if may_use(zone, node, filters)}
    if previous and previous.nodes_filter == zone.nodes_filter:
        nodes |= set(previous.nodes).difference(node.name for node in live)
    quorum = zone.quorum_size or default_quorum(zone.replicas, len(nodes))
    if previous and zone.quorum_size is None and previous.are_chosen_for(zone):
        quorum = max(quorum, previous.quorum)
    names = tuple(sorted(nodes))
    weights, domains = node_traits(previous, live, zone, names)
    return DataNodes(names, quorum, zone.replicas, zone.nodes_filter, weights, domains)


def node_traits(
    previous: DataNodes | None, live: Iterable[Node], zone: Zone, names: Sequence[str]
) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Weights and failure domains of ``names``, each empty where it decides nothing (rendezvous zones too).

    A node that does not live keeps what it had. One that names no domain is a domain of its own.
    """
    if zone.algorithm is not DistributionAlgorithm.BALANCED:
        return (), ()
    had_weights = dict(zip(previous.nodes, previous.weights, strict=False)) if previous else {}
    had_domains = dict(zip(previous.nodes, previous.domains, strict=False)) if previous else {}
    lives = {node.name: node for node in live}
    weights = tuple(
        lives[name].weight if name in lives else had_weights.get(name, DEFAULT_WEIGHT) for name in names
    )
    own = {name: f"{OWN_DOMAIN}{name}" for name in names}
    domains = tuple(
        (lives[name].failure_domain or own[name]) if name in lives else had_domains.get(name, own[name])
        for name in names
    )
    return (
        weights if len(set(weights)) > 1 else (),
        domains if domains != tuple(own.values()) else (),
    )


def replica_counts(intent: ZoneIntent, data_nodes: DataNodes) -> tuple[int, int]:
    """``(replicas, voters)`` of each partition.

    Standing learners are not built yet, so a zone never gets more replicas than voters: DDL refuses
    parameters that would give learners, and nodes that join later only enlarge the consensus group.
    """
    voters = consensus_size(data_nodes.quorum, intent.zone.replicas, len(data_nodes.nodes))
    return min(effective_replicas(intent.zone.replicas, len(data_nodes.nodes)), voters), voters
