"""Rows of the views: of partitions, their states and assignments; of operations; of store servers, their
exchanges and the copies that each of them reports; and of users, roles and grants. Of a password they show only
that there is one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat

from app.contract.columns import Facts, columns_of
from app.contract.recovery import UNKNOWN
from app.contract.system_rows import StoreCopyRow
from app.contract.zones import (
    AffinityRow,
    AssignmentRow,
    LocalCopy,
    PartitionName,
    PartitionState,
    Progress,
)
from app.sql.views.view_registry import Block
from app.sql.views.view_snapshot import SystemSnapshot
from app.views.mirror_freshness import shown_state
from app.views.operation_views import OperationFilter, OperationViews
from app.views.partition_map import partition_map_of
from catalog.core.authorisation import Principal
from catalog.core.zone import ZoneId, ZoneIntent
from rebalance.core.assignments.assignment import Assignments, nodes_of
from rebalance.core.assignments.target import TargetPointer
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.moves.move_status import PartitionView
from rebalance.core.moves.partition_state import (
    UNSERVED,
    copies_of,
    copy_states,
    global_state,
    is_learner,
    local_state,
)
from rebalance.core.operations.operation import Operation, operation_id
from rebalance.core.partition_maps.partition_map import effective, preferred_primary
from rebalance.kernels.partition_map import STATE_NAMES
from rebalance.store.core.exchange_record import ExchangeRecord, decode_exchange


def whole_state(
    partition: PartitionId, view: PartitionView, snapshot: SystemSnapshot
) -> tuple[str, int | None]:
    """State of a partition as a whole, and since when it is so, in milliseconds."""
    state = global_state(view, snapshot.alive)
    return shown_state(partition, state, snapshot.since_ms(partition), snapshot.silence)


def _partitions(snapshot: SystemSnapshot) -> Iterator[tuple[PartitionName, PartitionView]]:
    for zone in snapshot.catalog.zones:
        for number, seen in snapshot.partitions(zone):
            yield {"zone_id": zone.zone_id, "zone": zone.name, "partition": number}, seen


def partition_states(snapshot: SystemSnapshot) -> Iterator[PartitionState]:
    for place, seen in _partitions(snapshot):
        partition = PartitionId(ZoneId(place["zone_id"]), place["partition"])
        state, since_ms = whole_state(partition, seen, snapshot)
        yield {**place, "state": state, "since": since_ms}


def local_copies(snapshot: SystemSnapshot) -> Iterator[LocalCopy]:
    for place, seen in _partitions(snapshot):
        for node in sorted(copies_of(seen, snapshot.alive)):
            state = local_state(seen, node, snapshot.alive).value if snapshot.silence is None else UNKNOWN
            yield {**place, "node": node, "state": state, "estimated_rows": None}


def learners(snapshot: SystemSnapshot) -> Iterator[Mapping[str, object]]:
    """One row for each mirror that is kept or asked for."""
    for place, seen in _partitions(snapshot):
        named = {node for placed in (seen.stable, seen.pending) if placed for node in placed.learners}
        kept = {node: member.mirror for node, member in seen.members.items() if member.mirror is not None}
        for node in sorted(named | kept.keys()):
            mirror = kept.get(node)
            state = mirror.state.value if mirror is not None else "NOT_STARTED"
            yield {
                **place,
                "node": node,
                "state": state if node in snapshot.alive else Cause.NODE_DOWN.name,
                "client_url": mirror.client_url if mirror is not None else None,
                "safe_revision": mirror.safe_revision if mirror is not None else None,
                "reason": mirror.reason if mirror is not None else "",
            }


def assignments(snapshot: SystemSnapshot) -> Iterator[AssignmentRow]:
    for place, seen in _partitions(snapshot):
        known = (seen.stable, seen.pending, seen.planned, seen.target)
        stable, pending, planned, target = map(nodes_of, known)
        placed = {node: _role(known, node) for node in stable | pending | planned | target}
        leader = seen.leader(snapshot.alive)
        for node in sorted(placed, key=lambda name: (placed[name][1], name)):
            role, position = placed[node]
            yield {
                **place,
                "node": node,
                "role": role,
                "position": position,
                "is_stable": node in stable,
                "is_pending": node in pending,
                "is_planned": node in planned,
                "is_target": node in target,
                "is_leader": node == leader,
            }


def affinity(snapshot: SystemSnapshot) -> Iterator[AffinityRow]:
    for place, seen in _partitions(snapshot):
        if seen.target is None:
            continue
        peers, learners = seen.target.peers, seen.target.learners
        leader = seen.leader(snapshot.alive)
        serves = global_state(seen, snapshot.alive) not in UNSERVED
        ideal, leading = (*peers, *learners), _leading(seen, peers, snapshot.alive) if serves else ()
        real = (*leading, *(node for node in learners if node not in leading)) if leading else ()
        yield {
            **place,
            "ideal": ", ".join(ideal),
            "effective": ", ".join(real),
            "preferred_primary": preferred_primary(seen.target.peers, snapshot.alive),
            "primary_node": leader or None,
            "is_ideal": ideal == real and leader == ideal[0],
        }


def _leading(view: PartitionView, peers: Sequence[str], alive: frozenset[str]) -> Sequence[str]:
    """The one that leads, or should, and the others. Store servers have decided it in their last exchange."""
    if view.owners is not None:
        return view.owners.effective
    # A learner's copy may be complete and never leads (IEP-037).
    copies = copy_states(view, alive).items()
    return effective(peers, {node: state for node, state in copies if not is_learner(view, node)})


def mapped_copies(snapshot: SystemSnapshot) -> Iterator[Block]:
    """The copies of each published map; a zone without one has none."""
    for zone in snapshot.catalog.zones:
        snapshot.checkpoint()
        keys, ownership = snapshot.keys, snapshot.views.ownership
        published = partition_map_of(keys, snapshot.keyspace, ownership, zone.zone_id)
        if published is None:
            continue
        pointer, full = published.pointer, published.full
        numbers = full.owners_of_copies
        yield {
            "zone_id": repeat(zone.zone_id),
            "zone": repeat(zone.name),
            "partition": numbers.tolist(),
            "node": [full.names[node] for node in full.nodes.tolist()],
            "state": [STATE_NAMES[state] for state in full.states.tolist()],
            "counter": full.counters.tolist(),
            "size_bytes": full.sizes.tolist(),
            "term": full.terms[numbers].tolist(),
            "is_primary": (full.nodes == full.leaders[numbers]).tolist(),
            "version": repeat(str(pointer.version)),
            "sequence": repeat(pointer.sequence),
        }


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


def zone_changes(snapshot: SystemSnapshot) -> Iterator[Facts]:
    """Rebalances that are not over: of zones that live and of dropped ones that are still cleaned up."""
    for zone in snapshot.catalog.zones:
        snapshot.checkpoint()
        version = snapshot.views.version_of(zone, snapshot.catalog.version)
        yield from _changes(snapshot, snapshot.views.progress(zone.zone_id, version, zone), zone.name)
    lives = {zone.zone_id for zone in snapshot.catalog.zones}
    for item in snapshot.keys.below(snapshot.keyspace.intents):
        intent = read(item, ZoneIntent.decode)
        if isinstance(intent, Unreadable):
            continue
        if intent.dropped and intent.zone.zone_id not in lives:
            snapshot.checkpoint()
            progress = snapshot.views.progress(intent.zone.zone_id, intent.version)
            yield from _changes(snapshot, progress, intent.zone.name)


def remembered_operations(snapshot: SystemSnapshot) -> Iterator[Facts]:
    """Every operation that is remembered, the newest first."""
    views = OperationViews(snapshot.keys, snapshot.keyspace, snapshot.views)
    for operation, item in views.listed(OperationFilter()):
        snapshot.checkpoint()
        yield views.facts(operation, item, snapshot.taken_at_ms)


def _changes(snapshot: SystemSnapshot, progress: Progress, name: str) -> Iterator[Facts]:
    """Yield the change of a zone, unless the zone has converged."""
    if progress["state"] == "CONVERGED":
        return
    counts, zone_id = progress["partitions"], ZoneId(progress["zone_id"])
    intent = snapshot.keys.get(snapshot.keyspace.intent(zone_id))
    data_nodes = snapshot.keys.get(snapshot.keyspace.data_nodes(zone_id))
    revisions = [item.mod_revision for item in (intent, data_nodes) if item is not None]
    state = "MOVING" if counts["moving"] or not counts["waiting"] else "WAITING"
    own = {"zone": name, "event_revision": max(revisions, default=None), "state": state}
    yield Facts(_operation(snapshot, zone_id), {**progress, **own})


def _operation(snapshot: SystemSnapshot, zone_id: ZoneId) -> Operation | None:
    """The operation of the zone's newest target."""
    pointer = read(snapshot.keys.get(snapshot.keyspace.target_pointer(zone_id)), TargetPointer.decode)
    if not isinstance(pointer, TargetPointer):
        return None
    name = operation_id(zone_id, pointer.event_revision)
    operation = read(snapshot.keys.get(snapshot.keyspace.operation(name)), Operation.decode)
    return operation if isinstance(operation, Operation) else None


