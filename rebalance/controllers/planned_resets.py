"""Plans for partitions that are reset: made from one reading, checked against what was accepted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.zone import ConsistencyMode
from rebalance.controllers.zone_reading import ZoneReading
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.recovery.etcd_versions import broken_versions
from rebalance.core.recovery.recovery_plan import (
    ResetCandidate,
    ResetPlan,
    ResetTerms,
    candidates_of,
    plan_reset,
    unconfirmed_loss,
)


@dataclass(frozen=True, slots=True)
class PartitionReset:
    """Plan for one partition, or why there is none. ``written``: it was asked for, and is under way.
    ``candidates``: every copy on a living node. ``to_confirm``: nodes that the requester must know to be dead.
    ``unproven``: living nodes with a copy whose etcd may have lost data in a crash, and its version."""

    partition: int
    plan: ResetPlan | None = None
    refusal: RefusedError | None = None
    written: bool = False
    candidates: tuple[ResetCandidate, ...] = ()
    to_confirm: tuple[str, ...] = ()
    unproven: tuple[tuple[str, str], ...] = ()

    def refused(self, refusal: RefusedError) -> PartitionReset:
        return replace(self, plan=None, refusal=refusal)


@dataclass(frozen=True, slots=True)
class ShownReset:
    """Part of one partition's plan that the requester has seen, and so accepts to lose."""

    partition: int
    survivor: str
    empty: bool
    possibly_lost_entries: int


def planned_reset(
    reading: ZoneReading, number: int, terms: ResetTerms, *, tells_all: bool = True
) -> PartitionReset:
    """``tells_all``: the copies of a partition that needs no reset, too; most of a zone's do not."""
    data_nodes: Collection[str] = reading.data_nodes.nodes if reading.data_nodes else ()
    mode = reading.intent.zone.consistency_mode if reading.intent is not None else None
    try:
        view = reading.view(PartitionId(reading.zone_id, number))
    except RefusedError as refusal:
        return PartitionReset(number, refusal=refusal)
    plan, refused = None, None
    try:
        plan = plan_reset(view, reading.alive, data_nodes, terms)
        candidates = plan.candidates
    except RefusedError as refusal:
        refused = refusal
        if refusal.kind is ErrorKind.RECOVERY_NOT_NEEDED and not tells_all:
            return PartitionReset(number, refusal=refusal)
        candidates = candidates_of(view, reading.alive)
    is_strong = mode is not ConsistencyMode.HIGH_AVAILABILITY
    return PartitionReset(
        number,
        plan,
        refused,
        candidates=candidates,
        to_confirm=plan.dead if plan is not None and is_strong else (),
        unproven=broken_versions(
            {candidate.node: reading.etcd_version(candidate.node) for candidate in candidates}
        ),
    )


def not_needed(node: str) -> RefusedError:
    """The group serves: the member of ``node`` has answered a linearizable read."""
    message = f"the member on {node} answers with a majority of its group, whatever its records say"
    return RefusedError(ErrorKind.RECOVERY_NOT_NEEDED, message)


def not_reached(limit_s: float) -> RefusedError:
    """Return the refusal for a group of which it is not known that it serves."""
    message = f"its members were not asked within {limit_s:g} s: ask again, for fewer partitions at once"
    return RefusedError(ErrorKind.RECOVERY_STATE_ILLEGAL, message)


def late_refusal(
    reset: PartitionReset,
    reading: ZoneReading,
    accepted: Mapping[int, ShownReset] | None,
    terms: ResetTerms,
) -> RefusedError | None:
    try:
        check_shown(reset, accepted)
    except RefusedError as refusal:
        return refusal
    # Of other partitions more may be confirmed: only what lacks counts here.
    return unconfirmed_loss(reset.to_confirm, frozenset(), terms.confirmed_dead)


def check_terms(terms: ResetTerms) -> None:
    """Raises RefusedError (INVALID_REQUEST)."""
    if terms.source and terms.empty:
        message = f"either begin empty, or with the copy of {terms.source}"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    if terms.discarded and not terms.empty:
        message = "copies are discarded only where a partition begins empty: ask for both, or for neither"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)


def check_shown(reset: PartitionReset, accepted: Mapping[int, ShownReset] | None) -> None:
    """Raises RefusedError when more would be lost than was accepted, or another copy kept."""
    plan = reset.plan
    if plan is None or accepted is None:
        return
    shown = accepted.get(reset.partition)
    if shown is None:
        message = f"partition {reset.partition} now needs a reset, too"
    elif (shown.survivor, shown.empty) != (plan.survivor, plan.empty):
        message = f"partition {reset.partition} would now go on with the copy of {plan.survivor}"
    elif shown.possibly_lost_entries < plan.possibly_lost_entries:
        message = (
            f"partition {reset.partition} may now lose {plan.possibly_lost_entries} entries, not "
            f"{shown.possibly_lost_entries}"
        )
    else:
        return
    raise RefusedError(ErrorKind.SHOWN_STATE_CHANGED, f"{message}: do another dry run")
