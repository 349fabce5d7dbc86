"""Health of partitions and recoveries as clients see them: read models, and plans as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from app.contract.columns import Facts, body_of
from app.contract.recovery import (
    UNKNOWN,
    CandidateBody,
    LossResetBody,
    PartitionStateBody,
    PositionBody,
    ResetBody,
    RestartBody,
)
from app.views.keyspace_views import KeyspaceViews
from app.views.mirror_freshness import MIRROR_ALONE, MetastoreSilence, MirrorFreshness, shown_state
from app.views.view_bodies import roles
from catalog.core.zone import Zone
from rebalance.controllers.planned_resets import PartitionReset
from rebalance.controllers.recovery import PartitionRestart
from rebalance.controllers.store_requests import LossReset
from rebalance.core.admission.move_admission import utc
from rebalance.core.causes.cause_table import advice
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.records import LogPosition
from rebalance.core.moves.move_status import PartitionView, StoreOwners, partition_status
from rebalance.core.moves.partition_state import UNSERVED, copies_of, global_state, local_state
from rebalance.core.recovery.recovery_plan import ResetCandidate, Use, living_voters, possible_voters, silent_of


def partition_states(
    views: KeyspaceViews,
    zone: Zone,
    numbers: Sequence[int],
    freshness: MirrorFreshness = MIRROR_ALONE,
    silence: MetastoreSilence | None = None,
) -> Iterator[PartitionStateBody]:
    """Yield the global and local states, partition by partition (``rebalance.core.moves.partition_state``).
    ``silence``: the one that ``freshness`` has reported."""
    is_known, now_ms = silence is None, time.time_ns() // 1_000_000
    placed, alive = views.placed(zone.zone_id), views.alive()
    for number in numbers or range(zone.partitions):
        partition = PartitionId(zone.zone_id, number)
        view, _ = views.view(partition, placed)
        owners, state = view.owners, global_state(view, alive)
        shown, since = shown_state(partition, state, freshness.since_ms(partition), silence)
        advised = is_known and state in UNSERVED
        # 0: nobody knows.
        held_s = (now_ms - since) / 1_000 if since is not None else 0.0
        voters = possible_voters(view, alive) if owners is None else frozenset(owners.in_sync)
        living = living_voters(view, alive) if owners is None else _answering(owners, alive)
        yield {
            "partition": number,
            "state": shown,
            "since": utc(since) if since is not None else None,
            "advice": advice(partition_status(view, alive).cause, alive, held_s) if advised else "",
            "voters": len(voters),
            "voters_alive": len(living),
            "generation": view.configuration.generation if view.configuration is not None else 0,
            "recovering_on": _recovering_on(view),
            "restarting": views.restarting(partition),
            "replicas": [
                {
                    "node": node,
                    "state": local_state(view, node, alive).value if is_known else UNKNOWN,
                    "voter": node in voters,
                    **_position(view.members[node].position if owners is None else None),
                    "reason": view.members[node].reason if owners is None else _role(owners, node),
                }
                for node in sorted(copies_of(view, alive))
            ],
        }


def reset_body(reset: PartitionReset) -> ResetBody:
    """A reset as the API shows it. ``survivor`` null: refused, with the reason."""
    plan, refusal = reset.plan, reset.refusal
    return {
        "partition": reset.partition,
        "written": reset.written,
        "survivor": plan.survivor if plan else None,
        "then": roles(plan.then) if plan else None,
        "empty": plan.empty if plan else False,
        "possibly_lost_entries": plan.possibly_lost_entries if plan else None,
        "missed_revisions": plan.missed_revisions if plan and not plan.empty else None,
        "orderly": plan.copy.position.orderly if plan and plan.copy and plan.copy.position else None,
        "candidates": [candidate_body(candidate) for candidate in reset.candidates],
        "silent": list(silent_of(reset.candidates)),
        "to_confirm": list(reset.to_confirm),
        "unproven": dict(reset.unproven),
        "refusal": {"name": refusal.kind.name, "code": refusal.kind.code, "detail": refusal.message}
        if refusal
        else None,
    }


def candidate_body(candidate: ResetCandidate) -> CandidateBody:
    values = {"by_name": candidate.use is Use.BY_NAME, **_position(candidate.position)}
    return body_of(CandidateBody, Facts(candidate, values))


def restart_body(restart: PartitionRestart) -> RestartBody:
    return body_of(RestartBody, Facts(restart.plan, {"partition": restart.partition}))


def loss_reset_body(reset: LossReset) -> LossResetBody:
    return body_of(LossResetBody, Facts(reset, {"exchange": str(reset.version)}))


def _recovering_on(view: PartitionView) -> str | None:
    """The node that is founding the group anew."""
    pending = view.pending
    return pending.primary if pending is not None and pending.forced else None


def _answering(owners: StoreOwners, alive: frozenset[str]) -> frozenset[str]:
    """Nodes of the in-sync set whose servers answer; none where the partition is lost."""
    if owners.is_lost:
        return frozenset()
    return (alive.intersection(owners.in_sync) & owners.servers) - owners.silent


def _role(owners: StoreOwners, node: str) -> str:
    """Role of a store zone's copy on the node, in words."""
    if owners.is_lost:
        return "lost: no copy is in sync"
    if node == owners.leader:
        return "primary"
    return "backup" if node in owners.in_sync else "being filled"


def _position(position: LogPosition | None) -> PositionBody:
    return {
        "committed": position.committed if position else None,
        "last": position.last if position else None,
    }
