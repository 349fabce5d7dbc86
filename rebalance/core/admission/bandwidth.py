"""Bandwidth of moves: token buckets for the bytes of what began lately, of the cluster and of each node.

A bucket holds what a rate gives in ``BURST_S`` seconds. Moves begin while it is not used up, whatever their
size; each takes the bytes of its copies out, and what is missing comes back at the rate. So a partition that is
larger than the bucket begins as any other one, and what comes after it waits as long as it takes: nothing waits
for ever, and over a long time the bytes stay within the rate (over T seconds: at most rate * (T + ``BURST_S``),
and one partition's more).

Bytes are those of copies at the moment that a move begins; how fast nodes then copy is for the network to say.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from catalog.core.codec import Codec, Record, Unknown
from rebalance.core.causes.cause import Cause

BURST_S = 1.0


@dataclass(frozen=True, slots=True)
class ByteRates:
    """Bytes a second: of all moves, and onto or away from each node. None: any."""

    cluster_bytes_s: int | None = None
    node_bytes_s: int | None = None

    @property
    def is_limiting(self) -> bool:
        return self.cluster_bytes_s is not None or self.node_bytes_s is not None


@dataclass(slots=True)
class TokenBuckets:
    """Bytes that are taken out of the buckets and have not come back, as of ``at_ms`` (since 1970).

    They are stored with each admission, so that the next leading controller, and every server, knows them.
    """

    at_ms: int = 0
    cluster: float = 0.0
    nodes: dict[str, float] = field(default_factory=dict)
    unknown: Unknown | None = field(default=None, compare=False, repr=False)

    def at(self, now_ms: int, rates: ByteRates) -> TokenBuckets:
        """As of ``now_ms``. A clock that is behind gives nothing back, and takes nothing."""
        elapsed_s = max(0, now_ms - self.at_ms) / 1_000
        cluster = _left(self.cluster, rates.cluster_bytes_s, elapsed_s)
        nodes = {name: _left(taken, rates.node_bytes_s, elapsed_s) for name, taken in self.nodes.items()}
        left = {name: taken for name, taken in nodes.items() if taken > 0}
        return replace(self, at_ms=now_ms, cluster=cluster, nodes=left)

    def take(self, donors: tuple[str, ...], receivers: tuple[str, ...], size: int) -> None:
        """A move begins that makes a copy of ``size`` bytes on each receiver; donors share the sending."""
        total = size * len(receivers)
        self.cluster += total
        for node in receivers:
            self.nodes[node] = self.nodes.get(node, 0.0) + size
        for node in donors:
            self.nodes[node] = self.nodes.get(node, 0.0) + total / len(donors)

    def cluster_cause(self, rates: ByteRates) -> str:
        """Why no move may begin anywhere; empty: one may."""
        if not _is_used_up(self.cluster, rates.cluster_bytes_s):
            return ""
        return Cause.BANDWIDTH.text(f"the cluster's {rate_text(rates.cluster_bytes_s)} are used up")

    def node_cause(self, node: str, rates: ByteRates) -> str:
        """Why no move may begin that loads ``node``; empty: one may."""
        if not _is_used_up(self.nodes.get(node, 0.0), rates.node_bytes_s):
            return ""
        return Cause.BANDWIDTH.text(f"{node}'s {rate_text(rates.node_bytes_s)} are used up")

    def next_open_ms(self, rates: ByteRates) -> int | None:
        """When the next bucket that is used up is not any more; None: none is."""
        waits = [_wait_s(self.cluster, rates.cluster_bytes_s)]
        waits += [_wait_s(taken, rates.node_bytes_s) for taken in self.nodes.values()]
        wait_s = min((wait for wait in waits if wait is not None), default=None)
        return None if wait_s is None else self.at_ms + int(wait_s * 1_000) + 1


@dataclass(frozen=True, slots=True)
class AdmissionRecord(Record):
    """What the last admission under limits has begun; with ``buckets`` where a rate holds."""

    partitions: int
    buckets: TokenBuckets | None = None


AdmissionRecord.codec = Codec(AdmissionRecord, omit=("buckets",))


def buckets_of(admission: AdmissionRecord | None) -> TokenBuckets:
    """Those of the record of the last admission; full ones where there was none, or none under a rate."""
    buckets = admission.buckets if admission is not None else None
    return replace(buckets, nodes=dict(buckets.nodes)) if buckets is not None else TokenBuckets()


def _left(taken: float, rate: int | None, elapsed_s: float) -> float:
    """A bucket without a rate is full."""
    return 0.0 if rate is None else max(0.0, taken - rate * elapsed_s)


def _is_used_up(taken: float, rate: int | None) -> bool:
    return rate is not None and taken >= rate * BURST_S


def _wait_s(taken: float, rate: int | None) -> float | None:
    if rate is None or not _is_used_up(taken, rate):
        return None
    return (taken - rate * BURST_S) / rate


def rate_text(rate: int | None) -> str:
    """``4 MiB/s``, ``1.5 GiB/s``."""
    value, unit = float(rate or 0), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1_024:
            break
        value, unit = value / 1_024, larger
    return f"{value:.4g} {unit}/s"
