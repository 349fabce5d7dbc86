"""The one registry of a process: takes what shells measure, and writes it in Prometheus's text format.

Values are kept here: measuring costs some microseconds, and a gauge that was never set is absent and not 0.
prometheus_client asks for them and writes them. Only what the process may say by the table is accepted.
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate

import structlog
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from rebalance.core.keyspace.records import ProcessRole
from rebalance.ports.metric_rows import OTHER, Metric, MetricRow, MetricType

log = structlog.get_logger(__name__)

COUNTER_SERIES_MAX = 400
HISTOGRAM_SERIES_MAX = 60
"""Number of combinations of labels that one metric of the type has; later ones count as ``_other``."""
GAUGE_SERIES_MAX = 1_000

Probe = Callable[[], None]
"""Sets gauges that are cheap to ask for. Called in each scrape: it walks nothing that grows."""


Labels = tuple[str, ...]
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class _Histogram:
    """``counts`` of each bucket alone; the last one is of what is above all bounds."""

    __slots__ = ("counts", "total")

    def __init__(self, bounds: int) -> None:
        self.counts = [0] * (bounds + 1)
        self.total = 0.0


class Exposition(Collector):
    """Implements ``rebalance.ports.metric_rows.Measures``."""

    def __init__(self, roles: Iterable[ProcessRole], version: str = "") -> None:
        """``roles``: what runs in the process; ``version``: of the build."""
        said = frozenset(roles)
        rows = [metric for metric in Metric if metric.row.roles & said]
        self._counters: dict[Metric, dict[Labels, float]] = _of_type(rows, MetricType.COUNTER)
        self._gauges: dict[Metric, dict[Labels, float]] = _of_type(rows, MetricType.GAUGE)
        self._histograms: dict[Metric, dict[Labels, _Histogram]] = {
            metric: {} for metric in rows if metric.row.type is MetricType.HISTOGRAM
        }
        for metric, values in self._counters.items():
            if not metric.row.labels:
                values[()] = 0.0
        self._probes: list[Probe] = []
        self._lock = threading.Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        for role in sorted(said, key=lambda role: role.value):
            self.set(Metric.BUILD_INFO, 1, version, role.value)

    def ask(self, probe: Probe) -> None:
        """Have ``probe`` called in each scrape. If it raises, only its own gauges are missing."""
        self._probes.append(probe)

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        values = self._counters.get(metric)
        if values is not None:
            with self._lock:
                if labels not in values and len(values) >= COUNTER_SERIES_MAX:
                    labels = _other(labels)
                values[labels] = values.get(labels, 0.0) + by

    def observe(self, metric: Metric, seconds: float, *labels: str) -> None:
        series = self._histograms.get(metric)
        if series is None:
            return
        bounds = metric.row.buckets
        with self._lock:
            if labels not in series and len(series) >= HISTOGRAM_SERIES_MAX:
                labels = _other(labels)
            histogram = series.get(labels)
            if histogram is None:
                histogram = series[labels] = _Histogram(len(bounds))
            histogram.counts[bisect_left(bounds, seconds)] += 1
            histogram.total += seconds

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        values = self._gauges.get(metric)
        if values is not None and (labels in values or len(values) < GAUGE_SERIES_MAX):
            with self._lock:
                values[labels] = value

    def replace(self, metric: Metric, series: Iterable[tuple[Labels, float]]) -> None:
        if metric in self._gauges:
            values = dict(series)
            with self._lock:
                self._gauges[metric] = values

    async def scraped(self) -> bytes:
        """All series, as of now; the event loop has its turn while thousands of lines are written."""
        self.probe()
        return await asyncio.to_thread(self.rendered)

    def probe(self) -> None:
        """Asks for the gauges that are cheap to ask for; in the thread of the event loop."""
        for probe in self._probes:
            try:
                probe()
            except Exception as error:
                log.warning("metrics are missing", error=f"{type(error).__name__}: {error}")

    def rendered(self) -> bytes:
        """All series as they are known; in any thread."""
        begun = time.perf_counter()
        text = generate_latest(self._registry)
        self.set(Metric.SERIES, text.count(b"\n") - text.count(b"\n#") - text.startswith(b"#"))
        self.set(Metric.SCRAPE_SECONDS, time.perf_counter() - begun)
        return text

    def collect(self) -> Iterable[Family]:
        """Yield the metrics for prometheus_client. A metric without any value is left out."""
        for kind, measured in ((CounterMetricFamily, self._counters), (GaugeMetricFamily, self._gauges)):
            for metric, values in measured.items():
                with self._lock:
                    known = list(values.items())
                if known:
                    family = kind(metric.row.name, metric.row.help, labels=metric.row.labels)
                    for labels, value in known:
                        family.add_metric(labels, value)
                    yield family
        for metric, series in self._histograms.items():
            with self._lock:
                copied = [(labels, [*each.counts], each.total) for labels, each in series.items()]
            if copied:
                yield _family(metric.row, copied)


def _of_type(rows: Iterable[Metric], kind: MetricType) -> dict[Metric, dict[Labels, float]]:
    return {metric: {} for metric in rows if metric.row.type is kind}


def _other(labels: Labels) -> Labels:
    return tuple(OTHER for _ in labels)


def _family(row: MetricRow, series: Iterable[tuple[Labels, list[int], float]]) -> HistogramMetricFamily:
    """Buckets as Prometheus has them: each with all that are below."""
    family = HistogramMetricFamily(row.name, row.help, labels=row.labels)
    bounds = [*map(floatToGoString, row.buckets), "+Inf"]
    for labels, counts, total in series:
        family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
    return family
