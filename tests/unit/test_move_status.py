"""Every state of a partition names its cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.records import (
    ConfigurationRecord,
    ConfiguredMember,
    LogPosition,
    MemberRecord,
    MemberRole,
    MemberState,
    MirrorRecord,
    Stage,
)
from rebalance.core.moves.move_status import MoveState, PartitionView, StoreOwners, partition_status

ONE, THREE = Assignments(("n1",)), Assignments(("n1", "n2", "n3"))
ALIVE = frozenset(("n1", "n2", "n3"))


def member(state: MemberState = MemberState.RUNNING, reason: str = "") -> MemberRecord:
    return MemberRecord(state, "http://x:1", "http://x:2", reason=reason)


def configuration(nodes: Assignments, stage: Stage = Stage.NONE, reason: str = "") -> ConfigurationRecord:
    members = {node: ConfiguredMember("1", MemberRole.VOTER, "http://x:1") for node in nodes.peers}
    return ConfigurationRecord(1, "n1", stage, members, reason)


DONE = PartitionView(THREE, THREE, None, None, True, dict.fromkeys(ALIVE, member()), configuration(THREE))
LEARNS = Assignments(("n1", "n2"), ("n3",))


def learner(state: MemberState, reason: str = "") -> MemberRecord:
    return MemberRecord.of_mirror(MirrorRecord(state, "http://x:3", reason=reason))


def learning(third: MemberRecord | None) -> PartitionView:
    """n3 is a learner and has ``third``."""
    members = {"n1": member(), "n2": member(), **({"n3": third} if third else {})}
    return PartitionView(LEARNS, LEARNS, None, None, True, members, configuration(LEARNS))


BOTH = replace(member(), mirror=MirrorRecord(MemberState.RUNNING))
PROMOTED = replace(learning(learner(MemberState.RUNNING)), pending=THREE)
MOVE = replace(DONE, stable=ONE, pending=THREE, configuration=configuration(ONE))


STORED = PartitionView(
    ONE, ONE, None, None, True, owners=StoreOwners(in_sync=("n1",), effective=("n1",), servers=ALIVE)
)
FORCED = Assignments(("n1",), forced=7)
TWO = Assignments(("n1", "n2"))


def at_rest(*nodes: str) -> PartitionView:
    peers = Assignments(nodes)
    return PartitionView(peers, peers, None, None, True, dict.fromkeys(nodes, member()), configuration(peers))


def growing() -> PartitionView:
    """Move from n1 to n1 and n2, which copies as far as is known; n1 has had no leader for a while."""
    leaderless = replace(member(), position=LogPosition(5, 6, True))
    found = configuration(ONE, Stage.CATCHING_UP)
    learner = ConfiguredMember("2", MemberRole.LEARNER, "http://x:1")
    found = replace(found, members={**found.members, "n2": learner})
    members = {"n1": leaderless, "n2": member()}
    return PartitionView(TWO, ONE, TWO, None, True, members, found)


GROWN = growing()


def led_by(view: PartitionView, node: str) -> PartitionView:
    return replace(view, members={**view.members, node: member()})


def starting(view: PartitionView, node: str) -> PartitionView:
    """The same view while the node's member starts: as it does not answer yet, it has no leader to tell of."""
    held = replace(view.members[node], state=MemberState.STARTING)
    return replace(view, members={**view.members, node: held})


