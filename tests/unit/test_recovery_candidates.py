"""Candidates of a reset: every copy of a living node in one unit, and which one goes on (R1, R2, R5..R7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.quorum import majority
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    KeptRecord,
    LogPosition,
    MemberRecord,
    MemberRole,
    MemberState,
    MirrorRecord,
    Stage,
)
from rebalance.core.moves.move_status import PartitionView
from rebalance.core.recovery.etcd_versions import broken_versions
from rebalance.core.recovery.recovery_plan import (
    BEST_COPY,
    CandidateKind,
    ResetCandidate,
    ResetPlan,
    ResetTerms,
    candidates_of,
    plan_reset,
    unconfirmed_loss,
)
from tests.fixtures.examples import examples

RUNNING, STARTING, FAILED = MemberState.RUNNING, MemberState.STARTING, MemberState.FAILED


@dataclass(frozen=True)
class Copy:
    """``kind``: of a member or mirror. ``revision`` 0: not told."""

    kind: CandidateKind
    revision: int
    committed: int = 0
    undecided: int = 0
    generation: int = 0
    state: MemberState = RUNNING
    safe_revision: int = 0


def voter(revision: int, committed: int = 7, *, undecided: int = 0, state: MemberState = RUNNING) -> Copy:
    return Copy(CandidateKind.VOTER, revision, committed, undecided, state=state)


def joiner(revision: int, committed: int = 7) -> Copy:
    return Copy(CandidateKind.JOINER, revision, committed)


def learner(revision: int, *, generation: int = 0, state: MemberState = RUNNING, safe: int = 0) -> Copy:
    return Copy(CandidateKind.LEARNER, revision, generation=generation, state=state, safe_revision=safe)


SILENT_VOTER = Copy(CandidateKind.VOTER, 0)
KEPT = Copy(CandidateKind.KEPT, 0)


def view(copies: Mapping[str, Copy], *, lost: str = "", generation: int = 0) -> PartitionView:
    """Nodes are letters. ``lost``: voters that have told nothing. The target is all of them, in name order."""
    members: dict[str, MemberRecord] = {}
    configured: dict[str, ConfiguredMember] = {}
    kept: dict[str, KeptRecord] = {}
    for node, copy in {**copies, **dict.fromkeys(lost, SILENT_VOTER)}.items():
        match copy.kind:
            case CandidateKind.LEARNER:
                members[node] = MemberRecord.of_mirror(
                    MirrorRecord(
                        copy.state,
                        "c",
                        copy.safe_revision,
                        complete_revision=copy.revision,
                        generation=copy.generation,
                    )
                )
            case CandidateKind.KEPT:
                kept[node] = KeptRecord(3, f"old-{node}")
            case kind:
                position = None
                if copy.committed:
                    last = copy.committed + copy.undecided
                    position = LogPosition(copy.committed, last, True, copy.revision)
                members[node] = MemberRecord(copy.state, f"p{node}", "c", True, position=position)
                role = MemberRole.VOTER if kind is CandidateKind.VOTER else MemberRole.LEARNER
                configured[node] = ConfiguredMember(node, role, f"p{node}")
    nodes = sorted({*copies, *lost})
    voters = [node for node in nodes if node in configured] or nodes
    assignments = Assignments(tuple(voters), tuple(node for node in nodes if node not in voters))
    return PartitionView(
        target=assignments,
        stable=assignments,
        pending=None,
        planned=None,
        processed=True,
        members=members,
        configuration=ConfigurationRecord(1, voters[0], Stage.NONE, configured, generation=generation),
        kept=kept,
    )


def planned(
    seen: PartitionView, alive: str, terms: ResetTerms = BEST_COPY, *, waited: bool = False
) -> ResetPlan:
    return plan_reset(seen, frozenset(alive), "abcdefgh", terms, has_waited=waited)


def refusal(
    seen: PartitionView, alive: str, terms: ResetTerms = BEST_COPY, *, waited: bool = False
) -> RefusedError:
    with pytest.raises(RefusedError) as error:
        planned(seen, alive, terms, waited=waited)
    return error.value


@pytest.mark.row("IEP-059", "IEP-060")
def test_learners_are_used_where_every_voter_is_gone() -> None:
    """IEP-059, IEP-060: three voters and two learners; the voters' nodes are killed. The learner that has more
    founds the group, and the full set is made of both."""
    seen = view({"d": learner(40), "e": learner(42)}, lost="abc")
    plan = planned(seen, "de")
    assert plan.survivor == "e"
    assert plan.copy is not None
    assert (plan.copy.kind, plan.copy.revision) == (CandidateKind.LEARNER, 42)
    assert not plan.empty
    assert plan.then == Assignments(("d", "e"))
    assert plan.dead == plan.absent == ("a", "b", "c")
    assert plan.possibly_lost_entries == 0


@pytest.mark.row("R2")
@pytest.mark.parametrize(
    ("copies", "survivor"),
    [
        # The highest revision, whatever the kind of the copy.
        ({"c": voter(40), "d": learner(41)}, "d"),
        ({"c": voter(40), "d": joiner(41), "e": learner(39)}, "d"),
        # Equal: a voter, then a joiner, then a learner; then the name.
        ({"c": voter(40), "a": learner(40), "b": joiner(40)}, "c"),
        ({"c": joiner(40), "a": learner(40)}, "c"),
        ({"e": learner(40), "d": learner(40)}, "d"),
        # A log that is longer holds no more data: members come and go in it, too.
        ({"c": voter(41, 7), "d": voter(40, 90), "x": voter(0, 0), "y": voter(0, 0)}, "c"),
        # The process is broken; its data are there.
        ({"c": voter(41, state=FAILED), "d": learner(40)}, "c"),
        # What is not whole counts for nothing, however far it is.
        ({"c": voter(40), "d": learner(0, state=STARTING, safe=90)}, "c"),
        # A joiner that has received nothing is an empty store.
        ({"d": joiner(1), "e": learner(5)}, "e"),
        # A mirror that runs no more has told what it has.
        ({"d": learner(50, state=FAILED), "e": learner(49)}, "d"),
    ],
)
def test_the_copy_with_the_highest_revision_goes_on(copies: dict[str, Copy], survivor: str) -> None:
    """R2: one unit for all, and its ties."""
    alive = "".join(sorted(copies.keys() - set("xy")))
    lost = "mno" if "x" not in copies else ""
    assert planned(view(copies, lost=lost), alive, waited=bool(set("xy") & copies.keys())).survivor == survivor


def test_a_voter_of_an_older_build_is_compared_by_its_log() -> None:
    """An older build tells no revision: voters are compared by what they know to be decided, and others are
    used by name only."""
    seen = view({"b": voter(0, 9), "c": voter(33, 8), "d": learner(50)}, lost="aef")
    plan = planned(seen, "bcd")
    assert plan.survivor == "b"
    (other,) = [each for each in plan.candidates if each.node == "d"]
    assert not other.usable
    assert "the revision of the copy on b is not known" in other.reason
    assert planned(seen, "bcd", ResetTerms(source="d")).survivor == "d"


@pytest.mark.row("R2")
def test_only_copies_of_the_newest_generation_are_used() -> None:
    """R2: what an earlier group had is used by name only, also where nothing else is left."""
    seen = view({"d": learner(90, generation=3), "e": learner(20, generation=8)}, lost="abc", generation=8)
    assert planned(seen, "de").survivor == "e"
    alone = refusal(seen, "d")
    assert alone.kind is ErrorKind.NOT_ENOUGH_ALIVE_NODES
    assert alone.message.endswith("or name a replica: d")
    assert planned(seen, "d", ResetTerms(source="d")).survivor == "d"


def test_kept_copies_are_shown_and_not_used() -> None:
    """The node would discard what it is to go on with."""
    seen = view({"d": KEPT}, lost="abc")
    assert refusal(seen, "d").kind is ErrorKind.NOT_ENOUGH_ALIVE_NODES
    (kept,) = candidates_of(seen, frozenset("d"))
    assert (kept.kind, kept.revision, kept.is_whole) == (CandidateKind.KEPT, None, True)
    assert refusal(seen, "d", ResetTerms(source="d")).kind is ErrorKind.RECOVERY_STATE_ILLEGAL
    # A node may keep several, beside what it has now.
    older = {"e": KeptRecord(3, "old-e"), "e@7": KeptRecord(9, "older-e"), "x@8": KeptRecord(9, "old-x")}
    beside = replace(view({"e": learner(42)}, lost="abc"), kept=older)
    shown = [(each.node, each.kind.value, each.generation) for each in candidates_of(beside, frozenset("e"))]
    assert shown == [("e", "LEARNER", 0), ("e", "KEPT", None), ("e", "KEPT", 7)]
    assert planned(beside, "e", ResetTerms(source="e")).copy == candidates_of(beside, frozenset("e"))[0]
    assert planned(beside, "e").absent == ("a", "b", "c", "x")
    discarded = replace(seen, kept={"d": KeptRecord(3, "old-d", discard=True)})
    assert candidates_of(discarded, frozenset("d")) == ()


@pytest.mark.parametrize(
    ("member", "kind", "usable"),
    [
        # A learner that is being promoted: its new member is reserved only.
        (MemberRecord(MemberState.READY, "pd", "c"), CandidateKind.LEARNER, True),
        # It catches up, and has received a part: the node would go on with that.
        (MemberRecord(RUNNING, "pd", "c", True), CandidateKind.JOINER, False),
        (
            MemberRecord(RUNNING, "pd", "c", True, position=LogPosition(3, 3, True, 1)),
            CandidateKind.LEARNER,
            False,
        ),
        (
            MemberRecord(RUNNING, "pd", "c", True, position=LogPosition(9, 9, True, 30)),
            CandidateKind.JOINER,
            True,
        ),
        # What is left of an earlier member.
        (MemberRecord(RUNNING, "elsewhere", "c", True), CandidateKind.LEARNER, False),
        (MemberRecord(FAILED, "pd", "c", True, "DATA_LOST: gone"), CandidateKind.LEARNER, True),
    ],
)
def test_a_node_with_a_member_and_a_mirror(member: MemberRecord, kind: CandidateKind, usable: bool) -> None:
    """One candidate for each node, and what the node would do decides whether it is usable."""
    seen = view({"d": joiner(0, 0)}, lost="abc")
    mirror = MirrorRecord(RUNNING, "c", 32, complete_revision=40)
    seen = replace(seen, members={**seen.members, "d": replace(member, mirror=mirror)})
    (copy,) = candidates_of(seen, frozenset("d"))
    assert (copy.kind, copy.usable) == (kind, usable)


def test_a_copy_is_named_that_is_not_the_best() -> None:
    """The plan counts what the named copy misses."""
    seen = view({"c": voter(40, undecided=2), "d": learner(44)}, lost="ab")
    plan = planned(seen, "cd", ResetTerms(source="c"))
    assert plan.survivor == "c"
    assert (plan.missed_revisions, plan.possibly_lost_entries) == (4, 6)
    told = replace(seen.members["a"], position=LogPosition(9, 9, True, 47))
    plan = planned(replace(seen, members={**seen.members, "a": told}), "cd", ResetTerms(source="c"))
    assert (plan.missed_revisions, plan.possibly_lost_entries) == (7, 9)
    stranger = refusal(seen, "cd", ResetTerms(source="x"))
    assert stranger.kind is ErrorKind.NODE_SET_ILLEGAL
    assert stranger.message == "x is not alive, or has no replica (c, d has)"
    unfinished = view({"d": learner(0, state=STARTING), "e": learner(4)}, lost="abc")
    unusable = refusal(unfinished, "de", ResetTerms(source="d"))
    assert unusable.kind is ErrorKind.RECOVERY_STATE_ILLEGAL
    assert unusable.message == "the replica on d cannot be used: its first copy is not finished"


@pytest.mark.row("R6")
def test_silent_copies_are_waited_for_and_named() -> None:
    """R6: a learner that runs and has not told is waited for like a voter; then the best of the others is
    taken, and the plan says who was silent. With a copy that is named nothing is waited for."""
    seen = view({"c": SILENT_VOTER, "d": learner(0), "e": learner(42)}, lost="ab")
    waits = refusal(seen, "cde")
    assert waits.kind is ErrorKind.RECOVERY_STATE_ILLEGAL
    assert waits.message.startswith("c, d has not reported its log position yet")
    plan = planned(seen, "cde", waited=True)
    assert (plan.survivor, plan.silent) == ("e", ("c", "d"))
    assert planned(seen, "cde", ResetTerms(source="e")).survivor == "e"
    assert refusal(seen, "cd", waited=True).kind is ErrorKind.NOT_ENOUGH_ALIVE_NODES


@pytest.mark.row("R5")
@pytest.mark.parametrize(
    ("copy", "is_left"),
    [
        (voter(5), True),
        (voter(5, state=FAILED), True),
        (SILENT_VOTER, True),
        (joiner(5), True),
        (learner(5), True),
        (learner(0), True),
        (learner(0, state=FAILED, safe=4), True),
        (KEPT, True),
        (learner(5, generation=1), True),
        (joiner(1), False),
        (learner(0, state=STARTING), False),
        (learner(0, state=FAILED), False),
    ],
)
def test_a_partition_begins_empty_only_over_named_copies(copy: Copy, is_left: bool) -> None:
    """R5: any whole copy is in the way, broken, silent, kept or old; what is not whole is not."""
    generation = 2 if copy.generation else 0
    seen = view({"d": copy}, lost="abc", generation=generation)
    if is_left:
        refused = refusal(seen, "df", ResetTerms(empty=True))
        assert refused.kind is ErrorKind.COPIES_LEFT
        assert refused.message.startswith("d is alive and has a replica")
        assert refusal(seen, "df", ResetTerms(empty=True, discarded=frozenset("f"))).kind is refused.kind
    plan = planned(seen, "df", ResetTerms(empty=True, discarded=frozenset("d")))
    assert plan.empty
    assert plan.absent == ("a", "b", "c")


@pytest.mark.row("R1")
def test_a_loss_is_confirmed_by_the_exact_names() -> None:
    """R1: a node that lives was not looked at closely enough; one that lacks is named."""
    alive = frozenset("cd")
    assert unconfirmed_loss("ab", alive, frozenset("ab")) is None
    assert unconfirmed_loss("", alive, frozenset()) is None
    lacking = unconfirmed_loss("ab", alive, frozenset("a"))
    assert lacking is not None
    assert lacking.kind is ErrorKind.LOSS_NOT_CONFIRMED
    assert lacking.message == "the nodes of these voters are assumed dead: a, b; confirm exactly a, b"
    living = unconfirmed_loss("ab", alive, frozenset("abc"))
    assert living is not None
    assert living.message == "c is alive, but was confirmed as dead; confirm exactly a, b"


@pytest.mark.row("R7")
def test_versions_of_etcd_that_prove_nothing() -> None:
    """R7."""
    versions = {"a": "3.5.0", "b": "3.5.1", "c": "3.5.2", "d": "3.5.3", "e": "3.4.30", "f": "", "g": "3.5.1-x"}
    assert [node for node, _ in broken_versions(versions)] == ["a", "b", "c", "g"]


COPIES = st.one_of(
    st.builds(voter, st.integers(0, 4), st.integers(0, 4), state=st.sampled_from((RUNNING, FAILED))),
    st.builds(joiner, st.integers(0, 4), st.integers(0, 4)),
    st.builds(
        learner,
        st.integers(0, 4),
        generation=st.integers(0, 1),
        state=st.sampled_from((RUNNING, STARTING, FAILED)),
        safe=st.integers(0, 2),
    ),
    st.just(KEPT),
)


@pytest.mark.row("IEP-060")
@settings(deadline=None, max_examples=examples(400))
@given(
    survivors=st.dictionaries(
        st.sampled_from("ab"), st.builds(voter, st.integers(2, 6), undecided=st.integers(0, 2)), min_size=1
    ),
    learners=st.dictionaries(
        st.sampled_from("fg"),
        st.builds(learner, st.integers(0, 6), state=st.sampled_from((RUNNING, STARTING, FAILED))),
    ),
    living=st.sets(st.sampled_from("fg")),
)
def test_learners_that_have_less_change_no_reset(
    survivors: dict[str, Copy], learners: dict[str, Copy], living: set[str]
) -> None:
    """IEP-060: quorum is lost, and each learner is offline or has no more than the best of the surviving
    voters: the reset is that of a zone without learners, and goes on with the most advanced copy."""
    best = max(copy.revision for copy in survivors.values())
    assume(all(learners[node].revision <= best for node in living & learners.keys()))
    alone = planned(view(survivors, lost="cde"), "".join(survivors), waited=True)
    beside = planned(view({**survivors, **learners}, lost="cde"), "".join({*survivors, *living}), waited=True)
    assert survivors[alone.survivor].revision == best
    assert (beside.survivor, beside.copy, beside.dead) == (alone.survivor, alone.copy, alone.dead)
    assert beside.forced == alone.forced
    # What an offline learner has more is missed, and is told.
    lost, missed = beside.possibly_lost_entries, beside.missed_revisions
    assert lost - missed == alone.possibly_lost_entries - alone.missed_revisions
    # Who lives comes back to it.
    assert (beside.then or beside.forced).nodes >= survivors.keys()


@pytest.mark.row("R2", "R5")
@settings(deadline=None, max_examples=examples(600))
@given(
    copies=st.dictionaries(st.sampled_from("abcd"), COPIES, max_size=4),
    alive=st.sets(st.sampled_from("abcd")),
    generation=st.integers(0, 1),
    empty=st.booleans(),
    discarded=st.sets(st.sampled_from("abcd")),
    waited=st.booleans(),
    automatic=st.booleans(),
)
def test_no_usable_copy_is_ahead_of_the_one_that_is_chosen(
    copies: dict[str, Copy],
    alive: set[str],
    generation: int,
    empty: bool,
    discarded: set[str],
    waited: bool,
    automatic: bool,
) -> None:
    """R2, R5: a reset never goes on with less than another usable copy has, and never begins empty while a
    whole copy lives that was not named; what is chosen lives and is whole."""
    seen = view(copies, lost="xyz", generation=generation)
    terms = ResetTerms(empty=empty, discarded=frozenset(discarded) if empty else frozenset())
    living = frozenset(alive)
    candidates = candidates_of(seen, living)
    assert [each.node for each in candidates] == list(dict.fromkeys(each.node for each in candidates))
    try:
        plan = plan_reset(seen, living, "abcd", terms, automatic=automatic, has_waited=waited)
    except RefusedError as refused:
        if refused.kind is ErrorKind.NOT_ENOUGH_ALIVE_NODES and not (empty and not automatic):
            assert not any(each.usable for each in candidates)
        if refused.kind is ErrorKind.RECOVERY_NOT_NEEDED:
            running = [name for name in living if name in copies and _is_running_voter(copies[name])]
            voters = 3 + sum(each.kind is CandidateKind.VOTER for each in copies.values())
            assert len(running) >= majority(voters)
        return
    if plan.empty:
        assert empty
        assert not automatic
        assert {each.node for each in candidates if each.is_whole} <= discarded
        return
    assert plan.copy is not None
    assert plan.survivor in living
    assert plan.copy.is_whole
    usable = [each for each in candidates if each.usable]
    measure = _log_of if any(each.revision is None for each in usable) else _revision_of
    assert measure(plan.copy) == max(map(measure, usable))
    assert waited or not plan.silent


def _is_running_voter(copy: Copy) -> bool:
    return copy.kind is CandidateKind.VOTER and copy.state is not FAILED


def _revision_of(candidate: ResetCandidate) -> int:
    return candidate.revision or 0


def _log_of(candidate: ResetCandidate) -> int:
    """Decided length of a voter's log. Where a voter tells no revision only voters are usable."""
    assert candidate.kind is CandidateKind.VOTER
    assert candidate.position is not None
    return candidate.position.committed
