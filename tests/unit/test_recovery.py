"""Plans of resets and restarts: who founds the group anew, what follows, what is lost, and every refusal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.quorum import majority
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    LogPosition,
    MemberRecord,
    MemberRole,
    MemberState,
    Stage,
)
from rebalance.core.moves.move_status import PartitionView
from rebalance.core.recovery.recovery_plan import (
    BEST_COPY,
    ResetTerms,
    RestartPlan,
    living_voters,
    plan_reset,
    plan_restart,
)


def assigned(text: str) -> Assignments:
    """``ab+c``: voters a and b, learner c."""
    peers, _, learners = text.partition("+")
    return Assignments(tuple(peers), tuple(learners))


def view(
    stable: str,
    committed: dict[str, int] | None = None,
    *,
    target: str = "",
    pending: str = "",
    learners: str = "",
) -> PartitionView:
    """Nodes are letters. ``committed``: members of the group -> what their copies know to be decided; 0: not
    told, -1: data lost. ``learners`` of them do not vote."""
    positions = committed if committed is not None else dict.fromkeys(assigned(stable).nodes, 5)
    members, configured = {}, {}
    for node, known in positions.items():
        position = LogPosition(known, known + 2, True) if known > 0 else None
        state, reason = (MemberState.FAILED, "DATA_LOST: gone") if known < 0 else (MemberState.RUNNING, "")
        members[node] = MemberRecord(state, f"p{node}", "c", True, reason, position=position)
        role = MemberRole.LEARNER if node in learners else MemberRole.VOTER
        configured[node] = ConfiguredMember(node, role, f"p{node}")
    return PartitionView(
        target=assigned(target or stable),
        stable=assigned(stable),
        pending=assigned(pending) if pending else None,
        planned=None,
        processed=True,
        members=members,
        configuration=ConfigurationRecord(1, min(configured), Stage.NONE, configured),
    )


def refusal(
    seen: PartitionView,
    alive: str,
    data_nodes: str = "abcdef",
    terms: ResetTerms = BEST_COPY,
    *,
    automatic: bool = False,
) -> RefusedError:
    with pytest.raises(RefusedError) as error:
        plan_reset(seen, frozenset(alive), data_nodes, terms, automatic=automatic)
    return error.value


EMPTY = ResetTerms(empty=True)


@pytest.mark.row("IEP-059", "IEP-060", "IEP-061")
@pytest.mark.parametrize(
    ("seen", "alive", "data_nodes", "survivor", "then"),
    [
        # The most advanced copy, by name among equals.
        (view("abc"), "c", "abc", "c", None),
        (view("abcde", {"a": 7, "b": 9, "c": 9, "d": 3, "e": 3}), "ab", "abcde", "b", "ab"),
        (view("abcde", {"a": 9, "b": 9, "c": 9, "d": 3, "e": 3}), "ab", "abcde", "a", "ab"),
        # Topped up with living data nodes, in name order, up to the target's replicas.
        (view("abc"), "adef", "abcdef", "a", "ade"),
        (view("abc"), "adef", "abcf", "a", "af"),
        # IEP-061: one node is left of a quorum of three, and makes a group of one.
        (view("abcde"), "e", "abcde", "e", None),
        # A node that is no data node any more has the data and does not stay.
        (view("abc", target="def"), "adef", "def", "a", "def"),
        # A pending node that the group has taken in has a copy too (S194).
        (view("ab", {"a": 5, "b": 5, "d": 5}, target="ad", pending="ad"), "d", "ad", "d", None),
        # IEP-060: learners of the target come after the voters, and do not vote.
        (view("abc+de", {"a": 5, "b": 5, "c": 5, "d": 4, "e": 4}, learners="de"), "ade", "abcde", "a", "ade"),
    ],
)
def test_reset_by_hand(
    seen: PartitionView, alive: str, data_nodes: str, survivor: str, then: str | None
) -> None:
    """S194, IEP-059..061: pending is the survivor alone, planned the full set."""
    plan = plan_reset(seen, frozenset(alive), data_nodes)
    assert plan.survivor == survivor
    assert plan.forced == Assignments((survivor,))
    assert plan.then == (assigned(then) if then else None)
    assert not plan.empty
    assert plan.possibly_lost_entries == 2


@pytest.mark.parametrize(
    ("seen", "alive", "survivor", "then"),
    [
        # S195: stable [1,4,5], pending [1,3,4] unfinished, 5 and 4 lost.
        (view("ade", {"a": 5, "d": 5, "e": 5}, target="acd", pending="acd"), "ac", "a", "ac"),
        # S191: what is left of the target's nodes, and no other: the factor is not restored.
        (view("bde", target="bde"), "abf", "b", None),
        # S230: the filter was changed before: the copy comes from a node that the zone may use no more.
        (view("abc", target="def"), "adef", "a", "def"),
        # S231: a node outside of the filter is never used.
        (view("ab", target="ab"), "ac", "a", None),
    ],
)
def test_automatic_reset(seen: PartitionView, alive: str, survivor: str, then: str | None) -> None:
    """S191, S195, S230, S231, S233: the living part of what the zone wants now."""
    plan = plan_reset(seen, frozenset(alive), "abcdef", automatic=True)
    assert (plan.survivor, plan.then) == (survivor, assigned(then) if then else None)


@pytest.mark.row("M11")
def test_a_promotion_that_nobody_could_publish_is_reckoned_with() -> None:
    """M11: a, the only published voter, says that it has no leader, so b votes by now. While a leads nothing is
    lost, and when b is back they are a majority."""
    lost = view("a", {"a": 5, "b": 0}, pending="ab", learners="b")
    assert plan_reset(lost, frozenset("a"), "ab").survivor == "a"
    assert refusal(lost, "ab").kind is ErrorKind.RECOVERY_NOT_NEEDED
    led = view("a", {"a": 0, "b": 0}, pending="ab", learners="b")
    assert refusal(led, "a").kind is ErrorKind.RECOVERY_NOT_NEEDED


def test_refusals() -> None:
    """S186, S189, S190, S200, S206: each with a kind of its own, and what would help."""
    kept = refusal(view("abc"), "ab")
    assert kept.kind is ErrorKind.RECOVERY_NOT_NEEDED
    assert kept.message == "2 of 3 voters are alive (a, b), and 2 are a majority"
    # S200: seven replicas, three of them vote; four stopped, two voters live.
    seven = view("abc+defg", dict.fromkeys("abcdefg", 5), learners="defg")
    assert refusal(seven, "abd").kind is ErrorKind.RECOVERY_NOT_NEEDED
    silent = refusal(view("abc", {"a": 0, "b": 5, "c": 5}), "a")
    assert silent.kind is ErrorKind.RECOVERY_STATE_ILLEGAL
    assert silent.message.startswith("a has not reported its log position yet")
    for automatic in (False, True):
        gone = refusal(view("a"), "b", automatic=automatic)
        assert gone.kind is ErrorKind.NOT_ENOUGH_ALIVE_NODES
        assert "absent nodes: a" in gone.message
    assert refusal(view("a"), "b", terms=EMPTY, automatic=True).kind is ErrorKind.NOT_ENOUGH_ALIVE_NODES
    assert refusal(view("a"), "b", "a", EMPTY).kind is ErrorKind.NOT_ENOUGH_ALIVE_NODES
    never = replace(view("abc"), configuration=None)
    assert refusal(never, "a").kind is ErrorKind.RECOVERY_STATE_ILLEGAL


def test_a_partition_without_a_copy_begins_empty_when_that_is_meant() -> None:
    """S189: on a living data node, never on its own; a node whose data is lost is no copy."""
    for seen in (view("a"), view("a", {"a": -1})):
        alive = frozenset("bc" if seen.members["a"].position else "abc")
        plan = plan_reset(seen, alive, "abc", EMPTY)
        assert plan.empty
        assert plan.then is None
        assert plan.absent == tuple(sorted(set("a") - alive))


def test_another_member_of_the_same_node_is_no_copy() -> None:
    """The member's peer URL is not the one that the group lists: what it has is of an earlier group."""
    seen = view("abc")
    stranger = replace(seen.members["a"], peer_url="elsewhere")
    seen = replace(seen, members={**seen.members, "a": stranger})
    assert refusal(seen, "a").kind is ErrorKind.NOT_ENOUGH_ALIVE_NODES
    assert living_voters(seen, frozenset("ab")) == {"b"}


