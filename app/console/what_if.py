"""What-if: a zone with nodes more or fewer, placed by the controllers' kernel and compared with what is.

Nothing is written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from app.console.fragments import natural
from app.sql.plan.forecast import NOWHERE, Flow, Forecast, Outlook, ZoneChange, forecast
from app.sql.views.view_snapshot import SystemSnapshot
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import Zone
from rebalance.core.topology.data_nodes import DataNodes, data_nodes_of_names
from rebalance.kernels.assessment import Assessment, assess
from rebalance.kernels.transfers import NOBODY

ADDED_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Question:
    """``add`` are names of nodes that need not exist, ``remove`` of data nodes; ``replicas`` None: as it is."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class NodeShare:
    """Replicas, voters and preferred primaries; None where the node is no data node on that side."""

    node: str
    before: tuple[int, int, int] | None
    after: tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Answer:
    """``copied`` replicas, of ``bytes_``, go to nodes that did not hold them; ``ended`` ones only end.

    ``flows``: the largest first. ``before`` and ``after`` assess the whole; ``unknown`` replicas come from
    partitions of no known size."""

    zone: str
    partitions: int
    replicas: tuple[int, int]
    voters: tuple[int, int]
    copied: int
    ended: int
    bytes_: int
    unknown: int
    partitions_touched: int
    nodes: tuple[NodeShare, ...]
    flows: tuple[Flow, ...]
    before: Assessment
    after: Assessment


def read_names(text: str) -> tuple[str, ...]:
    """Names separated by commas or spaces, each once."""
    return tuple(dict.fromkeys(text.replace(",", " ").split()))


def compare(zone: Zone, question: Question, snapshot: SystemSnapshot) -> Answer:
    """Takes as long as a placement: call it in a thread. Raises RefusedError with what would be accepted."""
    before = Outlook(snapshot)
    stored = before.of(zone).data_nodes
    if stored is None or before.of(zone).placement is NOWHERE:
        message = f"zone {zone.name} is not placed yet: ask again when it is"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    altered = zone if question.replicas is None else replace(zone, replicas=question.replicas)
    # Without other nodes it is an ALTER, which has its own way to its data nodes.
    supposed = _data_nodes(altered, stored, question, snapshot) if question.add or question.remove else None
    (outcome,) = forecast(before, [ZoneChange(zone, altered, supposed)])
    if outcome.note:
        raise RefusedError(ErrorKind.INVALID_REQUEST, f"cannot be placed: {outcome.note}")
    return answer_of(outcome, snapshot)


def _data_nodes(zone: Zone, stored: DataNodes, question: Question, snapshot: SystemSnapshot) -> DataNodes:
    """Raises RefusedError for names that cannot be added or removed."""
    strange = [name for name in question.remove if name not in stored.nodes]
    if strange:
        there = ", ".join(stored.nodes)
        message = f"{strange[0]} is not a data node of zone {zone.name}; there are {there}"
        raise RefusedError(ErrorKind.NODE_NOT_FOUND, message)
    already = [name for name in question.add if name in stored.nodes]
    if already:
        message = f"{already[0]} is a data node of zone {zone.name} already: name nodes that are not"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    if len(question.add) > ADDED_MAX:
        message = f"{len(question.add)} nodes to add; at most {ADDED_MAX} are compared at once"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    names = tuple(sorted((set(stored.nodes) - set(question.remove)) | set(question.add)))
    if not names:
        message = f"no data node of zone {zone.name} would be left: keep one, or add one"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    # Nodes that are only supposed live, weigh 1 and are failure domains of their own.
    return replace(data_nodes_of_names(stored, snapshot.presence, zone, names), gone=())


def answer_of(made: Forecast, snapshot: SystemSnapshot) -> Answer:
    """Return the answer for a zone that is placed before and after."""
    zone, names = made.zone, made.names
    was, becomes = made.before.placement, made.after.placement
    transfers = made.copies(snapshot.partition_bytes(zone))
    copied = transfers.stealer != NOBODY
    before, after = was.shares(), becomes.shares()
    return Answer(
        zone=zone.name,
        partitions=zone.partitions,
        replicas=(was.matrix.shape[1], becomes.matrix.shape[1]),
        voters=(was.voters, becomes.voters),
        copied=int(np.count_nonzero(copied)),
        ended=int(np.count_nonzero(~copied)),
        bytes_=int(transfers.size.sum()),
        unknown=transfers.unknown,
        partitions_touched=len(np.unique(transfers.partition)),
        nodes=tuple(NodeShare(name, before.get(name), after.get(name)) for name in sorted(names, key=natural)),
        flows=tuple(sorted(made.flows(transfers), key=lambda flow: -flow.replicas)),
        before=assess(was.nodes, was.matrix, max(was.voters, 1), _domains(made.before.data_nodes, was.nodes)),
        after=assess(
            becomes.nodes,
            becomes.matrix,
            max(becomes.voters, 1),
            _domains(made.after.data_nodes, becomes.nodes),
            before=(was.nodes, was.matrix, max(was.voters, 1)),
        ),
    )


def _domains(data_nodes: DataNodes | None, nodes: Collection[str]) -> tuple[str, ...]:
    return data_nodes.domains if data_nodes is not None and data_nodes.nodes == tuple(nodes) else ()
