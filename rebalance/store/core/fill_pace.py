"""Pace of filling copies on one server: the bandwidth limits of moves, kept by the receiver.

Every server may receive a node's rate, and its part of the cluster's. From one supplier it takes no more than
an equal part of a node's rate, so that all who ask one supplier together take no more than that. Parts are
those of the servers that have copies to be filled by the last exchange: a server that joins alone takes all of
a rate. So limits are never passed by more than what is on its way. They are not reached where some of these
servers have been filled already, until the next exchange, or ask different suppliers. Levelling waits for none
of them: a partition is not served meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalance.core.admission.bandwidth import ByteRates, TokenBuckets
from rebalance.store.core.store_messages import SupplyBatch


@dataclass(slots=True)
class FillPace:
    """``rates``: those of the limits. Times in milliseconds, of the server's clock."""

    rates: ByteRates = field(default_factory=ByteRates)
    _buckets: TokenBuckets = field(default_factory=TokenBuckets)

    def may_ask(self, supplier: str, receivers: int, now_ms: int) -> bool:
        """``receivers``: how many servers copies are filled on, this one among them."""
        if not self.rates.is_limiting:
            return True
        own = self._own(max(1, receivers))
        self._buckets = self._buckets.at(now_ms, own)
        return not (self._buckets.cluster_cause(own) or self._buckets.node_cause(supplier, own))

    def took(self, supplier: str, batch: SupplyBatch) -> None:
        if self.rates.is_limiting:
            size = sum(record.size for record in batch.records) + sum(row.size for row in batch.rows)
            # One receiver, which is us: what we receive is the cluster of this bucket.
            self._buckets.take((supplier,), ("",), size)

    def _own(self, receivers: int) -> ByteRates:
        node, cluster = self.rates.node_bytes_s, self.rates.cluster_bytes_s
        parts = [rate for rate in (node, cluster and max(1, cluster // receivers)) if rate]
        return ByteRates(min(parts), node and max(1, node // receivers))