NAMES = "abcdefg"


@pytest.mark.row("IEP-059")
@settings(deadline=None)
@given(st.data())
def test_a_reset_keeps_what_is_decided_and_uses_the_living(data: st.DataObject) -> None:
    """IEP-059: never while a majority lives; the survivor lives and is behind no voter that does."""
    voters = data.draw(st.sets(st.sampled_from(NAMES), min_size=1, max_size=5))
    committed = {node: data.draw(st.integers(1, 3)) for node in sorted(voters)}
    alive = data.draw(st.sets(st.sampled_from(NAMES)))
    data_nodes = data.draw(st.sets(st.sampled_from(NAMES), min_size=1))
    automatic = data.draw(st.booleans())
    seen = view("".join(sorted(voters)), committed)
    survivors = voters & alive
    if len(survivors) >= majority(len(voters)):
        kind = refusal(seen, "".join(alive), "".join(data_nodes), automatic=automatic).kind
        assert kind is ErrorKind.RECOVERY_NOT_NEEDED
        return
    if not survivors:
        kind = refusal(seen, "".join(alive), "".join(data_nodes), automatic=automatic).kind
        assert kind is ErrorKind.NOT_ENOUGH_ALIVE_NODES
        return
    plan = plan_reset(seen, frozenset(alive), data_nodes, automatic=automatic)
    assert plan.survivor in survivors
    assert committed[plan.survivor] == max(committed[node] for node in survivors)
    if plan.then is not None:
        assert plan.then.nodes <= alive
        assert automatic or plan.then.nodes <= data_nodes
        assert len(plan.then.nodes) <= len(voters)
        assert plan.then != plan.forced


