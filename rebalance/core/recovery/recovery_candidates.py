"""Every copy of a partition on a living node, compared in one unit: the data revision (R2).

*Voters* and *joiners* are members of the configuration that the group has committed, broken processes included;
a joiner was catching up to vote. *Learners* are mirrors that have a whole first copy. *Kept* copies are of
members that have left. A copy is usable while it is whole, has reported how far it goes and belongs to the
newest generation that anybody knows of; any other one says why it is not, and some of these may be used by
name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from rebalance.core.keyspace.records import (
    LogPosition,
    MemberRecord,
    MemberRole,
    MemberState,
    MirrorRecord,
)
from rebalance.core.moves.move_status import PartitionView, unseen_voters

DATA_LOST = "DATA_LOST"
FIRST_DATA_REVISION = 2
"""A store without any write is at 1, and each group begins with the write of its identity: a joiner below this
has received nothing."""


class CandidateKind(Enum):
    VOTER = "VOTER"
    JOINER = "JOINER"
    LEARNER = "LEARNER"
    KEPT = "KEPT"


class Use(Enum):
    """CHOSEN_FROM: the best of these is taken. BY_NAME: only where somebody names it. NONE: not at all."""

    CHOSEN_FROM = "CHOSEN_FROM"
    BY_NAME = "BY_NAME"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class ResetCandidate:
    """One copy. ``revision``: of its data, ``generation``: of the group that it belongs to; None where nobody
    can tell. ``state``: of the member or mirror, as its node says. ``position``: of a member's log.
    ``is_whole``: everything up to some revision is there, so that data is lost when it is discarded.
    ``is_silent``: it may still tell how far it goes. ``reason``: why it is not chosen from; empty: it is."""

    node: str
    kind: CandidateKind
    state: str
    generation: int | None
    revision: int | None = None
    position: LogPosition | None = None
    use: Use = Use.CHOSEN_FROM
    is_whole: bool = True
    is_silent: bool = False
    reason: str = ""

    @property
    def usable(self) -> bool:
        return self.use is Use.CHOSEN_FROM

    @property
    def undecided(self) -> int:
        """Log entries that the copy holds and does not know to be decided; a reset drops them."""
        return self.position.undecided if self.position is not None else 0


def candidates_of(view: PartitionView, alive: frozenset[str]) -> tuple[ResetCandidate, ...]:
    """The copies on living nodes: what is chosen first comes first, what is not usable last. Of a node that has
    a member and a mirror the member counts, unless that is not whole; kept copies are shown beside it."""
    copies = {copy.node: copy for copy in _mirrors(view, alive)}
    for copy in _members(view, alive):
        if copy.is_whole or copy.node not in copies:
            copies[copy.node] = copy
    return _ranked(_of_newest_generation(view, (*copies.values(), *_kept(view, alive))))


def voters_of(view: PartitionView) -> frozenset[str]:
    """Voters of the configuration that the group has committed; before there is one those of stable."""
    if view.configuration is not None and view.configuration.members:
        members = view.configuration.members.items()
        return frozenset(node for node, member in members if member.role is MemberRole.VOTER)
    return frozenset(view.stable.peers) if view.stable is not None else frozenset()


def possible_voters(view: PartitionView, alive: frozenset[str]) -> frozenset[str]:
    """Voters, and learners that may vote by now without anybody having been able to say so."""
    return voters_of(view) | unseen_voters(view, alive)


def living_voters(view: PartitionView, alive: frozenset[str]) -> frozenset[str]:
    """Possible voters whose node lives and whose member runs or is about to; no other learner counts."""
    living = possible_voters(view, alive) & alive
    return frozenset(node for node in living if _is_running_member(view, node))


def absent_holders(view: PartitionView, alive: frozenset[str]) -> tuple[str, ...]:
    """Nodes that are not there and hold, or held, a copy: voters first, then the others, by name."""
    voters = voters_of(view)
    others = (*view.members, *(kept_by(name)[0] for name in view.kept))
    return tuple(dict.fromkeys(node for node in (*sorted(voters), *sorted(others)) if node not in alive))


def best_known_revision(view: PartitionView, generation: int | None) -> int:
    """The highest data revision of ``generation`` that any copy, living or not, has ever reported; 0: none.
    What a node that is gone has reported last is a lower bound of what the group had decided."""
    current = view.configuration.generation if view.configuration is not None else 0
    revisions = [0]
    for member in view.members.values():
        if member.position is not None and generation == current:
            revisions.append(member.position.revision)
        if member.mirror is not None and generation == member.mirror.generation:
            revisions += (member.mirror.complete_revision, member.mirror.safe_revision)
    return max(revisions)


def kept_by(name: str) -> tuple[str, int | None]:
    """The node of a kept copy, and the generation that was given up; None: its member has left its group.
    ``name``: of its key, ``<node>`` or ``<node>@<generation>``."""
    node, _, generation = name.rpartition("@")
    return (node, int(generation)) if node and generation.isdecimal() else (name, None)


def listed_member(view: PartitionView, node: str) -> MemberRecord | None:
    """The very member of ``node`` that the group lists; None: it has none, or another one."""
    member = view.members.get(node)
    configured = view.configuration.members.get(node) if view.configuration is not None else None
    if member is None or configured is None or member.peer_url != configured.peer_url:
        return None
    return member


def _is_running_member(view: PartitionView, node: str) -> bool:
    member = listed_member(view, node)
    return member is not None and member.state is not MemberState.FAILED


def _members(view: PartitionView, alive: frozenset[str]) -> Iterator[ResetCandidate]:
    configuration = view.configuration
    for node in sorted(configuration.members.keys() & alive) if configuration is not None else ():
        assert configuration is not None
        member = listed_member(view, node)
        if member is None:
            continue
        is_voter = configuration.members[node].role is MemberRole.VOTER
        kind = CandidateKind.VOTER if is_voter else CandidateKind.JOINER
        copy = ResetCandidate(
            node, kind, member.state.value, configuration.generation, position=member.position
        )
        yield _judged_voter(copy, member) if is_voter else _judged_joiner(copy, member)


def _judged_voter(copy: ResetCandidate, member: MemberRecord) -> ResetCandidate:
    if member.reason.startswith(DATA_LOST):
        return replace(copy, use=Use.NONE, is_whole=False, reason=member.reason)
    if member.position is None:
        return _silent(copy)
    return replace(copy, revision=member.position.revision or None)


def _judged_joiner(copy: ResetCandidate, member: MemberRecord) -> ResetCandidate:
    if member.reason.startswith(DATA_LOST) or not member.started:
        reason = member.reason or "it has received nothing yet"
        return replace(copy, use=Use.NONE, is_whole=False, reason=reason)
    if member.position is None:
        return _silent(copy)
    revision = member.position.revision
    if revision < FIRST_DATA_REVISION:
        reason = "it has received nothing yet" if revision else "its node cannot tell the revision of its data"
        return replace(copy, use=Use.NONE, is_whole=False, reason=reason)
    return replace(copy, revision=revision)


def _mirrors(view: PartitionView, alive: frozenset[str]) -> Iterator[ResetCandidate]:
    for node in sorted(view.members.keys() & alive):
        member = view.members[node]
        if member.mirror is not None:
            copy = _judged_mirror(node, member.mirror)
            has_data = member.has_member and member.started and not member.reason.startswith(DATA_LOST)
            if copy.usable and has_data:
                reason = "its node also holds a member of the partition, and would found the group on that"
                copy = replace(copy, use=Use.NONE, reason=reason)
            yield copy


def _judged_mirror(node: str, mirror: MirrorRecord) -> ResetCandidate:
    copy = ResetCandidate(node, CandidateKind.LEARNER, mirror.state.value, mirror.generation)
    if mirror.complete_revision:
        return replace(copy, revision=mirror.complete_revision)
    if mirror.state is MemberState.RUNNING:
        return _silent(copy)
    if mirror.state is MemberState.FAILED:
        reason = mirror.reason or "its mirror does not run"
        return replace(copy, use=Use.NONE, is_whole=mirror.safe_revision > 0, reason=reason)
    return replace(copy, use=Use.NONE, is_whole=False, reason="its first copy is not finished")


def _kept(view: PartitionView, alive: frozenset[str]) -> Iterator[ResetCandidate]:
    for name, record in sorted(view.kept.items()):
        node, generation = kept_by(name)
        if node in alive and not record.discard:
            # Its node would discard it: nothing founds a group on it yet.
            reason = "a kept copy of a member that has left: no group can be founded on it"
            yield ResetCandidate(node, CandidateKind.KEPT, "KEPT", generation, use=Use.NONE, reason=reason)


def _silent(copy: ResetCandidate) -> ResetCandidate:
    reason = "it has not told yet how far it goes"
    return replace(copy, use=Use.NONE, is_silent=True, reason=reason)


def _of_newest_generation(view: PartitionView, copies: Iterable[ResetCandidate]) -> list[ResetCandidate]:
    copies = list(copies)
    current = view.configuration.generation if view.configuration is not None else 0
    serving = (copy for copy in copies if copy.is_whole and copy.kind is not CandidateKind.KEPT)
    whole = (copy.generation for copy in serving if copy.generation is not None)
    newest = max((current, *whole))
    return [_as_of(copy, newest) for copy in copies]


def _as_of(copy: ResetCandidate, newest: int) -> ResetCandidate:
    if copy.generation in (None, newest) or not copy.is_whole or copy.kind is CandidateKind.KEPT:
        return copy
    use = Use.BY_NAME if copy.usable else Use.NONE
    reason = f"of generation {copy.generation}, and the newest is {newest}: what came after is not in it"
    return replace(copy, use=use, is_silent=False, reason=reason)


_ORDER = {kind: place for place, kind in enumerate(CandidateKind)}
_USES = {use: place for place, use in enumerate(Use)}


def _ranked(copies: Sequence[ResetCandidate]) -> tuple[ResetCandidate, ...]:
    """By data revision. Where a voter's is not known (its node runs an older build), only logs of voters can be
    compared: by what they know to be decided, which their data follow."""
    unknown = sorted(copy.node for copy in copies if copy.usable and copy.revision is None)
    if not unknown:
        return tuple(sorted(copies, key=_by_revision))
    reason = f"the revision of the copy on {', '.join(unknown)} is not known, so it cannot be compared with it"
    others = (CandidateKind.JOINER, CandidateKind.LEARNER)
    compared = (
        replace(copy, use=Use.BY_NAME, reason=reason) if copy.usable and copy.kind in others else copy
        for copy in copies
    )
    return tuple(sorted(compared, key=_by_log))


def _by_revision(copy: ResetCandidate) -> tuple[int, int, int, str]:
    return _USES[copy.use], -(copy.revision or 0), _ORDER[copy.kind], copy.node


def _by_log(copy: ResetCandidate) -> tuple[int, int, int, str]:
    position = copy.position or LogPosition(0, 0, False)
    return _USES[copy.use], -position.committed, -position.last, copy.node
