"""The columns of the table of metrics in ``metric_rows``, and the two families of buckets."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from rebalance.core.keyspace.self_reports import ProcessRole

PREFIX = "zonekeeper_"
REQUEST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets of requests, in seconds. The threshold of an objective must be one of these."""
MOVE_BUCKETS_S = (
    *(1.0, 5.0, 15.0, 30.0, 60.0),
    *(120.0, 300.0, 600.0, 1_800.0, 3_600.0),
    *(10_800.0, 21_600.0, 43_200.0, 86_400.0),
)
"""Buckets of background work, in seconds: one second to a day."""
BUCKETS_MAX = 14
ZONES_SHOWN_MAX = 200
"""Number of zones with series of their own, those in the worst state first."""
ZONE_GAUGES_MAX = 10
"""Series of one zone."""
OTHER = "_other"
"""The label of all that has no series of its own: zones beyond the limit, words that no table knows."""


class MetricType(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Scope(Enum):
    """PROCESS: each process speaks for itself, and the values are summed. INSTALLATION: every server says the
    same of the whole installation, as its mirror shows it; values are aggregated with ``max``."""

    PROCESS = "process"
    INSTALLATION = "installation"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """``name`` is complete: prefix, unit and ``_total``. ``buckets`` are those of a histogram, in seconds."""

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    scope: Scope = Scope.PROCESS
    roles: frozenset[ProcessRole] = field(default_factory=lambda: frozenset(ProcessRole))
    buckets: tuple[float, ...] = ()

    @property
    def unit(self) -> str:
        """The last word of the name that is a unit; empty: it counts things."""
        words = self.name.removesuffix("_total").split("_")
        return words[-1] if words[-1] in ("seconds", "bytes", "ratio") else ""
