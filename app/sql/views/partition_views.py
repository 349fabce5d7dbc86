"""Rows of the views that are about partitions: states and assignments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from app.contract.columns import Facts
from app.contract.recovery import UNKNOWN
from app.sql.views.view_snapshot import SystemSnapshot
from app.views.sight import shown_state
from app.views.store_map import partition_map_of
from rebalance.core.assignments.assignment import Assignments, nodes_of
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.moves.move_status import PartitionView
from rebalance.core.moves.partition_state import (
    UNSERVED,
    copies_of,
    copy_states,
    global_state,
    is_learner,
    local_state,
)
from rebalance.core.partition_maps.affinity import effective, preferred_primary
from rebalance.kernels.partition_map import STATE_NAMES

Row = tuple[Any, ...]


def whole_state(
    partition: PartitionId, view: PartitionView, snapshot: SystemSnapshot
) -> tuple[str, int | None]:
    """Of a partition as a whole, and since when it is so."""
    state = global_state(view, snapshot.alive)
    return shown_state(partition, state, snapshot.since_ms(partition), snapshot.silence)


def global_state_rows(snapshot: SystemSnapshot) -> Iterator[Row]:
    for zone in snapshot.catalog.zones:
        for number, seen in snapshot.partitions(zone):
            partition = PartitionId(zone.zone_id, number)
            yield zone.zone_id, zone.name, number, *whole_state(partition, seen, snapshot)


def local_state_rows(snapshot: SystemSnapshot) -> Iterator[Row]:
    """ESTIMATED_ROWS is NULL: members do not report it."""
    for zone in snapshot.catalog.zones:
        for number, seen in snapshot.partitions(zone):
            for node in sorted(copies_of(seen, snapshot.alive)):
                state = local_state(seen, node, snapshot.alive).value if snapshot.silence is None else UNKNOWN
                yield node, zone.name, zone.zone_id, number, state, None


def learner_rows(snapshot: SystemSnapshot) -> Iterator[Row]:
    """One row for each mirror that is kept or asked for. SAFE_REVISION is rounded down; STATE is NODE_DOWN
    where the node is; REASON says what the learner waits for."""
    for zone in snapshot.catalog.zones:
        for number, seen in snapshot.partitions(zone):
            named = {node for placed in (seen.stable, seen.pending) if placed for node in placed.learners}
            kept = {node: member.mirror for node, member in seen.members.items() if member.mirror is not None}
            for node in sorted(named | kept.keys()):
                mirror = kept.get(node)
                state = mirror.state.value if mirror is not None else "NOT_STARTED"
                yield (
                    node,
                    zone.name,
                    zone.zone_id,
                    number,
                    state if node in snapshot.alive else Cause.NODE_DOWN.value,
                    mirror.client_url if mirror is not None else None,
                    mirror.safe_revision if mirror is not None else None,
                    mirror.reason if mirror is not None else "",
                )


def assignment_rows(snapshot: SystemSnapshot) -> Iterator[Row]:
    """One row for each node that a partition's stable, pending, planned or newest target names."""
    for zone in snapshot.catalog.zones:
        for number, seen in snapshot.partitions(zone):
            for row in _assignments_of(seen, snapshot.alive):
                yield zone.zone_id, zone.name, number, *row


def _assignments_of(seen: PartitionView, alive: frozenset[str]) -> Iterator[Row]:
    """ROLE and POSITION are those of the first of stable, pending, planned and target that names the node."""
    known = (seen.stable, seen.pending, seen.planned, seen.target)
    placed = {node: _role(known, node) for node in nodes_of(*known)}
    leader = seen.leader(alive)
    for node in sorted(placed, key=lambda name: (placed[name][1], name)):
        role, position = placed[node]
        named = (assignments is not None and node in assignments.nodes for assignments in known)
        yield node, role, position, *named, node == leader


def affinity_rows(snapshot: SystemSnapshot) -> Iterator[Row]:
    """Ideal against effective assignment; that is empty while no writes are taken. PRIMARY_NODE leads now."""
    for zone in snapshot.catalog.zones:
        for number, seen in snapshot.partitions(zone):
            if seen.target is None:
                continue
            peers, learners = seen.target.peers, seen.target.learners
            leader = seen.leader(snapshot.alive)
            serves = global_state(seen, snapshot.alive) not in UNSERVED
            ideal, leading = (*peers, *learners), _leading(seen, peers, snapshot.alive) if serves else ()
            real = (*leading, *(node for node in learners if node not in leading)) if leading else ()
            yield (
                zone.zone_id,
                zone.name,
                number,
                ", ".join(ideal),
                ", ".join(real),
                preferred_primary(seen.target.peers, snapshot.alive),
                leader or None,
                ideal == real and leader == ideal[0],
            )


def _leading(view: PartitionView, peers: Sequence[str], alive: frozenset[str]) -> Sequence[str]:
    """The one that leads, or should, and the others. Store servers have decided it in their last exchange."""
    if view.owners is not None:
        return view.owners.effective
    # A learner's copy may be complete and never leads (IEP-037).
    copies = copy_states(view, alive).items()
    return effective(peers, {node: state for node, state in copies if not is_learner(view, node)})


def partition_map_rows(snapshot: SystemSnapshot) -> Iterator[Row]:
    """One row for each copy of the published maps; a zone without one has none."""
    for zone in snapshot.catalog.zones:
        snapshot.checkpoint()
        keys, ownership = snapshot.keys, snapshot.views.ownership
        published = partition_map_of(keys, snapshot.keyspace, ownership, zone.zone_id)
        if published is None:
            continue
        pointer, full = published.pointer, published.full
        shared = str(pointer.version), pointer.sequence
        for index, number in enumerate(full.owners_of_copies.tolist()):
            node = int(full.nodes[index])
            yield (
                zone.zone_id,
                zone.name,
                number,
                full.names[node],
                STATE_NAMES[full.states[index]],
                int(full.counters[index]),
                int(full.sizes[index]),
                int(full.terms[number]),
                node == full.leaders[number],
                *shared,
            )


def failures(snapshot: SystemSnapshot) -> Iterator[Facts]:
    """The newest first."""
    names = {zone.zone_id: zone.name for zone in snapshot.catalog.zones}
    for node, failure in snapshot.views.failures():
        if failure.zone_id in names:
            yield Facts(failure, {"node": node, "zone": names[failure.zone_id]})


def _role(known: tuple[Assignments | None, ...], node: str) -> tuple[str, int]:
    """Role and preference, from 1."""
    for assignments in known:
        if assignments is not None and node in assignments.nodes:
            order = (*assignments.peers, *assignments.learners)
            return ("VOTER" if node in assignments.peers else "LEARNER"), order.index(node) + 1
    raise ValueError(f"{node} is in none of the assignments")
