"""Decisions of a node about its member or its mirror of a partition, pure: from what is written and what runs.

A member whose group a recovery has given up may not run. A recovery founds the group anew on one node (pending
with ``forced``). From the moment that pending is written until stable is switched no other member may serve,
and a member of an earlier generation never runs again: two of them together could be a majority of a group that
is not counted on any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.records import (
    GroupRecord,
    KeptRecord,
    MemberRole,
    MemberState,
    MirrorRecord,
    rounded_revision,
)
from rebalance.nodes.partition_view import NodePartitionView, client_urls
from rebalance.ports.groups import MemberLife, MemberStatus
from rebalance.ports.mirrors import FollowedGroup, MirrorStatus


def why_fenced(node: str, generation: int, pending: Assignments | None, group: GroupRecord | None) -> str:
    """Return why the member of ``node``, whose data is of ``generation``, must not run; empty: it may."""
    if pending is not None and pending.forced and node != pending.primary:
        return Cause.FENCED.text(f"the group is founded anew on {pending.primary}")
    if is_given_up(generation, group):
        return Cause.FENCED.text("its group was given up, and founded anew without it")
    return ""


def is_given_up(generation: int, group: GroupRecord | None) -> bool:
    """Check that data of ``generation`` belongs to an earlier life of the group."""
    return group is not None and generation < group.generation


class Duty(Enum):
    NOTHING = "NOTHING"
    RESERVE = "RESERVE"
    FREEZE_GROUP = "FREEZE_GROUP"  # write the group's first configuration, put-if-absent
    BOOTSTRAP = "BOOTSTRAP"
    JOIN = "JOIN"
    RESTART = "RESTART"
    REINCARNATE = "REINCARNATE"  # the group removed this member and wants one here again: new data, new ports
    REPLACE_JOINER = "REPLACE_JOINER"  # the same, of one that never answered and cannot learn of its removal
    FENCE = "FENCE"  # stop it and keep its data: recovery founds the group on another node
    FOUND_ALONE = "FOUND_ALONE"  # recovery founds the group on this node, with the data that it has
    FOUND_FROM_MIRROR = "FOUND_FROM_MIRROR"  # the same with the data of its mirror: it has no member
    FOUND_EMPTY = "FOUND_EMPTY"  # the same where nobody has data: write the group's first configuration
    CLEAN_UP = "CLEAN_UP"
    KEEP = "KEEP"  # its member has left, and its copy is kept: nothing runs
    DISCARD = "DISCARD"  # the kept copy goes: it was finalised, or the partition comes back
    REPORT_DATA_LOST = "REPORT_DATA_LOST"


@dataclass(frozen=True, slots=True)
class MemberDecision:
    """``reason`` says what the member waits for; it is published in its record."""

    duty: Duty
    reason: str = ""


def decide_member(
    view: NodePartitionView, node: str, status: MemberStatus | None, *, has_mirror: bool = False
) -> MemberDecision:
    """The duty of ``node`` for its member, decided from ``view`` and ``status`` alone (I3-027, I3-040, I3-049).

    Invariants: a member that the group still lists is never destroyed while the partition exists (its vote may
    be needed); one that was started once never starts on an empty directory; the first configuration comes from
    the ``group`` key alone, so that two nodes cannot found two groups. A kept copy never runs again: a
    partition that comes back begins with a new member. ``has_mirror``: the node keeps a mirror of the
    partition.
    """
    kept = view.kept.get(node)
    if kept is not None and (status is None or is_kept(kept.value, status)):
        discard = kept.value.discard or node in view.assigned
        return MemberDecision(Duty.DISCARD if discard else Duty.KEEP)
    recovering = _recovering(view, node, status, has_mirror=has_mirror)
    if recovering is not None:
        return recovering
    if node not in view.voting:
        return _not_assigned(view, node, status)
    own = view.records.get(node)
    if status is None:
        if own is not None and own.value.started and not _is_out(view, own.value.peer_url):
            return MemberDecision(Duty.REPORT_DATA_LOST, Cause.DATA_LOST.text("the member's directory is gone"))
        return MemberDecision(Duty.RESERVE)
    own_url = status.endpoints.peer_url
    if status.life is not MemberLife.RESERVED and is_given_up(status.generation, _group(view)):
        return MemberDecision(Duty.REINCARNATE)
    match status.life:
        case MemberLife.DATA_LOST if _is_out(view, own_url):
            return MemberDecision(Duty.REINCARNATE)
        case MemberLife.DATA_LOST:
            return MemberDecision(Duty.REPORT_DATA_LOST, status.reason)
        case MemberLife.RESERVED:
            elsewhere = own is not None and own.value.started and own.value.peer_url != own_url
            if own is not None and elsewhere and not _is_out(view, own.value.peer_url):
                return MemberDecision(
                    Duty.REPORT_DATA_LOST, Cause.DATA_LOST.text("the member was started elsewhere")
                )
            return _first_start(view, node, status)
        case MemberLife.REMOVED if view.configuration and view.listed(own_url) is not MemberRole.VOTER:
            # Listed as a learner: the group was asked to add this URL after it had removed the old member.
            if view.pending is not None and node not in view.pending.value.peers:
                return MemberDecision(
                    Duty.NOTHING, Cause.LEFT.text("removed by its group, stable is not switched yet")
                )
            return MemberDecision(Duty.REINCARNATE)
        case MemberLife.STOPPED | MemberLife.FAILED | MemberLife.REMOVED:
            return MemberDecision(Duty.RESTART, status.reason)
        case MemberLife.RUNNING:
            return MemberDecision(Duty.NOTHING, status.reason)
        case MemberLife.STARTING if _is_removed_joiner(view, node, status):
            return MemberDecision(
                Duty.REPLACE_JOINER, Cause.LEFT.text("removed by its group before it has ever answered")
            )
        case MemberLife.STARTING:
            return MemberDecision(Duty.NOTHING)


def is_kept(kept: KeptRecord, status: MemberStatus) -> bool:
    """Check that the data that is here is the copy that ``kept`` speaks of. What is reserved has none, and
    another URL belongs to a member that came later: the key is about to go, or comes from an older
    metastore."""
    return status.life is not MemberLife.RESERVED and status.endpoints.peer_url == kept.peer_url


def _group(view: NodePartitionView) -> GroupRecord | None:
    return view.group.value if view.group is not None else None


def _recovering(
    view: NodePartitionView, node: str, status: MemberStatus | None, *, has_mirror: bool
) -> MemberDecision | None:
    """The duty while pending is forced, until its group is founded; None: as ever.

    Only the node that pending names may run a member, and only it decides what becomes of its data: a group
    begins empty where nobody had a copy when the recovery was asked for, and nowhere else.
    """
    pending = view.pending.value if view.pending is not None else None
    if pending is None or not pending.forced:
        return None
    if node != pending.primary:
        reason = why_fenced(node, 0, pending, None)
        idle = status is None or status.life in (MemberLife.RESERVED, MemberLife.REMOVED, MemberLife.DATA_LOST)
        return MemberDecision(Duty.NOTHING if idle else Duty.FENCE, reason)
    group = _group(view)
    if group is not None and group.generation == pending.forced:
        return None
    if pending.empty:
        if status is None:
            return MemberDecision(Duty.RESERVE)
        is_new = status.life is MemberLife.RESERVED
        return MemberDecision(Duty.FOUND_EMPTY if is_new else Duty.REINCARNATE)
    if has_mirror and (status is None or status.life is MemberLife.RESERVED):
        duty = Duty.RESERVE if status is None else Duty.FOUND_FROM_MIRROR
        return MemberDecision(
            duty, Cause.RECOVERING.text("the group is founded anew here, on the mirror's data")
        )
    if (
        has_mirror
        and status is not None
        and (status.life in (MemberLife.REMOVED, MemberLife.DATA_LOST) or is_given_up(status.generation, group))
    ):
        return MemberDecision(Duty.REINCARNATE)
    if status is None or status.life in (MemberLife.RESERVED, MemberLife.DATA_LOST):
        return MemberDecision(
            Duty.REPORT_DATA_LOST, Cause.DATA_LOST.text("the copy that recovery has chosen is gone")
        )
    return MemberDecision(Duty.FOUND_ALONE, Cause.RECOVERING.text("the group is founded anew here"))


def _is_out(view: NodePartitionView, peer_url: str) -> bool:
    """The group runs without this member: what it may have voted for no longer counts."""
    return view.configuration is not None and view.listed(peer_url) is None


def _is_removed_joiner(view: NodePartitionView, node: str, status: MemberStatus) -> bool:
    """A member that was restarted before it had its copy knows no peer, and nobody tells it that it is out.

    It was started by a list that had it, so that a list without it is a later one. A voter may be in neither
    when a metastore has gone back in time: what has ever answered, or votes by stable, is left alone.
    """
    votes = view.stable is not None and node in view.stable.value.peers
    return status.received > 0 and not votes and _is_out(view, status.endpoints.peer_url)


def _not_assigned(view: NodePartitionView, node: str, status: MemberStatus | None) -> MemberDecision:
    own = view.records.get(node)
    if status is None and (own is None or not own.value.has_member):
        return MemberDecision(Duty.NOTHING)
    dropped = view.stable is None and view.pending is None
    if dropped or status is None or status.life in (MemberLife.REMOVED, MemberLife.RESERVED):
        return MemberDecision(Duty.CLEAN_UP)
    if view.listed(status.endpoints.peer_url):
        # Still counted by its group: without it the rest may have no majority to remove it with.
        reason = Cause.LEAVING.text("the group has not removed this member yet")
        running = status.life in (MemberLife.RUNNING, MemberLife.STARTING)
        return MemberDecision(Duty.NOTHING if running else Duty.RESTART, reason)
    return MemberDecision(Duty.CLEAN_UP)


def _first_start(view: NodePartitionView, node: str, status: MemberStatus) -> MemberDecision:
    peer_url = status.endpoints.peer_url
    if view.configuration is not None:
        if view.listed(peer_url):
            return MemberDecision(Duty.JOIN)
        return MemberDecision(Duty.NOTHING, Cause.WAITING.text("the group's leader adds this member"))
    if view.group is not None:
        if view.group.value.peers.get(node) == peer_url:
            return MemberDecision(Duty.BOOTSTRAP)
        return MemberDecision(Duty.NOTHING, Cause.WAITING.text("the group has not elected a leader yet"))
    if view.stable is None or node not in view.stable.value.peers:
        return MemberDecision(Duty.NOTHING, Cause.WAITING.text("the group is not founded yet"))
    peers, records = view.stable.value.peers, view.records
    missing = [name for name in peers if name not in records or not records[name].value.peer_url]
    if missing:
        return MemberDecision(Duty.NOTHING, Cause.WAITING_FOR_MEMBERS.text(", ".join(missing)))
    return MemberDecision(Duty.FREEZE_GROUP)


MEMBER_STATES: Mapping[MemberLife, MemberState] = {
    MemberLife.RESERVED: MemberState.READY,
    MemberLife.STARTING: MemberState.STARTING,
    MemberLife.STOPPED: MemberState.STARTING,
    MemberLife.RUNNING: MemberState.RUNNING,
    MemberLife.REMOVED: MemberState.FAILED,
    MemberLife.FAILED: MemberState.FAILED,
    MemberLife.DATA_LOST: MemberState.FAILED,
}


class MirrorDuty(Enum):
    NOTHING = "NOTHING"
    WAIT = "WAIT"  # wanted, and there is nothing to follow
    FOLLOW = "FOLLOW"
    CLEAN_UP = "CLEAN_UP"


NO_GROUP = FollowedGroup("")


@dataclass(frozen=True, slots=True)
class MirrorDecision:
    """``reason`` is for WAIT, the rest for FOLLOW (``MirrorHost.follow``)."""

    duty: MirrorDuty
    group: FollowedGroup = NO_GROUP
    sources: tuple[str, ...] = ()
    reason: str = ""


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
    followed = FollowedGroup(group.token, group.generation, shared)
    return MirrorDecision(MirrorDuty.FOLLOW, followed, sources)


def mirror_record(status: MirrorStatus | None, reason: str = "") -> MirrorRecord:
    """Return the published record of a mirror; ``reason`` says what it waits for when the mirror itself does
    not."""
    if status is None:
        return MirrorRecord(MemberState.READY, reason=reason)
    return MirrorRecord(
        state=MEMBER_STATES[status.life],
        client_url=status.client_url,
        safe_revision=rounded_revision(status.safe_revision),
        reason=status.reason or reason,
        # It changes with each put, and counts only where no voter can tell more.
        complete_revision=status.complete_revision if status.is_silent else 0,
        generation=status.generation,
    )