def exchanges(snapshot: SystemSnapshot) -> Iterator[Facts]:
    """The newest first. A record that cannot be read says so in STATE."""
    prefix, names = snapshot.keyspace.exchange_log, _zone_names(snapshot)
    for item in sorted(snapshot.keys.below(prefix), key=lambda item: item.key, reverse=True):
        record = read(item, decode_exchange)
        if isinstance(record, Unreadable):
            yield Facts(None, {"exchange": item.key.removeprefix(prefix), "state": record.cause})
        else:
            yield Facts(record, _of_exchange(record, names))


def _of_exchange(record: ExchangeRecord, names: dict[int, str]) -> dict[str, object]:
    ended_ms = record.ended_ms
    return {
        "exchange": str(record.cause.version),
        "version": str(record.version) if record.version is not None else None,
        "zones": tuple(names.get(zone, str(zone)) for zone in record.cause.zones),
        "state": "RUNNING" if record.version is None else "DONE",
        "duration_ms": ended_ms - record.begun_ms if ended_ms is not None else None,
        "merged": [
            {"version": str(event.version), "cause": event.trigger.value, "node": event.node}
            for event in record.merged
        ],
        "phases": [
            {"phase": phase.phase.value, "begun_ms": phase.begun_ms, "ended_ms": phase.ended_ms}
            for phase in record.phases
        ],
    }


