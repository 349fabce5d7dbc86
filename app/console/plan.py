"""Plans: what a change of a zone or of its nodes moves, made before it is run (VOL-009), and what-if: a zone
with nodes more or fewer, compared with what is.

Data nodes and placements are computed as the controllers do; nothing is written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from app.console.fragments import natural
from app.sql.plan.change_plan import PlanId, plan_id_of
from app.sql.plan.forecast import (
    NOWHERE,
    Flow,
    Forecast,
    Outlook,
    ZoneChange,
    changed_zone,
    forecast,
    judged,
    rules_of,
)
from app.sql.views.view_snapshot import SystemSnapshot
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.snapshot import Change
from catalog.core.zone import Zone, ZoneId
from parser.to_command import parse_ddl
from rebalance.core.admission.move_admission import Limits
from rebalance.core.topology.data_nodes import DataNodes, data_nodes_of_names
from rebalance.core.topology.node_presence import Topology
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


class Wish(StrEnum):
    """Wish that a plan is made for."""

    REPLICAS = "replicas"
    OUT = "out"
    IN = "in"
    EVEN = "even"

    @property
    def is_of_nodes(self) -> bool:
        return self in (Wish.OUT, Wish.IN)


@dataclass(frozen=True, slots=True)
class PlanGoal:
    """``zone`` and ``replicas`` are read for REPLICAS, ``zone`` for EVEN, ``nodes`` for OUT and IN."""

    wish: Wish
    zone: str = ""
    replicas: int | None = None
    nodes: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        if self.wish.is_of_nodes:
            return bool(self.nodes)
        return bool(self.zone) and (self.wish is Wish.EVEN or self.replicas is not None)


@dataclass(frozen=True, slots=True)
class ZonePlan:
    """``batches``: as the limits of now cut what is touched."""

    zone_id: ZoneId
    answer: Answer
    batches: int


@dataclass(frozen=True, slots=True)
class PlanPage:
    """``zones``: those in which something moves. ``statement`` makes the change; empty: it is one of nodes."""

    goal: PlanGoal
    statement: str
    zones: tuple[ZonePlan, ...]
    batch_size: int | None
    plan_id: PlanId

    def total(self, figure: str) -> int:
        """Return the total of one figure of the zones' answers."""
        return sum(getattr(plan.answer, figure) for plan in self.zones)

    @property
    def batches(self) -> int:
        return sum(plan.batches for plan in self.zones)


def quoted(name: str) -> str:
    """A name as SQL reads it exactly."""
    return '"' + name.replace('"', '""') + '"'


def statement_of(goal: PlanGoal) -> str:
    """Empty for a change of nodes, which is none of the catalog."""
    if goal.wish is Wish.REPLICAS:
        return f"ALTER ZONE {quoted(goal.zone)} SET (REPLICAS {goal.replicas})"
    if goal.wish is Wish.EVEN:
        return f"ALTER ZONE {quoted(goal.zone)} SET (AUTO SCALE UP 0)"
    return ""


def make_plan(goal: PlanGoal, snapshot: SystemSnapshot) -> PlanPage:
    """Takes as long as the zones' placements: call it in a thread. Raises RefusedError, as the change would."""
    statement, presence = statement_of(goal), _presence(goal, snapshot)
    zones = [ZoneChange(zone, zone) for zone in snapshot.catalog.zones]
    if statement:
        change = _judged(statement, snapshot)
        # One that changes nothing leaves the zone as it is.
        zones = [changed_zone(change) or ZoneChange(change.before, change.before)]
    batch_size = Limits.of(snapshot.keys.get(snapshot.keyspace.limits)).batch_size
    forecasts = forecast(Outlook(snapshot), zones, presence)
    plans = (_zone_plan(one, snapshot, batch_size) for one in forecasts)
    moving = tuple(plan for plan in plans if plan is not None)
    return PlanPage(goal, statement, moving, batch_size, plan_id_now(goal, snapshot))


def plan_id_now(goal: PlanGoal, snapshot: SystemSnapshot) -> PlanId:
    """Return the id of the plan as this snapshot would make it; a statement's is that of EXPLAIN. Raises
    RefusedError."""
    statement = statement_of(goal)
    if statement:
        return plan_id_of([_judged(statement, snapshot)], snapshot)
    presence = _presence(goal, snapshot)
    nodes = [(node.node, node.incarnation, node.is_seen) for node in presence.nodes]
    zones = [zone.zone_id for zone in snapshot.catalog.zones]
    return PlanId.of((goal, nodes, presence.drained), zones, snapshot)


def _judged(statement: str, snapshot: SystemSnapshot) -> Change:
    (planned,) = judged(parse_ddl(statement), snapshot.catalog, snapshot.topology, rules_of())
    return planned.change


def _presence(goal: PlanGoal, snapshot: SystemSnapshot) -> Topology:
    """The nodes as they would be. Raises RefusedError for names that cannot be drained or taken back."""
    if not goal.wish.is_of_nodes:
        return snapshot.presence
    drained = set(snapshot.drains)
    known = set(snapshot.live) | {node.node.name for node in snapshot.presence.nodes}
    for name in goal.nodes:
        if goal.wish is Wish.OUT and name not in known:
            message = f"there is no node {name}; known nodes: {', '.join(sorted(known)) or 'none'}"
            raise RefusedError(ErrorKind.NODE_NOT_FOUND, message)
        if goal.wish is Wish.OUT and name in drained:
            message = f"node {name} is leaving already: name others"
            raise RefusedError(ErrorKind.INVALID_REQUEST, message)
        if goal.wish is Wish.IN and name not in drained:
            message = f"node {name} is not leaving; nodes that are: {', '.join(sorted(drained)) or 'none'}"
            raise RefusedError(ErrorKind.NODE_NOT_FOUND, message)
    then = drained | set(goal.nodes) if goal.wish is Wish.OUT else drained - set(goal.nodes)
    return replace(snapshot.presence, drained=tuple(sorted(then)))


def _zone_plan(outcome: Forecast, snapshot: SystemSnapshot, batch_size: int | None) -> ZonePlan | None:
    """Return the plan of a zone; None: nothing of it moves."""
    zone, planned = outcome.zone, outcome.after.data_nodes
    if outcome.before.data_nodes is None or outcome.before.placement is NOWHERE or planned is None:
        return None
    if not planned.nodes:
        message = (
            f"zone {zone.name} would have no data node: name fewer nodes, or start one that its filter and "
            "profiles allow"
        )
        raise RefusedError(ErrorKind.DRAIN_LEAVES_NO_DATA_NODE, message)
    if outcome.note:
        raise RefusedError(ErrorKind.INVALID_REQUEST, f"zone {zone.name} cannot be placed: {outcome.note}")
    answer = answer_of(outcome, snapshot)
    if not answer.partitions_touched:
        return None
    return ZonePlan(zone.zone_id, answer, -(-answer.partitions_touched // (batch_size or answer.partitions)))
