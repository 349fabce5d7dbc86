"""Decisions of a node on its own member, from the keys and the member's life alone."""

from __future__ import annotations

import pytest

from rebalance.nodes.partition_view import NodePartitionView
from rebalance.nodes.replica_decision import Duty, decide_member
from rebalance.ports.groups import MemberEndpoints, MemberLife, MemberStatus
from tests.fixtures.member_views import member, url, view

RESERVED, RUNNING, STOPPED = MemberLife.RESERVED, MemberLife.RUNNING, MemberLife.STOPPED


@pytest.mark.row("I3-027", "I3-040", "I3-049", "IEP-043")
@pytest.mark.parametrize(
    ("seen", "life", "duty"),
    [
        (view(), None, Duty.NOTHING),
        (view("b"), None, Duty.NOTHING),
        (view("ab"), None, Duty.RESERVE),
        (view("b", "ab"), None, Duty.RESERVE),
        (view("ab", reserved="a"), RESERVED, Duty.NOTHING),
        (view("ab", reserved="ab"), RESERVED, Duty.FREEZE_GROUP),
        (view("b", "ab", reserved="ab"), RESERVED, Duty.NOTHING),
        (view("ab", reserved="ab", founded="ab"), RESERVED, Duty.BOOTSTRAP),
        (view("ab", reserved="ab", founded="b"), RESERVED, Duty.NOTHING),
        (view("b", "ab", reserved="ab", founded="ab", listed="b"), RESERVED, Duty.NOTHING),
        (view("b", "ab", reserved="ab", founded="b", listed="ab"), RESERVED, Duty.JOIN),
        (view("ab", started="ab", listed="ab"), RUNNING, Duty.NOTHING),
        (view("ab", started="ab", listed="ab"), STOPPED, Duty.RESTART),
        (view("ab", started="ab", listed="ab"), MemberLife.FAILED, Duty.RESTART),
        (view("ab", started="ab", listed="ab"), MemberLife.REMOVED, Duty.RESTART),
        (view("ab", started="ab", listed="b"), MemberLife.REMOVED, Duty.REINCARNATE),
        (view("ab", "b", started="ab", listed="b"), MemberLife.REMOVED, Duty.NOTHING),
        (view("b", "ab", started="ab", listed="ab", learning="a"), MemberLife.REMOVED, Duty.REINCARNATE),
        (view("b", started="ab", listed="b"), RUNNING, Duty.CLEAN_UP),
        (view("b", started="ab", listed="ab"), RUNNING, Duty.NOTHING),
        (view("b", started="ab", listed="ab"), STOPPED, Duty.RESTART),
        (view("b", reserved="a"), None, Duty.CLEAN_UP),
        (view(started="ab", listed="ab"), RUNNING, Duty.CLEAN_UP),
        # A kept copy stays, stopped, until it is finalised or the partition comes back; also without data.
        (view("b", listed="b", kept="a"), STOPPED, Duty.KEEP),
        (view("b", listed="b", kept="a"), RUNNING, Duty.KEEP),
        (view("b", listed="b", kept="a"), MemberLife.REMOVED, Duty.KEEP),
        (view("b", "c", forced=9, kept="a"), STOPPED, Duty.KEEP),
        (view("b", listed="b", kept="a", discard=True), STOPPED, Duty.DISCARD),
        (view("b", listed="b", kept="a"), None, Duty.KEEP),
        (view("b", listed="b", kept="a", discard=True), None, Duty.DISCARD),
        (view("b", "ab", listed="b", kept="a"), STOPPED, Duty.DISCARD),
        (view("b+a", listed="b", kept="a"), STOPPED, Duty.DISCARD),
        (view("b", "ab", listed="b", kept="a"), None, Duty.DISCARD),
        # The key speaks of an earlier member: of one that is reserved or runs by now it says nothing.
        (view("ab", reserved="a", started="b", kept="a"), RESERVED, Duty.FREEZE_GROUP),
        (view("ab", started="ab", listed="ab", kept="c"), RUNNING, Duty.NOTHING),
        (view("ab", started="ab", listed="ab", kept="c"), STOPPED, Duty.RESTART),
        (view(kept="a"), STOPPED, Duty.KEEP),
        # A learner has no member; a promoted one gets it, a demoted one loses it once its group has removed it.
        (view("b+a", listed="b"), None, Duty.NOTHING),
        (view("b+a", "ab", listed="b"), None, Duty.RESERVE),
        (view("ab", "b+a", started="ab", listed="ab"), RUNNING, Duty.NOTHING),
        (view("ab", "b+a", started="ab", listed="b"), MemberLife.REMOVED, Duty.NOTHING),
        (view("b+a", started="ab", listed="ab"), RUNNING, Duty.NOTHING),
        (view("b+a", started="ab", listed="b"), MemberLife.REMOVED, Duty.CLEAN_UP),
        (view("b+a", "ab", started="ab", listed="b"), MemberLife.REMOVED, Duty.REINCARNATE),
    ],
)
def test_duty_of_node_a(seen: NodePartitionView, life: MemberLife | None, duty: Duty) -> None:
    """I3-027, I3-040, I3-049, IEP-043: members start exactly where a key asks for them, wait for the list that
    names them, and are destroyed only when no key and no group counts on them."""
    assert decide_member(seen, "a", member(life) if life else None).duty is duty