def store_copies(snapshot: SystemSnapshot) -> Iterator[Block]:
    """Copies as each store server itself reports them."""
    names, unknown = _zone_names(snapshot), dict.fromkeys(columns_of(StoreCopyRow), (None,))
    for server in snapshot.store_copies:
        snapshot.checkpoint()
        copies = server.copies
        if copies is None:
            yield {**unknown, "node": (server.name,), "reason": (server.reason,)}
            continue
        yield {
            "zone_id": [copy.zone for copy in copies],
            "zone": [names.get(copy.zone) for copy in copies],
            "partition": [copy.partition for copy in copies],
            "node": repeat(server.name),
            "state": [copy.state for copy in copies],
            "is_primary": [copy.is_primary for copy in copies],
            "position": [str(copy.position) if copy.position.counter else None for copy in copies],
            "filled": [str(copy.filled) if copy.filled.counter else None for copy in copies],
            "reason": repeat(""),
        }


def _zone_names(snapshot: SystemSnapshot) -> dict[int, str]:
    return {zone.zone_id: zone.name for zone in snapshot.catalog.zones}


USERS, ROLES, GRANTS = OF_CALLERS = "USERS", "ROLES", "GRANTS"


def users(snapshot: SystemSnapshot) -> Iterator[Facts]:
    grants = snapshot.catalog.grants
    for principal, user in sorted(grants.users.items(), key=_by_name):
        has_password, roles = user.password_hash is not None, _names(grants.roles_of.get(principal, ()))
        yield Facts(user, {"password": has_password, "roles": roles})


def roles(snapshot: SystemSnapshot) -> Iterator[Facts]:
    grants = snapshot.catalog.grants
    for principal, one in sorted(grants.roles.items(), key=_by_name):
        members = [user for user, roles in grants.roles_of.items() if principal in roles]
        yield Facts(one, {"members": _names(members)})


def grants(snapshot: SystemSnapshot) -> Iterator[Facts]:
    """Each privilege as it was granted, directly or to a role; what follows from it is not written out."""
    for grant in snapshot.catalog.grants.grants:
        zone = snapshot.catalog.zone_with_id(grant.object.zone_id)
        yield Facts(grant, {"zone": zone.name if zone is not None else None})


def _by_name(item: tuple[Principal, object]) -> str:
    return str(item[0])


def _names(principals: Iterable[Principal]) -> list[str]:
    return sorted(principal.name for principal in principals)
