"""Partitions that two placements place differently, against the plain comparison of sets; and the parts of an
earlier placement can come back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.zone import Zone, ZoneId, ZoneIntent
from rebalance.controllers.event import restored, why_not_restorable
from rebalance.controllers.targets import PlacedRows, moved_copies
from rebalance.core.assignments.assignment import Assignments
from rebalance.core.assignments.target import StoredTarget, TargetPointer
from rebalance.core.topology.data_nodes import DataNodes

NAMES = ("a", "b", "c", "d")
ROWS = 3
SIZES = np.zeros(ROWS, dtype=np.int64)


@st.composite
def placements(draw: st.DrawFn) -> tuple[tuple[str, ...], np.ndarray, int]:
    nodes = tuple(draw(st.permutations(NAMES)))
    replicas = draw(st.integers(1, 3))
    rows = [draw(st.permutations(range(len(nodes))))[:replicas] for _ in range(ROWS)]
    return nodes, np.array(rows, dtype=np.int32), draw(st.integers(1, replicas))


def roles(placement: tuple[tuple[str, ...], np.ndarray, int], row: int) -> tuple[set[str], set[str]]:
    nodes, matrix, voters = placement
    names = [nodes[index] for index in matrix[row]]
    return set(names[:voters]), set(names[voters:])


@given(placements(), placements(), placements(), st.sets(st.integers(0, ROWS - 1)))
def test_a_partition_moves_when_its_voters_or_learners_change(before, after, elsewhere, standing) -> None:
    """A partition moves from where it stands, or from the placement before."""
    stands = {row: roles(elsewhere, row) for row in standing}
    was = [stands.get(row, roles(before, row)) for row in range(ROWS)]
    becomes = [roles(after, row) for row in range(ROWS)]
    held = tuple(
        (row, Assignments(tuple(sorted(voters)), tuple(sorted(learners))))
        for row, (voters, learners) in sorted(stands.items())
    )
    names, moved = moved_copies(PlacedRows(*before), PlacedRows(*after), held, SIZES)
    rows = moved.partition.tolist()
    assert rows == sorted(rows)
    assert set(rows) == {row for row in range(ROWS) if was[row] != becomes[row]}
    for row in range(ROWS):
        gained = {
            names[to] for at, to in zip(rows, moved.stealer.tolist(), strict=True) if at == row and to >= 0
        }
        (voters, learners), (votes, learns) = was[row], becomes[row]
        assert gained == (votes | learns) - (voters & votes) - (learners & learns)


def test_other_numbers_of_partitions_cannot_be_compared() -> None:
    one, two = (PlacedRows(("a",), np.zeros((count, 1), dtype=np.int32), 1) for count in (1, 2))
    with pytest.raises(ValueError, match="1 partitions before and 2 after"):
        moved_copies(one, two, (), SIZES)


ZONE = Zone(ZoneId(1), "Z", 2, 2, None, ("default",))
MATRIX = np.array([[0, 1], [1, 0]], dtype="<i4")
STORED = StoredTarget(TargetPointer(20, 1, 1, 2, 2, 2, ("a", "b"), "local", "rendezvous"), (MATRIX.tobytes(),))


@pytest.mark.row("VOL-093", "VOL-094")
@pytest.mark.parametrize(
    ("nodes", "replicas", "why"),
    [
        ("ab", 2, ""),
        ("abc", 2, ""),
        ("ac", 2, "it placed copies on b, and the zone's data nodes are now a, c"),
        (
            "abc",
            3,
            "it has 2 replicas of which 2 vote, and on the data nodes of now there would be 3 of which 3",
        ),
        ("", 2, "it placed copies on a, b, and the zone's data nodes are now none"),
    ],
)
def test_what_stands_against_a_target_of_before(nodes: str, replicas: int, why: str) -> None:
    """VOL-093, VOL-094: nodes may have come since; none that holds a copy may be gone, and the numbers of
    replicas and voters are those that the zone would have."""
    wanted = ZoneIntent(3, Zone(ZoneId(1), "Z", 2, replicas, None, ("default",)))
    now = DataNodes(tuple(nodes), 2, replicas)
    found = why_not_restorable(STORED, wanted, now, 2)
    assert found.startswith(why) if why else found == ""
    if why:
        with pytest.raises(ValueError, match="cannot be restored"):
            restored(ZoneId(1), STORED, wanted, now)
    else:
        result = restored(ZoneId(1), STORED, wanted, now)
        assert result.nodes == tuple(nodes)
        for partition, row in enumerate(STORED.assignments()):
            assert result.assignments(partition) == row
            assert result.assignments(partition).primary == row.primary, "the order of preference too"


def test_a_target_that_used_no_node_that_is_gone() -> None:
    """A data node of before that held nothing may be gone."""
    pointer = TargetPointer(20, 1, 1, 2, 2, 2, ("a", "b", "z"), "local", "rendezvous")
    stored = StoredTarget(pointer, (MATRIX.tobytes(),))
    result = restored(ZoneId(1), stored, ZoneIntent(3, ZONE), DataNodes(("a", "b", "c"), 2, 2))
    assert [set(result.assignments(each).nodes) for each in (0, 1)] == [{"a", "b"}] * 2
    assert why_not_restorable(stored, ZoneIntent(3, ZONE), DataNodes(("a", "b"), 2, 2), 5).startswith(
        "it has 2"
    )