@pytest.mark.row("I3-027", "I3-040", "I3-049")
@pytest.mark.parametrize("stable", ["a", "ab", "bc"])
@pytest.mark.parametrize("pending", ["", "ab", "abc", "bc"])
@pytest.mark.parametrize("listed", ["ab", "abc", "bc"])
def test_a_member_runs_on_while_stable_or_pending_names_its_node(
    stable: str, pending: str, listed: str
) -> None:
    """I3-027, I3-040, I3-049: also where it left stable before, whatever its group lists; nor is it started
    again. In neither it goes as soon as its group has removed it."""
    seen = view(stable, pending, started="abc", listed=listed)
    is_wanted = "a" in stable + pending
    running = decide_member(seen, "a", member(RUNNING)).duty
    assert running is (Duty.NOTHING if is_wanted or "a" in listed else Duty.CLEAN_UP)
    stopped = decide_member(seen, "a", member(STOPPED)).duty
    assert stopped is (Duty.RESTART if is_wanted or "a" in listed else Duty.CLEAN_UP)


@pytest.mark.parametrize("life", [None, MemberLife.DATA_LOST])
def test_lost_data_is_never_started_afresh(life: MemberLife | None) -> None:
    """A member that was started once and whose data is gone has forgotten votes: it stays down."""
    status = member(life) if life else None
    assert decide_member(view("ab", started="ab"), "a", status).duty is Duty.REPORT_DATA_LOST
    assert decide_member(view("ab", started="ab", listed="ab"), "a", status).duty is Duty.REPORT_DATA_LOST
    # Once its group has removed it, a new member may take its place.
    again = decide_member(view("b", "ab", started="ab", listed="b"), "a", status).duty
    assert again is (Duty.REINCARNATE if life else Duty.RESERVE)


def test_the_reason_names_who_is_waited_for() -> None:
    """Every state names its cause."""
    assert decide_member(view("abc", reserved="a"), "a", member(RESERVED)).reason == "WAITING_FOR_MEMBERS: b, c"


def test_the_record_of_a_member_that_left_does_not_hold_up_its_successor() -> None:
    """The node has reserved anew while its mirror still shows the member that the group has removed: a report
    of lost data would stay for good (found by the simulator)."""
    later = MemberStatus(RESERVED, MemberEndpoints("http://a:2", "c"))
    left = view("b", "ab", started="ab", founded="ab", listed="b")
    assert decide_member(left, "a", later).duty is Duty.NOTHING
    assert decide_member(left, "a", later).reason == "WAITING: the group's leader adds this member"
    for still_counted in (view("ab", started="ab", listed="ab"), view("ab", started="ab")):
        assert decide_member(still_counted, "a", later).duty is Duty.REPORT_DATA_LOST


@pytest.mark.row("M1")
@pytest.mark.parametrize(
    ("seen", "received", "duty"),
    [
        (view("b", "ab", started="ab", listed="b"), 1, Duty.REPLACE_JOINER),
        (view("bc", "abc", started="abc", listed="bc"), 9, Duty.REPLACE_JOINER),
        # Its group has it, as whatever, or has published nothing.
        (view("b", "ab", started="ab", listed="ab", learning="a"), 9, Duty.NOTHING),
        (view("b", "ab", started="ab", listed="ab"), 9, Duty.NOTHING),
        (view("b", "ab", started="ab"), 9, Duty.NOTHING),
        # It has answered, or was one of the first members: it may have voted, and the metastore may be old.
        (view("b", "ab", started="ab", listed="b"), 0, Duty.NOTHING),
        (view("ab", started="ab", listed="b"), 9, Duty.NOTHING),
        (view("ab", "b", started="ab", listed="b"), 9, Duty.NOTHING),
        # Nobody wants it here any more.
        (view("b", started="ab", listed="b"), 9, Duty.CLEAN_UP),
    ],
)
def test_a_joiner_that_was_removed_before_it_ever_answered(
    seen: NodePartitionView, received: int, duty: Duty
) -> None:
    """M1: restarted in mid-copy it knows no peer, and would wait for its group for ever."""
    status = MemberStatus(MemberLife.STARTING, MemberEndpoints(url("a"), "c"), received=received)
    assert decide_member(seen, "a", status).duty is duty


GROUP = {"started": "abc", "listed": "abc", "founded": "abc"}


