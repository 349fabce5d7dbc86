"""Donors, stealers and what nodes hold, against plain sets and sums."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalance.kernels.rendezvous import Matrix
from rebalance.kernels.transfers import NOBODY, named_twice, totals
from rebalance.ports.placement import PreviousPlacement
from spark import copies, plan_transfers, skew
from spark.copies import Copy
from tests.fixtures.examples import examples

NAMES = tuple("abcdef")
LIMITS = settings(max_examples=examples(150), deadline=None)


@st.composite
def placements(draw: st.DrawFn, partitions: int) -> PreviousPlacement:
    """Any placement of so many partitions, its nodes in any order."""
    nodes = tuple(draw(st.permutations(NAMES)))[: draw(st.integers(1, len(NAMES)))]
    width = draw(st.integers(1, len(nodes)))
    rows = [draw(st.permutations(range(len(nodes))))[:width] for _ in range(partitions)]
    matrix = np.array(rows, dtype=np.int32).reshape(partitions, width)
    return PreviousPlacement(nodes, matrix, draw(st.integers(1, width)))


@st.composite
def changes(draw: st.DrawFn) -> tuple[PreviousPlacement, PreviousPlacement, list[int]]:
    partitions = draw(st.integers(0, 8))
    sizes = draw(st.lists(st.integers(0, 1000), min_size=partitions, max_size=partitions))
    return draw(placements(partitions)), draw(placements(partitions)), sizes


@pytest.mark.row("VOL-087")
@LIMITS
@given(changes())
def test_transfers_equal_plain_sets(change: tuple[PreviousPlacement, PreviousPlacement, list[int]]) -> None:
    """VOL-087: every copy that comes or goes is in exactly one transfer; pairs go by node name."""
    before, after, sizes = change
    found = plan_transfers.analysis(before, after, np.array(sizes, dtype=np.int64)).here()
    expected = []
    for partition, size in enumerate(sizes):
        old = {before.nodes[at] for at in before.matrix[partition]}
        new = {after.nodes[at] for at in after.matrix[partition]}
        losers, gainers = sorted(old - new), sorted(new - old)
        for at in range(max(len(losers), len(gainers))):
            donor = losers[at] if at < len(losers) else None
            stealer = gainers[at] if at < len(gainers) else None
            expected.append((partition, donor, stealer, size if stealer else 0))
    each = found.single
    told = [
        (p, None if d == NOBODY else found.nodes[d], None if s == NOBODY else found.nodes[s], size)
        for p, d, s, size in zip(
            *(column.tolist() for column in (each.partition, each.donor, each.stealer, each.size)), strict=True
        )
    ]
    assert sorted(told, key=str) == sorted(expected, key=str)
    counts = Counter((donor, stealer) for _, donor, stealer, _ in expected)
    summed = totals(each)
    assert int(summed.replicas.sum()) == len(expected)
    assert len(summed.donor) == len(counts)
    assert int(summed.size.sum()) == sum(size for *_, size in expected)


@pytest.mark.row("VOL-086")
@LIMITS
@given(st.integers(0, 8).flatmap(placements), st.integers(0, 30), st.data())
def test_skew_equals_plain_sums(placed: PreviousPlacement, keys: int, data: st.DataObject) -> None:
    """VOL-086: the generator spreads every key; nodes hold what their copies hold."""
    partitions = len(placed.matrix)
    sizes = data.draw(st.lists(st.integers(0, 1 << 40), min_size=partitions, max_size=partitions))
    found = skew.analysis(placed, keys, np.array(sizes, dtype=np.int64)).here()
    assert found.nodes == placed.nodes
    held = Counter(int(at) for row in placed.matrix for at in row)
    assert found.counts["replicas"].tolist() == [held[at] for at in range(len(placed.nodes))]
    in_bytes = Counter[int]()
    for row, size in zip(placed.matrix.tolist(), sizes, strict=True):
        in_bytes.update(dict.fromkeys(row, size))
    assert found.counts["bytes"].tolist() == [in_bytes[at] for at in range(len(placed.nodes))]
    if keys and partitions:
        assert int(found.counts["primary_keys"].sum()) == keys
        assert int(found.counts["keys"].sum()) == keys * placed.matrix.shape[1]
    for name, each in found.spreads().items():
        assert np.isclose(each.stddev, np.std(found.counts[name]))


@pytest.mark.row("PME-088")
@LIMITS
@given(
    st.lists(
        st.builds(
            Copy,
            zone=st.integers(1, 2),
            partition=st.integers(0, 2),
            node=st.sampled_from(NAMES),
            state=st.sampled_from(["OWNING", "OWNING", "MOVING", "RENTING"]),
            update_counter=st.integers(0, 1),
            size=st.integers(5, 6),
        ),
        unique_by=lambda copy: (copy.zone, copy.partition, copy.node),
    )
)
def test_owning_copies_are_compared(reported: list[Copy]) -> None:
    """PME-088: update counters and sizes of OWNING copies; the others are not compared."""
    expected = []
    for key in sorted({(copy.zone, copy.partition) for copy in reported}):
        owning = sorted(c for c in reported if (c.zone, c.partition) == key and c.state == "OWNING")
        if len({(copy.update_counter, copy.size) for copy in owning}) > 1:
            expected.append(copies.Disagreement(*key, tuple(owning)))
    assert copies.analysis(reported).here() == expected


@pytest.mark.row("PME-089")
def test_a_warning_names_what_differs() -> None:
    """PME-089: group, partition, nodes and values."""
    reported = [Copy(3, 7, "a", "OWNING", 5, 10), Copy(3, 7, "b", "OWNING", 6, 10)]
    (found,) = copies.analysis(reported).here()
    assert found.describe() == "partition 3/7: update counters differ: a 5, b 6"


def test_a_row_with_a_node_twice_is_found() -> None:
    matrix: Matrix = np.array([[0, 1], [2, 0], [1, 1]], dtype=np.int32)
    assert named_twice(matrix) == 2
    assert named_twice(matrix[:2]) is None
    assert named_twice(matrix[:0]) is None
