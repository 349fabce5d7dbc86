"""The next step of a change of peers: examples, then every interrupted prefix from any state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.quorum import majority
from rebalance.core.keyspace.records import MemberRole, Stage
from rebalance.core.moves.group_steps import (
    AddLearner,
    AnnounceLeaving,
    Done,
    GroupView,
    MoveLeader,
    ObservedMember,
    Promote,
    Remove,
    Step,
    WaitLeader,
    WaitMajority,
    WaitMirror,
    WaitStart,
    leaves_first,
    needs_intention,
    next_step,
    stage_of,
)
from tests.fixtures.examples import examples

V, L = MemberRole.VOTER, MemberRole.LEARNER


def view(*members: ObservedMember, leader: str = "a") -> GroupView:
    return GroupView(members, leader)


def voter(name: str, **known: bool) -> ObservedMember:
    return ObservedMember(name, V, **known)


def learner(name: str, **known: bool) -> ObservedMember:
    return ObservedMember(name, L, **known)


@pytest.mark.row("I3-028", "I3-060")
@pytest.mark.parametrize(
    ("group", "target", "step"),
    [
        (view(voter("a")), "a", Done()),
        (view(voter("a")), "abc", AddLearner("b")),
        (view(voter("a"), learner("b", started=False)), "abc", WaitStart("b")),
        # With b as the second voter, every put would wait for it; with d as the fourth, none does.
        (view(voter("a"), voter("b"), voter("c"), learner("d", started=False)), "bcd", Promote("d")),
        (
            view(voter("a"), voter("b"), voter("c"), learner("d", started=False, joined=False)),
            "bcd",
            WaitStart("d"),
        ),
        (
            view(voter("a"), voter("b"), voter("c", down=True), learner("d", started=False)),
            "bcd",
            WaitStart("d"),
        ),
        # It may vote before it answers, and lead only after.
        (view(voter("a"), voter("d", started=False)), "d", WaitStart("d")),
        (view(voter("a"), voter("c"), voter("d", started=False)), "dc", MoveLeader(("c", "d"))),
        (view(voter("a"), learner("b")), "abc", Promote("b")),
        (view(voter("a"), learner("b")), "ac", Remove("b")),
        (view(voter("a"), voter("b"), voter("c")), "bc", MoveLeader(("b", "c"))),
        (view(voter("a"), voter("b", down=True), voter("c")), "bc", MoveLeader(("c", "b"))),
        (view(voter("a"), voter("b"), voter("c")), "a", AnnounceLeaving("b")),
        (view(voter("a"), voter("b", announced=True), voter("c")), "a", Remove("b")),
        # A dead voter nobody wants goes before anything is added: with it the group accepts no new member.
        (view(voter("a"), voter("b"), voter("c", down=True, announced=True)), "abd", Remove("c")),
        # With c dead, taking b away would leave {a, c} without a majority.
        (view(voter("a"), voter("b"), voter("c", down=True)), "ac", WaitMajority(("c",))),
        # So would it when c never started (found by the simulator): its node lives, its vote does not.
        (view(voter("a"), voter("b"), voter("c", started=False)), "ac", WaitMajority(())),
        (view(voter("a"), leader=""), "ab", WaitLeader()),
        # b is to be a learner: it goes once a mirror runs there, and others go before it.
        (view(voter("a"), voter("b", mirror_awaited=True)), "a", WaitMirror("b")),
        (view(voter("a"), voter("b", mirror_awaited=True), voter("c")), "a", AnnounceLeaving("c")),
        (view(voter("a"), voter("b", mirror_awaited=True)), "c", AddLearner("c")),
        (view(voter("a", mirror_awaited=True), voter("b")), "b", MoveLeader(("b",))),
        # Its member failed, and the node lives: what is left of the copy stays until there is another.
        (view(voter("a"), voter("b", down=True, mirror_awaited=True), voter("c")), "ac", WaitMirror("b")),
    ],
)
def test_next_step(group: GroupView, target: str, step: Step) -> None:
    """S087, I3-028, I3-060: increase first, decrease last, the leader hands over before anything is removed."""
    assert next_step(group, tuple(target)) == step


@pytest.mark.parametrize(
    ("group", "target", "name"),
    [
        (view(voter("a"), voter("b"), voter("c")), "abd", "c"),
        (view(voter("a"), voter("b"), voter("c")), "ad", "b"),
        (view(voter("a"), voter("b")), "abc", None),
        # The next leader's agent tells.
        (view(voter("a"), voter("b"), voter("c")), "bcd", None),
    ],
)
def test_who_leaves_first(group: GroupView, target: str, name: str | None) -> None:
    """One voter, never the leader."""
    assert leaves_first(group, tuple(target)) == name


@pytest.mark.row("M9")
@pytest.mark.parametrize(
    ("group", "stable", "step"),
    [
        # b was promoted for a target that is given up; it goes before d comes.
        (view(voter("a"), voter("b")), "a", AnnounceLeaving("b")),
        (view(voter("a"), voter("b", announced=True)), "a", Remove("b")),
        (view(voter("a"), voter("b")), "ab", AddLearner("d")),
        # Nobody knows who voted before.
        (view(voter("a"), voter("b")), "", AddLearner("d")),
        # A check forbids it: the increase goes on.
        (view(voter("a"), voter("b"), leader="b"), "a", AddLearner("d")),
        (view(voter("a"), voter("b", mirror_awaited=True)), "a", AddLearner("d")),
        (view(voter("a"), voter("b"), voter("d", down=True)), "ad", AddLearner("f")),
        (view(voter("a"), voter("b")), "ace", AddLearner("d")),
        # What has begun to join goes on.
        (view(voter("a"), voter("b"), learner("d")), "a", Promote("d")),
    ],
)
def test_who_was_promoted_for_another_target_leaves_first(group: GroupView, stable: str, step: Step) -> None:
    """M9: from a and what is there, towards a and d."""
    assert next_step(group, ("a", "d", "f") if len(stable) > 1 else ("a", "d"), tuple(stable)) == step


def test_an_empty_target_is_refused() -> None:
    """A group cannot be reconfigured away."""
    with pytest.raises(ValueError, match="at least one voter"):
        next_step(view(voter("a")), ())


@pytest.mark.row("M12")
@pytest.mark.parametrize(
    ("step", "needs"),
    [
        (Promote("l"), False),
        (Remove("l"), False),
        (WaitStart("l"), False),
        # It names the voter to clients, and waits until that is published.
        (AnnounceLeaving("b"), False),
        (Done(), False),
        (AddLearner("d"), True),
        (MoveLeader(("b",)), True),
        (Remove("b"), True),
    ],
)
def test_what_needs_to_know_what_is_wanted_now(step: Step, needs: bool) -> None:
    """M12: the running joiner is promoted, a learner goes; no next joiner, and no living voter goes."""
    assert needs_intention(step, view(voter("a"), voter("b"), learner("l"))) is needs


NAMES = "abcdef"


@st.composite
def groups(draw: st.DrawFn) -> GroupView:
    voters = draw(st.sets(st.sampled_from(NAMES), min_size=1, max_size=4))
    learning = draw(st.none() | st.sampled_from(NAMES))
    leader = draw(st.sampled_from(sorted(voters)))
    down = draw(st.sets(st.sampled_from(sorted(voters)), max_size=(len(voters) - 1) // 2))
    members = [voter(name, down=name in down - {leader}) for name in sorted(voters)]
    if learning is not None and learning not in voters:
        started = draw(st.booleans())
        members.append(learner(learning, started=started, joined=started or draw(st.booleans())))
    return GroupView(tuple(members), leader)


def apply(group: GroupView, step: Step) -> GroupView:
    """The group after the step; a member that is waited for comes back."""

    def changed(name: str, **fields: object) -> GroupView:
        members = (replace(each, **fields) if each.peer_url == name else each for each in group.members)
        return replace(group, members=tuple(members))

    match step:
        case AddLearner(name):
            return replace(group, members=(*group.members, learner(name, started=False, joined=False)))
        case WaitStart(name):
            found = next(each for each in group.members if each.peer_url == name)
            return changed(name, joined=True, started=found.joined)
        case Promote(name):
            return changed(name, role=V)
        case MoveLeader(candidates):
            return replace(group, leader=candidates[0])
        case AnnounceLeaving(name):
            return changed(name, announced=True)
        case Remove(name):
            return replace(group, members=tuple(each for each in group.members if each.peer_url != name))
        case WaitMajority(down):
            if down:
                return changed(down[0], down=False)
            return replace(group, members=tuple(replace(each, started=True) for each in group.members))
        case WaitMirror(name):
            return changed(name, mirror_awaited=False)
    raise AssertionError(step)


targets = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)


@pytest.mark.row("I3-041", "I3-056", "I3-060")
@settings(max_examples=examples(400), deadline=None)
@given(group=groups(), target=targets, interrupted=st.integers(0, 12), then=targets)
def test_any_state_ends_in_the_target(
    group: GroupView, target: list[str], interrupted: int, then: list[str]
) -> None:
    """I3-041, I3-056, I3-060: a change that is interrupted after any number of steps is continued from the list
    alone, towards the same or another target; no removal costs the majority, the leader is never removed."""
    for _ in range(interrupted):
        step = next_step(group, target)
        if isinstance(step, Done):
            break
        check(group, step)
        group = apply(group, step)
    for _ in range(60):
        step = next_step(group, then)
        if isinstance(step, Done):
            break
        check(group, step)
        group = apply(group, step)
    else:
        pytest.fail(f"no end: {group} -> {then}")
    assert {each.peer_url for each in group.members} == set(then)
    assert not group.learners
    assert group.leader in then


@pytest.mark.row("M9")
@settings(max_examples=examples(400), deadline=None)
@given(
    stable=st.sets(st.sampled_from(NAMES), min_size=1, max_size=3),
    wishes=st.lists(st.tuples(targets, st.integers(0, 9)), min_size=1, max_size=5),
)
def test_targets_that_follow_each_other_leave_no_pile_of_voters(
    stable: set[str], wishes: list[tuple[list[str], int]]
) -> None:
    """M9: each target is given up after some steps. A joiner comes to voters of stable, of the target, and at
    most one more, unless there are no more voters than the fewer of the two want; no removal of a voter leaves
    fewer than these."""
    group = GroupView(tuple(voter(name) for name in sorted(stable)), min(stable))
    for number, (target, steps) in enumerate(wishes):
        is_last, step = number == len(wishes) - 1, None
        for _ in range(80 if is_last else steps):
            step = next_step(group, target, tuple(stable))
            if isinstance(step, Done):
                break
            check(group, step)
            before = {each.peer_url for each in group.voters}
            if isinstance(step, AddLearner):
                others = before - stable - set(target)
                fewest = min(len(stable), len(target))
                assert len(others) <= 1 or len(before) <= fewest
            group = apply(group, step)
            left = before - {each.peer_url for each in group.voters}
            assert not left or len(group.voters) >= min(len(stable), len(target))
        if isinstance(step, Done):
            stable = set(target)
    assert {each.peer_url for each in group.members} == set(wishes[-1][0])


@pytest.mark.row("IEP-043", "IEP-044")
@settings(max_examples=examples(300), deadline=None)
@given(
    before=st.sets(st.sampled_from(NAMES), min_size=1, max_size=5),
    target=st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True),
    awaited=st.sets(st.sampled_from(NAMES)),
)
def test_voters_stay_within_bounds_while_roles_move(
    before: set[str], target: list[str], awaited: set[str]
) -> None:
    """IEP-043, IEP-044: learners become voters and voters learners; there are never fewer voters than before or
    after the move, never more than both together, and no demoted voter goes without a copy beside it."""
    group = GroupView(
        tuple(voter(name, mirror_awaited=name in awaited) for name in sorted(before)), min(before)
    )
    for _ in range(60):
        step = next_step(group, target)
        if isinstance(step, Done):
            break
        check(group, step)
        if isinstance(step, Remove):
            assert not next(each for each in group.members if each.peer_url == step.peer_url).mirror_awaited
        group = apply(group, step)
        assert min(len(before), len(target)) <= len(group.voters) <= len(before | set(target))
    assert {each.peer_url for each in group.voters} == set(target)


def check(group: GroupView, step: Step) -> None:
    if isinstance(step, AddLearner):
        assert not group.learners, "etcd before 3.6 holds one learner"
    if isinstance(step, MoveLeader):
        first = next(each for each in group.voters if each.peer_url == step.candidates[0])
        assert first.started or first.down
    if isinstance(step, Promote):
        promoted = next(each for each in group.learners if each.peer_url == step.peer_url)
        serving = sum(each.started and not each.down for each in (*group.voters, promoted))
        assert promoted.joined
        assert promoted.started or serving >= majority(len(group.voters) + 1)
    if not isinstance(step, Remove):
        return
    assert step.peer_url != group.leader
    removed = next(each for each in group.members if each.peer_url == step.peer_url)
    if removed.role is L:
        return
    assert removed.announced
    left = [each for each in group.voters if each is not removed]
    assert sum(each.started and not each.down for each in left) >= majority(len(left))


@pytest.mark.row("I3-045")
@pytest.mark.parametrize(
    ("voters", "learners", "stable", "pending", "stage"),
    [
        ("a", "", "a", None, Stage.NONE),
        ("a", "", "a", "abc", Stage.NONE),
        ("a", "b", "a", "abc", Stage.CATCHING_UP),
        # Between two joiners, and while the second one copies: no voter is touched.
        ("ab", "", "a", "abc", Stage.CATCHING_UP),
        ("ab", "c", "a", "abc", Stage.CATCHING_UP),
        ("ab", "", "a", "b", Stage.JOINT),
        ("ab", "", "a", None, Stage.JOINT),
        ("abc", "", "a", "abc", Stage.STABLE),
        ("abc", "", "abc", None, Stage.NONE),
        ("ab", "", "abc", "a", Stage.JOINT),
        ("a", "", "a", "a", Stage.STABLE),
    ],
)
def test_stage(voters: str, learners: str, stable: str, pending: str | None, stage: Stage) -> None:
    """I3-045: NONE, CATCHING_UP, JOINT, STABLE are told from the list and the keys."""
    assert stage_of(voters, learners, stable, pending) is stage