@pytest.mark.row("IEP-051")
@pytest.mark.parametrize(
    ("seen", "life", "generation", "duty"),
    [
        # Pending names a: its copy becomes the group, once.
        (view("abc", "a", forced=9, **GROUP), RUNNING, 0, Duty.FOUND_ALONE),
        (view("abc", "a", forced=9, **GROUP), STOPPED, 0, Duty.FOUND_ALONE),
        (view("abc", "a", forced=9, **GROUP), MemberLife.FAILED, 9, Duty.FOUND_ALONE),
        (view("abc", "a", forced=9, **GROUP), MemberLife.DATA_LOST, 0, Duty.REPORT_DATA_LOST),
        (view("abc", "a", forced=9, **GROUP), RESERVED, 0, Duty.REPORT_DATA_LOST),
        (view("abc", "a", forced=9, **GROUP), None, 0, Duty.REPORT_DATA_LOST),
        (
            view("abc", "a", forced=9, generation=9, started="a", listed="a", founded="a"),
            RUNNING,
            9,
            Duty.NOTHING,
        ),
        (
            view("abc", "a", forced=9, generation=9, started="a", listed="a", founded="a"),
            STOPPED,
            9,
            Duty.RESTART,
        ),
        # Nobody has a copy: a begins with nothing, and only then.
        (view("bc", "a", forced=9, empty=True, **GROUP), None, 0, Duty.RESERVE),
        (view("bc", "a", forced=9, empty=True, **GROUP), RESERVED, 0, Duty.FOUND_EMPTY),
        (view("bc", "a", forced=9, empty=True, **GROUP), STOPPED, 0, Duty.REINCARNATE),
        (view("bc", "a", forced=9, empty=True, generation=9, founded="a"), RESERVED, 0, Duty.BOOTSTRAP),
        # Pending names another node: a may not run, in stable or not, and keeps its data for now.
        (view("abc", "b", forced=9, **GROUP), RUNNING, 0, Duty.FENCE),
        (view("abc", "b", forced=9, **GROUP), STOPPED, 0, Duty.FENCE),
        (view("bc", "b", forced=9, **GROUP), RUNNING, 0, Duty.FENCE),
        (view("abc", "b", forced=9, **GROUP), RESERVED, 0, Duty.NOTHING),
        (view("abc", "b", forced=9, **GROUP), None, 0, Duty.NOTHING),
        # The group was founded anew without a: its data goes, whether it is wanted again or not.
        (view("b", "ab", generation=9, started="ab", listed="b", founded="b"), RUNNING, 0, Duty.REINCARNATE),
        (view("b", "ab", generation=9, started="ab", listed="b", founded="b"), STOPPED, 0, Duty.REINCARNATE),
        (view("b", generation=9, started="ab", listed="b", founded="b"), RUNNING, 0, Duty.CLEAN_UP),
        (view("ab", generation=9, started="ab", listed="ab", founded="b"), STOPPED, 9, Duty.RESTART),
        (view("b", "ab", generation=9, reserved="a", listed="ab", founded="b"), RESERVED, 0, Duty.JOIN),
    ],
)
def test_recovery(seen: NodePartitionView, life: MemberLife | None, generation: int, duty: Duty) -> None:
    """S194, IEP-051: a node of a stable set is no member while pending is forced to another, and members of an
    earlier generation never run again."""
    status = member(life, generation) if life else None
    assert decide_member(seen, "a", status).duty is duty


ON_A = view("bc+a", "a", forced=9, started="bc", listed="bc", founded="bc")


@pytest.mark.row("IEP-059")
@pytest.mark.parametrize(
    ("seen", "life", "generation", "duty"),
    [
        (ON_A, None, 0, Duty.RESERVE),
        (ON_A, RESERVED, 0, Duty.FOUND_FROM_MIRROR),
        # The data got its name before the node died: it is the member's now.
        (ON_A, STOPPED, 9, Duty.FOUND_ALONE),
        (ON_A, RUNNING, 9, Duty.FOUND_ALONE),
        # A voter on its way to learn has both, and its own log.
        (ON_A, RUNNING, 0, Duty.FOUND_ALONE),
        # What is left of an earlier member is in the way.
        (ON_A, MemberLife.REMOVED, 0, Duty.REINCARNATE),
        (ON_A, MemberLife.DATA_LOST, 0, Duty.REINCARNATE),
        (
            view("bc+a", "a", forced=9, generation=7, started="bc", listed="bc", founded="bc"),
            *(STOPPED, 5, Duty.REINCARNATE),
        ),
        # Nobody chose it, or the group begins empty.
        (view("bc+a", "b", forced=9, started="bc", founded="bc"), None, 0, Duty.NOTHING),
        (view("bc+a", "a", forced=9, empty=True, founded="bc"), RESERVED, 0, Duty.FOUND_EMPTY),
        (view("bc+a", "a", forced=9, generation=9, founded="a", listed="a"), RUNNING, 9, Duty.NOTHING),
    ],
)
def test_recovery_on_a_mirror(
    seen: NodePartitionView, life: MemberLife | None, generation: int, duty: Duty
) -> None:
    """IEP-059: the node that recovery has chosen holds a learner's copy."""
    status = member(life, generation) if life else None
    assert decide_member(seen, "a", status, has_mirror=True).duty is duty