@pytest.mark.parametrize(
    ("seen", "alive", "nodes", "cleanup", "expected"),
    [
        (view("abc"), "abc", "", False, RestartPlan(("a", "b", "c"), False)),
        (view("abc"), "ab", "", False, RestartPlan(("a", "b"), False)),
        (view("abc"), "abc", "b", False, RestartPlan(("b",), False)),
        (view("abc"), "abc", "b", True, RestartPlan(("b",), True)),
        (view("abcde"), "abcd", "d", True, RestartPlan(("d",), True)),
        # Others keep no majority: two of two voters, or one is away already.
        (view("ab"), "ab", "a", True, ErrorKind.NOT_ENOUGH_ALIVE_NODES),
        (view("a"), "a", "a", True, ErrorKind.NOT_ENOUGH_ALIVE_NODES),
        (view("abc"), "ab", "a", True, ErrorKind.NOT_ENOUGH_ALIVE_NODES),
        (view("abc"), "abc", "ab", True, ErrorKind.NODE_SET_ILLEGAL),
        (view("abc"), "abc", "", True, ErrorKind.NODE_SET_ILLEGAL),
        (view("abc"), "abcd", "d", False, ErrorKind.NODE_SET_ILLEGAL),
        (view("abc"), "ab", "c", False, ErrorKind.NOT_ENOUGH_ALIVE_NODES),
        (view("abc"), "d", "", False, ErrorKind.NOT_ENOUGH_ALIVE_NODES),
    ],
)
def test_restart(
    seen: PartitionView, alive: str, nodes: str, cleanup: bool, expected: RestartPlan | ErrorKind
) -> None:
    """S206: with clean-up one node, and only if the others are a majority without it."""
    if isinstance(expected, RestartPlan):
        assert plan_restart(seen, frozenset(alive), nodes, cleanup=cleanup) == expected
        return
    with pytest.raises(RefusedError) as error:
        plan_restart(seen, frozenset(alive), nodes, cleanup=cleanup)
    assert error.value.kind is expected


def test_nothing_restarts_while_a_group_is_founded_anew() -> None:
    forced = replace(view("abc"), pending=Assignments(("a",), forced=9))
    with pytest.raises(RefusedError, match="founded anew on a"):
        plan_restart(forced, frozenset("abc"), "b")
