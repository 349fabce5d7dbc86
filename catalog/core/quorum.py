"""Number of replicas that vote: quorum bounds, defaults and consensus sizes (IEP-133; decisions 1, 2 and 4).

Words: *replicas* is the declared number (``ALL_REPLICAS`` for ALL), *data nodes* the nodes that the zone may
use, *effective replicas* ``r`` what is possible now, *quorum size* ``q`` the size of a majority of the
consensus group, which has ``2q - 1`` voters where there are enough replicas.
"""

from __future__ import annotations

ALL_REPLICAS = 2_147_483_647
"""Stored for ``REPLICAS ALL``: one replica on every data node."""


def effective_replicas(replicas: int, data_nodes: int) -> int:
    """``min(REPLICAS, data nodes)``; ALL counts as the data nodes."""
    return min(replicas, data_nodes)


def default_quorum(replicas: int, data_nodes: int) -> int:
    """The quorum size of a zone that names none: ``min(2, r)`` up to four replicas, then 3 (IEP-020, IEP-021).

    With no data node at all the answer is 1, so that a stored quorum is always a possible one.
    """
    r = effective_replicas(replicas, data_nodes)
    return max(1, min(2, r)) if r <= 4 else 3


def quorum_bounds(replicas: int) -> tuple[int, int]:
    """Inclusive bounds of an explicit QUORUM SIZE for a declared replica number (IEP-022, IEP-023).

    The upper bound is ``2q - 1 <= REPLICAS`` unless the lower bound forces more: 2 replicas may have q = 2.
    """
    lower = min(2, replicas)
    return lower, max(lower, -(-replicas // 2))


def consensus_size(quorum: int, replicas: int, data_nodes: int) -> int:
    """Voters of each partition: ``min(2q - 1, r)``. The Raft rule, kept in this one place (IEP-016, 017)."""
    return min(2 * quorum - 1, effective_replicas(replicas, data_nodes))


def majority(voters: int) -> int:
    """The run-time quorum of a committed configuration: ``floor(n / 2) + 1`` (IEP-028)."""
    return voters // 2 + 1
