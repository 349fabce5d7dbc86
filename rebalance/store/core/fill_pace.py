"""How fast copies are filled on one server: the bandwidth limits of moves, kept by who asks.

Every server may receive a node's rate, and its part of the cluster's. From one supplier it takes no more than
an equal part of a node's rate, so that all who ask one supplier together take no more than that. So limits are
never passed by more than what is on its way, and not reached where few copies move. Levelling waits for none
of them: a partition is not served meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalance.core.bandwidth import ByteRates, TokenBuckets
from rebalance.store.core.store_messages import SupplyBatch


@dataclass(slots=True)
class FillPace:
    """``rates``: those of the limits. Times in milliseconds, of the server's clock."""

    rates: ByteRates = field(default_factory=ByteRates)
    _buckets: TokenBuckets = field(default_factory=TokenBuckets)

    def may_ask(self, supplier: str, servers: int, now_ms: int) -> bool:
        """``servers``: how many there are."""
        if not self.rates.is_limiting:
            return True
        own = self._own(servers)
        self._buckets = self._buckets.at(now_ms, own)
        return not (self._buckets.cluster_cause(own) or self._buckets.node_cause(supplier, own))

    def took(self, supplier: str, batch: SupplyBatch) -> None:
        if self.rates.is_limiting:
            size = sum(record.size for record in batch.records) + sum(row.size for row in batch.rows)
            # One receiver, which is us: what we receive is the cluster of this bucket.
            self._buckets.take((supplier,), ("",), size)

    def _own(self, servers: int) -> ByteRates:
        node, cluster = self.rates.node_bytes_s, self.rates.cluster_bytes_s
        parts = [rate for rate in (node, cluster and max(1, cluster // max(1, servers))) if rate]
        return ByteRates(min(parts), node and max(1, node // max(1, servers - 1)))
