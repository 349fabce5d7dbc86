"""Rules of quorums that hold for all numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.quorum import (
    ALL_REPLICAS,
    consensus_size,
    default_quorum,
    effective_replicas,
    majority,
    quorum_bounds,
)

REPLICAS = st.one_of(st.integers(1, 12), st.just(ALL_REPLICAS))
NODES = st.integers(1, 12)


@pytest.mark.row("IEP-016", "IEP-018")
@given(REPLICAS, NODES, st.data())
def test_consensus_size_is_odd_where_replicas_suffice(replicas: int, nodes: int, data: st.DataObject) -> None:
    """IEP-016, IEP-018: 2q - 1, even only where there are fewer replicas."""
    lowest, highest = quorum_bounds(replicas)
    quorum = data.draw(st.integers(lowest, min(highest, 20)))
    voters = consensus_size(quorum, replicas, nodes)
    if effective_replicas(replicas, nodes) >= 2 * quorum - 1:
        assert voters == 2 * quorum - 1
        assert voters % 2 == 1
    else:
        assert voters == effective_replicas(replicas, nodes)


@pytest.mark.row("IEP-028")
@given(st.integers(1, 10_000))
def test_majority_is_more_than_half_and_the_least_that_is(voters: int) -> None:
    """IEP-028: floor(n / 2) + 1; and a consensus group of 2q - 1 has the majority q."""
    assert majority(voters) == voters // 2 + 1
    assert 2 * majority(voters) > voters >= 2 * (majority(voters) - 1)
    assert majority(2 * voters - 1) == voters


@pytest.mark.row("IEP-020", "IEP-021", "IEP-022", "IEP-023")
@given(REPLICAS, NODES)
def test_the_derived_quorum_is_possible(replicas: int, nodes: int) -> None:
    """IEP-020..023: within the bounds of what is possible now, and never above the data nodes."""
    quorum = default_quorum(replicas, nodes)
    lowest, highest = quorum_bounds(effective_replicas(replicas, nodes))
    assert lowest <= quorum <= highest
    assert quorum <= nodes
