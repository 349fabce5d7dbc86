"""The bodies of nodes, members and roles, as routes and pages show them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from app.contract.columns import Facts, body_of
from app.contract.nodes import DrainBody
from app.contract.zones import (
    KeptCopy,
    Member,
    MirrorBody,
    MoveStatusBody,
    Progress,
    Roles,
    StoreCopy,
)
from catalog.core.versions import CatalogSnapshot
from catalog.core.zone import Zone, ZoneId, ZoneIntent
from rebalance.core.admission.move_admission import utc
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import KeptRecord, MemberRole
from rebalance.core.moves.drain import Drain
from rebalance.core.moves.move_status import MoveState, MoveStatus, PartitionView
from rebalance.core.moves.partition_state import copies_of, is_learner, local_state
from rebalance.core.operations.operation import operation_id
from rebalance.metastore.mirror import KeyspaceCopy


@dataclass(frozen=True, slots=True)
class ZoneSizes:
    """Effective numbers of a zone: those that its partitions have, or will have once its nodes are known."""

    data_nodes: tuple[str, ...]
    quorum: int | None
    replicas: int
    voters: int


def zone_facts(zone: Zone, sizes: ZoneSizes, catalog: CatalogSnapshot, state: str, version: int) -> Facts:
    """Facts of a zone. ``version``: the catalog version that made the zone what it is."""
    values = {
        "quorum_size": sizes.quorum,
        "voters": sizes.voters,
        "learners": max(0, sizes.replicas - sizes.voters),
        "data_nodes": sizes.data_nodes,
        "is_default": zone.zone_id == catalog.default_zone_id,
        "zone_state": state,
        "catalog_version": version,
    }
    return Facts(zone, values)


def drain_body(drain: Drain, held: int) -> DrainBody:
    """Body for a node that is leaving; ``held``: the number of members and copies that it still holds."""
    return body_of(DrainBody, Facts(drain, {"state": "DRAINING" if held else "DRAINED"}))


def roles(assignments: Assignments | None) -> Roles | None:
    """Voters, the preferred primary first, and learners."""
    if assignments is None:
        return None
    return {"peers": list(assignments.peers), "learners": list(assignments.learners)}


def member_body(view: PartitionView, node: str, alive: frozenset[str]) -> Member:
    """Body for a node's member and mirror. State and address are the member's; the mirror's where the node has
    nothing else."""
    record = view.members[node]
    mirror = record.mirror
    configured = view.configuration.members.get(node) if view.configuration else None
    shown = record if record.has_member or mirror is None else mirror
    stopped = {} if node in alive else {"state": Cause.NODE_DOWN.name}
    role = MemberRole.LEARNER if is_learner(view, node) else configured.role if configured else None
    return {
        "node": node,
        "state": shown.state.value if node in alive else Cause.NODE_DOWN.name,
        "role": role.value if role else None,
        "peer_url": record.peer_url,
        "client_url": shown.client_url,
        "reason": shown.reason,
        "mirror": body_of(MirrorBody, Facts(mirror, stopped)) if mirror is not None else None,
    }


def store_copies(view: PartitionView, alive: frozenset[str]) -> list[StoreCopy]:
    """Copies of a store zone's partition; none for a group, which has members."""
    if view.owners is None:
        return []
    leader = view.leader(alive)
    return [
        {"node": node, "state": local_state(view, node, alive).value, "leads": node == leader}
        for node in sorted(copies_of(view, alive))
    ]


def kept_copies(keys: KeyspaceCopy, keyspace: Keyspace, partition: PartitionId) -> list[KeptCopy]:
    """Copies of members that have left."""
    prefix = keyspace.kept_copies(partition)
    return [
        {
            "node": item.key.removeprefix(prefix),
            "state": "DELETING" if record.discard else "KEPT",
            "left_by": operation_id(partition.zone_id, record.event),
        }
        for item in keys.below(prefix)
        for record in (read(item, KeptRecord.decode),)
        if not isinstance(record, Unreadable)
    ]


def status_body(status: MoveStatus, since_ms: int | None) -> MoveStatusBody:
    since = utc(since_ms) if since_ms is not None else None
    return {"state": status.state.value, "cause": status.cause, "since": since}


def progress_body(
    zone_id: ZoneId,
    intent: ZoneIntent | None,
    states: Counter[str],
    causes: Counter[str],
    engine: str | None = None,
    copies: Counter[str] | None = None,
) -> Progress:
    """Body for a zone's progress. ``states`` by ``MoveState``; converged: nothing moves or waits, and no cause
    is named. ``copies``: the sums of ``copy_counts`` over all partitions."""
    done, moving, waiting = (states[state.value] for state in MoveState)
    converged = intent is not None and not moving and not waiting and not causes
    return {
        "zone_id": zone_id,
        "zone": intent.zone.name if intent else None,
        "catalog_version": intent.version if intent else None,
        "state": "CONVERGED" if converged else "MOVING",
        "partitions": {
            "total": done + moving + waiting,
            "done": done,
            "moving": moving,
            "waiting": waiting,
        },
        "causes": [{"cause": cause, "partitions": count} for cause, count in sorted(causes.items())],
        "engine": engine,
        "copies": {"assigned": copies["assigned"], "in_sync": copies["in_sync"]} if copies else None,
    }


def copy_counts(view: PartitionView) -> dict[str, int]:
    """Count the copies that a partition of a store zone is to have, and those of them that are in sync; empty
    for other zones."""
    assigned = view.pending or view.stable
    if view.owners is None or assigned is None:
        return {}
    return {"assigned": len(assigned.nodes), "in_sync": len(assigned.nodes.intersection(view.owners.in_sync))}