@pytest.mark.row("I3-008", "I3-034")
@pytest.mark.parametrize(
    ("view", "alive", "state", "cause"),
    [
        (DONE, ALIVE, MoveState.DONE, ""),
        (replace(DONE, target=None), ALIVE, MoveState.WAITING, "PLACEMENT_NOT_COMPUTED"),
        (replace(DONE, processed=False), ALIVE, MoveState.WAITING, "TARGET_NOT_WRITTEN"),
        (
            replace(MOVE, configuration=configuration(Assignments(("n1", "n2")))),
            frozenset(("n1", "n3")),
            MoveState.WAITING,
            "NO_MAJORITY: n2",
        ),
        (
            replace(MOVE, configuration=configuration(THREE)),
            frozenset(("n1", "n3")),
            MoveState.WAITING,
            "NODE_DOWN: n2",
        ),
        # A group of two that has lost one, at rest; a group of one has no majority to lose.
        (at_rest("n1", "n2"), frozenset(("n1",)), MoveState.WAITING, "NO_MAJORITY: n2"),
        (at_rest("n1"), frozenset(("n2",)), MoveState.WAITING, "NODE_DOWN: n1"),
        (replace(DONE, pending=FORCED), frozenset(("n1",)), MoveState.WAITING, "NODE_DOWN: n2, n3"),
        # Promoted, and nobody could say so: the old voter answers and has no leader.
        (GROWN, frozenset(("n1",)), MoveState.WAITING, "NO_MAJORITY: n2"),
        (led_by(GROWN, "n1"), frozenset(("n1",)), MoveState.WAITING, "NODE_DOWN: n2"),
        (starting(GROWN, "n1"), frozenset(("n1",)), MoveState.WAITING, "NODE_DOWN: n2"),
        (replace(GROWN, pending=ONE), frozenset(("n1",)), MoveState.WAITING, "NO_MAJORITY: n2"),
        (GROWN, frozenset(("n1", "n2")), MoveState.MOVING, "CATCHING_UP"),
        (replace(DONE, stable=ONE, given_up=("n3",)), ALIVE, MoveState.WAITING, "JOINER_GONE: n3"),
        (replace(DONE, given_up=("n3",)), ALIVE, MoveState.DONE, ""),
        # What a reset or a cancel has left short of the placement is not done; the same number elsewhere is.
        (replace(at_rest("n1"), target=THREE, recovered=True), ALIVE, MoveState.WAITING,
         "REPLICAS_MISSING: 1 of 3 replicas, awaits n2, n3"),
        (replace(at_rest("n1"), target=THREE, recovered=True), frozenset(("n1",)), MoveState.WAITING,
         "REPLICAS_MISSING: 1 of 3 replicas, awaits n2, n3"),
        (replace(at_rest("n1", "n2", "n4"), target=THREE, recovered=True), ALIVE | {"n4"}, MoveState.DONE, ""),
        (replace(learning(learner(MemberState.RUNNING)), target=THREE, recovered=True), ALIVE,
         MoveState.WAITING, "REPLICAS_MISSING: 2 of 3 voters, awaits n3"),
        # HIGH_AVAILABILITY: the target leaves out who has left, the zone asks for it all the same.
        (replace(at_rest("n1", "n2"), placement=THREE), ALIVE, MoveState.WAITING,
         "REPLICAS_MISSING: 2 of 3 replicas, awaits n3"),
        # Fewer nodes match than the zone's QUORUM SIZE asks for.
        (replace(at_rest("n1", "n2"), quorum=3), ALIVE, MoveState.WAITING,
         "QUORUM_EXCEEDS_DATA_NODES: QUORUM SIZE 3, and 2 data nodes match"),
        (STORED, ALIVE, MoveState.DONE, ""),
        (replace(STORED, target=THREE, recovered=True), ALIVE, MoveState.WAITING,
         "REPLICAS_MISSING: 1 of 3 replicas, awaits n2, n3"),
        (
            replace(DONE, stable=ONE, processed=False, given_up=("n3",)),
            ALIVE,
            MoveState.WAITING,
            "TARGET_NOT_WRITTEN",
        ),
        (replace(DONE, stable=None), ALIVE, MoveState.WAITING, "TARGET_NOT_WRITTEN"),
        (
            replace(MOVE, configuration=configuration(ONE, Stage.CATCHING_UP, "COPY_FAILED: 3 attempts: X")),
            ALIVE,
            MoveState.WAITING,
            "COPY_FAILED: 3 attempts: X",
        ),
        (
            replace(MOVE, configuration=configuration(ONE, Stage.CATCHING_UP, "COPY_STALLED: n2")),
            ALIVE,
            MoveState.WAITING,
            "COPY_STALLED: n2",
        ),
        (replace(DONE, target=ONE), ALIVE, MoveState.WAITING, "TARGET_NOT_WRITTEN"),
        (DONE, ALIVE - {"n3"}, MoveState.WAITING, "NODE_DOWN: n3"),
        (replace(DONE, members={}), ALIVE, MoveState.WAITING, "MEMBER_STARTING: n1, n2, n3"),
        (replace(DONE, configuration=None), ALIVE, MoveState.WAITING, "LEADER_UNKNOWN"),
        (replace(DONE, target=ONE, stable=ONE, configuration=configuration(ONE)), ALIVE, MoveState.MOVING,
         "CLEAN_UP: n2, n3"),
        (replace(DONE, target=ONE, stable=ONE, configuration=configuration(ONE)), frozenset(("n1",)),
         MoveState.DONE, ""),
        (MOVE, ALIVE, MoveState.WAITING, "LEADER_HAS_NOT_BEGUN"),
        (replace(MOVE, configuration=None), ALIVE, MoveState.WAITING, "LEADER_UNKNOWN"),
        (replace(MOVE, configuration=configuration(ONE, reason="BUSY")), ALIVE, MoveState.WAITING, "BUSY"),
        (replace(MOVE, configuration=configuration(ONE, Stage.JOINT)), ALIVE, MoveState.MOVING, "JOINT"),
        (replace(MOVE, configuration=configuration(ONE, Stage.CATCHING_UP, "n2")), ALIVE, MoveState.MOVING,
         "CATCHING_UP: n2"),
        (replace(MOVE, members={"n1": member()}), ALIVE, MoveState.WAITING, "MEMBER_NOT_RESERVED: n2, n3"),
        (replace(MOVE, configuration=configuration(ONE, Stage.CATCHING_UP)), ALIVE - {"n2"}, MoveState.WAITING,
         "NODE_DOWN: n2"),
        (replace(MOVE, stable=THREE, pending=ONE), frozenset(("n1",)), MoveState.WAITING, "NODE_DOWN: n2, n3"),
        (replace(MOVE, members={"n2": member(MemberState.FAILED, "disk full")}), ALIVE, MoveState.WAITING,
         "MEMBER_FAILED: n2 (disk full)"),
        (replace(DONE, members={**DONE.members, "n1": member(MemberState.FAILED)}), ALIVE, MoveState.WAITING,
         "MEMBER_FAILED: n1"),
        (replace(DONE, members={**DONE.members, "n1": member(MemberState.FAILED, "COPY_DAMAGED: crc; why")}),
         ALIVE, MoveState.WAITING, "COPY_DAMAGED: n1 (COPY_DAMAGED: crc; why)"),
        (learning(learner(MemberState.RUNNING)), ALIVE, MoveState.DONE, ""),
        (learning(None), ALIVE, MoveState.WAITING, "LEARNER_STARTING: n3"),
        (learning(learner(MemberState.READY, "WAITING: why")), ALIVE, MoveState.WAITING,
         "LEARNER_STARTING: n3 (WAITING: why)"),
        (learning(learner(MemberState.FAILED, "disk full")), ALIVE, MoveState.WAITING,
         "LEARNER_FAILED: n3 (disk full)"),
        (learning(learner(MemberState.RUNNING)), ALIVE - {"n3"}, MoveState.WAITING, "NODE_DOWN: n3"),
        # Demoted, and its member is not wiped yet; promoted, and its mirror is still there.
        (learning(BOTH), ALIVE, MoveState.MOVING, "CLEAN_UP: n3"),
        (replace(DONE, members={**DONE.members, "n3": BOTH}), ALIVE, MoveState.MOVING, "CLEAN_UP: n3"),
        # A move waits for the members of new voters, not for learners.
        (PROMOTED, ALIVE, MoveState.WAITING, "MEMBER_NOT_RESERVED: n3"),
        (replace(DONE, pending=LEARNS, configuration=configuration(THREE)), ALIVE, MoveState.WAITING,
         "LEADER_HAS_NOT_BEGUN"),
        (replace(MOVE, pending=Assignments(("n1",), ("n3",))), ALIVE - {"n3"}, MoveState.WAITING,
         "LEADER_HAS_NOT_BEGUN"),
    ],
)  # fmt: skip
def test_state_and_cause(view: PartitionView, alive: frozenset[str], state: MoveState, cause: str) -> None:
    """I3-008, I3-034: what is pending says why; a node that is down is named as the cause of what waits."""
    status = partition_status(view, alive)
    assert (status.state, status.cause) == (state, cause)


@pytest.mark.parametrize(
    ("view", "alive", "leader"),
    [
        (DONE, ALIVE, "n1"),
        (DONE, ALIVE - {"n1"}, ""),
        # Its lease lives; its member does not run, or has lost its majority.
        (starting(DONE, "n1"), ALIVE, ""),
        (replace(DONE, members={}), ALIVE, ""),
        (replace(DONE, members={"n1": replace(member(), position=LogPosition(5, 6, True))}), ALIVE, ""),
        (replace(DONE, configuration=None), ALIVE, ""),
        (STORED, ALIVE, "n1"),
        (STORED, ALIVE - {"n1"}, ""),
        (replace(STORED, owners=StoreOwners(effective=("n1",))), ALIVE, ""),
    ],
)
def test_a_leader_lives_and_runs(view: PartitionView, alive: frozenset[str], leader: str) -> None:
    assert view.leader(alive) == leader
