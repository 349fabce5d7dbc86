"""Where a record stands in a partition's log.

A counter alone does not say whose record it is: the tail of a dead primary that nobody acknowledged may have a
higher counter than records that were acknowledged since. So all comparisons are of positions.
"""

from __future__ import annotations

from typing import NamedTuple

from rebalance.core.partition_maps.topology_version import TopologyVersion

MINOR_BITS = 32


class StorePosition(NamedTuple):
    """``epoch``: the exchange that made the primary which wrote the record (``epoch_of``). ``counter`` counts
    the records of the partition from 1 and goes on over epochs.

    A tuple, since servers compare and keep millions of them: order and hash are those of the pair.
    """

    epoch: int
    counter: int

    def __str__(self) -> str:
        return f"{version_of(self.epoch)}:{self.counter}"


NO_RECORD = StorePosition(0, 0)
"""Before the first record."""


def epoch_of(version: TopologyVersion) -> int:
    """The version as one number below 2**63 that keeps the order. Raises ValueError beyond 2**31 major or 2**32
    minor versions."""
    if version.major >> 31 or version.minor >> MINOR_BITS:
        raise ValueError(f"version {version} is beyond 2147483647.4294967295")
    return version.major << MINOR_BITS | version.minor


def version_of(epoch: int) -> TopologyVersion:
    """The reverse of ``epoch_of``."""
    return TopologyVersion(epoch >> MINOR_BITS, epoch & (1 << MINOR_BITS) - 1)
