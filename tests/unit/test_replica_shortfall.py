"""Replicas of a partition that are missing, and those that have failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rebalance.core.assignments.assignment import Assignments
from rebalance.core.keyspace.records import MemberRecord, MemberState, MirrorRecord
from rebalance.core.moves.move_status import PartitionView, StoreOwners, shortfall_of

ONE, TWO, THREE = Assignments(("n1",)), Assignments(("n1", "n2")), Assignments(("n1", "n2", "n3"))
LEARNS = Assignments(("n1", "n2"), ("n3",))
ALIVE = frozenset(("n1", "n2", "n3"))
RUNS = MemberRecord(MemberState.RUNNING, "http://x:1", "http://x:2")
FAILED = MemberRecord(MemberState.FAILED, "http://x:1", "http://x:2", reason="EXIT 2")
WHOLE = PartitionView(THREE, THREE, None, None, True, dict.fromkeys(ALIVE, RUNS))
RESET = replace(WHOLE, stable=ONE, recovered=True)
SERVED = StoreOwners(in_sync=("n1",), effective=("n1",), servers=ALIVE)


@pytest.mark.parametrize(
    ("view", "detail", "broken"),
    [
        (WHOLE, "", ()),
        (RESET, "1 of 3 replicas, awaits n2, n3", ()),
        (replace(RESET, stable=Assignments(("n4", "n1"))), "2 of 3 replicas, awaits n2, n3", ()),
        (replace(RESET, stable=Assignments(("n1", "n4", "n5"))), "", ()),
        (replace(RESET, stable=LEARNS), "2 of 3 voters, awaits n3", ()),
        # What is on its way is not missing; what a move leaves out is.
        (replace(RESET, pending=THREE), "", ()),
        (replace(RESET, pending=TWO), "2 of 3 replicas, awaits n3", ()),
        (replace(RESET, pending=replace(ONE, forced=7), planned=THREE), "", ()),
        (replace(RESET, pending=replace(ONE, forced=7)), "1 of 3 replicas, awaits n2, n3", ()),
        # Given up, or left out by a zone that places around nodes that have left.
        (replace(RESET, recovered=False, given_up=("n2", "n3")), "1 of 3 replicas, awaits n2, n3", ()),
        (replace(WHOLE, stable=TWO, target=TWO, placement=THREE), "2 of 3 replicas, awaits n3", ()),
        # Nothing can be said yet.
        (replace(RESET, target=None), "", ()),
        (replace(RESET, stable=None), "", ()),
        (replace(RESET, processed=False), "", ()),
        (replace(RESET, unreadable="RECORD_NOT_READABLE: x"), "", ()),
        (replace(WHOLE, members={"n1": RUNS, "n2": FAILED, "n3": FAILED, "n4": FAILED}), "", ("n2", "n3")),
        (
            replace(WHOLE, members={"n3": MemberRecord.of_mirror(MirrorRecord(MemberState.FAILED))}),
            "",
            ("n3",),
        ),
        (replace(WHOLE, members={}, owners=SERVED), "", ()),
        (replace(WHOLE, members={}, owners=replace(SERVED, servers=ALIVE - {"n2"})), "", ("n2",)),
        (replace(WHOLE, members={}, owners=StoreOwners(is_lost=True)), "", ()),
        (replace(WHOLE, members={}, owners=StoreOwners(is_resting=True)), "", ()),
    ],
)
def test_what_is_missing_and_what_is_broken(view: PartitionView, detail: str, broken: tuple[str, ...]) -> None:
    missing = shortfall_of(view, ALIVE)
    assert (missing.detail, missing.broken) == (detail, broken)
    assert missing.is_short is bool(detail)


@pytest.mark.parametrize(
    ("asked", "stable", "quorum", "cause"),
    [
        (TWO, TWO, 3, "QUORUM_EXCEEDS_DATA_NODES: QUORUM SIZE 3, and 2 data nodes match"),
        (ONE, ONE, 2, "QUORUM_EXCEEDS_DATA_NODES: QUORUM SIZE 2, and 1 data node matches"),
        (
            TWO,
            ONE,
            3,
            "QUORUM_EXCEEDS_DATA_NODES: QUORUM SIZE 3, and 2 data nodes match; 1 of 2 replicas, awaits n2",
        ),
        (THREE, ONE, 3, "REPLICAS_MISSING: 1 of 3 replicas, awaits n2, n3"),
        (THREE, THREE, 3, ""),
        (ONE, ONE, 0, ""),
    ],
)
def test_fewer_nodes_than_the_explicit_quorum(
    asked: Assignments, stable: Assignments, quorum: int, cause: str
) -> None:
    """Nodes have left, or match no more: the placement asks for no more than there are."""
    short = shortfall_of(replace(WHOLE, target=asked, stable=stable, quorum=quorum, recovered=True), ALIVE)
    assert short.cause == cause
    assert short.is_short is bool(cause)


def test_a_replica_of_a_node_that_is_gone_is_not_broken() -> None:
    """The node is down, and the state of its replica is unknown."""
    view = replace(WHOLE, members={**WHOLE.members, "n2": FAILED})
    assert shortfall_of(view, ALIVE - {"n2"}).broken == ()
