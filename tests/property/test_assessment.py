"""The figures of a placement against plain counting."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalance.kernels.assessment import assess
from rebalance.kernels.rendezvous import place
from tests.fixtures.examples import examples

NODES = st.integers(1, 9)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(1, 9), st.integers(1, 6), st.integers(1, 30), st.integers(1, 6), st.integers(1, 9), st.data()
)
def test_equals_plain_counting(
    nodes: int, replicas: int, partitions: int, voters: int, before: int, data: st.DataObject
) -> None:
    names = [f"n{number}" for number in range(nodes)]
    domains = [data.draw(st.sampled_from("abc")) for _ in names]
    matrix = place(names, range(partitions), replicas)
    votes = min(voters, matrix.shape[1])
    old_names = [f"n{number + 2}" for number in range(before)]
    old = place(old_names, range(partitions), replicas)
    old_votes = min(voters, old.shape[1])
    found = assess(names, matrix, votes, domains, (old_names, old, old_votes))

    rows = [[names[at] for at in row] for row in matrix.tolist()]
    was = [[old_names[at] for at in row] for row in old.tolist()]
    held = {name: sum(name in row for row in rows) for name in names}
    assert found.spreads[0].max_min == max(held.values()) - min(held.values())
    assert np.isclose(found.spreads[0].stddev, np.std(list(held.values())))
    majority = votes // 2 + 1

    def lost(gone: set[str]) -> int:
        return sum(sum(name not in gone for name in row[:votes]) < majority for row in rows)

    assert found.lost_to_a_node == max(lost({name}) for name in names)
    racks = {domain: {n for n, d in zip(names, domains, strict=True) if d == domain} for domain in domains}
    assert found.lost_to_a_domain == max(lost(rack) for rack in racks.values())
    assert found.moved == sum(
        name not in old_row for row, old_row in zip(rows, was, strict=True) for name in row
    )
    kept = [sum(n in row[:votes] for n in o[:old_votes]) for row, o in zip(rows, was, strict=True)]
    assert found.handed_over == sum(count < old_votes // 2 + 1 for count in kept)
