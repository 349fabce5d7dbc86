"""Duties of the agent beside a leader, from values alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.change_lock import PendingLock
from rebalance.core.assignments.guarded_write import Observed
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import MemberRecord, MemberRole, MemberState
from rebalance.core.keyspace.txn import KeyValue
from rebalance.nodes.leader_decision import (
    ChangePeers,
    DesiredPeers,
    LeaderDuty,
    SwitchStable,
    Unlock,
    decide_on_change,
    desired_peers,
    round_duties,
)
from rebalance.nodes.partition_view import NodePartitionView, Recorded
from rebalance.ports.groups import GroupMember, MemberEndpoints, MemberLife, MemberStatus

P0 = PartitionId(ZoneId(1), 0)
KEYS = Keyspace().partition(P0)
TERM, PENDING_REVISION, NOW = 4, 7, 12
LEADING = MemberStatus(
    MemberLife.RUNNING, MemberEndpoints("http://a", "c"), is_leader=True, leader="a", term=TERM
)
LOCK = PendingLock(PENDING_REVISION, "8e", TERM)


def view(stable: str, pending: str = "", living: str = "abcd") -> NodePartitionView:
    def recorded(nodes: str, revision: int) -> Recorded[Assignments] | None:
        return Recorded(Assignments(tuple(nodes)), revision, revision) if nodes else None

    records = {name: Recorded(MemberRecord(MemberState.READY, f"http://{name}", "c"), 1, 1) for name in "abcd"}
    return NodePartitionView(
        *(P0, KEYS, recorded(stable, 3), recorded(pending, PENDING_REVISION), None, None),
        *(records, frozenset(living)),
    )


def voters(nodes: str) -> tuple[GroupMember, ...]:
    return tuple(GroupMember(name, name, MemberRole.VOTER, f"http://{name}") for name in nodes)


def stored(key: str, value: bytes, revision: int) -> KeyValue:
    return KeyValue(key, value, revision, revision, 1)


def observed(stable: str, pending: str = "", *, lock: PendingLock | None = None) -> Observed:
    return Observed(
        KEYS,
        stored(KEYS.stable, Assignments(tuple(stable)).encode(), 3) if stable else None,
        stored(KEYS.pending, Assignments(tuple(pending)).encode(), PENDING_REVISION) if pending else None,
        None,
        lock=stored(KEYS.lock, lock.encode(), 9) if lock else None,
    )


def duties(
    shown: NodePartitionView,
    listed: str,
    *,
    lock: PendingLock | None = None,
    is_planned: bool = False,
    must_read: bool = False,
    running: DesiredPeers | None = None,
) -> list[LeaderDuty]:
    status = replace(LEADING, changing=running is not None)
    return list(
        round_duties(
            *(shown, status, voters(listed)),
            lock=lock,
            is_planned=is_planned,
            must_read=must_read,
            running=running,
        )
    )


def test_a_group_that_is_what_stable_says_rests() -> None:
    """Unless pending has to be read first, whatever the mirror shows (I3-041)."""
    assert duties(view("ab"), "ab") == [LeaderDuty.REST]
    assert LeaderDuty.CHANGE in duties(view("ab"), "ab", must_read=True)
    assert LeaderDuty.CHANGE in duties(view("ab"), "abc")
    assert LeaderDuty.CHANGE in duties(view("ab", "abc"), "ab")


@pytest.mark.parametrize(("term", "unlocks"), [(TERM - 1, True), (TERM, False)])
def test_a_change_that_runs_sees_to_its_own_lock(term: int, unlocks: bool) -> None:
    """M5: what a deposed leader has left goes; the change for what is shown now is not asked for again."""
    shown = view("ab", "abc")
    round_now = duties(shown, "ab", lock=replace(LOCK, term=term), running=desired_peers(shown))
    assert round_now == [LeaderDuty.GIVE_UP_JOINERS, *([LeaderDuty.UNLOCK] if unlocks else [])]
    assert LeaderDuty.UNLOCK in duties(shown, "ab", lock=replace(LOCK, term=term))


def test_gone_joiners_come_first_and_the_change_last() -> None:
    """Each of the first three may put another target in pending's place."""
    assert duties(view("ab", "abc"), "ab", lock=LOCK, is_planned=True) == list(LeaderDuty)[1:]


def decided(
    stable: str,
    pending: str,
    listed: str,
    *,
    lock: PendingLock | None = None,
    running: DesiredPeers | None = None,
    living: str = "abcd",
) -> list[SwitchStable | Unlock | ChangePeers]:
    shown = view(stable, pending, living)
    keys = observed(stable, pending, lock=lock)
    return list(
        decide_on_change(shown, keys, NOW, voters(listed), changing=running is not None, running=running)
    )


def test_stable_is_switched_once_the_group_is_what_pending_says() -> None:
    """I3-035: not while a change runs, which may be for another target."""
    target = Assignments(("a", "b"))
    assert decided("a", "ab", "ab") == [SwitchStable(target, PENDING_REVISION)]
    other = DesiredPeers(Assignments(("a", "c")), 5, {})
    assert isinstance(decided("a", "ab", "ab", running=other)[0], ChangePeers)
    assert decided("ab", "", "ab") == []


def test_a_lock_that_was_left_goes_before_the_group_is_asked() -> None:
    """M7: what was planned under it may be wanted instead."""
    unlock, change = decided("a", "ab", "a", lock=LOCK)
    assert unlock == Unlock()
    assert isinstance(change, ChangePeers)
    assert (change.token, change.stable_urls, change.obstacle) == (PENDING_REVISION, ("http://a",), "")


def test_a_change_that_has_switched_stable_is_left_to_end() -> None:
    """Pending is gone before the change is. Where the group is not what stable says, or the change is for
    another target or URL, stable is asked for."""
    running = DesiredPeers(Assignments(("a", "b")), PENDING_REVISION, {"a": "http://a", "b": "http://b"})
    assert decided("ab", "", "ab", running=running) == []
    for other in (
        replace(running, target=Assignments(("a", "c"))),
        replace(running, urls={"a": "http://a", "b": "http://old"}),
    ):
        (change,) = decided("ab", "", "ab", running=other)
        assert isinstance(change, ChangePeers)
    (change,) = decided("ab", "", "a", running=running)
    assert isinstance(change, ChangePeers)


def test_the_same_peers_are_not_asked_for_twice() -> None:
    running = DesiredPeers(Assignments(("a", "b")), PENDING_REVISION, {"a": "http://a", "b": "http://b"})
    assert decided("a", "ab", "a", running=running) == []
    assert decided("a", "ab", "a", running=replace(running, revision=5)) != []


def test_a_change_back_to_stable_has_the_revision_of_the_reading_as_its_token() -> None:
    """M8: there is no pending to name one."""
    (change,) = decided("ab", "", "abc")
    assert isinstance(change, ChangePeers)
    assert (change.peers.revision, change.token) == (0, NOW)


def test_nothing_is_asked_for_before_every_new_member_is_reserved_on_a_living_node() -> None:
    """I3-028."""
    (change,) = decided("a", "ab", "a", living="a")
    assert isinstance(change, ChangePeers)
    assert change.obstacle == "NODE_DOWN: b"


def test_a_dropped_partition_is_left_alone() -> None:
    assert decided("", "", "a") == []
