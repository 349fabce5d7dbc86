"""``EXPLAIN <ddl>``: what a statement would change, computed and not done; and ``EXPLAIN PARTITION zone.n``:
for every node, whether it holds the partition, and why or why not.

The parameters of a change come from the same judge as the statement's, what moves from
``app.sql.plan.forecast``. Nothing is written anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from app.contract.recovery import UNKNOWN
from app.sql.plan.forecast import NOWHERE, Forecast, Placement, changed_zone
from app.sql.statements.results import BIGINT, BOOLEAN, INTEGER, VARCHAR, ResultSet
from app.sql.views.show import find_zone, result
from app.sql.views.view_snapshot import SystemSnapshot
from app.views.view_bodies import ZoneSizes
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.snapshot import Change
from catalog.core.zone import EVERY_NODE, DistributionAlgorithm, Zone
from catalog.core.zone_options import ZONE_OPTIONS, option_text, value_of
from parser.queries import ExplainPartition
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.moves.move_status import PartitionView
from rebalance.core.moves.partition_state import copies_of, local_state
from rebalance.core.topology.data_nodes import DataNodes, replica_counts
from rebalance.kernels.rendezvous import place
from rebalance.kernels.transfers import NOBODY, Sizes, Transfers

SECTIONS = ("MOVE", "ADD", "REMOVE")
LEARNER, VOTER = "LEARNER", "VOTER"
ROLE_NOTE = "replicas that change their role; each is copied again on its node"

COLUMNS = {
    "SECTION": VARCHAR,
    "NAME": VARCHAR,
    "BEFORE": VARCHAR,
    "AFTER": VARCHAR,
    "REPLICAS": BIGINT,
    "BYTES": BIGINT,
    "NOTE": VARCHAR,
}

Row = tuple[Any, ...]


def explain_change(change: Change, forecast: Forecast | None, snapshot: SystemSnapshot) -> ResultSet:
    """Rows by SECTION, in this order: STATEMENT, NOTE, MOVE, ADD, REMOVE, ROLE, DATA_NODES, PARAMETER (those
    that change first), BALANCE; EXPLAIN ends with PLAN. ``forecast`` is what becomes of the zone that the
    statement writes; None: it writes none."""
    rows = [_row("STATEMENT", str(change.effect.get("op", "")), note=_summary(change))]
    if forecast is not None:
        rows += _of_zone(change, forecast, snapshot)
    elif change.entries:
        rows.append(_nothing_moves())
    return replace(result(COLUMNS, rows), warnings=change.warnings)


def plan_row(plan_id: str) -> Row:
    return _row(
        "PLAN", plan_id, note="`zonectl apply --plan-id` applies exactly this plan, or says what has changed"
    )


def _summary(change: Change) -> str:
    if not change.applied:
        return "changes nothing: " + change.warnings[-1].message.partition(": ")[2]
    return "would make a new catalog version; nothing was changed"


def _of_zone(change: Change, forecast: Forecast, snapshot: SystemSnapshot) -> Iterator[Row]:
    target = changed_zone(change)
    assert target is not None
    stored, planned = forecast.before.data_nodes, forecast.after.data_nodes
    if forecast.note:
        yield _row("NOTE", "placement", note=forecast.note)
    if target.before is not None and forecast.before.placement is NOWHERE:
        yield _row("NOTE", "placement", note="the zone has not been placed yet")
    yield from _moves(forecast, snapshot.partition_bytes(forecast.zone))
    have, get = (", ".join(nodes.nodes) if nodes is not None else None for nodes in (stored, planned))
    yield _row("DATA_NODES", "data nodes", have, get)
    parameters = _parameters(target.before, target.after, stored, planned)
    yield from sorted(parameters, key=lambda row: not row[-1])
    yield from _balance(forecast.before.placement, forecast.after.placement, stored, planned)


def _parameters(
    before: Zone | None, after: Zone | None, stored: DataNodes | None, planned: DataNodes | None
) -> Iterator[Row]:
    if before is not None and after is not None and before.name != after.name:
        yield _row("PARAMETER", "name", before.name, after.name, note="changes")
    old, new = parameters_of(before, stored), parameters_of(after, planned)
    for name in dict.fromkeys((*old, *new)):
        changed = before is not None and after is not None and old[name] != new[name]
        yield _row("PARAMETER", name, old.get(name), new.get(name), note="changes" if changed else "")


def parameters_of(zone: Zone | None, data_nodes: DataNodes | None) -> Mapping[str, str]:
    """``quorum_size`` is the effective one."""
    if zone is None:
        return {}
    derived = data_nodes.quorum if data_nodes is not None else None
    effective = replace(zone, quorum_size=derived) if zone.quorum_size is None else zone
    return {row.name.lower(): option_text(row, value_of(effective, row)) for row in ZONE_OPTIONS}


def _moves(forecast: Forecast, sizes: Sizes) -> Iterator[Row]:
    """Replicas and bytes by source and target. ``sizes`` int64 [P] of a copy of each partition, 0: not
    known."""
    transfers = forecast.copies(sizes)
    in_place = (transfers.donor == transfers.stealer) & (transfers.donor != NOBODY)
    unknown = transfers.unknown
    missing = f"the sizes of {unknown} replicas in all are not known yet" if unknown else ""
    rows = []
    for flow in forecast.flows(transfers.only(~in_place)):
        section, name, note = "MOVE", f"{flow.source} -> {flow.target}", missing
        if not flow.target:
            section, name, note = "REMOVE", flow.source, "replicas that end"
        elif not flow.source:
            note = "; ".join(filter(None, ("new replicas, copied within their groups", missing)))
            section, name = "ADD", flow.target
        rows.append(_row(section, name, replicas=flow.replicas, bytes_=flow.bytes_, note=note))
    yield from sorted(rows, key=lambda row: (SECTIONS.index(row[0]), row[1]))
    roles = _roles(forecast, transfers.only(in_place))
    yield from roles
    if not rows and not roles:
        yield _nothing_moves()


def _roles(forecast: Forecast, changed: Transfers) -> list[Row]:
    """Rows of the replicas that change their role, by node and by role before and after."""
    was = forecast.before.placement
    voting = was.numbered(forecast.names, len(was.matrix))[:, : max(1, was.voters)]
    counts, bytes_ = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    for p, node, size in zip(changed.partition, changed.stealer, changed.size.tolist(), strict=True):
        roles = (VOTER, LEARNER) if node in voting[p] else (LEARNER, VOTER)
        key = forecast.names[node], *roles
        counts[key] += 1
        bytes_[key] += size
    return [_row("ROLE", *key, count, bytes_[key], ROLE_NOTE) for key, count in sorted(counts.items())]


def _balance(
    was: Placement, becomes: Placement, stored: DataNodes | None, planned: DataNodes | None
) -> Iterator[Row]:
    """Per node, then spread (max - min) and standard deviation over the data nodes of each side."""
    old, new = _counts(was, stored), _counts(becomes, planned)
    for name in sorted({*old, *new}):
        for index, what in enumerate(("replicas", "voters", "primaries")):
            before, after = (str(side[name][index]) if name in side else None for side in (old, new))
            yield _row("BALANCE", f"{name} {what}", before, after)
    for index, what in enumerate(("replicas", "voters", "primaries")):
        for label, measure in (("max-min", np.ptp), ("stddev", np.std)):
            before, after = (
                f"{measure([counts[index] for counts in side.values()]):g}" if side else None
                for side in (old, new)
            )
            yield _row("BALANCE", f"{what} {label}", before, after)


def _counts(placement: Placement, data_nodes: DataNodes | None) -> dict[str, tuple[int, int, int]]:
    """Replicas, voters and primaries of each data node."""
    if data_nodes is None or placement is NOWHERE:
        return {}
    shares = placement.shares()
    return {name: shares.get(name, (0, 0, 0)) for name in sorted({*placement.nodes, *data_nodes.nodes})}


def _row(
    section: str,
    name: str,
    before: str | None = None,
    after: str | None = None,
    replicas: int | None = None,
    bytes_: int | None = None,
    note: str = "",
) -> Row:
    return section, name, before, after, replicas, bytes_, note


def _nothing_moves() -> Row:
    return _row("MOVE", "", replicas=0, bytes_=0, note="no replica moves")


PARTITION_COLUMNS = {
    "NODE_NAME": VARCHAR,
    "VERDICT": VARCHAR,
    "RANK": INTEGER,
    "HOLDS": VARCHAR,
    "IS_DATA_NODE": BOOLEAN,
    "IS_ALIVE": BOOLEAN,
    "STATE": VARCHAR,
    "REASON": VARCHAR,
}


def explain_partition(statement: ExplainPartition, snapshot: SystemSnapshot) -> ResultSet:
    """VERDICT: VOTER or LEARNER by the newest target, CANDIDATE for a data node that it does not choose,
    EXCLUDED for others. HOLDS is what stable says now. Raises RefusedError."""
    zone = find_zone(snapshot, statement.zone)
    if statement.partition >= zone.partitions:
        message = f"zone {zone.name} has partitions 0 to {zone.partitions - 1}"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message, statement.position)
    explained = _Explained(zone, statement.partition, snapshot)
    order = sorted(explained.nodes, key=lambda name: (explained.rank.get(name, len(explained.nodes) + 1), name))
    return result(PARTITION_COLUMNS, (explained.row(name) for name in order))


def _members_of_nodes(snapshot: SystemSnapshot) -> Counter[str]:
    """Number of members on each node, of all partitions of the zones that are seen. Keys are only cut, not
    parsed: a cluster has hundreds of thousands of them."""
    prefix = snapshot.keyspace.members
    cut = (item.key.removeprefix(prefix).split("/", 2) for item in snapshot.keys.below(prefix))
    seen = None if snapshot.seen is None else {str(zone_id) for zone_id in snapshot.seen}
    return Counter(parts[2] for parts in cut if len(parts) == 3 and (seen is None or parts[0] in seen))


class _Explained:
    """One partition of one snapshot."""

    def __init__(self, zone: Zone, number: int, snapshot: SystemSnapshot) -> None:
        partition = PartitionId(zone.zone_id, number)
        self.zone, self.snapshot = zone, snapshot
        self.view: PartitionView
        self.view, _ = snapshot.views.view(partition, snapshot.placed(zone))
        self.sizes: ZoneSizes = snapshot.sizes(zone)
        self.members = _members_of_nodes(snapshot)
        self.held: Counter[str] | None = None
        nodes = self.sizes.data_nodes
        self.rank = {name: rank for rank, name in enumerate(self._order(number, nodes), start=1)}
        self.replicas, self.voters = self._counts()
        self.nodes = sorted({*snapshot.alive, *self.members, *nodes, *self.view.members})

    def _order(self, number: int, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Data nodes in the order of preference: all of them by the rendezvous keys; a balanced zone prefers
        those that its target names, in that order."""
        if self.zone.algorithm is DistributionAlgorithm.BALANCED:
            target = self.view.target
            return (*target.peers, *target.learners) if target is not None else ()
        order = place(nodes, range(number, number + 1), max(1, len(nodes)))[0] if nodes else ()
        return tuple(nodes[index] for index in order)

    def _counts(self) -> tuple[int, int]:
        """Replicas and voters as the controllers count them."""
        stored = self.snapshot.views.data_nodes(self.zone.zone_id)
        intent = self.snapshot.views.intent(self.zone.zone_id)
        if stored is None or intent is None:
            return self.sizes.replicas, self.sizes.voters
        return replica_counts(intent, stored)

    def row(self, name: str) -> tuple[Any, ...]:
        has_copy = name in copies_of(self.view, self.snapshot.alive)
        return (
            name,
            self._verdict(name),
            self.rank.get(name),
            _role(self.view.stable, name) or "NONE",
            name in self.sizes.data_nodes,
            name in self.snapshot.alive,
            self._state(name) if has_copy else None,
            "; ".join(self._reasons(name)),
        )

    def _state(self, name: str) -> str:
        return UNKNOWN if self.snapshot.silence else local_state(self.view, name, self.snapshot.alive).value

    def _verdict(self, name: str) -> str:
        if name not in self.sizes.data_nodes:
            return "EXCLUDED"
        if self.view.target is not None:
            return _role(self.view.target, name) or "CANDIDATE"
        rank = self.rank.get(name, len(self.nodes) + 1)
        return "VOTER" if rank <= self.voters else "LEARNER" if rank <= self.replicas else "CANDIDATE"

    def _reasons(self, name: str) -> list[str]:
        reasons = [self._rank_reason(name) if name in self.sizes.data_nodes else self._exclusion(name)]
        if name not in self.snapshot.alive:
            reasons.append("the node is down")
        reasons += self._change_reasons(name)
        member = self.view.members.get(name)
        held = {"member": member if member and member.has_member else None, "mirror": member and member.mirror}
        for what, entry in held.items():
            if entry is not None:
                reasons.append(
                    f"its {what} is {entry.state.value}" + (f": {entry.reason}" if entry.reason else "")
                )
        if self.view.leader(self.snapshot.alive) == name:
            reasons.append("it leads the group" if self.view.owners is None else "it is the primary")
        record = self.snapshot.live.get(name)
        if record is not None and self.members[name] >= record.node.member_limit:
            reasons.append(f"it is at its member limit ({self.members[name]} of {record.node.member_limit})")
        return reasons

    def _rank_reason(self, name: str) -> str:
        if self.zone.algorithm is DistributionAlgorithm.BALANCED:
            return self._balance_reason(name)
        rank, nodes = self.rank[name], len(self.sizes.data_nodes)
        place_text = f"rank {rank} of {nodes} in the rendezvous order"
        if rank <= self.replicas:
            votes = (
                f"the first {self.voters} vote" if rank <= self.voters else f"only the first {self.voters} vote"
            )
            return f"{place_text}: the first {self.replicas} hold replicas and {votes}"
        return f"{place_text}: only the first {self.replicas} hold replicas"

    def _balance_reason(self, name: str) -> str:
        """Reason by balance: what the newest target gives the node of the whole zone, against data nodes' least
        and most."""
        placed = self.snapshot.placed(self.zone)
        if placed is None:
            return "balanced: the zone has no target yet"
        if self.held is None:
            self.held = Counter(node for target in placed.targets for node in target.nodes)
        counts = self.held
        held = [counts[node] for node in self.sizes.data_nodes]
        share = f"it holds {counts[name]} replicas of the zone, and data nodes hold {min(held)} to {max(held)}"
        share += self._traits(name)
        role = _role(self.view.target, name)
        if role is None:
            return f"balanced: {share}, so this partition's replicas are on others"
        stays = "where it was" if _role(self.view.stable, name) else "new here: it fills a hole or evens out"
        return f"balanced: {role.lower()}, {stays}; {share}"

    def _traits(self, name: str) -> str:
        """Traits that make a node's share differ from others' (its weight) and that keep voters apart (its
        failure domain); empty: it has neither."""
        data_nodes = self.snapshot.views.data_nodes(self.zone.zone_id)
        if data_nodes is None or name not in data_nodes.nodes:
            return ""
        weight, domain = data_nodes.traits(name)
        text = f", its weight is {weight:g}" if weight is not None else ""
        return text + (f", its failure domain {domain}" if domain is not None else "")

    def _exclusion(self, name: str) -> str:
        drain = self.snapshot.drains.get(name)
        if drain is not None and not self.snapshot.sees_system:
            return "it is drained"
        if drain is not None:
            return f"it is drained, by {drain.by}" + (f": {drain.reason}" if drain.reason else "")
        record = self.snapshot.live.get(name)
        if record is None:
            return "not a data node of the zone"
        missing = [profile for profile in self.zone.storage_profiles if profile not in record.node.profiles]
        if missing:
            return f"it lacks the storage profile {', '.join(missing)}"
        if self.zone.nodes_filter != EVERY_NODE:
            return f"the zone's filter {self.zone.nodes_filter} does not match it, or its timer still runs"
        return "it fits, but is not among the zone's data nodes yet"

    def _change_reasons(self, name: str) -> list[str]:
        """Reasons from what moves now, and from what waits."""
        stable, pending, planned = (
            _role(assignments, name) for assignments in (self.view.stable, self.view.pending, self.view.planned)
        )
        reasons = []
        if self.view.pending is not None and stable != pending:
            reasons.append(f"the change under way makes it {pending or 'leave'}")
        if self.view.planned is not None and planned != (pending or stable):
            reasons.append(f"the change planned next makes it {planned or 'leave'}")
        if (
            self.view.target is not None
            and self.view.pending is None
            and _role(self.view.target, name) != stable
        ):
            waits = f": {self.view.admission}" if self.view.admission else ""
            reasons.append(f"the newest target is not written to this partition yet{waits}")
        return reasons


def _role(assignments: Assignments | None, name: str) -> str | None:
    if assignments is None or name not in assignments.nodes:
        return None
    return "VOTER" if name in assignments.peers else "LEARNER"
