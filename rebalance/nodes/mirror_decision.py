"""Decision of a node about its mirror of a partition, pure: from what is written and what runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.records import MemberState, MirrorRecord, rounded_revision
from rebalance.nodes.endpoints import client_urls
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.ports.groups import MemberLife
from rebalance.ports.mirrors import MirrorStatus

_STATES = {
    MemberLife.RESERVED: MemberState.READY,
    MemberLife.STARTING: MemberState.STARTING,
    MemberLife.STOPPED: MemberState.STARTING,
    MemberLife.RUNNING: MemberState.RUNNING,
}


class MirrorDuty(Enum):
    NOTHING = "NOTHING"
    WAIT = "WAIT"  # wanted, and there is nothing to follow
    FOLLOW = "FOLLOW"
    CLEAN_UP = "CLEAN_UP"


@dataclass(frozen=True, slots=True)
class MirrorDecision:
    """``reason`` is for WAIT, the rest for FOLLOW (``MirrorHost.follow``)."""

    duty: MirrorDuty
    group: str = ""
    sources: tuple[str, ...] = ()
    reason: str = ""
    generation: int = 0
    shared_revision: int = 0


def decide_mirror(view: NodePartitionView, node: str, status: MirrorStatus | None) -> MirrorDecision:
    """The duty of ``node`` for its mirror, decided from ``view`` and ``status`` alone (IEP-043).

    Invariant: while stable or pending names the node as a learner its mirror stays. So a learner that is
    promoted loses it at the stable switch and not before, and a voter that is demoted has it before the switch.
    """
    own = view.records.get(node)
    if node not in view.learning:
        recorded = own is not None and own.value.mirror is not None
        return MirrorDecision(MirrorDuty.CLEAN_UP if status is not None or recorded else MirrorDuty.NOTHING)
    if view.group is None or view.configuration is None:
        return MirrorDecision(
            MirrorDuty.WAIT, reason=Cause.WAITING.text("the group has not elected a leader yet")
        )
    # Its own member is of no use as a source: it is on its way in, or out.
    own_url = own.value.client_url if own is not None else ""
    sources = tuple(url for url in client_urls(view) if url != own_url)
    if not sources:
        return MirrorDecision(MirrorDuty.WAIT, reason=Cause.WAITING.text("no other voter serves clients"))
    group = view.group.value
    shared = group.shared_revision(status.generation) if status is not None else 0
    return MirrorDecision(
        duty=MirrorDuty.FOLLOW,
        group=group.token,
        sources=sources,
        generation=group.generation,
        shared_revision=shared,
    )


def mirror_record(status: MirrorStatus | None, reason: str = "") -> MirrorRecord:
    """Return the published record of a mirror; ``reason`` says what it waits for when the mirror itself does
    not."""
    if status is None:
        return MirrorRecord(MemberState.READY, reason=reason)
    return MirrorRecord(
        state=_STATES.get(status.life, MemberState.FAILED),
        client_url=status.client_url,
        safe_revision=rounded_revision(status.safe_revision),
        reason=status.reason or reason,
        # It changes with each put, and counts only where no voter can tell more.
        complete_revision=status.complete_revision if status.is_silent else 0,
        generation=status.generation,
    )
