"""States of replicas and partitions: voters against the committed quorum, replicas that should be there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    MemberRecord,
    MemberRole,
    MemberState,
    MirrorRecord,
    Stage,
)
from rebalance.core.moves.move_status import PartitionView, StoreOwners
from rebalance.core.moves.partition_state import GlobalState, LocalState, global_state, is_learner, local_state


def view(
    peers: str, learners: str = "", committed: str | None = None, states: dict[str, MemberState] | None = None
) -> PartitionView:
    """Nodes are letters; ``committed`` are the voters of the committed configuration."""
    states = states or {}
    nodes = peers + learners
    voters = peers if committed is None else committed
    configured = {node: ConfiguredMember("1", MemberRole.VOTER, "u") for node in sorted(voters)}
    mirrors = {node: MirrorRecord(states.get(node, MemberState.RUNNING)) for node in learners}
    return PartitionView(
        target=None,
        stable=Assignments(tuple(peers), tuple(learners)),
        pending=None,
        planned=None,
        processed=True,
        members={
            node: MemberRecord(states.get(node, MemberState.RUNNING), "p", "c")
            for node in sorted({*nodes, *voters})
        }
        | {node: MemberRecord.of_mirror(mirror) for node, mirror in mirrors.items()},
        configuration=ConfigurationRecord(1, voters[0], Stage.NONE, configured) if voters else None,
    )


@pytest.mark.parametrize(
    ("peers", "learners", "alive", "expected"),
    [
        ("abc", "", "abc", GlobalState.AVAILABLE),
        ("abc", "", "ab", GlobalState.DEGRADED),
        ("abc", "", "a", GlobalState.READ_ONLY),
        ("abc", "", "", GlobalState.UNAVAILABLE),
        # Learners are replicas that should be there, but no votes: three alive of five are no quorum here.
        ("abc", "de", "abcde", GlobalState.AVAILABLE),
        ("abc", "de", "abcd", GlobalState.DEGRADED),
        ("abc", "de", "ade", GlobalState.READ_ONLY),
        ("abc", "de", "de", GlobalState.READ_ONLY),
        ("a", "", "a", GlobalState.AVAILABLE),
    ],
)
def test_voters_alone_make_a_quorum(peers: str, learners: str, alive: str, expected: GlobalState) -> None:
    """S239, S240: learners are replicas that should be there, but never votes: healthy ones make a partition
    readable, not writable."""
    assert global_state(view(peers, learners), frozenset(alive)) is expected


def test_the_quorum_is_that_of_the_committed_configuration() -> None:
    """Stable says abc, the group has committed abcde: two alive are no quorum of five."""
    seen = view("abc", committed="abcde")
    assert global_state(seen, frozenset("ab")) is GlobalState.READ_ONLY
    assert global_state(seen, frozenset("abd")) is GlobalState.DEGRADED
    assert global_state(seen, frozenset("abc")) is GlobalState.AVAILABLE


def test_what_is_short_is_degraded() -> None:
    """However healthy its replicas are; what is being made is not missing."""
    asked = Assignments(("a", "b", "c"))
    short = replace(view("ab"), target=asked, recovered=True)
    assert global_state(short, frozenset("abc")) is GlobalState.DEGRADED
    assert global_state(replace(short, pending=asked), frozenset("abc")) is GlobalState.AVAILABLE
    owners = StoreOwners(in_sync=("a",), effective=("a",), servers=frozenset("abc"))
    stored = replace(short, stable=Assignments(("a",)), owners=owners)
    assert global_state(stored, frozenset("abc")) is GlobalState.DEGRADED
    assert global_state(replace(stored, target=stored.stable), frozenset("abc")) is GlobalState.AVAILABLE


def test_before_a_group_exists() -> None:
    """S213: a partition of which nothing was reported is UNAVAILABLE."""
    seen = view("abc", states=dict.fromkeys("abc", MemberState.READY), committed="")
    assert global_state(seen, frozenset("abc")) is GlobalState.UNAVAILABLE
    nothing = PartitionView(None, None, None, None, False)
    assert global_state(nothing, frozenset("abc")) is GlobalState.UNAVAILABLE


@pytest.mark.parametrize(
    ("state", "alive", "expected"),
    [
        (MemberState.RUNNING, "a", LocalState.HEALTHY),
        (MemberState.STARTING, "a", LocalState.INITIALIZING),
        (MemberState.READY, "a", LocalState.INITIALIZING),
        (MemberState.FAILED, "a", LocalState.BROKEN),
        (MemberState.RUNNING, "b", LocalState.UNAVAILABLE),
    ],
)
def test_local_states(state: MemberState, alive: str, expected: LocalState) -> None:
    """S212."""
    assert local_state(view("a", states={"a": state}), "a", frozenset(alive)) is expected


def test_a_learner_that_shall_vote_is_catching_up() -> None:
    configured = {
        "a": ConfiguredMember("1", MemberRole.VOTER, "u"),
        "b": ConfiguredMember("2", MemberRole.LEARNER, "u"),
    }
    running = {node: MemberRecord(MemberState.RUNNING, "p", "c") for node in "abc"}
    seen = PartitionView(
        target=Assignments(("a", "b")),
        stable=Assignments(("a",)),
        pending=Assignments(("a", "b")),
        planned=None,
        processed=True,
        members=running,
        configuration=ConfigurationRecord(1, "a", Stage.CATCHING_UP, configured),
    )
    alive = frozenset("abc")
    assert local_state(seen, "b", alive) is LocalState.CATCHING_UP
    assert local_state(seen, "c", alive) is LocalState.INITIALIZING
    assert global_state(seen, alive) is GlobalState.AVAILABLE


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (MemberState.RUNNING, LocalState.HEALTHY),
        (MemberState.STARTING, LocalState.INSTALLING_SNAPSHOT),
        (MemberState.READY, LocalState.INITIALIZING),
        (MemberState.FAILED, LocalState.BROKEN),
    ],
)
def test_a_standing_learner_is_its_mirror(state: MemberState, expected: LocalState) -> None:
    """A partition is available once each replica that should be there has its copy, learners too."""
    seen = view("abc", "d", states={"d": state})
    alive = frozenset("abcd")
    assert local_state(seen, "d", alive) is expected
    wanted = GlobalState.AVAILABLE if expected is LocalState.HEALTHY else GlobalState.DEGRADED
    assert global_state(seen, alive) is wanted


@pytest.mark.row("IEP-043")
def test_what_counts_while_a_role_changes() -> None:
    """IEP-043: the voter's member while the group counts it, the learner's mirror otherwise."""
    both = MemberRecord(MemberState.STARTING, "p", "c", mirror=MirrorRecord(MemberState.RUNNING, "m", 9))
    promoted = replace(view("a", "b"), pending=Assignments(("a", "b")))
    promoted = replace(promoted, members={**promoted.members, "b": both})
    alive = frozenset("ab")
    assert is_learner(promoted, "b")
    assert local_state(promoted, "b", alive) is LocalState.HEALTHY
    demoted = replace(view("ab"), pending=Assignments(("a",), ("b",)))
    demoted = replace(demoted, members={**demoted.members, "b": both})
    assert not is_learner(demoted, "b"), "its group still counts it"
    assert local_state(demoted, "b", alive) is LocalState.INITIALIZING
