"""The rendezvous kernel against a plain version in Python integers, and what must hold for any input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.quorum import ALL_REPLICAS, consensus_size, effective_replicas, quorum_bounds
from rebalance.kernels.balanced import Placed, PlacementProblem, balance
from rebalance.kernels.rendezvous import place, voters
from tests.fixtures.examples import examples
from tests.fixtures.kernels import only

MASK = (1 << 64) - 1


def plain_key(name: str, partition: int) -> int:
    units = name.encode("utf-16-be", "surrogatepass")
    h = 0
    for i in range(0, len(units), 2):
        h = (31 * h + (units[i] << 8) + units[i + 1]) & 0xFFFFFFFF
    k = h | (partition << 32)
    k = (~k + (k << 21)) & MASK
    k ^= k >> 24
    k = (k * 265) & MASK
    k ^= k >> 14
    k = (k * 21) & MASK
    k ^= k >> 28
    k = (k + (k << 31)) & MASK
    return k - (1 << 64) if k >> 63 else k


def plain_place(nodes: list[str], partition: int, replicas: int) -> list[str]:
    if len(nodes) <= 1:
        return nodes
    ranking = sorted(nodes, key=lambda n: (plain_key(n, partition), n.encode("utf-16-be", "surrogatepass")))
    return ranking[: min(replicas, len(nodes))]


# Few letters, chosen so that hashes collide ("Aa" and "BB"), surrogates alone and in pairs.
NAMES = st.text(st.sampled_from(["A", "a", "B", "\U0001f600", "\ud83d", "\uff21"]), max_size=6)
NODES = st.lists(NAMES | st.text(max_size=40), max_size=20, unique=True)
PARTITIONS = st.lists(st.integers(0, 70_000) | st.integers(0, 2**31 - 1), min_size=1, max_size=40)
REPLICAS = st.integers(1, 22) | st.just(ALL_REPLICAS)


@pytest.mark.row("PME-077", "IEP-038")
@pytest.mark.parametrize("kernel", ["numpy", "compiled"])
@settings(max_examples=examples(1000), deadline=None)
@given(NODES, PARTITIONS, REPLICAS)
def test_equals_the_plain_version(kernel: str, nodes: list[str], partitions: list[int], replicas: int) -> None:
    """IEP-038, PME-077."""
    with only(kernel):
        matrix = place(nodes, np.array(partitions), replicas)
    found = [[nodes[index] for index in row] for row in matrix.tolist()]
    assert found == [plain_place(nodes, partition, replicas) for partition in partitions]


@settings(deadline=None)
@given(st.integers(2, 300), st.integers(1, 400), st.integers(0, 400), REPLICAS)
def test_a_zone_can_be_cut_anywhere(nodes: int, partitions: int, cut: int, replicas: int) -> None:
    names = [f"n{number}" for number in range(nodes)]
    whole = place(names, range(partitions), replicas)
    cut = min(cut, partitions)
    parts = [place(names, range(cut), replicas), place(names, range(cut, partitions), replicas)]
    assert np.array_equal(whole, np.concatenate(parts))


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(1, 6), st.data())
def test_a_node_that_leaves_moves_only_its_own_replicas(nodes: int, replicas: int, data: st.DataObject) -> None:
    names = [f"n{number}" for number in range(nodes)]
    gone = data.draw(st.integers(0, nodes - 1))
    left = names[:gone] + names[gone + 1 :]
    before, after = place(names, range(64), replicas), place(left, range(64), replicas)
    for old, new in zip(before.tolist(), after.tolist(), strict=True):
        kept = [names[index] for index in old if index != gone]
        assert [left[index] for index in new][: len(kept)] == kept


@pytest.mark.row("IEP-016", "IEP-018")
@given(st.integers(1, 30), st.integers(1, 30), st.data())
def test_consensus_is_odd_when_there_are_enough_replicas(
    replicas: int, nodes: int, data: st.DataObject
) -> None:
    """IEP-018, IEP-016: 2q - 1 voters; even only when there are fewer replicas than that."""
    quorum = data.draw(st.integers(*quorum_bounds(replicas)))
    width = effective_replicas(replicas, nodes)
    count = voters(consensus_size(quorum, replicas, nodes), width)
    assert count == 2 * quorum - 1 or count == width < 2 * quorum - 1


@pytest.mark.row("IEP-041")
def test_a_joined_node_votes_in_some_partitions_and_learns_in_others() -> None:
    """IEP-041: by the new assignments, whichever algorithm makes them."""
    before, after = [f"n{number}" for number in range(7)], [f"n{number}" for number in range(8)]
    placed = place(before, range(512), 5)
    grown = balance(PlacementProblem(tuple(after), 512, 5, 3, Placed(tuple(before), placed, 3)))
    for matrix in (place(after, range(512), 5), grown):
        joined = matrix == 7
        assert joined[:, :3].any()
        assert joined[:, 3:].any()
